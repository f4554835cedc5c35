package kafkalog.harness;

import com.fasterxml.jackson.databind.ObjectMapper;

import kafka.server.KafkaConfig;
import kafka.server.KafkaRaftServer;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AccessControlEntryFilter;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourcePatternFilter;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.Time;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/**
 * One real Kafka node whose groups live: `GroupMoments OUT SEED COUNT`. Between COUNT moments, members come and go in
 * groups of each protocol, and offsets are committed, in transactions too, deleted and moved. At each moment nothing moves:
 * OUT/moments/N has a copy of the partitions, and OUT/moments/N.json what an admin client is told of groups, transactional
 * ids, and the producers with an open transaction. OUT/log is left, with all kinds of metadata.
 */
public final class GroupMoments {
    private static final List<String> TOPICS = List.of("one", "two");
    private static final int PARTITIONS = 3;
    private static final List<String> SIMPLE = List.of("simple-0", "simple-1", "einfach-ü", "simple 3");
    private static final long PATIENCE_MS = 30_000;
    private static final Pattern COPIED = Pattern.compile("(__consumer_offsets|__share_group_state|__transaction_state|one|two)-[0-9]+");

    private final String bootstrap;
    private final Admin admin;
    private final Random rnd;
    private final Map<String, AutoCloseable> members = new TreeMap<>();
    private final Map<String, KafkaProducer<byte[], byte[]>> open = new TreeMap<>();

    private GroupMoments(String bootstrap, Admin admin, long seed) {
        this.bootstrap = bootstrap;
        this.admin = admin;
        this.rnd = new Random(seed);
    }

    public static void main(String[] argv) {
        int status = 1;
        try {
            run(Path.of(argv[0]).toAbsolutePath(), Long.parseLong(argv[1]), Integer.parseInt(argv[2]));
            status = 0;
        } catch (Throwable e) {
            e.printStackTrace();
        } finally {
            System.out.flush();
            System.err.flush();
            Runtime.getRuntime().halt(status); // whatever threads are left
        }
    }

    private static void run(Path out, long seed, int count) throws Exception {
        int[] ports = LiveBroker.freePorts(2);
        Properties config = LiveBroker.config(ports, out.resolve("log"));
        config.put("log.cleaner.enable", "false"); // each former moment is still there at the end
        config.put("offsets.topic.num.partitions", "3");
        config.put("share.coordinator.state.topic.num.partitions", "2");
        config.put("group.coordinator.rebalance.protocols", "classic,consumer,share,streams");
        config.put("group.consumer.heartbeat.interval.ms", "200");
        config.put("group.consumer.min.heartbeat.interval.ms", "200");
        config.put("group.share.heartbeat.interval.ms", "200");
        config.put("group.share.min.heartbeat.interval.ms", "200");
        config.put("group.streams.initial.rebalance.delay.ms", "0");
        config.put("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer");
        config.put("super.users", "User:ANONYMOUS");
        config.put("metadata.log.max.record.bytes.between.snapshots", "4000");
        LiveBroker.format(config, out.resolve("server.properties"));
        KafkaRaftServer server = new KafkaRaftServer(new KafkaConfig(config, false), Time.SYSTEM);
        server.startup();
        String bootstrap = "127.0.0.1:" + ports[0];
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(TOPICS.stream().map(t -> new NewTopic(t, PARTITIONS, (short) 1)).toList()).all().get();
            GroupMoments life = new GroupMoments(bootstrap, admin, seed);
            life.fill();
            life.administer();
            Path moments = Files.createDirectories(out.resolve("moments"));
            for (int n = 0; n < count; n++) {
                for (int i = 1 + life.rnd.nextInt(4); i > 0; i--) life.step();
                life.observe(out.resolve("log"), moments, n);
            }
            for (AutoCloseable member : life.members.values()) member.close();
            for (KafkaProducer<byte[], byte[]> one : life.open.values()) one.close(Duration.ZERO);
        }
        server.shutdown();
        server.awaitShutdown();
    }

    private void fill() throws Exception {
        try (var producer = producer(Map.of())) {
            for (String topic : TOPICS)
                for (int i = 0; i < 60; i++) producer.send(new ProducerRecord<>(topic, i % PARTITIONS, null, new byte[] {1}));
        }
    }

    /** What the metadata of a cluster holds besides topics and brokers. */
    private void administer() throws Exception {
        admin.createTopics(List.of(
            new NewTopic("gone", 1, (short) 1).configs(Map.of("retention.ms", "1000")),
            new NewTopic("grown", 1, (short) 1).configs(Map.of("cleanup.policy", "compact", "segment.ms", "60000")))).all().get();
        admin.createPartitions(Map.of("grown", NewPartitions.increaseTo(3))).all().get();
        admin.incrementalAlterConfigs(Map.of(
            new ConfigResource(ConfigResource.Type.TOPIC, "grown"), List.of(
                new AlterConfigOp(new ConfigEntry("segment.ms", null), AlterConfigOp.OpType.DELETE),
                new AlterConfigOp(new ConfigEntry("cleanup.policy", "delete"), AlterConfigOp.OpType.APPEND)),
            new ConfigResource(ConfigResource.Type.BROKER, ""), List.of(
                new AlterConfigOp(new ConfigEntry("log.retention.ms", "3600000"), AlterConfigOp.OpType.SET)),
            new ConfigResource(ConfigResource.Type.GROUP, "consumer-0"), List.of(
                new AlterConfigOp(new ConfigEntry("consumer.session.timeout.ms", "46000"), AlterConfigOp.OpType.SET)),
            new ConfigResource(ConfigResource.Type.GROUP, "share-0"), List.of(
                new AlterConfigOp(new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET)))).all().get();
        admin.createAcls(Stream.of("one", "two").map(topic -> new AclBinding(
            new ResourcePattern(ResourceType.TOPIC, topic, PatternType.PREFIXED),
            new AccessControlEntry("User:alice", "*", AclOperation.READ, AclPermissionType.ALLOW))).toList()).all().get();
        admin.deleteAcls(List.of(new AclBindingFilter(
            new ResourcePatternFilter(ResourceType.TOPIC, "two", PatternType.PREFIXED), AccessControlEntryFilter.ANY))).all().get();
        admin.alterUserScramCredentials(List.of(new UserScramCredentialUpsertion(
            "alice", new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), "secret"))).all().get();
        admin.alterClientQuotas(List.of(new ClientQuotaAlteration(new ClientQuotaEntity(Map.of("user", "al(i)ce", "client-id", "c")),
            List.of(new ClientQuotaAlteration.Op("producer_byte_rate", 1e7))))).all().get();
        admin.updateFeatures(Map.of("transaction.version",
            new FeatureUpdate((short) 1, FeatureUpdate.UpgradeType.SAFE_DOWNGRADE)), new UpdateFeaturesOptions()).all().get();
        admin.deleteTopics(List.of("gone")).all().get();
        admin.listConsumerGroupOffsets(SIMPLE.get(0)).all().get(); // creates __consumer_offsets
    }

    /** Something happens to a group. */
    private void step() throws Exception {
        try {
            switch (rnd.nextInt(10)) {
                case 0, 1 -> admin.alterConsumerGroupOffsets(any(SIMPLE), offsets()).all().get();
                case 2 -> admin.deleteConsumerGroupOffsets(any(SIMPLE), offsets().keySet()).all().get();
                case 3 -> admin.deleteConsumerGroups(List.of(any(SIMPLE))).all().get();
                case 4 -> join("classic-" + rnd.nextInt(2), "classic");
                case 5 -> join("consumer-" + rnd.nextInt(2), "consumer");
                case 6 -> join("share-0", "share");
                case 7 -> transaction();
                case 8 -> join("streams-0", "streams");
                default -> leave();
            }
        } catch (ExecutionException e) {
            if (!(e.getCause() instanceof org.apache.kafka.common.errors.ApiException)) throw e; // not empty, no such group
        }
    }

    private void join(String group, String protocol) throws Exception {
        String name = group + "/" + rnd.nextInt(3);
        if (members.containsKey(name)) {
            if (members.get(name) instanceof KafkaConsumer<?, ?> consumer) commit(consumer);
            return;
        }
        if (protocol.equals("streams")) {
            members.put(name, new StreamsMember(bootstrap, group, name.replace('/', '-'), TOPICS.get(0)));
            return;
        }
        Map<String, Object> config = new HashMap<>(Map.of(
            "bootstrap.servers", bootstrap, "group.id", group, "client.id", name.replace('/', '-')));
        if (protocol.equals("share")) {
            var consumer = new KafkaShareConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
            consumer.subscribe(TOPICS);
            members.put(name, consumer);
            return;
        }
        config.putAll(Map.of("group.protocol", protocol, "enable.auto.commit", "false", "auto.offset.reset", "earliest"));
        var consumer = new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.subscribe(List.of(any(TOPICS)));
        members.put(name, consumer);
    }

    private void commit(KafkaConsumer<?, ?> consumer) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (TopicPartition one : consumer.assignment()) offsets.put(one, offset());
        try {
            if (!offsets.isEmpty()) consumer.commitSync(offsets, Duration.ofSeconds(5));
        } catch (org.apache.kafka.common.KafkaException e) {
            // it is rebalancing
        }
    }

    private void leave() throws Exception {
        if (members.isEmpty()) return;
        members.remove(any(List.copyOf(members.keySet()))).close();
    }

    /** A transaction begins, or one that is open ends. */
    private void transaction() throws Exception {
        String id = "tx-" + rnd.nextInt(3);
        KafkaProducer<byte[], byte[]> producer = open.remove(id);
        if (producer == null) {
            producer = producer(Map.of("transactional.id", id));
            producer.initTransactions();
            producer.beginTransaction();
            if (rnd.nextBoolean())
                producer.send(new ProducerRecord<>(any(TOPICS), rnd.nextInt(PARTITIONS), null, new byte[] {2})).get();
            producer.sendOffsetsToTransaction(offsets(), new ConsumerGroupMetadata(any(SIMPLE)));
            open.put(id, producer);
        } else {
            if (rnd.nextInt(3) == 0) producer.abortTransaction();
            else producer.commitTransaction();
            producer.close();
        }
    }

    private Map<TopicPartition, OffsetAndMetadata> offsets() {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (int i = 1 + rnd.nextInt(3); i > 0; i--)
            offsets.put(new TopicPartition(any(TOPICS), rnd.nextInt(PARTITIONS)), offset());
        return offsets;
    }

    private OffsetAndMetadata offset() {
        Optional<Integer> epoch = rnd.nextBoolean() ? Optional.of(rnd.nextInt(3)) : Optional.empty();
        return new OffsetAndMetadata(rnd.nextInt(20), epoch, rnd.nextBoolean() ? "" : "über " + rnd.nextInt(9));
    }

    private <T> T any(List<T> from) {
        return from.get(rnd.nextInt(from.size()));
    }

    private KafkaProducer<byte[], byte[]> producer(Map<String, Object> more) {
        Map<String, Object> config = new HashMap<>(Map.of(
            "bootstrap.servers", bootstrap, "acks", "all", "transaction.timeout.ms", "600000"));
        config.putAll(more);
        return new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
    }

    /** Waits until all groups rest, and until two answers around a copy are the same. */
    private void observe(Path log, Path to, int number) throws Exception {
        long deadline = System.nanoTime() + PATIENCE_MS * 1_000_000;
        for (;;) {
            poll();
            Map<String, Object> before = answer();
            if (System.nanoTime() > deadline) throw new IllegalStateException("the groups do not come to rest: " + before);
            if (!rests(before)) continue;
            Path copy = to.resolve(String.valueOf(number));
            copy(log, copy);
            long now = System.currentTimeMillis();
            poll();
            Map<String, Object> after = answer();
            if (before.equals(after)) {
                after.put("now", now);
                Files.writeString(to.resolve(number + ".json"), new ObjectMapper().writeValueAsString(after));
                Thread.sleep(5); // what comes next is later
                return;
            }
            Trees.empty(copy);
        }
    }

    private void poll() throws IOException {
        for (int i = 0; i < 4; i++)
            for (AutoCloseable member : members.values()) {
                if (member instanceof KafkaConsumer<?, ?> consumer) consumer.poll(Duration.ofMillis(30));
                else if (member instanceof StreamsMember streams) streams.poll();
                else ((KafkaShareConsumer<?, ?>) member).poll(Duration.ofMillis(30));
            }
    }

    private boolean rests(Map<String, Object> answer) {
        @SuppressWarnings("unchecked")
        Map<String, Map<String, Object>> groups = (Map<String, Map<String, Object>>) answer.get("groups");
        for (var one : groups.values())
            if (!Set.of("Stable", "Empty").contains(String.valueOf(one.get("state")))) return false;
        if (answer.get("transactions").toString().contains("Prepare")) return false;
        for (String name : members.keySet()) {
            var group = groups.get(name.substring(0, name.indexOf('/')));
            if (group == null) return false;
            long joined = members.keySet().stream().filter(m -> m.startsWith(name.substring(0, name.indexOf('/') + 1))).count();
            if (((Number) group.get("members")).longValue() != joined) return false;
        }
        return true;
    }

    private Map<String, Object> answer() throws Exception {
        return new TreeMap<>(Map.of("groups", groups(admin), "transactions", transactions(admin), "open", openTransactions()));
    }

    private static List<String> sorted(Stream<?> names) {
        return names.map(Object::toString).sorted().toList();
    }

    /** All groups: kind, state, members with what they own, and committed offsets. */
    static Map<String, Object> groups(Admin admin) throws Exception {
        Map<String, Object> groups = new TreeMap<>();
        for (GroupListing one : admin.listGroups().all().get()) {
            String id = one.groupId();
            Map<String, Object> group = new TreeMap<>();
            group.put("type", one.type().map(GroupType::toString).orElse(""));
            group.put("state", one.groupState().map(GroupState::toString).orElse(""));
            Map<String, Object> offsets = new TreeMap<>();
            if (one.type().orElse(null) == GroupType.SHARE) {
                var found = admin.describeShareGroups(List.of(id)).all().get().get(id);
                group.put("members", found.members().size());
                group.put("assigned", sorted(found.members().stream().flatMap(m -> m.assignment().topicPartitions().stream())));
                group.put("epoch", found.groupEpoch());
                admin.listShareGroupOffsets(Map.of(id, new ListShareGroupOffsetsSpec())).partitionsToOffsetInfo(id).get().forEach((partition, offset) -> {
                    if (offset != null)
                        offsets.put(partition.toString(), List.of(offset.startOffset(), offset.leaderEpoch().orElse(-1), offset.lag().orElse(-1L)));
                });
            } else if (one.type().orElse(null) == GroupType.STREAMS) {
                var found = admin.describeStreamsGroups(List.of(id)).all().get().get(id);
                group.put("members", found.members().size());
                group.put("assigned", sorted(found.members().stream().flatMap(m -> m.assignment().activeTasks().stream())
                    .flatMap(tasks -> tasks.partitions().stream().map(partition -> tasks.subtopologyId() + "_" + partition))));
                group.put("epoch", found.groupEpoch());
                group.put("clients", new ArrayList<>(found.members().stream().map(m -> m.clientId()).sorted().toList()));
            } else {
                var found = admin.describeConsumerGroups(List.of(id)).all().get().get(id);
                group.put("members", found.members().size());
                group.put("assigned", sorted(found.members().stream().flatMap(m -> m.assignment().topicPartitions().stream())));
                found.groupEpoch().ifPresent(epoch -> group.put("epoch", epoch));
                group.put("clients", new ArrayList<>(found.members().stream().map(m -> m.clientId()).sorted().toList()));
                var committed = admin.listConsumerGroupOffsets(Map.of(id, new ListConsumerGroupOffsetsSpec())).all().get().get(id);
                committed.forEach((partition, offset) -> {
                    if (offset != null)
                        offsets.put(partition.toString(), List.of(offset.offset(), offset.leaderEpoch().orElse(-1), offset.metadata()));
                });
            }
            group.put("offsets", offsets);
            groups.put(id, group);
        }
        return groups;
    }

    /** All transactional ids: state, producer id and epoch, timeout and partitions. */
    static Map<String, Object> transactions(Admin admin) throws Exception {
        Map<String, Object> found = new TreeMap<>();
        List<String> ids = admin.listTransactions().all().get().stream().map(one -> one.transactionalId()).toList();
        admin.describeTransactions(ids).all().get().forEach((id, one) -> found.put(id, List.of(
            one.state().toString(), one.producerId(), one.producerEpoch(), one.transactionTimeoutMs(),
            one.topicPartitions().stream().map(TopicPartition::toString).sorted().toList())));
        return found;
    }

    private List<Object> openTransactions() throws Exception {
        List<TopicPartition> partitions = new ArrayList<>();
        for (int i = 0; i < PARTITIONS; i++) {
            partitions.add(new TopicPartition("__consumer_offsets", i));
            for (String topic : TOPICS) partitions.add(new TopicPartition(topic, i));
        }
        var described = admin.describeProducers(partitions).all().get();
        List<Object> found = new ArrayList<>();
        for (TopicPartition partition : partitions)
            described.get(partition).activeProducers().stream().filter(one -> one.currentTransactionStartOffset().isPresent())
                .forEach(one -> found.add(List.of(partition.toString(), one.producerId(), one.producerEpoch(),
                    one.currentTransactionStartOffset().getAsLong(), one.coordinatorEpoch().orElse(-1), one.lastTimestamp())));
        return found;
    }

    private static void copy(Path log, Path to) throws IOException {
        Files.createDirectories(to);
        try (Stream<Path> all = Files.list(log)) {
            for (Path one : all.filter(p -> COPIED.matcher(p.getFileName().toString()).matches()).toList())
                Trees.copy(one, to.resolve(one.getFileName()));
        }
    }
}
