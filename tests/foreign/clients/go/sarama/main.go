// sarama.
package main

import (
	"bytes"
	"fmt"
	"os"
	"time"

	"github.com/IBM/sarama"
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func producer(change func(*sarama.Config)) sarama.SyncProducer {
	config := sarama.NewConfig()
	config.Version = sarama.V2_8_0_0
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Flush.Messages = 1000
	config.Producer.Flush.Frequency = 200 * time.Millisecond
	config.Producer.Compression = sarama.CompressionNone
	change(config)
	found, err := sarama.NewSyncProducer([]string{os.Args[1]}, config)
	must(err)
	return found
}

func write(messages []*sarama.ProducerMessage, change func(*sarama.Config)) {
	one := producer(change)
	must(one.SendMessages(messages))
	must(one.Close())
}

func encoded(data []byte) sarama.Encoder {
	if data == nil {
		return nil
	}
	return sarama.ByteEncoder(data)
}

func value(number int) []byte {
	return bytes.Repeat([]byte(fmt.Sprintf("value %d ", number)), 5)
}

func text(words string) sarama.Encoder {
	return sarama.StringEncoder(words)
}

var headers = [][]sarama.RecordHeader{
	{{Key: []byte("one"), Value: []byte("1")}},
	{{Key: []byte("null"), Value: nil}, {Key: []byte("empty"), Value: []byte{}}, {Key: []byte(""), Value: []byte("no name")}},
	{{Key: []byte("twice"), Value: []byte("1")}, {Key: []byte("twice"), Value: []byte("2")}, {Key: []byte("ünï"), Value: []byte("ü")}},
}

func idempotent(config *sarama.Config) {
	config.Producer.Idempotent = true
	config.Net.MaxOpenRequests = 1
}

func main() {
	as := func(*sarama.Config) {}
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	var messages []*sarama.ProducerMessage
	for _, pair := range [][2][]byte{
		{[]byte("key"), []byte("value")}, {nil, []byte("no key")}, {[]byte("tombstone"), nil},
		{{}, {}}, {nil, nil}, {[]byte("schlüssel"), []byte("Größe \U0001f600")}, {every, {0, 255}},
	} {
		messages = append(messages, &sarama.ProducerMessage{Topic: "plain", Key: encoded(pair[0]), Value: encoded(pair[1])})
	}
	for _, some := range headers {
		messages = append(messages, &sarama.ProducerMessage{Topic: "headers", Value: text("with headers"), Headers: some})
	}
	for _, ms := range []int64{1_600_000_000_000, 1, 4_102_444_800_000, 1_599_999_999_999, 1_700_000_000_000} {
		messages = append(messages, &sarama.ProducerMessage{Topic: "times", Value: text(fmt.Sprint(ms)), Timestamp: time.UnixMilli(ms)})
	}
	for number := 0; number < 300; number++ {
		messages = append(messages, &sarama.ProducerMessage{Topic: "many", Key: text(fmt.Sprint(number % 7)), Value: text(fmt.Sprint(number))})
	}
	big := bytes.Repeat([]byte("big "), 10_000)
	messages = append(messages, &sarama.ProducerMessage{Topic: "big", Value: sarama.ByteEncoder(big)})
	write(messages, as)
	for name, codec := range map[string]sarama.CompressionCodec{
		"gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
		"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
	} {
		messages = nil
		for number := 0; number < 20; number++ {
			messages = append(messages, &sarama.ProducerMessage{
				Topic: name, Key: text(fmt.Sprint(number)), Value: sarama.ByteEncoder(value(number)), Headers: headers[number%3],
			})
		}
		messages = append(messages, &sarama.ProducerMessage{Topic: name, Value: sarama.ByteEncoder(big)})
		write(messages, func(config *sarama.Config) { config.Producer.Compression = codec })
	}
	one := producer(func(config *sarama.Config) {
		idempotent(config)
		config.Producer.Compression = sarama.CompressionZSTD
	})
	for batch := 0; batch < 3; batch++ {
		messages = nil
		for number := 0; number < 5; number++ {
			messages = append(messages, &sarama.ProducerMessage{Topic: "idempotent", Value: sarama.ByteEncoder(value(batch*5 + number))})
		}
		must(one.SendMessages(messages))
	}
	must(one.Close())
	transactional := producer(func(config *sarama.Config) {
		idempotent(config)
		config.Producer.Transaction.ID = "sarama"
	})
	for round := 0; round < 4; round++ {
		must(transactional.BeginTxn())
		messages = nil
		for number := 0; number < 3; number++ {
			messages = append(messages, &sarama.ProducerMessage{Topic: "transactional", Value: text(fmt.Sprintf("%d-%d", round, number))})
		}
		must(transactional.SendMessages(messages))
		if round%2 == 0 {
			must(transactional.CommitTxn())
		} else {
			must(transactional.AbortTxn())
		}
	}
	must(transactional.Close())
}
