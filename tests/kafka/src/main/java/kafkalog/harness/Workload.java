package kafkalog.harness;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/** Seeded topics, records, transactions and groups: all that the broker is asked to store. */
final class Workload {
    static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");
    static final long START_MS = 1_704_067_200_000L; // 2024-01-01T00:00Z
    static final long YEAR_2100_MS = 4_102_444_800_000L;
    static final long TRIM_TO = 237;

    private static final long DAY_MS = 86_400_000L;
    private static final int CODEC_RECORDS = 700;
    private static final int BIG_VALUE_BYTES = 40_000;
    private static final String[] WORDS = {"alpha", "beta", "null", "price", "true", "заказ", "東京", "ünïcødé", "🔑", "3.14", "sensor", "\tshipped", "a\nb"};

    private final String bootstrap;
    private final Admin admin;
    private final long seed;
    private final List<KafkaProducer<byte[], byte[]>> open = new ArrayList<>();

    Workload(String bootstrap, Admin admin, long seed) {
        this.bootstrap = bootstrap;
        this.admin = admin;
        this.seed = seed;
    }

    void createTopics() throws Exception {
        List<NewTopic> topics = new ArrayList<>();
        for (String codec : CODECS) topics.add(topic("codec-" + codec, 1, "internal.segment.bytes", "65536", "index.interval.bytes", "1024"));
        // the producer compresses with gzip, the broker again with zstd
        topics.add(topic("recompressed", 1, "compression.type", "zstd", "internal.segment.bytes", "65536"));
        topics.add(topic("append-time", 1, "message.timestamp.type", "LogAppendTime", "internal.segment.bytes", "8192", "index.interval.bytes", "256"));
        topics.add(topic("out-of-order", 1, "internal.segment.bytes", "8192", "index.interval.bytes", "256",
            "message.timestamp.after.max.ms", Long.toString(Long.MAX_VALUE)));
        topics.add(topic("same-time", 1, "internal.segment.bytes", "4096", "index.interval.bytes", "128"));
        topics.add(topic("a.b_c-1", 2, "internal.segment.bytes", "6144", "index.interval.bytes", "256")); // transactions
        topics.add(topic("idempotent", 1, "internal.segment.bytes", "4096", "index.interval.bytes", "256"));
        topics.add(topic("trimmed", 1, "internal.segment.bytes", "4096", "index.interval.bytes", "256"));
        topics.add(topic("compacted", 1, "cleanup.policy", "compact", "internal.segment.bytes", "8192", "index.interval.bytes", "256",
            "min.cleanable.dirty.ratio", "0.001"));
        topics.add(topic("compacted-twice", 1, "cleanup.policy", "compact", "internal.segment.bytes", "4096", "index.interval.bytes", "256",
            "min.cleanable.dirty.ratio", "0.001", "delete.retention.ms", "1"));
        topics.add(new NewTopic("default-config", 1, (short) 1)); // its index files are 10 MiB long, and mostly holes
        topics.add(topic("empty", 1));
        admin.createTopics(topics).all().get();
    }

    /** Topics whose files are preallocated, and whose old segments are deleted by time and by size. */
    void createMaintainedTopics() throws Exception {
        String[] small = {"internal.segment.bytes", "6144", "index.interval.bytes", "256"};
        admin.createTopics(List.of(
            topic("preallocated", 1, "preallocate", "true", small[0], small[1], small[2], small[3]),
            topic("by-time", 1, "retention.ms", "60000", small[0], small[1], small[2], small[3]),
            topic("by-size", 1, "retention.bytes", "15000", small[0], small[1], small[2], small[3]))).all().get();
    }

    /** Transactions and plain batches of all codecs in these topics. */
    void maintained() throws Exception {
        Random rnd = random("maintained");
        for (String topic : List.of("preallocated", "by-time", "by-size")) {
            try (var p = transactional("tx-" + topic, CODECS.get(rnd.nextInt(CODECS.size()))); var plain = producer("none")) {
                for (int i = 0; i < 40; i++) {
                    p.beginTransaction();
                    for (int j = 0; j < 1 + rnd.nextInt(8); j++) p.send(record(topic, 0, START_MS + i * 1000L, rnd));
                    p.flush();
                    if (i % 7 == 0) {
                        plain.send(record(topic, 0, START_MS + i * 1000L, rnd));
                        plain.flush();
                    }
                    end(p, rnd);
                }
            }
        }
    }

    private static NewTopic topic(String name, int partitions, String... config) {
        Map<String, String> c = new HashMap<>(Map.of("segment.index.bytes", "16384"));
        for (int i = 0; i < config.length; i += 2) c.put(config[i], config[i + 1]);
        return new NewTopic(name, partitions, (short) 1).configs(c);
    }

    /** A batch ends where the caller flushes, or at batch.size. */
    private KafkaProducer<byte[], byte[]> producer(String codec, String... config) {
        Map<String, Object> c = new HashMap<>(Map.of(
            "bootstrap.servers", bootstrap,
            "acks", "all",
            "linger.ms", "30000",
            "batch.size", "32768",
            "compression.type", codec,
            "enable.idempotence", "false"));
        for (int i = 0; i < config.length; i += 2) c.put(config[i], config[i + 1]);
        return new KafkaProducer<>(c, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private KafkaProducer<byte[], byte[]> transactional(String id, String codec) {
        var p = producer(codec, "transactional.id", id, "enable.idempotence", "true", "transaction.timeout.ms", "600000");
        p.initTransactions();
        return p;
    }

    /** All data that do not depend on each other, two topics at a time. */
    void produce() throws Exception {
        List<Callable<Void>> jobs = new ArrayList<>();
        for (String codec : CODECS) jobs.add(() -> codecTopic("codec-" + codec, codec, CODECS.indexOf(codec) % 2 == 0));
        jobs.add(() -> codecTopic("recompressed", "gzip", true));
        jobs.add(this::appendTime);
        jobs.add(this::outOfOrder);
        jobs.add(this::sameTime);
        jobs.add(this::transactions);
        jobs.add(this::idempotent);
        jobs.add(this::trimmed);
        jobs.add(this::compacted);
        jobs.add(() -> codecTopic("default-config", "lz4", true));
        ExecutorService pool = Executors.newFixedThreadPool(3);
        try {
            for (Future<Void> f : pool.invokeAll(jobs)) f.get();
        } finally {
            pool.shutdownNow();
        }
    }

    private Random random(String topic) {
        return new Random(seed * 31 + topic.hashCode());
    }

    private static byte[] utf8(String s) {
        return s.getBytes(StandardCharsets.UTF_8);
    }

    private static byte[] noise(Random rnd, int size) {
        byte[] b = new byte[size];
        rnd.nextBytes(b);
        return b;
    }

    private static byte[] text(Random rnd, int words) {
        StringBuilder s = new StringBuilder();
        for (int i = 0; i < words; i++) s.append(i == 0 ? "" : " ").append(WORDS[rnd.nextInt(WORDS.length)]).append(rnd.nextInt(4) == 0 ? "-" + rnd.nextInt(1000) : "");
        return utf8(s.toString());
    }

    private static byte[] key(Random rnd) {
        int kind = rnd.nextInt(20);
        if (kind < 3) return null;
        if (kind < 5) return new byte[0];
        if (kind < 8) return noise(rnd, 1 + rnd.nextInt(24));
        return kind < 10 ? text(rnd, 1) : utf8("key-" + rnd.nextInt(200));
    }

    private static byte[] value(Random rnd) {
        int kind = rnd.nextInt(40);
        if (kind < 3) return null;
        if (kind < 5) return new byte[0];
        if (kind < 9) return noise(rnd, 1 + rnd.nextInt(200));
        return kind == 9 ? text(rnd, 300) : text(rnd, 1 + rnd.nextInt(20));
    }

    private static List<Header> headers(Random rnd) {
        List<Header> hs = new ArrayList<>();
        if (rnd.nextInt(4) != 0) return hs;
        int n = 1 + rnd.nextInt(4);
        for (int i = 0; i < n; i++) {
            switch (rnd.nextInt(6)) {
                case 0 -> hs.add(new RecordHeader("nothing", (byte[]) null));
                case 1 -> hs.add(new RecordHeader("empty", new byte[0]));
                case 2 -> hs.add(new RecordHeader("", utf8("no name")));
                case 3 -> hs.add(new RecordHeader("trace-ü", noise(rnd, 16)));
                default -> hs.add(new RecordHeader("same", utf8("v" + rnd.nextInt(9)))); // twice, more often than not
            }
        }
        return hs;
    }

    private static ProducerRecord<byte[], byte[]> record(String topic, int partition, Long timestamp, Random rnd) {
        return new ProducerRecord<>(topic, partition, timestamp, key(rnd), value(rnd), headers(rnd));
    }

    private Void codecTopic(String topic, String codec, boolean idempotent) {
        Random rnd = random(topic);
        try (var p = producer(codec, "enable.idempotence", Boolean.toString(idempotent))) {
            for (int i = 0; i < CODEC_RECORDS; ) {
                int batch = rnd.nextInt(3) == 0 ? 1 : 1 + rnd.nextInt(70);
                for (int j = 0; j < batch && i < CODEC_RECORDS; j++, i++) {
                    long time = START_MS + i * 37L + rnd.nextInt(4000);
                    if (i == CODEC_RECORDS / 2)
                        p.send(new ProducerRecord<>(topic, 0, time, utf8("big"), i % 2 == 0 ? noise(rnd, BIG_VALUE_BYTES) : text(rnd, BIG_VALUE_BYTES / 10)));
                    else p.send(record(topic, 0, time, rnd));
                }
                p.flush();
            }
        }
        return null;
    }

    private Void appendTime() throws InterruptedException {
        Random rnd = random("append-time");
        for (String codec : List.of("none", "gzip")) {
            try (var p = producer(codec)) {
                for (int i = 0; i < 12; i++) {
                    for (int j = 0; j < 1 + rnd.nextInt(20); j++) p.send(record("append-time", 0, START_MS + rnd.nextInt(1000), rnd));
                    p.flush();
                    Thread.sleep(rnd.nextInt(8));
                }
            }
        }
        return null;
    }

    private Void outOfOrder() {
        Random rnd = random("out-of-order");
        try (var p = producer("none"); var z = producer("zstd")) {
            for (int i = 0; i < 60; i++) {
                var q = i % 3 == 0 ? z : p;
                for (int j = 0; j < 1 + rnd.nextInt(14); j++) {
                    long time = START_MS - i * 60_000L + rnd.nextInt((int) DAY_MS);
                    if (j == 0 && i % 20 == 19 || rnd.nextInt(60) == 0) time = 0; // whatever the seed, three are there
                    if (i > 40 && rnd.nextInt(80) == 0) time = YEAR_2100_MS + rnd.nextInt(3);
                    q.send(record("out-of-order", 0, time, rnd));
                }
                q.flush();
            }
        }
        return null;
    }

    private Void sameTime() {
        Random rnd = random("same-time");
        try (var p = producer("none")) {
            for (int i = 0; i < 40; i++) {
                for (int j = 0; j < 1 + rnd.nextInt(8); j++) p.send(record("same-time", 0, START_MS + (i < 20 ? 0 : 1), rnd));
                p.flush();
            }
        }
        return null;
    }

    /** Three producers whose transactions overlap, a plain one between them, and one transaction that never ends. */
    private Void transactions() throws Exception {
        String topic = "a.b_c-1";
        Random rnd = random(topic);
        List<KafkaProducer<byte[], byte[]>> ps = List.of(transactional("tx-a", "none"), transactional("tx-b", "lz4"), transactional("tx-c", "gzip"));
        boolean[] running = new boolean[ps.size()];
        long time = START_MS;
        try (var plain = producer("snappy")) {
            for (int i = 0; i < 90; i++) {
                // the second half is younger than the markers of the first, so that lookups can reach it
                if (i == 45) time = System.currentTimeMillis() + 60_000L;
                int who = rnd.nextInt(ps.size());
                var p = ps.get(who);
                if (!running[who]) {
                    p.beginTransaction();
                    running[who] = true;
                }
                for (int j = 0; j < 1 + rnd.nextInt(6); j++) p.send(record(topic, rnd.nextInt(2), time += rnd.nextInt(900), rnd));
                p.flush();
                if (rnd.nextInt(3) == 0) {
                    if (i % 10 == 3) p.sendOffsetsToTransaction(Map.of(new TopicPartition("codec-gzip", 0), new OffsetAndMetadata(i, "from a transaction")), new ConsumerGroupMetadata("tx-group"));
                    end(p, rnd);
                    running[who] = false;
                }
                if (rnd.nextInt(8) == 0) {
                    plain.send(record(topic, rnd.nextInt(2), time, rnd));
                    plain.flush();
                }
            }
            for (int i = 0; i < ps.size(); i++) if (running[i]) end(ps.get(i), rnd);
            // whatever the seed, the group has an offset: one with aborted offsets only is known to some brokers, and to some not
            ps.get(0).beginTransaction();
            ps.get(0).sendOffsetsToTransaction(Map.of(new TopicPartition("codec-gzip", 0), new OffsetAndMetadata(90, "from a transaction")), new ConsumerGroupMetadata("tx-group"));
            ps.get(0).commitTransaction();

            ps.get(2).beginTransaction();
            for (int j = 0; j < 5; j++) ps.get(2).send(record(topic, 0, time += 500, rnd));
            ps.get(2).flush();
            for (int i = 0; i < 2; i++) { // behind the open transaction, so behind the last stable offset
                ps.get(i).beginTransaction();
                for (int j = 0; j < 8; j++) ps.get(i).send(record(topic, j % 2, time += 500, rnd));
                ps.get(i).flush();
                if (i == 0) ps.get(i).commitTransaction();
                else ps.get(i).abortTransaction();
            }
            plain.send(record(topic, 0, time + 1, rnd));
        }
        ps.get(0).close();
        ps.get(1).close();
        open.add(ps.get(2));
        return null;
    }

    private static void end(KafkaProducer<byte[], byte[]> p, Random rnd) {
        if (rnd.nextInt(5) < 2) p.abortTransaction();
        else p.commitTransaction();
    }

    private Void idempotent() {
        Random rnd = random("idempotent");
        for (int run = 0; run < 3; run++) {
            try (var p = producer(CODECS.get(run), "enable.idempotence", "true")) {
                for (int i = 0; i < 12; i++) {
                    for (int j = 0; j < 1 + rnd.nextInt(10); j++) p.send(record("idempotent", 0, START_MS + run * 1000L + i, rnd));
                    p.flush();
                }
            }
        }
        return null;
    }

    private Void trimmed() {
        Random rnd = random("trimmed");
        try (var p = producer("none", "enable.idempotence", "true")) {
            for (int i = 0; i < 400; i++) {
                p.send(record("trimmed", 0, START_MS + i * 1000L, rnd));
                if (i % 9 == 8) p.flush(); // 237 is inside a batch
            }
        }
        return null;
    }

    private static ProducerRecord<byte[], byte[]> keyed(String topic, int i, int keys, Random rnd) {
        byte[] key = utf8("k" + rnd.nextInt(keys));
        byte[] value = rnd.nextInt(8) == 0 ? null : text(rnd, 1 + rnd.nextInt(12));
        return new ProducerRecord<>(topic, 0, START_MS + i * 1000L, key, value, headers(rnd));
    }

    private Void compacted() {
        Random rnd = random("compacted");
        for (String codec : CODECS) {
            try (var p = producer(codec, "enable.idempotence", Boolean.toString(codec.equals("gzip")))) {
                for (int i = 0; i < 150; i++) {
                    p.send(keyed("compacted", i, 40, rnd));
                    if (rnd.nextInt(6) == 0) p.flush();
                }
            }
        }
        var t = transactional("tx-compacted", "none");
        for (int i = 0; i < 12; i++) {
            t.beginTransaction();
            for (int j = 0; j < 8; j++) t.send(keyed("compacted", 200 + i, 40, rnd));
            t.flush();
            end(t, rnd);
        }
        t.close();
        roll("compacted", 8192, rnd);
        compactedTwice(0);
        return null;
    }

    /** A round of the topic that loses its tombstones in the next round. */
    Void compactedTwice(int round) {
        Random rnd = random("compacted-twice" + round);
        try (var p = producer(round == 0 ? "none" : "zstd")) {
            for (int i = 0; i < 200; i++) {
                p.send(keyed("compacted-twice", round * 1000 + i, 30, rnd));
                if (rnd.nextInt(5) == 0) p.flush();
            }
        }
        roll("compacted-twice", 4096, rnd);
        return null;
    }

    /** Fills more than one segment, so that all before is out of the active one and can be cleaned. */
    private void roll(String topic, int segmentBytes, Random rnd) {
        try (var p = producer("none")) {
            for (int i = 0; i < 3; i++) {
                p.send(new ProducerRecord<>(topic, 0, START_MS + 2_000_000L + i, utf8("filler" + i), noise(rnd, segmentBytes * 2 / 3)));
                p.flush();
            }
        }
    }

    void deleteRecords() throws Exception {
        admin.deleteRecords(Map.of(new TopicPartition("trimmed", 0), RecordsToDelete.beforeOffset(TRIM_TO))).all().get();
    }

    /** Commits of a classic and of a new consumer group, through the Admin API, deleted offsets, and a share group. */
    void groups() throws Exception {
        ConfigResource share = new ConfigResource(ConfigResource.Type.GROUP, "share-group");
        admin.incrementalAlterConfigs(Map.of(share, List.of(
            new AlterConfigOp(new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET)))).all().get();
        ExecutorService pool = Executors.newFixedThreadPool(3);
        try {
            List<Callable<Void>> jobs = List.of(() -> group("classic"), () -> group("consumer"), this::shareGroup);
            for (Future<Void> f : pool.invokeAll(jobs)) f.get();
        } finally {
            pool.shutdownNow();
        }
        TopicPartition tp = new TopicPartition("codec-none", 0);
        TopicPartition gone = new TopicPartition("codec-lz4", 0);
        admin.alterConsumerGroupOffsets("by-admin", Map.of(tp, new OffsetAndMetadata(7, "ünïcødé"), gone, new OffsetAndMetadata(9, ""))).all().get();
        admin.deleteConsumerGroupOffsets("by-admin", Set.of(gone)).all().get();
    }

    private Void group(String protocol) {
        Map<String, Object> c = new HashMap<>(Map.of(
            "bootstrap.servers", bootstrap, "group.id", protocol + "-group", "group.protocol", protocol,
            "enable.auto.commit", "false", "auto.offset.reset", "earliest"));
        try (var consumer = new KafkaConsumer<>(c, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of("codec-none", "append-time"));
            for (int i = 0, seen = 0; i < 100 && seen == 0; i++) seen += consumer.poll(Duration.ofMillis(200)).count();
            consumer.commitSync();
            consumer.commitSync(Map.of(new TopicPartition("append-time", 0), new OffsetAndMetadata(3, "note")));
        }
        return null;
    }

    private Void shareGroup() {
        Map<String, Object> c = Map.of("bootstrap.servers", bootstrap, "group.id", "share-group");
        try (var consumer = new KafkaShareConsumer<>(c, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of("idempotent"));
            for (int i = 0, seen = 0; i < 100 && seen == 0; i++) seen += consumer.poll(Duration.ofMillis(200)).count();
            consumer.commitSync();
        }
        return null;
    }

    /** Lets go of the producers whose transactions stay open, without ending these. */
    void abandon() {
        for (KafkaProducer<byte[], byte[]> p : open) p.close(Duration.ZERO);
    }
}
