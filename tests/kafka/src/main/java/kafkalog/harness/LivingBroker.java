package kafkalog.harness;

import kafka.server.KafkaConfig;
import kafka.server.KafkaRaftServer;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.Time;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/**
 * One real Kafka node under load until its stdin ends: `LivingBroker OUT SEED [again] [moves] [calm]`, in an empty working directory. It appends,
 * rolls, cleans, deletes, moves log starts, commits offsets of a group, and creates and deletes topics in OUT/log. With `moves` a topic
 * goes back and forth between OUT/log and OUT/log2. With `calm` it appends more rarely, and notes high watermarks more often, so that
 * readers soon find what is new. Says `running` when the topics are
 * there. To the line `end` it answers with the end of the acknowledged records of `steady`. With the line `rest` the load
 * ends, OUT/consumed/TOPIC gets what a read_committed consumer is given of each topic, and the answer is `rested`. At the
 * end of stdin it shuts down.
 *
 * What is in the logs follows from where it is: the record at offset N of `steady`, `compacted`, `retained` and `trimmed`,
 * and with `again` of the topic of that name, which is deleted and made again, and of `moving`, has a value that begins with N. In `transactional` and `ledger` values begin with `committed` or `aborted`.
 */
public final class LivingBroker {
    private static final List<String> TOPICS = List.of("steady", "ledger", "compacted", "transactional", "retained", "trimmed");
    private static final int KEYS = 60;
    private static final long PAUSE_MS = 20;
    private static final long CALM_PAUSE_MS = 100;
    private static final long SETTLING_MS = 3000; // a few checks of retention: no log starts later while it is consumed

    private final String bootstrap;
    private final long seed;
    private final long pauseMs;
    private volatile boolean isOver;
    private volatile long steadyEnd;

    private LivingBroker(String bootstrap, long seed, long pauseMs) {
        this.bootstrap = bootstrap;
        this.seed = seed;
        this.pauseMs = pauseMs;
    }

    public static void main(String[] argv) {
        int status = 1;
        try {
            run(Path.of(argv[0]).toAbsolutePath(), Long.parseLong(argv[1]), List.of(argv));
            status = 0;
        } catch (Throwable e) {
            e.printStackTrace();
        } finally {
            System.out.flush();
            System.err.flush();
            Runtime.getRuntime().halt(status); // whatever threads are left
        }
    }

    private static void run(Path out, long seed, List<String> more) throws Exception {
        int[] ports = LiveBroker.freePorts(2);
        Properties config = LiveBroker.config(ports, out.resolve("log"));
        List<String> dirs = List.of(out.resolve("log").toString(), out.resolve("log2").toString());
        if (more.contains("moves")) config.put("log.dirs", String.join(",", dirs));
        boolean calm = more.contains("calm");
        if (calm) config.put("replica.high.watermark.checkpoint.interval.ms", "500");
        config.put("log.cleaner.backoff.ms", "1000");
        config.put("log.retention.check.interval.ms", "1000");
        config.put("log.segment.delete.delay.ms", "1000"); // soon: an open file outlives its name
        config.put("broker.session.timeout.ms", "600000"); // a fenced broker gets no topics, and a busy machine sends heartbeats late
        LiveBroker.format(config, out.resolve("server.properties"));
        KafkaRaftServer server = new KafkaRaftServer(new KafkaConfig(config, false), Time.SYSTEM);
        server.startup();
        String bootstrap = "127.0.0.1:" + ports[0];
        LivingBroker load = new LivingBroker(bootstrap, seed, calm ? CALM_PAUSE_MS : PAUSE_MS);
        ExecutorService pool = Executors.newCachedThreadPool();
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(List.of(
                topic("steady", Map.of()),
                topic("compacted", Map.of("cleanup.policy", "compact", "min.cleanable.dirty.ratio", "0.01")),
                topic("ledger", Map.of()),
                topic("transactional", Map.of("cleanup.policy", "compact", "min.cleanable.dirty.ratio", "0.01")),
                topic("retained", Map.of("retention.bytes", "60000")),
                topic("trimmed", Map.of()))).all().get();
            if (more.contains("moves")) {
                for (String topic : TOPICS) move(admin, topic, dirs.get(0));
                admin.createTopics(List.of(topic("moving", Map.of()))).all().get();
            }
            List<Callable<Void>> jobs = new ArrayList<>(List.of(
                () -> load.numbered("steady"), () -> load.numbered("compacted"), () -> load.numbered("retained"),
                () -> load.numbered("trimmed"), () -> load.transactions("transactional"), () -> load.transactions("ledger"),
                () -> load.trims(admin), () -> load.topics(admin), () -> load.commits(admin)));
            if (more.contains("again")) jobs.add(() -> load.again(admin));
            if (more.contains("moves")) jobs.addAll(List.of(() -> load.numbered("moving"), () -> load.moves(admin, dirs)));
            List<Future<Void>> running = jobs.stream().map(pool::submit).toList();
            System.out.println("running");
            System.out.flush();
            BufferedReader asked = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            for (String line; (line = asked.readLine()) != null; ) {
                for (Future<Void> one : running) if (one.isDone()) one.get();
                if (line.equals("rest")) {
                    load.isOver = true;
                    for (Future<Void> one : running) one.get();
                    Thread.sleep(SETTLING_MS);
                    load.consume(Files.createDirectory(out.resolve("consumed")), more.contains("moves"));
                    System.out.println("rested");
                } else {
                    System.out.println(load.steadyEnd);
                }
                System.out.flush();
            }
            load.isOver = true;
            for (Future<Void> one : running) one.get();
        }
        server.shutdown();
        server.awaitShutdown();
    }

    /** What a read_committed consumer is given of each topic that stays. */
    private void consume(Path to, boolean moves) throws Exception {
        Observation observation = new Observation(bootstrap);
        List<String> topics = new ArrayList<>(TOPICS);
        if (moves) topics.add("moving");
        for (String topic : topics) {
            TopicPartition partition = new TopicPartition(topic, 0);
            observation.writeRecords(observation.read(List.of(partition), IsolationLevel.READ_COMMITTED).get(partition), to.resolve(topic));
        }
    }

    private static NewTopic topic(String name, Map<String, String> config) {
        Map<String, String> all = new HashMap<>(Map.of(
            "internal.segment.bytes", "16384", "index.interval.bytes", "512", "segment.index.bytes", "8192"));
        all.putAll(config);
        return new NewTopic(name, 1, (short) 1).configs(all);
    }

    private KafkaProducer<byte[], byte[]> producer(Map<String, Object> more) {
        Map<String, Object> config = new HashMap<>(Map.of(
            "bootstrap.servers", bootstrap, "acks", "all", "linger.ms", "5", "enable.idempotence", "true"));
        config.putAll(more);
        return new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private static byte[] text(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    /** Records whose values say at which offset they are. */
    private Void numbered(String topic) throws Exception {
        Random rnd = new Random(seed ^ topic.hashCode());
        long offset = 0;
        try (var producer = producer(Map.of("compression.type", rnd.nextBoolean() ? "none" : "lz4"))) {
            while (!isOver) {
                for (int i = 1 + rnd.nextInt(8); i > 0; i--, offset++) {
                    byte[] key = text("key-" + rnd.nextInt(KEYS));
                    producer.send(new ProducerRecord<>(topic, 0, key, text(offset + " " + "x".repeat(rnd.nextInt(300)))));
                }
                producer.flush();
                if (topic.equals("steady")) steadyEnd = offset;
                Thread.sleep(pauseMs);
            }
        }
        return null;
    }

    private Void transactions(String topic) throws Exception {
        Random rnd = new Random(seed ^ topic.hashCode());
        try (var producer = producer(Map.of("transactional.id", topic))) {
            producer.initTransactions();
            while (!isOver) {
                boolean aborts = rnd.nextInt(3) == 0;
                producer.beginTransaction();
                for (int i = 1 + rnd.nextInt(6); i > 0; i--) {
                    byte[] key = text("key-" + rnd.nextInt(KEYS));
                    producer.send(new ProducerRecord<>(topic, 0, key, text((aborts ? "aborted " : "committed ") + "y".repeat(rnd.nextInt(100)))));
                    if (rnd.nextInt(3) == 0) producer.flush();
                }
                producer.flush();
                if (aborts) producer.abortTransaction();
                else producer.commitTransaction();
                Thread.sleep(pauseMs);
            }
        }
        return null;
    }

    /** Moves the log start of `trimmed` after its end. */
    private Void trims(Admin admin) throws Exception {
        TopicPartition trimmed = new TopicPartition("trimmed", 0);
        for (long to = 100; !isOver; to += 100) {
            Thread.sleep(1500);
            try {
                admin.deleteRecords(Map.of(trimmed, RecordsToDelete.beforeOffset(to))).all().get();
            } catch (java.util.concurrent.ExecutionException e) {
                to -= 100; // not so much has been appended yet
            }
        }
        return null;
    }

    /** Commits offsets of a group. */
    private Void commits(Admin admin) throws Exception {
        while (!isOver) {
            Map<TopicPartition, OffsetAndMetadata> offsets = Map.of(new TopicPartition("steady", 0), new OffsetAndMetadata(steadyEnd));
            admin.alterConsumerGroupOffsets("billing", offsets).all().get();
            Thread.sleep(200);
        }
        return null;
    }

    /** Moves a topic between the log directories. */
    private Void moves(Admin admin, List<String> dirs) throws Exception {
        Random rnd = new Random(seed + 2);
        for (int i = 1; !isOver; i++) {
            move(admin, "moving", dirs.get(i % 2));
            Thread.sleep(rnd.nextInt(1500));
        }
        return null;
    }

    private static void move(Admin admin, String topic, String dir) throws Exception {
        TopicPartitionReplica replica = new TopicPartitionReplica(topic, 0, 1);
        admin.alterReplicaLogDirs(Map.of(replica, dir)).all().get();
        LiveBroker.await("the move of " + topic, () -> {
            var found = admin.describeReplicaLogDirs(List.of(replica)).all().get().get(replica);
            return dir.equals(found.getCurrentReplicaLogDir()) && found.getFutureReplicaLogDir() == null;
        });
    }

    /** One topic that is deleted and made again, under the same name. */
    private Void again(Admin admin) throws Exception {
        Random rnd = new Random(seed + 1);
        while (!isOver) {
            admin.createTopics(List.of(topic("again", Map.of()))).all().get();
            try (var producer = producer(Map.of())) {
                int count = 50 + rnd.nextInt(300);
                for (int offset = 0; offset < count && !isOver; offset++) {
                    producer.send(new ProducerRecord<>("again", 0, null, text(offset + " " + "w".repeat(rnd.nextInt(200))))).get();
                }
            }
            Thread.sleep(rnd.nextInt(4000));
            if (isOver) return null;
            admin.deleteTopics(List.of("again")).all().get();
            Thread.sleep(500);
        }
        return null;
    }

    /** Topics that come and go. */
    private Void topics(Admin admin) throws Exception {
        Random rnd = new Random(seed);
        try (var producer = producer(Map.of())) {
            for (int i = 0; !isOver; i++) {
                String name = "passing-" + i;
                admin.createTopics(List.of(topic(name, Map.of()))).all().get();
                for (int j = 0; j < 200; j++) producer.send(new ProducerRecord<>(name, 0, null, text("z".repeat(200))));
                producer.flush();
                Thread.sleep(500 + rnd.nextInt(8000));
                admin.deleteTopics(List.of(name)).all().get();
                Thread.sleep(300);
            }
        }
        return null;
    }
}
