package kafkalog.harness;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.SerializationFeature;

import kafka.server.KafkaConfig;
import kafka.server.KafkaRaftServer;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.utils.Time;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Map;
import java.util.Properties;

/**
 * One real Kafka node that clients of others write to: `RecordedBroker ROOT TOPIC...`. Makes the topics, says `running PORT`,
 * and when its stdin ends writes what Java consumers read into `ROOT/expected`, shuts down, and adds what DumpLogSegments prints
 * for the files that are left in `ROOT/log`.
 */
public final class RecordedBroker {
    private RecordedBroker() {
    }

    public static void main(String[] argv) {
        int status = 1;
        try {
            run(Path.of(argv[0]).toAbsolutePath(), Arrays.copyOfRange(argv, 1, argv.length));
            status = 0;
        } catch (Throwable e) {
            e.printStackTrace();
        } finally {
            System.out.flush();
            System.err.flush();
            Runtime.getRuntime().halt(status); // whatever threads are left
        }
    }

    private static void run(Path root, String[] topics) throws Exception {
        Path logDir = root.resolve("log");
        Path expected = root.resolve("expected");
        ObjectMapper json = new ObjectMapper().enable(SerializationFeature.INDENT_OUTPUT);
        Files.createDirectories(logDir);
        int[] ports = LiveBroker.freePorts(2);
        String bootstrap = "127.0.0.1:" + ports[0];
        Properties config = LiveBroker.config(ports, logDir);
        config.put("log.cleaner.enable", "false");
        config.put("log.message.timestamp.before.max.ms", String.valueOf(Long.MAX_VALUE));
        config.put("log.message.timestamp.after.max.ms", String.valueOf(Long.MAX_VALUE));
        config.put("log.roll.ms", String.valueOf(Long.MAX_VALUE / 1_000_000));
        LiveBroker.format(config, root.resolve("server.properties"));
        KafkaRaftServer server = new KafkaRaftServer(new KafkaConfig(config, false), Time.SYSTEM);
        server.startup();
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(Arrays.stream(topics).map(t -> new NewTopic(t, 1, (short) 1)).toList()).all().get();
            System.out.println("running " + ports[0]);
            System.out.flush();
            while (System.in.read() >= 0) {
                // until the client has ended
            }
            LiveBroker.observe(admin, bootstrap, logDir, expected, json);
        }
        server.shutdown();
        server.awaitShutdown();
        DumpTool.dumpAll(logDir, expected.resolve("dump"), json);
    }
}
