package kafkalog.harness;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.SerializationFeature;

import kafka.server.KafkaConfig;
import kafka.server.KafkaRaftServer;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.utils.Time;

import java.nio.file.Path;
import java.util.Map;
import java.util.Properties;

/**
 * One real Kafka node on a log directory that is there: `ServedLogs LOG_DIR OUT`. Leaves in OUT what clients see of it, as
 * LiveBroker does in `expected`.
 */
public final class ServedLogs {
    private ServedLogs() {
    }

    public static void main(String[] argv) throws Exception {
        int status = 1;
        try {
            run(Path.of(argv[0]).toAbsolutePath(), Path.of(argv[1]).toAbsolutePath());
            status = 0;
        } catch (Throwable e) {
            e.printStackTrace();
        } finally {
            System.err.flush();
            Runtime.getRuntime().halt(status); // whatever threads are left
        }
    }

    private static void run(Path logDir, Path out) throws Exception {
        int[] ports = LiveBroker.freePorts(2);
        Properties config = LiveBroker.config(ports, logDir);
        config.put("log.cleanup.policy", "delete");
        config.put("log.cleaner.enable", "false"); // what is served is what is there
        String bootstrap = "127.0.0.1:" + ports[0];
        KafkaRaftServer server = new KafkaRaftServer(new KafkaConfig(config, false), Time.SYSTEM);
        server.startup();
        ObjectMapper json = new ObjectMapper().enable(SerializationFeature.INDENT_OUTPUT);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            LiveBroker.observe(admin, bootstrap, logDir, out, json);
        }
        server.shutdown();
        server.awaitShutdown();
    }
}
