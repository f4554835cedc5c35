package kafkalog.harness;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.SerializationFeature;

import kafka.server.KafkaRaftServer;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Map;
import java.util.Properties;

/** Real Kafka nodes on log directories that are there; what is in them stays. */
final class ServedLogs {
    private ServedLogs() {
    }

    /** A node that has started on some log directories, separated by commas; one that is not there is formatted. */
    static KafkaRaftServer start(String logDirs, int[] ports) throws Exception {
        return start(logDirs, ports, Map.of());
    }

    private static KafkaRaftServer start(String logDirs, int[] ports, Map<String, String> more) throws Exception {
        Properties config = LiveBroker.config(ports, Path.of(logDirs));
        config.put("log.cleanup.policy", "delete");
        config.put("log.cleaner.enable", "false"); // what is served is what is there
        config.putAll(more);
        if (Arrays.stream(logDirs.split(",")).noneMatch(one -> Files.exists(Path.of(one))))
            LiveBroker.format(config, Path.of(logDirs).resolveSibling("server.properties"));
        return BrokerCommands.start(config);
    }

    /** Leaves in `out` what clients see of a log directory, as LiveBroker does in `expected`. */
    static void serve(Path logDir, Path out) throws Exception {
        int[] ports = LiveBroker.freePorts(2);
        String bootstrap = "127.0.0.1:" + ports[0];
        // no retention: of a topic with retention.ms more is over each time; transactions stay open, however long ago they began
        KafkaRaftServer server = start(logDir.toString(), ports, Map.of(
            "log.initial.task.delay.ms", "600000", "transaction.abort.timed.out.transaction.cleanup.interval.ms", "600000"));
        ObjectMapper json = new ObjectMapper().enable(SerializationFeature.INDENT_OUTPUT);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            LiveBroker.observe(admin, bootstrap, logDir, out, json);
        } finally {
            server.shutdown();
            server.awaitShutdown();
        }
    }

    /** Appends a record to a partition; its offset. */
    static long append(String bootstrap, String topic, int partition) throws Exception {
        Map<String, Object> producing = Map.of("bootstrap.servers", bootstrap, "acks", "all");
        try (var producer = new KafkaProducer<>(producing, new ByteArraySerializer(), new ByteArraySerializer())) {
            return producer.send(new ProducerRecord<>(topic, partition, new byte[] {1}, new byte[] {2})).get().offset();
        }
    }
}
