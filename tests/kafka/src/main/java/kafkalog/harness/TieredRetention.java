package kafkalog.harness;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.SerializationFeature;

import kafka.server.KafkaConfig;
import kafka.server.KafkaRaftServer;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde;
import org.apache.kafka.server.log.remote.storage.RemoteLogMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentId;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadataUpdate;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentState;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Stream;

/**
 * A third life of a copy of TieredBroker's data, in which retention deletes from the tier, in two steps; after each, `log` and `tier`
 * are copied to `retained/1` and `retained/2`. `retained/told.json` has for each step and partition what was changed, and when.
 */
final class TieredRetention {
    private static final long QUIET_NS = 1_200_000_000L; // a dozen runs of the task

    private static final TopicPartition METADATA = new TopicPartition("__remote_log_metadata", 0);

    private final Path root;
    private final String bootstrap;
    private final Properties config = new Properties();
    private final List<TopicPartition> partitions;
    private final Map<String, Map<String, Object>> told = new TreeMap<>();

    private TieredRetention(Path root, Properties config, List<TopicPartition> partitions) {
        this.root = root;
        this.partitions = partitions;
        this.config.putAll(config);
        this.bootstrap = config.getProperty("advertised.listeners").substring("PLAINTEXT://".length());
    }

    /** `jumps` are times that lie between records of the first partition, far from each. */
    static void run(Path root, Properties config, List<TopicPartition> partitions, List<Long> jumps) throws Exception {
        new TieredRetention(root, config, partitions).live(jumps);
    }

    private Path live(String name) {
        return root.resolve("retained").resolve("live").resolve(name);
    }

    private void live(List<Long> jumps) throws Exception {
        for (String name : List.of("log", "tier")) Trees.copy(root.resolve(name), live(name));
        config.put("log.dirs", live("log").toString());
        config.put("rsm.config.dir", live("tier").toString());
        config.put("log.flush.start.offset.checkpoint.interval.ms", "100");
        config.put("replica.high.watermark.checkpoint.interval.ms", "100");
        KafkaRaftServer server = new KafkaRaftServer(new KafkaConfig(config, false), Time.SYSTEM);
        server.startup();
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            TopicPartition plain = partitions.get(0);
            TopicPartition transactions = partitions.get(1);
            Map<TopicPartition, Long> starts = starts(admin);
            change(admin, "1", plain, Map.of("retention.ms", since(jumps.get(0))));
            change(admin, "1", transactions, Map.of("retention.bytes", Long.toString(remoteBytes(transactions) * 7 / 10)));
            rest(admin, "1", starts);
            starts = starts(admin);
            // A leader that once found all segments valid goes on counting those that DeleteRecords cuts off (`isAllSegmentsValid`),
            // so it can delete more than one that starts with this log start offset; without a limit it does not count.
            change(admin, "2", transactions, Map.of("retention.bytes", "-1"));
            change(admin, "2", plain, Map.of("retention.ms", since(jumps.get(1)), "retention.bytes", Long.toString(Math.max(12_000, remoteBytes(plain) / 3))));
            awaitLater(admin, plain, starts); // so both changes are applied
            long latest = admin.listOffsets(Map.of(transactions, OffsetSpec.latestTiered())).partitionResult(transactions).get().offset();
            long start = latest - latest / 5;
            told.get("2").put(transactions.toString(), Map.of("retention.bytes", "-1", "log_start_offset", start));
            admin.deleteRecords(Map.of(transactions, RecordsToDelete.beforeOffset(start))).all().get();
            rest(admin, "2", starts);
        }
        server.shutdown();
        server.awaitShutdown();
        new ObjectMapper().enable(SerializationFeature.INDENT_OUTPUT).writeValue(root.resolve("retained").resolve("told.json").toFile(), told);
    }

    private static String since(long time) {
        return Long.toString(System.currentTimeMillis() - time);
    }

    private void change(Admin admin, String step, TopicPartition partition, Map<String, String> configs) throws Exception {
        List<AlterConfigOp> ops = new ArrayList<>();
        configs.forEach((name, value) -> ops.add(new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET)));
        told.computeIfAbsent(step, one -> new TreeMap<>()).put(partition.toString(), new LinkedHashMap<>(configs));
        told.computeIfAbsent("2", one -> new TreeMap<>());
        admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.TOPIC, partition.topic()), ops)).all().get();
    }

    /** Waits until all logs start later, what is before that is deleted, and the tier is at rest; then copies both. */
    private void rest(Admin admin, String step, Map<TopicPartition, Long> before) throws Exception {
        for (TopicPartition one : partitions) awaitLater(admin, one, before);
        LiveBroker.await("deletion of what is before", () -> isDeleted(starts(admin)));
        var seen = new Object() { List<Path> files = List.of(); long since = System.nanoTime(); };
        LiveBroker.await("rest of the tier", () -> {
            List<Path> files = Trees.files(live("tier"));
            if (!files.equals(seen.files)) {
                seen.files = files;
                seen.since = System.nanoTime();
            }
            return System.nanoTime() - seen.since > QUIET_NS;
        });
        told.get(step).put("now", System.currentTimeMillis());
        for (String name : List.of("log", "tier")) Trees.copy(live(name), root.resolve("retained").resolve(step).resolve(name));
        Map<String, Long> offsets = new TreeMap<>();
        starts(admin).forEach((partition, offset) -> offsets.put(partition.toString(), offset));
        told.get(step).put("starts", offsets);
    }

    private void awaitLater(Admin admin, TopicPartition one, Map<TopicPartition, Long> before) throws Exception {
        LiveBroker.await("a later start of " + one, () -> starts(admin).get(one) > before.get(one));
    }

    /** Whether the metadata says of each remote segment that it is deleted, or ends after its log starts. */
    private boolean isDeleted(Map<TopicPartition, Long> starts) throws Exception {
        Set<RemoteLogSegmentId> there = new HashSet<>();
        for (var record : new Observation(bootstrap).read(List.of(METADATA), IsolationLevel.READ_UNCOMMITTED).get(METADATA)) {
            RemoteLogMetadata read = new RemoteLogMetadataSerde().deserialize(record.value());
            if (read instanceof RemoteLogSegmentMetadata segment && segment.endOffset() < starts.get(segment.topicIdPartition().topicPartition()))
                there.add(segment.remoteLogSegmentId());
            if (read instanceof RemoteLogSegmentMetadataUpdate update && update.state() == RemoteLogSegmentState.DELETE_SEGMENT_FINISHED)
                there.remove(update.remoteLogSegmentId());
        }
        return there.isEmpty();
    }

    private Map<TopicPartition, Long> starts(Admin admin) throws Exception {
        Map<TopicPartition, Long> found = new LinkedHashMap<>();
        for (TopicPartition one : partitions)
            found.put(one, admin.listOffsets(Map.of(one, OffsetSpec.earliest())).partitionResult(one).get().offset());
        return found;
    }

    private long remoteBytes(TopicPartition partition) throws Exception {
        long size = 0;
        try (Stream<Path> all = Files.walk(live("tier"))) {
            for (Path one : all.filter(path -> path.toString().endsWith(".log")).toList())
                if (one.getParent().getFileName().toString().startsWith(partition + "-")) size += Files.size(one);
        }
        return size;
    }
}
