import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArraySerializer;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** kafka-clients of another release: `OldClient BOOTSTRAP`. */
public final class OldClient {
    private static String bootstrap;
    private static final byte[] BIG = repeated("big ", 10_000);
    private static final List<List<Header>> HEADERS = Arrays.asList(
        Collections.<Header>singletonList(new RecordHeader("one", utf8("1"))),
        Arrays.<Header>asList(new RecordHeader("null", (byte[]) null), new RecordHeader("empty", new byte[0]), new RecordHeader("", utf8("no name"))),
        Arrays.<Header>asList(new RecordHeader("twice", utf8("1")), new RecordHeader("twice", utf8("2")), new RecordHeader("\u00fcn\u00ef", utf8("\u00fc"))));

    private static byte[] utf8(String text) {
        return text == null ? null : text.getBytes(StandardCharsets.UTF_8);
    }

    private static byte[] repeated(String text, int count) {
        StringBuilder found = new StringBuilder();
        for (int i = 0; i < count; i++) found.append(text);
        return utf8(found.toString());
    }

    private static KafkaProducer<byte[], byte[]> producer(String... more) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("linger.ms", "200");
        config.put("acks", "all");
        config.put("batch.size", "1000000");
        for (int i = 0; i < more.length; i += 2) config.put(more[i], more[i + 1]);
        return new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private static ProducerRecord<byte[], byte[]> of(String topic, Long time, byte[] key, byte[] value, List<Header> headers) {
        return new ProducerRecord<>(topic, 0, time, key, value, headers);
    }

    public static void main(String[] args) {
        bootstrap = args[0];
        byte[] every = new byte[256];
        for (int i = 0; i < 256; i++) every[i] = (byte) i;
        byte[][][] plain = {
            {utf8("key"), utf8("value")}, {null, utf8("no key")}, {utf8("tombstone"), null}, {{}, {}}, {null, null},
            {utf8("schl\u00fcssel"), utf8("Gr\u00f6\u00dfe \ud83d\ude00")}, {every, {0, -1}},
        };
        try (KafkaProducer<byte[], byte[]> one = producer()) {
            for (byte[][] pair : plain) one.send(of("plain", null, pair[0], pair[1], null));
            for (List<Header> some : HEADERS) one.send(of("headers", null, null, utf8("with headers"), some));
            for (long time : new long[] {1_600_000_000_000L, 1, 4_102_444_800_000L, 1_599_999_999_999L, 1_700_000_000_000L})
                one.send(of("times", time, null, utf8("" + time), null));
            for (int n = 0; n < 300; n++) one.send(of("many", null, utf8("" + n % 7), utf8("" + n), null));
            one.send(of("big", null, null, BIG, null));
        }
        for (String codec : new String[] {"gzip", "snappy", "lz4", "zstd"}) {
            try (KafkaProducer<byte[], byte[]> one = producer("compression.type", codec)) {
                for (int n = 0; n < 20; n++) one.send(of(codec, null, utf8("" + n), repeated("value " + n + " ", 5), HEADERS.get(n % 3)));
                one.send(of(codec, null, null, BIG, null));
            }
        }
        try (KafkaProducer<byte[], byte[]> one = producer("enable.idempotence", "true", "compression.type", "zstd")) {
            for (int batch = 0; batch < 3; batch++) {
                for (int n = 0; n < 5; n++) one.send(of("idempotent", null, null, repeated("value " + (batch * 5 + n) + " ", 5), null));
                one.flush();
            }
        }
        try (KafkaProducer<byte[], byte[]> one = producer("transactional.id", "old-java")) {
            one.initTransactions();
            for (int round = 0; round < 4; round++) {
                one.beginTransaction();
                for (int n = 0; n < 3; n++) one.send(of("transactional", null, null, utf8(round + "-" + n), null));
                one.flush();
                if (round % 2 == 0) one.commitTransaction();
                else one.abortTransaction();
            }
        }
    }
}
