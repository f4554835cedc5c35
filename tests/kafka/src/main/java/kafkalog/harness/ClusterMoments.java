package kafkalog.harness;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConfigEntry.ConfigSource;
import org.apache.kafka.clients.admin.DescribeClusterOptions;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.admin.UserScramCredentialAlteration;
import org.apache.kafka.clients.admin.UserScramCredentialDeletion;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Stream;

/**
 * Clients of a node that another process runs, and may kill: `ClusterMoments BOOTSTRAP LOG_DIR`. A line of stdin is a JSON array,
 * its answer a line with a JSON value; an object with `error` is what an exception said.
 *
 * `["step", NAME]` lets something happen that does not need the other steps, and returns when it has; members of groups and
 * open transactions stay. `["answer"]` is what Admin answers: groups, transactional ids, open transactions, and all
 * that is in the metadata.
 */
public final class ClusterMoments {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final String TOPIC = "orders";
    private static final int PARTITIONS = 3;
    private static final int RECORDS = 60;
    private static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");

    private final String bootstrap;
    private final Path logDir;
    private final Admin admin;
    private final Map<String, AutoCloseable> members = new TreeMap<>();
    private final Map<String, KafkaProducer<byte[], byte[]>> open = new TreeMap<>();

    private ClusterMoments(String bootstrap, Path logDir) {
        this.bootstrap = bootstrap;
        this.logDir = logDir;
        this.admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    public static void main(String[] argv) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err); // whatever Kafka prints
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        ClusterMoments clients = new ClusterMoments(argv[0], Path.of(argv[1]));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Object answer;
            try {
                answer = clients.answer(JSON.readTree(line));
            } catch (Throwable e) {
                StringWriter trace = new StringWriter();
                e.printStackTrace(new PrintWriter(trace));
                answer = Map.of("error", trace.toString());
            }
            out.println(JSON.writeValueAsString(answer));
        }
        Runtime.getRuntime().halt(0); // members and transactions are left as they are
    }

    private Object answer(JsonNode words) throws Exception {
        poll();
        if (words.get(0).asText().equals("answer"))
            return Map.of("groups", GroupMoments.groups(admin), "transactions", GroupMoments.transactions(admin),
                "open", openTransactions(), "metadata", metadata());
        step(words.get(1).asText());
        return Map.of();
    }

    private void step(String name) throws Exception {
        switch (name) {
            case "begin" -> begin();
            case "topics" -> topics();
            case "security" -> security();
            case "classic", "consumer" -> {
                for (String member : List.of("1", "2")) members.put(name + "/" + member, consumer(name, name));
                await(name);
                for (AutoCloseable one : members.values())
                    if (one instanceof KafkaConsumer<?, ?> consumer) consumer.commitSync(offsets(7, name));
            }
            case "share" -> share();
            case "streams" -> {
                for (String member : List.of("1", "2")) members.put("streams/" + member, new StreamsMember(bootstrap, name, member, TOPIC));
                await(name);
            }
            case "ongoing" -> transactions();
            case "begin-remote" -> beginRemote();
            case "prepared" -> {
                open.remove("prepared").commitTransaction();
                open.remove("refused").abortTransaction();
            }
            case "killed" -> members.values().removeIf(one -> one instanceof StreamsMember); // its connection is gone
            case "unverified" -> broker("1", "transaction.partition.verification.enable", "false");
            case "hanging" -> broker("1", "transaction.partition.verification.enable", null);
            case "cleaned" -> cleaned();
            case "administered" -> administered();
            default -> throw new IllegalArgumentException(name);
        }
    }

    /** What all steps need: a topic with records, and the internal topics, which are on this node then. */
    private void begin() throws Exception {
        create(TOPIC, PARTITIONS, Map.of());
        produce(TOPIC, "none", PARTITIONS);
        try (var producer = producer(Map.of("transactional.id", "first"))) {
            producer.initTransactions();
        }
        admin.alterConsumerGroupOffsets("simple", offsets(3, "")).all().get();
        admin.alterShareGroupOffsets("shared", Map.of(new TopicPartition(TOPIC, 0), 5L)).all().get();
    }

    /** Topics in each codec; one is deleted and created again; configs are set, appended to and removed. */
    private void topics() throws Exception {
        create("gone", 2, Map.of("retention.ms", "1000"));
        for (String codec : CODECS) {
            create("in-" + codec, 1, Map.of("compression.type", codec.equals("none") ? "uncompressed" : codec));
            produce("in-" + codec, codec, 1);
        }
        admin.createPartitions(Map.of("in-gzip", NewPartitions.increaseTo(2))).all().get();
        admin.deleteTopics(List.of("gone")).all().get();
        LiveBroker.await("the deletion", () -> !admin.listTopics().names().get().contains("gone"));
        create("gone", 3, Map.of("max.decompressed.message.bytes", "5000000", "cleanup.policy", "compact"));
        alter(ConfigResource.Type.TOPIC, "gone", op("cleanup.policy", "delete", AlterConfigOp.OpType.APPEND),
            op("remote.copy.lag.ms", "-1", AlterConfigOp.OpType.SET), op("remote.copy.lag.bytes", "1000", AlterConfigOp.OpType.SET));
        alter(ConfigResource.Type.TOPIC, "in-zstd", op("retention.bytes", "123456", AlterConfigOp.OpType.SET));
        alter(ConfigResource.Type.TOPIC, "in-zstd", op("retention.bytes", null, AlterConfigOp.OpType.DELETE));
    }

    private void security() throws Exception {
        List<AclBinding> acls = new ArrayList<>();
        for (String host : List.of("10.0.0.0/8", "192.168.1.17", "2001:db8::/32", "*"))
            acls.add(new AclBinding(new ResourcePattern(ResourceType.TOPIC, TOPIC, PatternType.LITERAL),
                new AccessControlEntry("User:alice", host, AclOperation.READ, AclPermissionType.ALLOW)));
        acls.add(new AclBinding(new ResourcePattern(ResourceType.GROUP, "con", PatternType.PREFIXED),
            new AccessControlEntry("User:bob", "*", AclOperation.ALL, AclPermissionType.DENY)));
        admin.createAcls(acls).all().get();
        admin.deleteAcls(List.of(acls.get(1).toFilter())).all().get();
        // A start replays these records as one change. ScramDelta then loses the users of a new mechanism whom its hash map has after
        // the removed one: nobody comes after paul.
        for (UserScramCredentialAlteration one : List.of(
            new UserScramCredentialUpsertion("alice", new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), "secret"),
            new UserScramCredentialUpsertion("alice", new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192), "secret"),
            new UserScramCredentialUpsertion("paul", new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 5000), "secret"),
            new UserScramCredentialDeletion("paul", ScramMechanism.SCRAM_SHA_256)))
            admin.alterUserScramCredentials(List.of(one)).all().get();
        Map<String, String> ofAll = new HashMap<>();
        ofAll.put(ClientQuotaEntity.USER, null);
        for (Map<String, String> entity : List.of(ofAll, Map.of(ClientQuotaEntity.USER, "alice", ClientQuotaEntity.CLIENT_ID, "shop")))
            admin.alterClientQuotas(List.of(new ClientQuotaAlteration(new ClientQuotaEntity(entity), List.of(
                new ClientQuotaAlteration.Op("producer_byte_rate", 1048576.0),
                new ClientQuotaAlteration.Op("request_percentage", 55.5))))).all().get();
    }

    /** A share group that has accepted, released and rejected records, which go to a dead letter queue. */
    private void share() throws Exception {
        create("dlq.orders", 1, Map.of("errors.deadletterqueue.group.enable", "true"));
        alter(ConfigResource.Type.GROUP, "share", op("share.auto.offset.reset", "earliest", AlterConfigOp.OpType.SET),
            op("errors.deadletterqueue.topic.name", "dlq.orders", AlterConfigOp.OpType.SET));
        var consumer = new KafkaShareConsumer<>(Map.of("bootstrap.servers", bootstrap, "group.id", "share", "client.id", "share-1",
            "share.acknowledgement.mode", "explicit", "max.poll.records", "20"), new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.subscribe(List.of(TOPIC));
        int[] count = {0};
        LiveBroker.await("records of the share group", () -> {
            consumer.poll(Duration.ofMillis(100)).forEach(record -> {
                count[0]++;
                consumer.acknowledge(record, count[0] % 9 == 4 ? AcknowledgeType.REJECT
                    : AcknowledgeType.ACCEPT);
            });
            consumer.commitSync();
            return count[0] >= RECORDS;
        });
        members.put("share/1", consumer);
    }

    /** One transaction committed, one aborted, one open, each with records and offsets of a group. */
    private void transactions() throws Exception {
        for (String id : List.of("committed", "aborted", "ongoing")) {
            var producer = begun(id);
            for (int i = 0; i < PARTITIONS; i++) producer.send(new ProducerRecord<>(TOPIC, i, null, id.getBytes(StandardCharsets.UTF_8)));
            producer.sendOffsetsToTransaction(offsets(11, id), new ConsumerGroupMetadata("of-transactions"));
            producer.flush();
            if (id.equals("committed")) producer.commitTransaction();
            if (id.equals("aborted")) producer.abortTransaction();
        }
        LiveBroker.await("the markers", () -> !GroupMoments.transactions(admin).toString().contains("Prepare"));
    }

    /** Transactions that write to a partition of the other node, which their markers will not reach once it is down. */
    private void beginRemote() throws Exception {
        admin.createTopics(List.of(new NewTopic("remote", Map.of(0, List.of(2))))).all().get();
        for (String id : List.of("prepared", "refused"))
            begun(id).send(new ProducerRecord<>("remote", 0, null, new byte[] {1})).get();
    }

    /** The cleaner has gone over a topic of ours, and over the topics of coordinators. */
    private void cleaned() throws Exception {
        Map<String, String> eager = Map.of("cleanup.policy", "compact", "segment.ms", "100", "min.cleanable.dirty.ratio", "0.01", "compression.type", "producer");
        create("cleaned", 1, eager);
        List<String> internal = List.of("__consumer_offsets", "__transaction_state");
        for (String topic : internal)
            alter(ConfigResource.Type.TOPIC, topic, op("segment.ms", "100", AlterConfigOp.OpType.SET), op("min.cleanable.dirty.ratio", "0.01", AlterConfigOp.OpType.SET));
        for (int i = 0; i < 6; i++) {
            produce("cleaned", CODECS.get(i % CODECS.size()), 1);
            admin.alterConsumerGroupOffsets("simple", offsets(20 + i, "round " + i)).all().get();
            var producer = begun("cleaned");
            producer.send(new ProducerRecord<>(TOPIC, 0, null, new byte[] {1}));
            producer.commitTransaction();
            producer.close();
            open.remove("cleaned");
            Thread.sleep(150); // the next append rolls
        }
        for (String topic : List.of("cleaned", "__transaction_state")) LiveBroker.await("the cleaner", () -> LiveBroker.isCleaned(logDir, topic));
    }

    /** Configs of brokers, groups and client metrics; a feature goes down; a group and offsets are deleted. */
    private void administered() throws Exception {
        broker("", "log.retention.ms", "999999999");
        broker("1", "log.remote.copy.lag.ms", "60000");
        alter(ConfigResource.Type.GROUP, "streams", op("streams.num.standby.replicas", "1", AlterConfigOp.OpType.SET),
            op("streams.assignor.name", "sticky", AlterConfigOp.OpType.SET), op("streams.num.warmup.replicas", "3", AlterConfigOp.OpType.SET));
        alter(ConfigResource.Type.CLIENT_METRICS, "watch", op("metrics", "*", AlterConfigOp.OpType.SET), op("interval.ms", "60000", AlterConfigOp.OpType.SET));
        admin.updateFeatures(Map.of("share.version", new FeatureUpdate((short) 1, FeatureUpdate.UpgradeType.SAFE_DOWNGRADE)),
            new UpdateFeaturesOptions()).all().get();
        admin.alterConsumerGroupOffsets("deleted", offsets(9, "")).all().get();
        admin.deleteConsumerGroups(List.of("deleted")).all().get();
        admin.alterConsumerGroupOffsets("partly", offsets(9, "ü")).all().get();
        admin.deleteConsumerGroupOffsets("partly", Set.of(new TopicPartition(TOPIC, 1))).all().get();
    }

    private void create(String topic, int partitions, Map<String, String> configs) throws Exception {
        admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1).configs(configs))).all().get();
    }

    private void produce(String topic, String codec, int partitions) {
        try (var producer = producer(Map.of("compression.type", codec, "linger.ms", "20"))) {
            for (int i = 0; i < RECORDS; i++)
                producer.send(new ProducerRecord<>(topic, i % partitions, ("key " + i % 7).getBytes(StandardCharsets.UTF_8), new byte[100 + i]));
        }
    }

    private KafkaProducer<byte[], byte[]> producer(Map<String, Object> more) {
        Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "transaction.timeout.ms", "600000"));
        config.putAll(more);
        return new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private KafkaProducer<byte[], byte[]> begun(String id) {
        var producer = producer(Map.of("transactional.id", id));
        producer.initTransactions();
        producer.beginTransaction();
        open.put(id, producer);
        return producer;
    }

    private KafkaConsumer<byte[], byte[]> consumer(String group, String protocol) {
        var consumer = new KafkaConsumer<>(Map.<String, Object>of("bootstrap.servers", bootstrap, "group.id", group, "client.id", group,
            "group.protocol", protocol, "enable.auto.commit", "false", "auto.offset.reset", "earliest"),
            new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.subscribe(List.of(TOPIC));
        return consumer;
    }

    private static Map<TopicPartition, OffsetAndMetadata> offsets(long first, String metadata) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (int i = 0; i < PARTITIONS; i++)
            offsets.put(new TopicPartition(TOPIC, i), new OffsetAndMetadata(first + i, i == 0 ? Optional.empty() : Optional.of(0), metadata));
        return offsets;
    }

    private void alter(ConfigResource.Type type, String name, AlterConfigOp... ops) throws Exception {
        admin.incrementalAlterConfigs(Map.of(new ConfigResource(type, name), List.of(ops))).all().get();
    }

    private void broker(String id, String config, String value) throws Exception {
        alter(ConfigResource.Type.BROKER, id, op(config, value, value == null ? AlterConfigOp.OpType.DELETE : AlterConfigOp.OpType.SET));
    }

    private static AlterConfigOp op(String name, String value, AlterConfigOp.OpType type) {
        return new AlterConfigOp(new ConfigEntry(name, value), type);
    }

    /** Waits until a group is stable and its two members own all partitions. */
    private void await(String group) throws Exception {
        LiveBroker.await("group " + group, () -> {
            poll();
            @SuppressWarnings("unchecked")
            var found = (Map<String, Object>) GroupMoments.groups(admin).get(group);
            return found != null && "Stable".equals(found.get("state")) && Integer.valueOf(2).equals(found.get("members"))
                && ((List<?>) found.get("assigned")).size() == PARTITIONS;
        });
    }

    private void poll() throws Exception {
        for (int i = 0; i < 4; i++)
            for (AutoCloseable member : members.values()) {
                if (member instanceof KafkaConsumer<?, ?> consumer) consumer.poll(Duration.ofMillis(30));
                else if (member instanceof StreamsMember streams) streams.poll();
            }
    }

    private List<TopicDescription> described() throws Exception {
        var names = admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get();
        return List.copyOf(admin.describeTopics(names).allTopicNames().get().values());
    }

    private List<Object> openTransactions() throws Exception {
        List<TopicPartition> led = new ArrayList<>();
        for (TopicDescription topic : described())
            for (TopicPartitionInfo one : topic.partitions())
                if (one.leader() != null && one.leader().id() == 1) led.add(new TopicPartition(topic.name(), one.partition()));
        List<Object> found = new ArrayList<>();
        admin.describeProducers(led).all().get().forEach((partition, producers) -> producers.activeProducers().stream()
            .filter(one -> one.currentTransactionStartOffset().isPresent())
            .forEach(one -> found.add(List.of(partition.toString(), one.producerId(), one.producerEpoch(),
                one.currentTransactionStartOffset().getAsLong(), one.coordinatorEpoch().orElse(-1), one.lastTimestamp()))));
        return found;
    }

    private Map<String, Object> metadata() throws Exception {
        Map<String, Object> topics = new TreeMap<>();
        Map<String, Object> configs = new TreeMap<>();
        for (TopicDescription topic : described()) {
            Map<String, Object> partitions = new TreeMap<>();
            for (TopicPartitionInfo one : topic.partitions())
                partitions.put(String.valueOf(one.partition()), List.of(one.leader() == null ? -1 : one.leader().id(),
                    ids(one.replicas()), ids(one.isr()), ids(one.elr()), ids(one.lastKnownElr())));
            topics.put(topic.name(), List.of(topic.topicId().toString(), partitions));
            configs(configs, new ConfigResource(ConfigResource.Type.TOPIC, topic.name()), ConfigSource.DYNAMIC_TOPIC_CONFIG);
        }
        configs(configs, new ConfigResource(ConfigResource.Type.BROKER, ""), ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG);
        configs(configs, new ConfigResource(ConfigResource.Type.BROKER, "1"), ConfigSource.DYNAMIC_BROKER_CONFIG);
        for (ConfigResource one : admin.listConfigResources().all().get()) {
            if (one.type() == ConfigResource.Type.GROUP) configs(configs, one, ConfigSource.DYNAMIC_GROUP_CONFIG);
            if (one.type() == ConfigResource.Type.CLIENT_METRICS) configs(configs, one, ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG);
        }
        Map<String, Object> features = new TreeMap<>();
        admin.describeFeatures().featureMetadata().get().finalizedFeatures().forEach((name, one) -> features.put(name, one.maxVersionLevel()));
        List<Object> acls = new ArrayList<>();
        for (AclBinding one : admin.describeAcls(AclBindingFilter.ANY).values().get())
            acls.add(List.of(one.pattern().resourceType().code(), one.pattern().name(), one.pattern().patternType().code(), one.entry().principal(),
                one.entry().host(), one.entry().operation().code(), one.entry().permissionType().code()));
        List<Object> quotas = new ArrayList<>();
        admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get()
            .forEach((entity, values) -> quotas.add(List.of(new TreeMap<>(entity.entries()), new TreeMap<>(values))));
        List<Object> scram = new ArrayList<>();
        admin.describeUserScramCredentials().all().get().forEach((user, one) -> one.credentialInfos()
            .forEach(info -> scram.add(List.of(user, info.mechanism().mechanismName(), info.iterations()))));
        Map<String, Object> brokers = new TreeMap<>();
        for (Node one : admin.describeCluster(new DescribeClusterOptions().includeFencedBrokers(true)).nodes().get())
            brokers.put(one.idString(), List.of(one.host(), one.port(), one.isFenced()));
        return Map.of("topics", topics, "configs", configs, "features", features, "acls", acls, "quotas", quotas, "scram", scram, "brokers", brokers);
    }

    private static List<Integer> ids(List<Node> nodes) {
        return nodes == null ? List.of() : nodes.stream().map(Node::id).toList();
    }

    /** What was set for a resource itself. */
    private void configs(Map<String, Object> into, ConfigResource resource, ConfigSource source) throws Exception {
        Map<String, String> found = new TreeMap<>();
        Stream<ConfigEntry> entries = admin.describeConfigs(List.of(resource)).all().get().get(resource).entries().stream();
        entries.filter(one -> one.source() == source).forEach(one -> found.put(one.name(), one.value()));
        if (!found.isEmpty()) into.put(resource.type() + ":" + resource.name(), found);
    }
}
