package kafkalog.harness;

import com.fasterxml.jackson.databind.ObjectMapper;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

import java.io.BufferedWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;

/** What clients get from the running broker: the records, committed or not, and the answers of ListOffsets. */
final class Observation {
    private static final int WHOLE_BYTES_MAX = 1024;
    private static final int TIMES_MAX = 24;
    /** So long nothing may come; how long all of it takes depends on the machine. */
    private static final Duration PATIENCE = Duration.ofSeconds(120);

    private final String bootstrap;
    private final ObjectMapper json = new ObjectMapper();

    Observation(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    /** Reads all partitions from begin to end; for read_committed the end is the last stable offset. */
    Map<TopicPartition, List<ConsumerRecord<byte[], byte[]>>> read(Collection<TopicPartition> partitions, IsolationLevel isolation) {
        return read(partitions, isolation, Map.of());
    }

    /** The same, where it is known of some partitions what is there: a consumer stays in a hole below the last stable offset. */
    Map<TopicPartition, List<ConsumerRecord<byte[], byte[]>>> read(Collection<TopicPartition> partitions, IsolationLevel isolation,
            Map<TopicPartition, List<ConsumerRecord<byte[], byte[]>>> known) {
        Map<String, Object> config = Map.of(
            "bootstrap.servers", bootstrap,
            "isolation.level", isolation.toString().toLowerCase(),
            "enable.auto.commit", "false",
            "auto.offset.reset", "none",
            "allow.auto.create.topics", "false",
            "max.poll.records", "5000",
            "fetch.max.wait.ms", "20");
        Map<TopicPartition, List<ConsumerRecord<byte[], byte[]>>> out = new HashMap<>();
        try (var consumer = new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            for (TopicPartition tp : partitions) out.put(tp, new ArrayList<>());
            long deadline = System.nanoTime() + PATIENCE.toNanos();
            for (;;) {
                List<TopicPartition> unread = partitions.stream().filter(tp -> {
                    long position = consumer.position(tp);
                    long end = ends.get(tp);
                    var there = known.get(tp);
                    return there == null ? position < end : there.stream().anyMatch(r -> r.offset() >= position && r.offset() < end);
                }).toList();
                if (unread.isEmpty()) break;
                if (System.nanoTime() > deadline) throw new IllegalStateException("the consumer did not reach the ends of " + unread);
                for (ConsumerRecord<byte[], byte[]> r : consumer.poll(Duration.ofMillis(100))) {
                    out.get(new TopicPartition(r.topic(), r.partition())).add(r);
                    deadline = System.nanoTime() + PATIENCE.toNanos();
                }
            }
        }
        return out;
    }

    void writeRecords(List<ConsumerRecord<byte[], byte[]>> records, Path to) throws Exception {
        try (BufferedWriter w = Files.newBufferedWriter(to)) {
            for (ConsumerRecord<byte[], byte[]> r : records) {
                Map<String, Object> o = new LinkedHashMap<>();
                o.put("offset", r.offset());
                o.put("timestamp", r.timestamp());
                o.put("timestampType", r.timestampType().toString());
                o.put("key", bytes(r.key()));
                o.put("value", bytes(r.value()));
                List<Object> headers = new ArrayList<>();
                for (Header h : r.headers()) headers.add(Arrays.asList(h.key(), bytes(h.value())));
                o.put("headers", headers);
                o.put("leaderEpoch", r.leaderEpoch().orElse(-1));
                w.write(json.writeValueAsString(o));
                w.write('\n');
            }
        }
    }

    private static Object bytes(byte[] b) throws Exception {
        if (b == null) return null;
        if (b.length <= WHOLE_BYTES_MAX) return HexFormat.of().formatHex(b);
        return Map.of("len", b.length, "sha256", HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(b)));
    }

    /** Targets that matter: 0, 1, the far future, and the neighbourhoods of the records' and the segments' extreme timestamps. */
    static TreeSet<Long> targets(List<ConsumerRecord<byte[], byte[]>> records, Collection<Long> segmentBases) {
        TreeSet<Long> times = new TreeSet<>();
        TreeMap<Long, Long> largest = new TreeMap<>();
        TreeMap<Long, Long> smallest = new TreeMap<>();
        TreeSet<Long> bases = new TreeSet<>(segmentBases);
        for (ConsumerRecord<byte[], byte[]> r : records) {
            times.add(r.timestamp());
            Long base = bases.floor(r.offset());
            if (base == null) continue;
            largest.merge(base, r.timestamp(), Math::max);
            smallest.merge(base, r.timestamp(), Math::min);
        }
        TreeSet<Long> marks = new TreeSet<>(largest.values());
        marks.addAll(smallest.values());
        List<Long> sorted = new ArrayList<>(times);
        for (int i = 0; i < Math.min(TIMES_MAX, sorted.size()); i++)
            marks.add(sorted.get((int) ((long) i * (sorted.size() - 1) / Math.max(1, Math.min(TIMES_MAX, sorted.size()) - 1))));
        TreeSet<Long> out = new TreeSet<>(List.of(0L, 1L, 4_102_444_800_000L, 4_102_444_800_001L, Long.MAX_VALUE));
        for (long t : marks) {
            out.add(Math.max(0, t - 1));
            out.add(t);
            out.add(t + 1);
        }
        return out;
    }

    /** The corpus' lookup.json of one broker. */
    @SuppressWarnings("unchecked")
    Map<String, Object> lookups(Admin admin, Map<TopicPartition, TreeSet<Long>> targets) throws Exception {
        Map<String, List<Long>> times = new HashMap<>();
        targets.forEach((tp, asked) -> times.put(tp.toString(), List.copyOf(asked)));
        Map<String, Object> told = BrokerReport.offsets(admin, List.copyOf(targets.keySet()), times);
        Map<String, Object> out = new TreeMap<>();
        for (TopicPartition tp : targets.keySet()) {
            var levels = (Map<String, Map<String, List<Object>>>) told.get(tp.toString());
            Map<String, List<Object>> plain = levels.get("read_uncommitted");
            Map<String, List<Object>> stable = levels.get("read_committed");
            Map<String, Object> o = new LinkedHashMap<>();
            o.put("earliest", answer(plain.get("earliest")));
            o.put("latest", answer(plain.get("latest")));
            o.put("lastStableOffset", answer(stable.get("latest")));
            o.put("maxTimestamp", answer(plain.get("maxTimestamp")));
            if (!stable.get("maxTimestamp").equals(plain.get("maxTimestamp"))) o.put("maxTimestampReadCommitted", answer(stable.get("maxTimestamp")));
            List<Object> found = new ArrayList<>();
            for (Long time : targets.get(tp)) {
                String name = time.toString();
                Map<String, Object> t = new LinkedHashMap<>();
                t.put("target", time);
                t.putAll(answer(plain.get(name)));
                if (!stable.get(name).equals(plain.get(name))) t.put("readCommitted", answer(stable.get(name)));
                found.add(t);
            }
            o.put("timestamps", found);
            out.put(tp.toString(), o);
        }
        return out;
    }

    private static Map<String, Object> answer(List<Object> told) {
        Map<String, Object> o = new LinkedHashMap<>();
        o.put("offset", told.get(0));
        o.put("timestamp", told.get(1));
        o.put("leaderEpoch", told.get(2));
        return o;
    }
}
