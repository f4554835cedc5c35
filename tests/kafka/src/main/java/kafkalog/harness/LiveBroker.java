package kafkalog.harness;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.SerializationFeature;

import kafka.server.KafkaConfig;
import kafka.server.KafkaRaftServer;
import kafka.tools.StorageTool;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.utils.Time;

import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Callable;

/**
 * One real Kafka node (broker and controller) in this JVM, fed with seeded data: `LiveBroker OUT SEED`, in an empty
 * working directory. Leaves in OUT: `clean` (its log directory after the shutdown), `live` (a copy from before it) and
 * `expected` (what clients and DumpLogSegments made of them), laid out like the golden corpus.
 */
public final class LiveBroker {
    private static final long PATIENCE_MS = 120_000; // the machine may have much else to do
    /** Starts and shutdowns wait for heartbeats; the default is two seconds. */
    static final String HEARTBEAT_MS = "500";
    private static final long QUIET_MS = 900; // some rounds of the checkpoint tasks

    private final Path out;
    private final long seed;
    private final Path logDir;
    private final ObjectMapper json = new ObjectMapper().enable(SerializationFeature.INDENT_OUTPUT);
    private final Map<String, Object> state = new LinkedHashMap<>();
    private final Map<String, Object> steps = new LinkedHashMap<>();
    private long stepStarted = System.nanoTime();

    private LiveBroker(Path out, long seed) {
        this.out = out;
        this.seed = seed;
        this.logDir = out.resolve("clean");
    }

    public static void main(String[] argv) throws Exception {
        int status = 1;
        try {
            if (Trees.files(Path.of("")).size() > 0) throw new IllegalStateException("the working directory is not empty");
            new LiveBroker(Path.of(argv[0]).toAbsolutePath(), Long.parseLong(argv[1])).run();
            status = 0;
        } catch (Throwable e) {
            e.printStackTrace();
        } finally {
            System.err.flush();
            Runtime.getRuntime().halt(status); // whatever threads are left
        }
    }

    private void step(String name) {
        long ms = (System.nanoTime() - stepStarted) / 1_000_000;
        steps.put(name, ms);
        System.err.println("seed " + seed + ": " + name + ", " + ms + " ms");
        stepStarted = System.nanoTime();
    }

    private void run() throws Exception {
        Path expected = out.resolve("expected");
        Files.createDirectories(logDir);
        int[] ports = freePorts(2);
        String bootstrap = "127.0.0.1:" + ports[0];
        Properties config = config(ports, logDir);
        format(config, out.resolve("server.properties"));
        KafkaRaftServer server = new KafkaRaftServer(new KafkaConfig(config, false), Time.SYSTEM);
        server.startup();
        step("started");
        Workload workload;
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            workload = new Workload(bootstrap, admin, seed);
            workload.createTopics();
            step("topics created");
            workload.produce();
            step("produced");
            workload.deleteRecords();
            await("the cleaner", () -> isCleaned(logDir, "compacted-twice"));
            workload.compactedTwice(1);
            workload.groups();
            step("groups");
            await("the cleaner", () -> isCleaned(logDir, "compacted-twice") && isCleaned(logDir, "compacted"));
            await("the retention", this::isTrimmed);
            awaitQuiet();
            step("cleaned and quiet");
            Map<String, String> before = Trees.listing(logDir);
            state.put("partitions", observe(admin, bootstrap, logDir, expected, json));
            step("observed");
            Trees.copy(logDir, out.resolve("live"));
            Map<String, String> after = Trees.listing(logDir);
            if (!after.equals(before)) throw new IllegalStateException("the broker wrote during the observation: " + difference(before, after));
            step("copied live");
        }
        server.shutdown();
        server.awaitShutdown();
        workload.abandon();
        step("shut down");
        state.put("seed", seed);
        state.put("dumpChangedFiles", Map.of(
            "clean", DumpTool.dumpAll(logDir, expected.resolve("dump").resolve("clean"), json),
            "live", DumpTool.dumpAll(out.resolve("live"), expected.resolve("dump").resolve("live"), json)));
        step("dumped");
        state.put("stepsMs", steps);
        json.writeValue(expected.resolve("state.json").toFile(), state);
    }

    static int[] freePorts(int count) throws IOException {
        List<ServerSocket> sockets = new ArrayList<>();
        try {
            for (int i = 0; i < count; i++) sockets.add(new ServerSocket(0, 1, InetAddress.getByName("127.0.0.1")));
            return sockets.stream().mapToInt(ServerSocket::getLocalPort).toArray();
        } finally {
            for (ServerSocket s : sockets) s.close();
        }
    }

    static Properties config(int[] ports, Path logDir) {
        Properties p = new Properties();
        p.put("process.roles", "broker,controller");
        p.put("node.id", "1");
        p.put("listeners", "PLAINTEXT://127.0.0.1:" + ports[0] + ",CONTROLLER://127.0.0.1:" + ports[1]);
        p.put("advertised.listeners", "PLAINTEXT://127.0.0.1:" + ports[0]);
        p.put("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT");
        p.put("controller.listener.names", "CONTROLLER");
        p.put("controller.quorum.voters", "1@127.0.0.1:" + ports[1]);
        p.put("log.dirs", logDir.toString());
        p.put("auto.create.topics.enable", "false");
        p.put("metadata.max.idle.interval.ms", "0"); // no record every 500 ms: the log must come to rest
        for (String topic : List.of("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")) {
            p.put(topic + ".replication.factor", "1");
            p.put(topic + ".num.partitions", topic.startsWith("offsets") ? "2" : "1");
        }
        p.put("transaction.state.log.min.isr", "1");
        p.put("share.coordinator.state.topic.min.isr", "1");
        p.put("group.initial.rebalance.delay.ms", "0");
        p.put("broker.heartbeat.interval.ms", HEARTBEAT_MS);
        // the data are of 2024: they stay, but what DeleteRecords cuts off becomes .deleted soon, and stays so
        p.put("log.retention.ms", "-1");
        p.put("log.retention.check.interval.ms", "200");
        p.put("log.segment.delete.delay.ms", "600000");
        p.put("log.initial.task.delay.ms", "100");
        p.put("log.flush.start.offset.checkpoint.interval.ms", "200");
        p.put("log.flush.offset.checkpoint.interval.ms", "200");
        p.put("replica.high.watermark.checkpoint.interval.ms", "200");
        p.put("log.cleaner.backoff.ms", "50");
        p.put("log.cleaner.dedupe.buffer.size", "4194304");
        return p;
    }

    static void format(Properties config, Path file) throws IOException {
        try (OutputStream o = Files.newOutputStream(file)) {
            config.store(o, null);
        }
        String[] args = {"format", "--cluster-id", Uuid.randomUuid().toString(), "--config", file.toString()};
        int status = StorageTool.execute(args, new PrintStream(OutputStream.nullOutputStream()));
        if (status != 0) throw new IllegalStateException("kafka-storage format: " + status);
    }

    static void await(String what, Callable<Boolean> done) throws Exception {
        long deadline = System.nanoTime() + PATIENCE_MS * 1_000_000;
        while (!done.call()) {
            if (System.nanoTime() > deadline) throw new IllegalStateException("no end of waiting for " + what);
            Thread.sleep(20);
        }
    }

    /** Base offsets of the segments of a partition folder. */
    private static TreeSet<Long> segments(Path folder) throws IOException {
        TreeSet<Long> bases = new TreeSet<>();
        for (Path p : Trees.files(folder)) {
            String name = p.getFileName().toString();
            if (name.matches("\\d{20}\\.log")) bases.add(Long.parseLong(name.substring(0, 20)));
        }
        return bases;
    }

    private static Long checkpoint(Path logDir, String file, String partition) throws IOException {
        Path p = logDir.resolve(file);
        if (!Files.exists(p)) return null;
        for (String line : Files.readAllLines(p)) {
            int at = line.lastIndexOf(' ');
            if (at > 0 && line.substring(0, at).equals(partition)) return Long.parseLong(line.substring(at + 1));
        }
        return null;
    }

    /** Has the cleaner reached the active segment? */
    static boolean isCleaned(Path logDir, String topic) throws IOException {
        return segments(logDir.resolve(topic + "-0")).last().equals(checkpoint(logDir, "cleaner-offset-checkpoint", topic + " 0"));
    }

    /** Is the log start checkpointed, and all before its segment gone? */
    private boolean isTrimmed() throws IOException {
        TreeSet<Long> bases = segments(logDir.resolve("trimmed-0"));
        return Objects.equals(checkpoint(logDir, "log-start-offset-checkpoint", "trimmed 0"), Workload.TRIM_TO)
            && bases.headSet(Workload.TRIM_TO, true).size() == 1;
    }

    private void awaitQuiet() throws Exception {
        await("the end of writing", () -> {
            Map<String, String> before = Trees.listing(logDir);
            Thread.sleep(QUIET_MS);
            return Trees.listing(logDir).equals(before);
        });
    }

    private static List<String> difference(Map<String, String> a, Map<String, String> b) {
        TreeSet<String> names = new TreeSet<>(a.keySet());
        names.addAll(b.keySet());
        return names.stream().filter(n -> !Objects.equals(a.get(n), b.get(n))).toList();
    }

    /** Writes what clients see of each partition; returns some counts. */
    static Map<String, Object> observe(Admin admin, String bootstrap, Path logDir, Path expected, ObjectMapper json) throws Exception {
        Files.createDirectories(expected.resolve("records"));
        Files.createDirectories(expected.resolve("records-committed"));
        Observation observation = new Observation(bootstrap);
        List<TopicPartition> partitions = new ArrayList<>();
        var names = admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get();
        for (TopicDescription t : admin.describeTopics(names).allTopicNames().get().values())
            for (TopicPartitionInfo p : t.partitions()) partitions.add(new TopicPartition(t.name(), p.partition()));
        var all = observation.read(partitions, IsolationLevel.READ_UNCOMMITTED);
        var committed = observation.read(partitions, IsolationLevel.READ_COMMITTED);
        Map<TopicPartition, TreeSet<Long>> targets = new LinkedHashMap<>();
        Map<String, Object> counts = new TreeMap<>();
        for (TopicPartition tp : partitions) {
            observation.writeRecords(all.get(tp), expected.resolve("records").resolve(tp + ".ndjson"));
            json.writer().without(SerializationFeature.INDENT_OUTPUT).writeValue(
                expected.resolve("records-committed").resolve(tp + ".offsets.json").toFile(),
                committed.get(tp).stream().map(ConsumerRecord::offset).toList());
            TreeSet<Long> bases = segments(logDir.resolve(tp.toString()));
            targets.put(tp, Observation.targets(all.get(tp), bases));
            counts.put(tp.toString(), Map.of("segments", bases.size(), "records", all.get(tp).size(), "committed", committed.get(tp).size()));
        }
        json.writeValue(expected.resolve("lookup.json").toFile(), observation.lookups(admin, targets));
        return counts;
    }
}
