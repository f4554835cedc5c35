// franz-go.
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func client(options ...kgo.Opt) *kgo.Client {
	given := []kgo.Opt{
		kgo.SeedBrokers(os.Args[1]), kgo.ProducerLinger(200 * time.Millisecond),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
	}
	found, err := kgo.NewClient(append(given, options...)...)
	must(err)
	return found
}

func write(records []*kgo.Record, options ...kgo.Opt) {
	one := client(options...)
	defer one.Close()
	must(one.ProduceSync(context.Background(), records...).FirstErr())
}

func value(number int) []byte {
	return bytes.Repeat([]byte(fmt.Sprintf("value %d ", number)), 5)
}

var headers = [][]kgo.RecordHeader{
	{{Key: "one", Value: []byte("1")}},
	{{Key: "null", Value: nil}, {Key: "empty", Value: []byte{}}, {Key: "", Value: []byte("no name")}},
	{{Key: "twice", Value: []byte("1")}, {Key: "twice", Value: []byte("2")}, {Key: "ünï", Value: []byte("ü")}},
}

func main() {
	off := kgo.DisableIdempotentWrite()
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	var records []*kgo.Record
	for _, pair := range [][2][]byte{
		{[]byte("key"), []byte("value")}, {nil, []byte("no key")}, {[]byte("tombstone"), nil},
		{{}, {}}, {nil, nil}, {[]byte("schlüssel"), []byte("Größe \U0001f600")}, {every, {0, 255}},
	} {
		records = append(records, &kgo.Record{Topic: "plain", Key: pair[0], Value: pair[1]})
	}
	for _, some := range headers {
		records = append(records, &kgo.Record{Topic: "headers", Value: []byte("with headers"), Headers: some})
	}
	for _, ms := range []int64{1_600_000_000_000, 1, 4_102_444_800_000, 1_599_999_999_999, 1_700_000_000_000} {
		records = append(records, &kgo.Record{Topic: "times", Value: []byte(fmt.Sprint(ms)), Timestamp: time.UnixMilli(ms)})
	}
	for number := 0; number < 300; number++ {
		records = append(records, &kgo.Record{Topic: "many", Key: []byte(fmt.Sprint(number % 7)), Value: []byte(fmt.Sprint(number))})
	}
	big := bytes.Repeat([]byte("big "), 10_000)
	records = append(records, &kgo.Record{Topic: "big", Value: big})
	write(records, off)
	for name, codec := range map[string]kgo.CompressionCodec{
		"gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	} {
		records = nil
		for number := 0; number < 20; number++ {
			records = append(records, &kgo.Record{
				Topic: name, Key: []byte(fmt.Sprint(number)), Value: value(number), Headers: headers[number%3],
			})
		}
		records = append(records, &kgo.Record{Topic: name, Value: big})
		write(records, off, kgo.ProducerBatchCompression(codec))
	}
	idempotent := client(kgo.ProducerBatchCompression(kgo.ZstdCompression()))
	for batch := 0; batch < 3; batch++ {
		records = nil
		for number := 0; number < 5; number++ {
			records = append(records, &kgo.Record{Topic: "idempotent", Value: value(batch*5 + number)})
		}
		must(idempotent.ProduceSync(context.Background(), records...).FirstErr())
	}
	idempotent.Close()
	transactional := client(kgo.TransactionalID("franz-go"))
	for round := 0; round < 4; round++ {
		must(transactional.BeginTransaction())
		records = nil
		for number := 0; number < 3; number++ {
			records = append(records, &kgo.Record{Topic: "transactional", Value: []byte(fmt.Sprintf("%d-%d", round, number))})
		}
		must(transactional.ProduceSync(context.Background(), records...).FirstErr())
		must(transactional.EndTransaction(context.Background(), kgo.TransactionEndTry(round%2 == 0)))
	}
	transactional.Close()
}
