package kafkalog.harness;

import kafka.server.KafkaRaftServer;

import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.Path;
import java.util.Map;

/**
 * One real Kafka node that runs until its stdin ends: `RunningBroker LOG_DIR[,LOG_DIR…]`. A directory that is not there is
 * formatted. Says `running` when it does. For each line `TOPIC PARTITION` it appends a record there and prints its offset, for `port`
 * where it listens. Then it shuts down.
 */
public final class RunningBroker {
    private RunningBroker() {
    }

    public static void main(String[] argv) {
        int status = 1;
        try {
            run(Path.of(argv[0]).toAbsolutePath());
            status = 0;
        } catch (Throwable e) {
            e.printStackTrace();
        } finally {
            System.out.flush();
            System.err.flush();
            Runtime.getRuntime().halt(status); // whatever threads are left
        }
    }

    private static void run(Path logDir) throws Exception {
        int[] ports = LiveBroker.freePorts(2);
        KafkaRaftServer server = ServedLogs.start(logDir.toString(), ports);
        Map<String, Object> producing = Map.of("bootstrap.servers", "127.0.0.1:" + ports[0], "acks", "all");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        try (var producer = new KafkaProducer<>(producing, new ByteArraySerializer(), new ByteArraySerializer())) {
            System.out.println("running");
            System.out.flush();
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                String[] words = line.split(" ");
                if (words[0].equals("port")) {
                    System.out.println(ports[0]);
                    System.out.flush();
                    continue;
                }
                var record = new ProducerRecord<>(words[0], Integer.parseInt(words[1]), new byte[] {1}, new byte[] {2});
                System.out.println(producer.send(record).get().offset());
                System.out.flush();
            }
        }
        server.shutdown();
        server.awaitShutdown();
    }
}
