package kafkalog.harness;

import kafka.server.KafkaConfig;
import kafka.server.KafkaRaftServer;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.Time;

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;

/**
 * One real Kafka node with a topic `orders` of some partitions, a day of records in each, that runs until its stdin ends:
 * `FilledBroker LOG_DIR PARTITIONS RECORDS SEED`. Says `running PORT` when all records are there; a log directory that has
 * them already is served as it is. The records have keys of 10 bytes, two for each three records, values of 100 bytes of
 * text and timestamps that rise evenly from 2023-11-14T22:13:20Z on.
 */
public final class FilledBroker {
    private static final long BEGIN_MS = 1_700_000_000_000L;
    private static final long DAY_MS = 86_400_000L;
    private static final int VALUE_SIZE = 100;

    private FilledBroker() {
    }

    public static void main(String[] argv) {
        int status = 1;
        try {
            run(Path.of(argv[0]).toAbsolutePath(), Integer.parseInt(argv[1]), Integer.parseInt(argv[2]), Long.parseLong(argv[3]));
            status = 0;
        } catch (Throwable e) {
            e.printStackTrace();
        } finally {
            System.out.flush();
            System.err.flush();
            Runtime.getRuntime().halt(status); // whatever threads are left
        }
    }

    private static void run(Path logDir, int partitions, int records, long seed) throws Exception {
        boolean isFirst = !Files.exists(logDir.resolve("meta.properties"));
        Files.createDirectories(logDir);
        int[] ports = LiveBroker.freePorts(2);
        Properties config = LiveBroker.config(ports, logDir);
        config.put("log.cleaner.enable", "false");
        config.put("log.retention.ms", "-1");
        config.put("log.segment.bytes", "134217728");
        config.put("log.roll.ms", String.valueOf(Long.MAX_VALUE / 1_000_000));
        config.put("log.message.timestamp.before.max.ms", String.valueOf(Long.MAX_VALUE));
        if (isFirst) LiveBroker.format(config, Path.of("server.properties").toAbsolutePath());
        KafkaRaftServer server = new KafkaRaftServer(new KafkaConfig(config, false), Time.SYSTEM);
        server.startup();
        String bootstrap = "127.0.0.1:" + ports[0];
        if (isFirst) {
            try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
                admin.createTopics(List.of(new NewTopic("orders", partitions, (short) 1))).all().get();
            }
            fill(bootstrap, partitions, records, new Random(seed));
        }
        System.out.println("running " + ports[0]);
        System.out.flush();
        while (System.in.read() >= 0) {
            // until nobody needs it any more
        }
        server.shutdown();
        server.awaitShutdown();
    }

    private static void fill(String bootstrap, int partitions, int records, Random random) {
        Map<String, Object> producing = Map.of("bootstrap.servers", bootstrap, "linger.ms", "20", "buffer.memory", "134217728");
        byte[] text = new byte[1 << 16];
        for (int i = 0; i < text.length; i++) text[i] = (byte) ('a' + random.nextInt(26));
        try (var producer = new KafkaProducer<>(producing, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (int n = 0; n < records; n++) {
                long time = BEGIN_MS + n * DAY_MS / records;
                for (int partition = 0; partition < partitions; partition++) {
                    byte[] key = String.format("%010d", random.nextInt(2 * records / 3 + 1)).getBytes(StandardCharsets.US_ASCII);
                    byte[] value = new byte[VALUE_SIZE];
                    System.arraycopy(text, random.nextInt(text.length - VALUE_SIZE), value, 0, VALUE_SIZE);
                    producer.send(new ProducerRecord<>("orders", partition, time, key, value));
                }
            }
        }
    }
}
