// franz-go reads all there is: `franz_read BOOTSTRAP ISOLATIONS`, topics on stdin. Each record is a line of JSON.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// It does not tell where it is behind records that it does not give out: when nothing comes any more it is at the end.
const quiet = 5 * time.Second

type row struct {
	Isolation string  `json:"isolation"`
	Topic     string  `json:"topic"`
	Partition int32   `json:"partition"`
	Offset    int64   `json:"offset"`
	Timestamp int64   `json:"timestamp"`
	Type      string  `json:"type"`
	Key       []byte  `json:"key"`
	Value     []byte  `json:"value"`
	Headers   [][]any `json:"headers"`
}

func main() {
	var topics []string
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		topics = append(topics, lines.Text())
	}
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for _, isolation := range strings.Split(os.Args[2], ",") {
		read(topics, isolation, json.NewEncoder(out))
	}
}

func read(topics []string, isolation string, out *json.Encoder) {
	level := kgo.ReadUncommitted()
	if isolation == "read_committed" {
		level = kgo.ReadCommitted()
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(os.Args[1]), kgo.ConsumeTopics(topics...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(level), kgo.FetchMaxWait(20*time.Millisecond),
	)
	if err != nil {
		panic(err)
	}
	defer client.Close()
	for {
		patience, cancel := context.WithTimeout(context.Background(), quiet)
		fetches := client.PollFetches(patience)
		cancel()
		for _, failed := range fetches.Errors() {
			if patience.Err() == nil {
				panic(failed.Err)
			}
		}
		if fetches.NumRecords() == 0 && patience.Err() != nil {
			return
		}
		fetches.EachRecord(func(one *kgo.Record) { write(isolation, one, out) })
	}
}

func write(isolation string, one *kgo.Record, out *json.Encoder) {
	kind := "NoTimestampType"
	switch one.Attrs.TimestampType() {
	case 0:
		kind = "CreateTime"
	case 1:
		kind = "LogAppendTime"
	}
	headers := [][]any{}
	for _, header := range one.Headers {
		headers = append(headers, []any{header.Key, header.Value})
	}
	err := out.Encode(row{
		isolation, one.Topic, one.Partition, one.Offset, one.Timestamp.UnixMilli(), kind, one.Key, one.Value, headers,
	})
	if err != nil {
		panic(err)
	}
}
