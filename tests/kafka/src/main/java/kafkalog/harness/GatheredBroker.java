package kafkalog.harness;

import kafka.server.KafkaConfig;
import kafka.server.KafkaRaftServer;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.metadata.FeatureLevelRecord;
import org.apache.kafka.common.metadata.PartitionRecord;
import org.apache.kafka.common.metadata.TopicRecord;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.metadata.bootstrap.BootstrapDirectory;
import org.apache.kafka.metadata.bootstrap.BootstrapMetadata;
import org.apache.kafka.metadata.util.BatchFileWriter;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.EligibleLeaderReplicasVersion;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.server.common.OffsetAndEpoch;
import org.apache.kafka.snapshot.Snapshots;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/**
 * One real Kafka node over partition directories that no cluster knows: `GatheredBroker ROOT LOG_DIR...`. Writes a metadata
 * snapshot with their topics, says `running PORT` when it leads all of them, and shuts down when its stdin ends. A partition's
 * leader epoch goes on from the last one in its `leader-epoch-checkpoint`.
 */
public final class GatheredBroker {
    private static final Pattern PARTITION = Pattern.compile("(.+)-(\\d+)");

    private GatheredBroker() {
    }

    public static void main(String[] argv) {
        int status = 1;
        try {
            run(Path.of(argv[0]).toAbsolutePath(), Arrays.stream(argv).skip(1).map(d -> Path.of(d).toAbsolutePath()).toList());
            status = 0;
        } catch (Throwable e) {
            e.printStackTrace();
        } finally {
            System.out.flush();
            System.err.flush();
            Runtime.getRuntime().halt(status); // whatever threads are left
        }
    }

    private static void run(Path root, List<Path> logDirs) throws Exception {
        int[] ports = LiveBroker.freePorts(2);
        Properties config = LiveBroker.config(ports, root);
        config.put("log.dirs", String.join(",", logDirs.stream().map(Path::toString).toList()));
        config.put("log.cleanup.policy", "delete");
        config.put("log.cleaner.enable", "false"); // what is there stays
        config.put("log.roll.ms", String.valueOf(Long.MAX_VALUE / 1_000_000));
        LiveBroker.format(config, root.resolve("server.properties"));
        int partitions = introduce(logDirs);
        KafkaRaftServer server = new KafkaRaftServer(new KafkaConfig(config, false), Time.SYSTEM);
        server.startup();
        String bootstrap = "127.0.0.1:" + ports[0];
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            LiveBroker.await("the leader of each partition", () -> isLed(admin, partitions));
            System.out.println("running " + ports[0]);
            System.out.flush();
            while (System.in.read() >= 0) {
                // until whoever asks has ended
            }
        }
        server.shutdown();
        server.awaitShutdown();
    }

    private static boolean isLed(Admin admin, int partitions) throws Exception {
        var names = admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get();
        Map<TopicPartition, OffsetSpec> latest = new HashMap<>();
        for (var topic : admin.describeTopics(names).allTopicNames().get().values())
            for (var p : topic.partitions())
                if (p.leader() != null) latest.put(new TopicPartition(topic.name(), p.partition()), OffsetSpec.latest());
        return latest.size() == partitions && admin.listOffsets(latest).all().get().size() == partitions;
    }

    /** Writes the snapshot from which the controller starts; returns the number of partitions. */
    private static int introduce(List<Path> logDirs) throws Exception {
        BootstrapMetadata bootstrap = new BootstrapDirectory(logDirs.get(0).toString()).read();
        short version = MetadataVersion.latestProduction().partitionRecordVersion();
        List<ApiMessageAndVersion> records = new ArrayList<>(bootstrap.records());
        // with it a broker that registers for the first time leaves all ISRs: it may have lost what it had
        records.removeIf(r -> r.message() instanceof FeatureLevelRecord f && f.name().equals(EligibleLeaderReplicasVersion.FEATURE_NAME));
        Map<String, Uuid> topics = new LinkedHashMap<>();
        Map<String, List<ApiMessageAndVersion>> partitions = new TreeMap<>();
        for (Path logDir : logDirs) {
            Uuid directory = Uuid.fromString(property(logDir.resolve("meta.properties"), "directory.id"));
            for (Path partition : folders(logDir)) {
                Path metadata = partition.resolve("partition.metadata");
                Matcher name = PARTITION.matcher(partition.getFileName().toString());
                if (!Files.exists(metadata) || !name.matches()) continue;
                Uuid id = Uuid.fromString(property(metadata, "topic_id"));
                topics.put(name.group(1), id);
                partitions.computeIfAbsent(name.group(1), n -> new ArrayList<>()).add(new ApiMessageAndVersion(
                    new PartitionRecord().setTopicId(id).setPartitionId(Integer.parseInt(name.group(2)))
                        .setReplicas(List.of(1)).setIsr(List.of(1)).setLeader(-1).setLeaderEpoch(lastEpoch(partition))
                        .setPartitionEpoch(0).setDirectories(List.of(directory)), version));
            }
        }
        for (String topic : partitions.keySet()) {
            records.add(new ApiMessageAndVersion(new TopicRecord().setName(topic).setTopicId(topics.get(topic)), (short) 0));
            records.addAll(partitions.get(topic));
        }
        Path log = Files.createDirectories(logDirs.get(0).resolve("__cluster_metadata-0"));
        try (BatchFileWriter writer = BatchFileWriter.open(Snapshots.snapshotPath(log, new OffsetAndEpoch(1, 1)))) {
            for (ApiMessageAndVersion record : records) writer.append(record);
        }
        return partitions.values().stream().mapToInt(List::size).sum();
    }

    private static List<Path> folders(Path root) throws IOException {
        try (Stream<Path> found = Files.list(root)) {
            return found.filter(Files::isDirectory).sorted().toList();
        }
    }

    private static int lastEpoch(Path partition) throws IOException {
        Path file = partition.resolve("leader-epoch-checkpoint");
        if (!Files.exists(file)) return 0;
        List<String> lines = Files.readAllLines(file);
        return lines.size() < 3 ? 0 : Integer.parseInt(lines.get(lines.size() - 1).split(" ")[0]);
    }

    private static String property(Path file, String name) throws IOException {
        for (String line : Files.readAllLines(file)) {
            String[] words = line.split("[:=]", 2);
            if (words.length == 2 && words[0].strip().equals(name)) return words[1].strip();
        }
        throw new IllegalStateException(file + " has no " + name);
    }
}
