package kafkalog.harness;

import kafka.server.KafkaConfig;
import kafka.server.KafkaRaftServer;
import kafka.tools.StorageTool;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.Time;

import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;

/**
 * A controller and three brokers, through leader changes: `ThreeReplicas ROOT`, in an empty working directory. The log
 * directories are ROOT/log/1, 2, 3 and 3b; after each of three phases ROOT/PHASE/log has a copy of them, and
 * ROOT/PHASE/records what a read_committed consumer is given of each topic.
 *
 * 1: all have the same. 2: broker 1 alone has more. 3: the others, which never had that, have become leaders and have
 * written something else; broker 1 has cut its log and followed. `moved` is in the other of the two directories of broker 3, `again`
 * was deleted and made again.
 */
public final class ThreeReplicas {
    private static final long PATIENCE_MS = 120_000;
    private static final String[] TOPICS = {"orders", "moved", "again"};

    private final Path root;
    private final int[] ports;
    private final KafkaRaftServer[] servers = new KafkaRaftServer[4];

    private ThreeReplicas(Path root) throws Exception {
        this.root = root;
        this.ports = LiveBroker.freePorts(4);
    }

    public static void main(String[] argv) {
        int status = 1;
        try {
            new ThreeReplicas(Path.of(argv[0]).toAbsolutePath()).run();
            status = 0;
        } catch (Throwable e) {
            e.printStackTrace();
        } finally {
            System.err.flush();
            Runtime.getRuntime().halt(status);
        }
    }

    private void run() throws Exception {
        String cluster = Uuid.randomUuid().toString();
        for (int node = 0; node < 4; node++) {
            Path file = Path.of("server-" + node + ".properties").toAbsolutePath();
            Properties config = config(node);
            try (OutputStream o = Files.newOutputStream(file)) {
                config.store(o, null);
            }
            for (String dir : config.getProperty("log.dirs").split(",")) Files.createDirectories(Path.of(dir));
            String[] args = {"format", "--cluster-id", cluster, "--config", file.toString()};
            if (StorageTool.execute(args, new PrintStream(OutputStream.nullOutputStream())) != 0) throw new IllegalStateException("format");
        }
        for (int node = 0; node < 4; node++) start(node);
        try (Admin admin = admin()) {
            await("brokers", () -> admin.describeCluster().nodes().get().size() == 3);
            admin.createTopics(List.of(
                topic("orders", List.of(1, 2, 3)), topic("moved", List.of(3)), topic("again", List.of(2)))).all().get();
            for (String topic : TOPICS) produce(topic, "first", 12);
            ConfigResource transactions = new ConfigResource(ConfigResource.Type.TOPIC, "__transaction_state"); // made with false
            var unclean = new AlterConfigOp(new ConfigEntry("unclean.leader.election.enable", "true"), AlterConfigOp.OpType.SET);
            admin.incrementalAlterConfigs(Map.of(transactions, List.of(unclean))).all().get();
            settle(admin, "orders", 3);
            note(admin, "1");
            stop(2);
            stop(3);
            await("the leader alone", () -> replicas(admin, "orders") == 1);
            produce("orders", "lost", 7);
            settle(admin, "orders", 1);
            note(admin, "2");
        }
        stop(1);
        start(2);
        start(3);
        try (Admin admin = admin()) {
            await("another leader", () -> leader(admin, "orders") > 1);
            produce("orders", "kept", 9);
            start(1);
            await("all replicas", () -> replicas(admin, "orders") == 3);
            boolean isFirst = Files.exists(root.resolve("log/3/moved-0"));
            Path here = root.resolve(isFirst ? "log/3" : "log/3b");
            Path there = root.resolve(isFirst ? "log/3b" : "log/3");
            admin.alterReplicaLogDirs(Map.of(new TopicPartitionReplica("moved", 0, 3), there.toString())).all().get();
            await("the move", () -> Files.exists(there.resolve("moved-0")) && !Files.exists(here.resolve("moved-0")));
            produce("moved", "later", 3);
            admin.deleteTopics(List.of("again")).all().get();
            await("the deletion", () -> !admin.listTopics().names().get().contains("again"));
            await("its directory", () -> !Files.exists(root.resolve("log/2/again-0")));
            admin.createTopics(List.of(topic("again", List.of(2)))).all().get();
            produce("again", "second", 5);
            settle(admin, "orders", 3);
            note(admin, "3");
        }
    }

    private Properties config(int node) {
        Path log = root.resolve("log");
        Properties p = LiveBroker.config(new int[] {ports[node], ports[0]}, log.resolve(String.valueOf(node)));
        p.put("node.id", String.valueOf(node));
        p.put("controller.quorum.voters", "0@127.0.0.1:" + ports[0]);
        p.put("process.roles", node == 0 ? "controller" : "broker");
        p.put("listeners", (node == 0 ? "CONTROLLER" : "PLAINTEXT") + "://127.0.0.1:" + ports[node]);
        if (node == 0) p.remove("advertised.listeners");
        if (node == 3) p.put("log.dirs", log.resolve("3") + "," + log.resolve("3b"));
        for (String topic : List.of("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")) p.put(topic + ".replication.factor", "3");
        p.put("unclean.leader.election.enable", "true");
        p.put("min.insync.replicas", "1");
        p.put("log.cleaner.enable", "false");
        p.put("log.segment.delete.delay.ms", "100");
        p.put("unclean.leader.election.interval.ms", "500");
        return p;
    }

    private NewTopic topic(String name, List<Integer> replicas) {
        Map<String, String> config = Map.of("internal.segment.bytes", "4096", "index.interval.bytes", "256", "segment.index.bytes", "4096",
            "unclean.leader.election.enable", "true", "min.insync.replicas", "1", "file.delete.delay.ms", "100");
        return new NewTopic(name, Map.of(0, replicas)).configs(config);
    }

    private void start(int node) {
        servers[node] = new KafkaRaftServer(new KafkaConfig(config(node), false), Time.SYSTEM);
        servers[node].startup();
    }

    private void stop(int node) {
        servers[node].shutdown();
        servers[node].awaitShutdown();
    }

    private String bootstrap() {
        return "127.0.0.1:" + ports[1] + ",127.0.0.1:" + ports[2] + ",127.0.0.1:" + ports[3];
    }

    private Admin admin() {
        return Admin.create(Map.of("bootstrap.servers", bootstrap()));
    }

    private static int replicas(Admin admin, String topic) throws Exception {
        return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().get(0).isr().size();
    }

    private static int leader(Admin admin, String topic) throws Exception {
        var leader = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().get(0).leader();
        return leader == null ? -1 : leader.id();
    }

    /** Transactions, every third of which is aborted, with plain batches between them. */
    private void produce(String topic, String words, int transactions) throws Exception {
        Map<String, Object> plain = Map.of("bootstrap.servers", bootstrap(), "acks", "all", "enable.idempotence", "false");
        Map<String, Object> ours = new HashMap<>(Map.of("bootstrap.servers", bootstrap(), "transactional.id", topic + words));
        try (var p = new KafkaProducer<>(ours, new ByteArraySerializer(), new ByteArraySerializer());
             var q = new KafkaProducer<>(plain, new ByteArraySerializer(), new ByteArraySerializer())) {
            p.initTransactions();
            for (int i = 0; i < transactions; i++) {
                p.beginTransaction();
                for (int j = 0; j < 6; j++) p.send(record(topic, words + " " + i + " " + j));
                p.flush();
                q.send(record(topic, words + " plain " + i)).get();
                if (i % 3 == 1) p.abortTransaction();
                else p.commitTransaction();
            }
        }
    }

    private static ProducerRecord<byte[], byte[]> record(String topic, String value) {
        byte[] bytes = value.getBytes(StandardCharsets.UTF_8);
        return new ProducerRecord<>(topic, 0, bytes, bytes);
    }

    /** Waits until all replicas have noted a high watermark at the end of the log. */
    private void settle(Admin admin, String topic, int brokers) throws Exception {
        TopicPartition tp = new TopicPartition(topic, 0);
        await("high watermarks", () -> {
            long end = admin.listOffsets(Map.of(tp, OffsetSpec.latest())).partitionResult(tp).get().offset();
            for (int broker = 1; broker <= brokers; broker++) {
                boolean isThere = false;
                for (String dir : config(broker).getProperty("log.dirs").split(",")) {
                    Path file = Path.of(dir).resolve("replication-offset-checkpoint");
                    isThere |= Files.exists(file) && Files.readAllLines(file).contains(topic + " 0 " + end);
                }
                if (!isThere) return false;
            }
            return true;
        });
    }

    private void note(Admin admin, String phase) throws Exception {
        Path to = root.resolve(phase);
        Files.createDirectories(to.resolve("records"));
        List<TopicPartition> readable = new ArrayList<>();
        for (String topic : TOPICS) {
            try {
                if (leader(admin, topic) >= 0) readable.add(new TopicPartition(topic, 0));
            } catch (ExecutionException e) {
                continue; // it is not there
            }
        }
        var observation = new Observation(bootstrap());
        var records = observation.read(readable, IsolationLevel.READ_COMMITTED);
        for (TopicPartition tp : readable) observation.writeRecords(records.get(tp), to.resolve("records").resolve(tp + ".ndjson"));
        Thread.sleep(1000); // the checkpoints of the other topics
        Trees.copy(root.resolve("log"), to.resolve("log"));
    }

    private static void await(String what, Callable<Boolean> done) throws Exception {
        long deadline = System.nanoTime() + PATIENCE_MS * 1_000_000;
        while (true) {
            try {
                if (done.call()) return;
            } catch (ExecutionException e) {
                // the cluster is on its way
            }
            if (System.nanoTime() > deadline) throw new IllegalStateException("no end of waiting for " + what);
            Thread.sleep(50);
        }
    }
}
