package kafkalog.harness;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * What three brokers are given, in two parts: plain, transactional and compacted topics, groups, an ACL, a SCRAM user, a quota. The
 * producer with the id 0, and some others, write one record to each partition of `once`, today; all other records are of 2023. After the second part a transaction is open, in `transactions` and for the group `in-transactions`.
 */
final class ClusterLoad {
    static final String USER = "alice";
    static final String PASSWORD = "secret of alice";
    private static final long BEGIN_MS = 1_700_000_000_000L;
    private static final int PARTITIONS = 3;

    private final String bootstrap;
    private final int part;

    ClusterLoad(String bootstrap, int part) {
        this.bootstrap = bootstrap;
        this.part = part;
    }

    Map<String, Object> fill() throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            if (part == 1) administer(admin);
            if (part == 1) once(admin);
            try (var producer = producer(Map.of())) {
                for (int i = 0; i < 300; i++) {
                    producer.send(record("plain", i));
                    producer.send(record("compacted", i % 40));
                    if (i % 50 == 0) producer.flush();
                }
            }
            transactions();
            commit("classic");
            commit("consumer");
        }
        return Map.of();
    }

    private void administer(Admin admin) throws Exception {
        String small = "20000";
        admin.createTopics(List.of(
            new NewTopic("plain", PARTITIONS, (short) 3).configs(Map.of("internal.segment.bytes", small, "retention.ms", "86400000")),
            new NewTopic("once", PARTITIONS, (short) 3),
            new NewTopic("transactions", PARTITIONS, (short) 3).configs(Map.of("internal.segment.bytes", small)),
            new NewTopic("compacted", PARTITIONS, (short) 3).configs(Map.of("cleanup.policy", "compact", "internal.segment.bytes", small)))).all().get();
        admin.createAcls(List.of(new AclBinding(
            new ResourcePattern(ResourceType.TOPIC, "pl", PatternType.PREFIXED),
            new AccessControlEntry("User:" + USER, "*", AclOperation.READ, AclPermissionType.ALLOW)))).all().get();
        admin.alterUserScramCredentials(List.of(new UserScramCredentialUpsertion(
            USER, new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), PASSWORD))).all().get();
        admin.alterClientQuotas(List.of(new ClientQuotaAlteration(new ClientQuotaEntity(Map.of("user", USER)),
            List.of(new ClientQuotaAlteration.Op("producer_byte_rate", 1e7))))).all().get();
    }

    /** Some broker gives the producer id 0, but nobody knows to which of the first producers. */
    private void once(Admin admin) throws Exception {
        TopicPartition partition = new TopicPartition("once", 0);
        for (int tries = 0; tries < 100; tries++) {
            try (var producer = producer(Map.of())) {
                for (int i = 0; i < PARTITIONS; i++) producer.send(new ProducerRecord<>("once", i, new byte[] {1}, new byte[] {2})).get();
            }
            var producers = admin.describeProducers(List.of(partition)).partitionResult(partition).get().activeProducers();
            if (producers.stream().anyMatch(one -> one.producerId() == 0)) return;
        }
        throw new IllegalStateException("nobody has the producer id 0");
    }

    private void transactions() throws Exception {
        var producer = producer(Map.of("transactional.id", "tx-" + part, "transaction.timeout.ms", "5000"));
        producer.initTransactions();
        for (int i = 0; i < 6; i++) {
            producer.beginTransaction();
            for (int j = 0; j < 5; j++) producer.send(record("transactions", 5 * i + j));
            producer.sendOffsetsToTransaction(Map.of(new TopicPartition("plain", 0), new OffsetAndMetadata(10 * part + i)),
                new ConsumerGroupMetadata("in-transactions"));
            if (i % 3 == 1) producer.abortTransaction();
            else producer.commitTransaction();
        }
        if (part == 1) {
            producer.close();
            return;
        }
        producer.beginTransaction();
        for (int j = 0; j < 5; j++) producer.send(record("transactions", j));
        producer.flush(); // and nobody ends it
    }

    private void commit(String protocol) {
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "group.id", "group-" + protocol, "group.protocol", protocol,
            "auto.offset.reset", "earliest", "enable.auto.commit", "false");
        try (var consumer = new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of("plain"));
            while (consumer.assignment().isEmpty()) consumer.poll(Duration.ofMillis(50));
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            for (int i = 0; i < PARTITIONS; i++) offsets.put(new TopicPartition("plain", i), new OffsetAndMetadata(20L * part + i, "part " + part));
            consumer.commitSync(offsets);
        }
    }

    private ProducerRecord<byte[], byte[]> record(String topic, int number) {
        byte[] key = ("key-" + number).getBytes(StandardCharsets.UTF_8);
        byte[] value = (topic + " " + part + " " + "x".repeat(number)).getBytes(StandardCharsets.UTF_8);
        return new ProducerRecord<>(topic, number % PARTITIONS, BEGIN_MS + 1000L * number, key, value);
    }

    private KafkaProducer<byte[], byte[]> producer(Map<String, Object> more) {
        Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "acks", "all"));
        config.putAll(more);
        return new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
    }
}
