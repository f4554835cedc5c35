package kafkalog.harness;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

import java.io.BufferedOutputStream;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * A Java client that reads all there is: `ClientReader BOOTSTRAP PROTOCOL ISOLATIONS`, with the topics on stdin, one a line. Each
 * record is a line of JSON.
 */
public final class ClientReader {
    private static final Duration PATIENCE = Duration.ofSeconds(60);

    private final String bootstrap;
    private final JsonGenerator out;

    private ClientReader(String bootstrap) throws IOException {
        this.bootstrap = bootstrap;
        this.out = new JsonFactory().createGenerator(new BufferedOutputStream(System.out, 1 << 16));
        out.setRootValueSeparator(new com.fasterxml.jackson.core.io.SerializedString("\n"));
    }

    public static void main(String[] argv) {
        int status = 1;
        try {
            Set<String> topics = new HashSet<>();
            BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
            for (String line = lines.readLine(); line != null; line = lines.readLine()) topics.add(line);
            ClientReader reader = new ClientReader(argv[0]);
            for (String isolation : argv[2].split(",")) reader.read(topics, argv[1], isolation);
            reader.out.close();
            status = 0;
        } catch (Throwable e) {
            e.printStackTrace();
        } finally {
            System.out.flush();
            System.err.flush();
            Runtime.getRuntime().halt(status);
        }
    }

    private void read(Set<String> topics, String protocol, String isolation) throws IOException {
        Map<String, Object> config = new HashMap<>(Map.of(
            "bootstrap.servers", bootstrap, "isolation.level", isolation, "enable.auto.commit", "false",
            "auto.offset.reset", "none", "allow.auto.create.topics", "false", "max.poll.records", "5000", "fetch.max.wait.ms", "20"));
        if (protocol.equals("consumer")) config.putAll(Map.of("group.protocol", protocol, "group.id", "reader"));
        try (var consumer = new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> partitions = new ArrayList<>();
            for (var topic : consumer.listTopics().entrySet())
                if (topics.contains(topic.getKey()))
                    for (var p : topic.getValue()) partitions.add(new TopicPartition(p.topic(), p.partition()));
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            long deadline = System.nanoTime() + PATIENCE.toNanos();
            while (partitions.stream().anyMatch(tp -> consumer.position(tp) < ends.get(tp))) {
                if (System.nanoTime() > deadline) throw new IllegalStateException("the end of some partitions was not reached");
                for (ConsumerRecord<byte[], byte[]> r : consumer.poll(Duration.ofMillis(100))) write(isolation, r);
            }
        }
    }

    private void write(String isolation, ConsumerRecord<byte[], byte[]> r) throws IOException {
        out.writeStartObject();
        out.writeStringField("isolation", isolation);
        out.writeStringField("topic", r.topic());
        out.writeNumberField("partition", r.partition());
        out.writeNumberField("offset", r.offset());
        out.writeNumberField("timestamp", r.timestamp());
        out.writeStringField("type", r.timestampType().toString());
        out.writeFieldName("key");
        bytes(r.key());
        out.writeFieldName("value");
        bytes(r.value());
        out.writeArrayFieldStart("headers");
        for (Header h : r.headers()) {
            out.writeStartArray();
            out.writeString(h.key());
            bytes(h.value());
            out.writeEndArray();
        }
        out.writeEndArray();
        out.writeNumberField("epoch", r.leaderEpoch().orElse(-1));
        out.writeEndObject();
    }

    private void bytes(byte[] some) throws IOException {
        if (some == null) out.writeNull();
        else out.writeBinary(some);
    }
}
