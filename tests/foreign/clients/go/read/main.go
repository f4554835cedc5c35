// franz-go reads all there is: `read BOOTSTRAP ISOLATIONS`, the topics on stdin, one a line.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const patience = time.Minute

type row struct {
	Isolation string   `json:"isolation"`
	Topic     string   `json:"topic"`
	Partition int32    `json:"partition"`
	Offset    int64    `json:"offset"`
	Timestamp int64    `json:"timestamp"`
	Type      string   `json:"type"`
	Key       []byte   `json:"key"`
	Value     []byte   `json:"value"`
	Headers   [][2]any `json:"headers"`
	Epoch     int32    `json:"epoch"`
}

var types = map[int8]string{-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// The partitions of the topics, with their ends; empty ones are left out.
func ends(ctx context.Context, one *kgo.Client, topics map[string]bool, isolation string) map[string]map[int32]int64 {
	metadata := kmsg.NewPtrMetadataRequest()
	for topic := range topics {
		wanted := kmsg.NewMetadataRequestTopic()
		wanted.Topic = kmsg.StringPtr(topic)
		metadata.Topics = append(metadata.Topics, wanted)
	}
	known, err := metadata.RequestWith(ctx, one)
	must(err)
	list := kmsg.NewPtrListOffsetsRequest()
	if isolation == "read_committed" {
		list.IsolationLevel = 1
	}
	for _, topic := range known.Topics {
		asked := kmsg.NewListOffsetsRequestTopic()
		asked.Topic = *topic.Topic
		for _, partition := range topic.Partitions {
			end := kmsg.NewListOffsetsRequestTopicPartition()
			end.Partition, end.Timestamp = partition.Partition, -1
			asked.Partitions = append(asked.Partitions, end)
		}
		list.Topics = append(list.Topics, asked)
	}
	found := map[string]map[int32]int64{}
	for _, shard := range one.RequestSharded(ctx, list) {
		must(shard.Err)
		for _, topic := range shard.Resp.(*kmsg.ListOffsetsResponse).Topics {
			if found[topic.Topic] == nil {
				found[topic.Topic] = map[int32]int64{}
			}
			for _, partition := range topic.Partitions {
				if partition.ErrorCode != 0 {
					panic(fmt.Sprint(topic.Topic, partition))
				}
				if partition.Offset > 0 {
					found[topic.Topic][partition.Partition] = partition.Offset
				}
			}
		}
	}
	return found
}

// Reads until each partition gave its last record: a fetch from behind it comes back without records.
func read(isolation string, topics map[string]bool, out *json.Encoder) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	level := kgo.ReadUncommitted()
	if isolation == "read_committed" {
		level = kgo.ReadCommitted()
	}
	one, err := kgo.NewClient(kgo.SeedBrokers(os.Args[1]), kgo.FetchIsolationLevel(level),
		kgo.FetchMaxWait(20*time.Millisecond), kgo.KeepRetryableFetchErrors())
	must(err)
	defer one.Close()
	left := ends(ctx, one, topics, isolation)
	wanted := map[string]map[int32]kgo.Offset{}
	for topic, partitions := range left {
		wanted[topic] = map[int32]kgo.Offset{}
		for partition := range partitions {
			wanted[topic][partition] = kgo.NewOffset().AtStart()
		}
	}
	one.AddConsumePartitions(wanted)
	quiet := 0
	for quiet < 3 {
		// Compacted and aborted ends have no records: rounds without any, after data, are the end.
		round, stop := context.WithTimeout(ctx, 700*time.Millisecond)
		fetches := one.PollFetches(round)
		stop()
		must(ctx.Err())
		for _, failed := range fetches.Errors() {
			if failed.Err != context.DeadlineExceeded {
				panic(fmt.Sprint(failed.Topic, failed.Partition, failed.Err))
			}
		}
		if fetches.NumRecords() == 0 {
			quiet++
			continue
		}
		quiet = 0
		fetches.EachRecord(func(record *kgo.Record) {
			headers := [][2]any{}
			for _, header := range record.Headers {
				headers = append(headers, [2]any{header.Key, header.Value})
			}
			ms := record.Timestamp.UnixMilli()
			if record.Attrs.TimestampType() < 0 {
				ms = -1
			}
			must(out.Encode(row{
				isolation, record.Topic, record.Partition, record.Offset, ms,
				types[record.Attrs.TimestampType()], record.Key, record.Value, headers, record.LeaderEpoch,
			}))
			if ends := left[record.Topic]; record.Offset+1 >= ends[record.Partition] {
				delete(ends, record.Partition)
				if len(ends) == 0 {
					delete(left, record.Topic)
				}
			}
		})
		if len(left) == 0 {
			break
		}
	}
}

func main() {
	topics := map[string]bool{}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		topics[lines.Text()] = true
	}
	buffered := bufio.NewWriter(os.Stdout)
	for _, isolation := range strings.Split(os.Args[2], ",") {
		read(isolation, topics, json.NewEncoder(buffered))
	}
	must(buffered.Flush())
}
