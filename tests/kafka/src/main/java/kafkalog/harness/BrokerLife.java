package kafkalog.harness;

import kafka.server.KafkaConfig;
import kafka.server.KafkaRaftServer;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.utils.Time;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Properties;

/**
 * One life of a real Kafka node on a log directory that may have had one before: `BrokerLife DIR SEED LIFE END`, with its
 * `server.properties` beside it. Writes what `Workload` has to offer to old and new topics; END is `closed` (a clean shutdown)
 * or `killed` (the process ends in the middle of a transaction, with nothing flushed by hand).
 */
public final class BrokerLife {
    private static final long ROUNDS_MS = 1_000; // some rounds of the cleaner, of retention and of the checkpoint tasks

    public static void main(String[] argv) {
        int status = 1;
        try {
            run(Path.of(argv[0]).toAbsolutePath(), Long.parseLong(argv[1]), Integer.parseInt(argv[2]), argv[3].equals("killed"));
            status = 0;
        } catch (Throwable e) {
            e.printStackTrace();
        } finally {
            System.err.flush();
            Runtime.getRuntime().halt(status);
        }
    }

    static void run(Path logDir, long seed, int life, boolean killed) throws Exception {
        boolean isFirst = !Files.exists(logDir.resolve("meta.properties"));
        Files.createDirectories(logDir);
        int[] ports = LiveBroker.freePorts(2);
        Properties config = LiveBroker.config(ports, logDir);
        config.put("log.segment.delete.delay.ms", "1000");
        if (isFirst) LiveBroker.format(config, logDir.resolveSibling("server.properties"));
        KafkaRaftServer server = new KafkaRaftServer(new KafkaConfig(config, false), Time.SYSTEM);
        server.startup();
        String bootstrap = "127.0.0.1:" + ports[0];
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            Workload workload = new Workload(bootstrap, admin, seed + life);
            if (isFirst) {
                workload.createTopics();
                workload.createMaintainedTopics();
            }
            workload.produce();
            workload.maintained();
            if (isFirst) workload.deleteRecords();
            workload.compactedTwice(life);
            Path first = logDir.resolve("by-size-0").resolve("0".repeat(20) + ".log");
            LiveBroker.await("retention", () -> Files.notExists(first)); // however late on a loaded machine
            for (String topic : List.of("compacted", "compacted-twice")) LiveBroker.await("the cleaner", () -> LiveBroker.isCleaned(logDir, topic));
            Thread.sleep(ROUNDS_MS);
            if (killed) {
                workload.maintained();
                return;
            }
            server.shutdown();
            server.awaitShutdown();
            workload.abandon();
        }
    }
}
