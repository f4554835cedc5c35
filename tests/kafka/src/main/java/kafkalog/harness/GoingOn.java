package kafkalog.harness;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/** New producers append to each partition of some topics: an idempotent one, and transactions, one committed and one aborted. */
final class GoingOn {
    private static final long SECONDS_MAX = 60;

    private final String bootstrap;

    GoingOn(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    /** For each partition the offsets that were given, or what went wrong: two idempotent records, one committed and one aborted. */
    Map<String, Object> produce(List<String> topics) throws Exception {
        Map<String, Object> found = new TreeMap<>();
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            List<TopicPartition> partitions = BrokerReport.partitions(admin).stream().filter(one -> topics.contains(one.topic())).toList();
            try (var producer = producer(Map.of())) {
                for (int i = 0; i < 2; i++) send(producer, partitions, "idempotent-" + i, found);
            }
            try (var producer = producer(Map.of("transactional.id", "going-on"))) {
                producer.initTransactions();
                producer.beginTransaction();
                send(producer, partitions, "committed", found);
                producer.commitTransaction();
                producer.beginTransaction();
                send(producer, partitions, "aborted", found);
                producer.abortTransaction();
            } catch (Exception e) {
                found.put("transactions", String.valueOf(e));
            }
        }
        return found;
    }

    @SuppressWarnings("unchecked")
    private void send(KafkaProducer<byte[], byte[]> producer, List<TopicPartition> partitions, String what, Map<String, Object> found) throws Exception {
        Map<TopicPartition, Future<RecordMetadata>> sent = new LinkedHashMap<>();
        byte[] bytes = what.getBytes(StandardCharsets.UTF_8);
        for (TopicPartition one : partitions) sent.put(one, producer.send(new ProducerRecord<>(one.topic(), one.partition(), bytes, bytes)));
        producer.flush();
        for (var one : sent.entrySet()) {
            Object answer;
            try {
                answer = one.getValue().get(SECONDS_MAX, TimeUnit.SECONDS).offset();
            } catch (ExecutionException e) {
                answer = String.valueOf(e.getCause());
            }
            ((List<Object>) found.computeIfAbsent(one.getKey().toString(), key -> new ArrayList<>())).add(answer);
        }
    }

    private KafkaProducer<byte[], byte[]> producer(Map<String, Object> more) {
        Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "acks", "all", "delivery.timeout.ms", "40000",
            "request.timeout.ms", "20000", "linger.ms", "0"));
        config.putAll(more);
        return new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
    }
}
