package kafkalog.harness;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.SerializationFeature;

import kafka.server.KafkaConfig;
import kafka.server.KafkaRaftServer;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.Time;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.TreeMap;
import java.util.stream.Stream;

/**
 * A real Kafka node with remote storage: `TieredBroker ROOT SEED [PROPERTIES]`. It fills two tiered topics in two lives (so there are two leader
 * epochs), waits until all closed segments are uploaded and those beyond local retention are gone from the log directory, writes what
 * clients are told into `ROOT/expected`, and shuts down. `ROOT/log` is the log directory, `ROOT/tier/kafka-tiered-storage` the tier.
 * A third life (TieredRetention) goes on in `ROOT/retained`, unless a file of properties names another remote storage.
 */
public final class TieredBroker {
    private static final TopicPartition PLAIN = new TopicPartition("plain", 0);
    private static final TopicPartition TRANSACTIONS = new TopicPartition("transactions", 0);
    private static final List<TopicPartition> PARTITIONS = List.of(PLAIN, TRANSACTIONS);
    private static final long FIRST_TIME = 1_717_243_200_000L;
    private static final long JUMP_MS = 6 * 3_600_000;
    private static final int LIVES = 2;
    private static final int ROUNDS = 24;

    private final Path root;
    private final Random random;
    private final List<Long> jumps = new ArrayList<>();
    private long time = FIRST_TIME;

    private TieredBroker(Path root, long seed) {
        this.root = root;
        this.random = new Random(seed);
    }

    public static void main(String[] argv) {
        int status = 1;
        try {
            new TieredBroker(Path.of(argv[0]).toAbsolutePath(), Long.parseLong(argv[1])).run(Arrays.copyOfRange(argv, 2, argv.length));
            status = 0;
        } catch (Throwable e) {
            e.printStackTrace();
        } finally {
            System.out.flush();
            System.err.flush();
            Runtime.getRuntime().halt(status); // whatever threads are left
        }
    }

    private void run(String... others) throws Exception {
        int[] ports = LiveBroker.freePorts(2);
        String bootstrap = "127.0.0.1:" + ports[0];
        Properties config = LiveBroker.config(ports, root.resolve("log"));
        config.put("log.segment.delete.delay.ms", "0");
        config.put("remote.log.storage.system.enable", "true");
        config.put("remote.log.storage.manager.class.name", "org.apache.kafka.server.log.remote.storage.LocalTieredStorage");
        config.put("rsm.config.dir", root.resolve("tier").toString());
        config.put("remote.log.metadata.manager.listener.name", "PLAINTEXT");
        config.put("rlmm.config.remote.log.metadata.topic.replication.factor", "1");
        config.put("rlmm.config.remote.log.metadata.topic.num.partitions", "1");
        config.put("remote.log.manager.task.interval.ms", "100");
        for (String file : others)
            try (var properties = Files.newBufferedReader(Path.of(file))) {
                config.load(properties);
            }
        LiveBroker.format(config, root.resolve("server.properties"));
        for (int life = 0; life < LIVES; life++) {
            KafkaRaftServer server = new KafkaRaftServer(new KafkaConfig(config, false), Time.SYSTEM);
            server.startup();
            try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
                if (life == 0) create(admin);
                plain(bootstrap);
                transactions(bootstrap, life);
                settle(admin, life + 1 == LIVES);
                if (life + 1 == LIVES) observe(admin, bootstrap);
            }
            server.shutdown();
            server.awaitShutdown();
        }
        if (others.length == 0) TieredRetention.run(root, config, PARTITIONS, jumps);
    }

    private static void create(Admin admin) throws Exception {
        Map<String, String> tiered = Map.of(
            "remote.storage.enable", "true", "internal.segment.bytes", "3000", "index.interval.bytes", "300", "retention.ms", "-1");
        Map<String, String> plain = new HashMap<>(tiered);
        plain.put("local.retention.bytes", "12000"); // some uploaded segments stay
        Map<String, String> transactions = new HashMap<>(tiered);
        transactions.put("local.retention.ms", "1"); // none does
        admin.createTopics(List.of(new NewTopic(PLAIN.topic(), 1, (short) 1).configs(plain),
            new NewTopic(TRANSACTIONS.topic(), 1, (short) 1).configs(transactions))).all().get();
    }

    private ProducerRecord<byte[], byte[]> record(TopicPartition partition) {
        byte[] key = new byte[1 + random.nextInt(8)];
        byte[] value = new byte[random.nextInt(120)];
        random.nextBytes(key);
        random.nextBytes(value);
        time += random.nextInt(500) - 50;
        return new ProducerRecord<>(partition.topic(), partition.partition(), time, key, value);
    }

    /** Some hours in which there are no records. */
    private void jump() {
        jumps.add(time + JUMP_MS / 2);
        time += JUMP_MS;
    }

    private void plain(String bootstrap) throws Exception {
        for (String compression : List.of("none", "zstd")) {
            Map<String, Object> producing = Map.of("bootstrap.servers", bootstrap, "acks", "all", "compression.type", compression);
            try (var producer = new KafkaProducer<>(producing, new ByteArraySerializer(), new ByteArraySerializer())) {
                for (int round = 0; round < ROUNDS; round++) {
                    for (int i = 1 + random.nextInt(12); i > 0; i--) producer.send(record(PLAIN));
                    producer.flush();
                }
            }
            jump();
        }
    }

    /** Two producers whose transactions overlap; every third one is aborted. Only in the last life one stays open. */
    private void transactions(String bootstrap, int life) throws Exception {
        var producers = new KafkaProducer<?, ?>[2];
        for (int i = 0; i < producers.length; i++) {
            var one = transactional(bootstrap, "id-" + i);
            producers[i] = one;
        }
        @SuppressWarnings("unchecked")
        var both = (KafkaProducer<byte[], byte[]>[]) producers;
        for (int round = 0; round < ROUNDS; round++) {
            for (var one : both) one.beginTransaction();
            for (int i = 2 + random.nextInt(16); i > 0; i--) {
                both[random.nextInt(2)].send(record(TRANSACTIONS));
                if (random.nextInt(3) == 0) for (var one : both) one.flush();
            }
            for (var one : both)
                if (random.nextInt(3) == 0) one.abortTransaction();
                else one.commitTransaction();
        }
        if (life + 1 == LIVES) {
            both[0].beginTransaction();
            both[0].send(record(TRANSACTIONS)).get();
        }
        both[1].close();
        if (life + 1 < LIVES) both[0].close();
    }

    private static KafkaProducer<byte[], byte[]> transactional(String bootstrap, String id) {
        var producer = new KafkaProducer<>(
            Map.<String, Object>of("bootstrap.servers", bootstrap, "transactional.id", id), new ByteArraySerializer(), new ByteArraySerializer());
        producer.initTransactions();
        return producer;
    }

    /**
     * Waits until all that can be uploaded is (what is below the last stable offset), and until nothing more is deleted. A shutdown
     * in the middle of an upload would leave a second copy of a segment, which goes for another reason where retention ends between both.
     */
    private void settle(Admin admin, boolean hasOpenTransaction) throws Exception {
        LiveBroker.await("uploads of " + PLAIN, () -> {
            List<Long> local = local(PLAIN);
            return offset(admin, PLAIN, OffsetSpec.latestTiered()).offset() == local.get(local.size() - 1) - 1 && bytes(PLAIN) < 12_000 + 3_500;
        });
        // its last segment closes, too, when local retention has come to it; the open transaction keeps it from being uploaded
        LiveBroker.await("local retention of " + TRANSACTIONS, () -> {
            List<Long> local = local(TRANSACTIONS);
            return local.size() == (hasOpenTransaction ? 2 : 1) && offset(admin, TRANSACTIONS, OffsetSpec.latestTiered()).offset() == local.get(0) - 1;
        });
        for (TopicPartition one : PARTITIONS)
            LiveBroker.await("the local start of " + one, () -> offset(admin, one, OffsetSpec.earliestLocal()).offset() == local(one).get(0));
    }

    private List<Long> local(TopicPartition partition) throws Exception {
        try (Stream<Path> files = Files.list(root.resolve("log").resolve(partition.toString()))) {
            return files.map(file -> file.getFileName().toString()).filter(name -> name.endsWith(".log"))
                .map(name -> Long.parseLong(name.substring(0, 20))).sorted().toList();
        }
    }

    private long bytes(TopicPartition partition) throws Exception {
        long size = 0;
        for (long base : local(partition))
            size += Files.size(root.resolve("log").resolve(partition.toString()).resolve(String.format("%020d.log", base)));
        return size;
    }

    private static ListOffsetsResultInfo offset(Admin admin, TopicPartition partition, OffsetSpec spec) throws Exception {
        return admin.listOffsets(Map.of(partition, spec)).partitionResult(partition).get();
    }

    private void observe(Admin admin, String bootstrap) throws Exception {
        Path expected = root.resolve("expected");
        Files.createDirectories(expected.resolve("records"));
        Observation observation = new Observation(bootstrap);
        var all = observation.read(PARTITIONS, IsolationLevel.READ_UNCOMMITTED);
        var committed = observation.read(PARTITIONS, IsolationLevel.READ_COMMITTED);
        Map<TopicPartition, List<Long>> before = new HashMap<>();
        for (TopicPartition one : PARTITIONS) before.put(one, local(one));
        Map<String, Object> told = new TreeMap<>();
        for (TopicPartition one : PARTITIONS) {
            observation.writeRecords(all.get(one), expected.resolve("records").resolve(one + ".ndjson"));
            Map<String, Long> offsets = new LinkedHashMap<>();
            Map<String, OffsetSpec> specials = new LinkedHashMap<>();
            specials.put("earliest", OffsetSpec.earliest());
            specials.put("latest", OffsetSpec.latest());
            specials.put("max-timestamp", OffsetSpec.maxTimestamp());
            specials.put("earliest-local", OffsetSpec.earliestLocal());
            specials.put("latest-tiered", OffsetSpec.latestTiered());
            specials.put("earliest-pending-upload", OffsetSpec.earliestPendingUpload());
            for (var special : specials.entrySet()) offsets.put(special.getKey(), offset(admin, one, special.getValue()).offset());
            Map<String, Long> times = new LinkedHashMap<>();
            for (long time : Observation.targets(all.get(one), List.of(0L)))
                times.put(Long.toString(time), offset(admin, one, OffsetSpec.forTimestamp(time)).offset());
            if (!local(one).equals(before.get(one))) throw new IllegalStateException(one + " is not at rest");
            told.put(one.toString(), Map.of("specials", offsets, "times", times, "local", before.get(one),
                "committed", committed.get(one).stream().map(ConsumerRecord::offset).toList()));
        }
        new ObjectMapper().enable(SerializationFeature.INDENT_OUTPUT).writeValue(expected.resolve("told.json").toFile(), told);
    }
}
