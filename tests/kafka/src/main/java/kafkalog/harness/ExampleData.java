package kafkalog.harness;

import kafka.server.KafkaConfig;
import kafka.server.KafkaRaftServer;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.utils.Time;

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;

/**
 * The log directory in examples/: `ExampleData OUT`. A small shop: `orders` (lz4, headers, several segments), `payments`
 * (transactions, one aborted), `customers` (compacted, tombstones), and a consumer group.
 */
public final class ExampleData {
    private static final long START = 1_704_067_200_000L; // 2024-01-01T00:00:00Z

    public static void main(String[] argv) throws Exception {
        Path out = Path.of(argv[0]).toAbsolutePath();
        Files.createDirectories(out.resolve("log-dir"));
        int[] ports = LiveBroker.freePorts(2);
        Properties config = LiveBroker.config(ports, out.resolve("log-dir"));
        LiveBroker.format(config, out.resolve("server.properties"));
        KafkaRaftServer server = new KafkaRaftServer(new KafkaConfig(config, false), Time.SYSTEM);
        server.startup();
        String bootstrap = "127.0.0.1:" + ports[0];
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(List.of(
                new NewTopic("orders", 1, (short) 1).configs(Map.of("internal.segment.bytes", "12000", "index.interval.bytes", "512")),
                new NewTopic("payments", 1, (short) 1).configs(Map.of("segment.ms", "9000000000000")),
                new NewTopic("customers", 1, (short) 1).configs(Map.of("cleanup.policy", "compact")))).all().get();
            Random random = new Random(43);
            orders(bootstrap, random);
            payments(bootstrap, random);
            customers(bootstrap);
            group(bootstrap);
            Thread.sleep(1500); // some rounds of the checkpoint tasks
        }
        server.shutdown();
        server.awaitShutdown();
        Runtime.getRuntime().halt(0);
    }

    private static KafkaProducer<String, String> producer(String bootstrap, Map<String, Object> more) {
        Map<String, Object> config = new HashMap<>(more);
        config.put("bootstrap.servers", bootstrap);
        config.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        config.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        return new KafkaProducer<>(config);
    }

    private static void orders(String bootstrap, Random random) {
        String[] items = {"tea", "coffee", "honey", "rice", "salt"};
        try (var producer = producer(bootstrap, Map.of("compression.type", "lz4", "linger.ms", 1000))) {
            for (int i = 0; i < 1000; i++) {
                String user = "user-" + random.nextInt(50);
                String value = "{\"order\":" + i + ",\"user\":\"" + user + "\",\"item\":\"" + items[random.nextInt(items.length)]
                    + "\",\"cents\":" + (100 + random.nextInt(5000)) + "}";
                var record = new ProducerRecord<>("orders", 0, START + i * 1000L, user, value);
                record.headers().add(new RecordHeader("source", (i % 3 == 0 ? "web" : "app").getBytes(StandardCharsets.UTF_8)));
                producer.send(record);
                if (i % 10 == 9) producer.flush();
            }
        }
    }

    private static void payments(String bootstrap, Random random) {
        try (var producer = producer(bootstrap, Map.of("transactional.id", "checkout"))) {
            producer.initTransactions();
            for (int i = 0; i < 12; i++) {
                producer.beginTransaction();
                for (int j = 0; j < 3; j++) {
                    String value = "{\"order\":" + (3 * i + j) + ",\"cents\":" + (100 + random.nextInt(5000)) + "}";
                    producer.send(new ProducerRecord<>("payments", 0, START + (3L * i + j) * 1000, "order-" + (3 * i + j), value));
                }
                producer.flush();
                if (i % 4 == 3) producer.abortTransaction();
                else producer.commitTransaction();
            }
        }
    }

    private static void customers(String bootstrap) {
        try (var producer = producer(bootstrap, Map.of("compression.type", "zstd"))) {
            for (int i = 0; i < 60; i++) {
                String value = i % 13 == 12 ? null : "{\"name\":\"Customer " + i % 20 + "\",\"visits\":" + (1 + i / 20) + "}";
                producer.send(new ProducerRecord<>("customers", 0, START + i * 60_000L, "user-" + i % 20, value));
            }
        }
    }

    private static void group(String bootstrap) {
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "group.id", "billing",
            "key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer",
            "value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        try (var consumer = new KafkaConsumer<String, String>(config)) {
            TopicPartition orders = new TopicPartition("orders", 0);
            consumer.assign(List.of(orders));
            for (long offset : new long[] {100, 250, 400})
                consumer.commitSync(Map.of(orders, new OffsetAndMetadata(offset, "")));
        }
    }
}
