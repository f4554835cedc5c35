package kafkalog.harness;

import com.fasterxml.jackson.databind.ObjectMapper;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.SecurityDisabledException;
import org.apache.kafka.common.quota.ClientQuotaFilter;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;

/**
 * All that clients are told by a broker: topics with ids, replicas and configs, groups, transactional ids, ACLs, SCRAM users, quotas,
 * failed log directories; of each partition the records of both isolation levels and the answers of ListOffsets.
 */
final class BrokerReport {
    private static final long PATIENCE_MS = 30_000;
    /** So many rounds are asked before the first one is answered. */
    private static final int TOGETHER = 5;
    private static final String GROUPS = "__consumer_offsets";

    private final String bootstrap;
    private final Map<String, Object> report = new TreeMap<>();

    BrokerReport(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    static List<TopicPartition> partitions(Admin admin) throws Exception {
        List<TopicPartition> found = new ArrayList<>();
        var names = admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get();
        for (TopicDescription topic : admin.describeTopics(names).allTopicNames().get().values())
            topic.partitions().forEach(one -> found.add(new TopicPartition(topic.name(), one.partition())));
        found.sort((a, b) -> a.toString().compareTo(b.toString()));
        return found;
    }

    /** Leaves the records of each partition below `out`, as LiveBroker does; returns all else. */
    Map<String, Object> write(Path out, Map<String, List<Long>> targets) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            List<TopicPartition> led = topics(admin);
            awaitGroups(admin, led);
            report.put("groups", GroupMoments.groups(admin));
            report.put("transactions", GroupMoments.transactions(admin));
            metadata(admin);
            Observation observation = new Observation(bootstrap);
            var all = observation.read(led, IsolationLevel.READ_UNCOMMITTED);
            var committed = observation.read(led, IsolationLevel.READ_COMMITTED, all);
            Files.createDirectories(out.resolve("records"));
            Map<String, Object> offsets = new TreeMap<>();
            for (TopicPartition one : led) {
                observation.writeRecords(all.get(one), out.resolve("records").resolve(one + ".ndjson"));
                offsets.put(one.toString(), committed.get(one).stream().map(ConsumerRecord::offset).toList());
            }
            report.put("committed", offsets);
            report.put("offsets", offsets(admin, led, targets));
        }
        new ObjectMapper().writeValue(out.resolve("report.json").toFile(), report);
        return report;
    }

    /** Waits for leaders for a while; the partitions that have one. */
    private List<TopicPartition> topics(Admin admin) throws Exception {
        long deadline = System.nanoTime() + PATIENCE_MS * 1_000_000;
        var names = admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get();
        for (;;) {
            List<TopicPartition> led = new ArrayList<>();
            List<String> leaderless = new ArrayList<>();
            Map<String, Object> topics = new TreeMap<>();
            for (TopicDescription topic : admin.describeTopics(names).allTopicNames().get().values()) {
                List<Object> partitions = new ArrayList<>();
                for (var one : topic.partitions()) {
                    boolean isLed = one.leader() != null && !one.leader().isEmpty();
                    if (isLed) led.add(new TopicPartition(topic.name(), one.partition()));
                    // nobody waits for a leader that is no node of this cluster
                    else if (one.replicas().stream().anyMatch(node -> !node.isEmpty())) leaderless.add(topic.name() + "-" + one.partition());
                    partitions.add(Map.of("partition", one.partition(), "leader", isLed ? one.leader().id() : -1,
                        "replicas", one.replicas().stream().map(node -> node.id()).toList(),
                        "isr", one.isr().stream().map(node -> node.id()).toList()));
                }
                topics.put(topic.name(), new TreeMap<>(Map.of(
                    "id", topic.topicId().toString(), "internal", topic.isInternal(), "partitions", partitions)));
            }
            if (leaderless.isEmpty() || System.nanoTime() > deadline) {
                report.put("leaderless", leaderless);
                report.put("topics", topics);
                configs(admin, topics);
                return led;
            }
            Thread.sleep(100);
        }
    }

    /** Waits for coordinators that still load: they list the groups that they have, but answer about one only when they have all. */
    private void awaitGroups(Admin admin, List<TopicPartition> led) throws Exception {
        Set<Integer> awaited = led.stream().filter(one -> one.topic().equals(GROUPS)).map(TopicPartition::partition).collect(Collectors.toSet());
        if (awaited.isEmpty()) return;
        int partitions = admin.describeTopics(List.of(GROUPS)).allTopicNames().get().get(GROUPS).partitions().size();
        for (int number = 0; !awaited.isEmpty(); number++)
            if (awaited.remove((("group-" + number).hashCode() & Integer.MAX_VALUE) % partitions))
                admin.listConsumerGroupOffsets("group-" + number).all().get();
    }

    /** Those that somebody set. */
    @SuppressWarnings("unchecked")
    private static void configs(Admin admin, Map<String, Object> topics) throws Exception {
        List<ConfigResource> resources = topics.keySet().stream().map(name -> new ConfigResource(ConfigResource.Type.TOPIC, name)).toList();
        admin.describeConfigs(resources).all().get().forEach((resource, config) -> {
            Map<String, String> set = new TreeMap<>();
            for (ConfigEntry one : config.entries())
                if (one.source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG) set.put(one.name(), one.value());
            ((Map<String, Object>) topics.get(resource.name())).put("configs", set);
        });
    }

    private void metadata(Admin admin) throws Exception {
        report.put("cluster", admin.describeCluster().clusterId().get());
        Map<String, Object> features = new TreeMap<>();
        admin.describeFeatures().featureMetadata().get().finalizedFeatures().forEach((name, range) -> features.put(name, range.maxVersionLevel()));
        report.put("features", features);
        try {
            report.put("acls", admin.describeAcls(AclBindingFilter.ANY).values().get().stream().map(Object::toString).sorted().toList());
        } catch (ExecutionException e) {
            if (!(e.getCause() instanceof SecurityDisabledException)) throw e;
            report.put("acls", List.of());
        }
        Map<String, Object> users = new TreeMap<>();
        admin.describeUserScramCredentials().all().get().forEach((name, user) ->
            users.put(name, user.credentialInfos().stream().map(one -> one.mechanism().mechanismName() + " " + one.iterations()).sorted().toList()));
        report.put("scram", users);
        Map<String, Object> quotas = new TreeMap<>();
        admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get().forEach((entity, values) ->
            quotas.put(new TreeMap<>(entity.entries()).toString(), new TreeMap<>(values)));
        report.put("quotas", quotas);
        List<String> failed = new ArrayList<>();
        for (var dirs : admin.describeLogDirs(admin.describeCluster().nodes().get().stream().map(node -> node.id()).toList()).allDescriptions().get().values())
            dirs.forEach((dir, one) -> {
                if (one.error() != null) failed.add(dir + ": " + one.error());
            });
        report.put("failedLogDirs", failed);
    }

    /** In rounds: each asks one thing of all partitions. */
    static Map<String, Object> offsets(Admin admin, List<TopicPartition> partitions, Map<String, List<Long>> targets) throws Exception {
        int most = targets.values().stream().mapToInt(List::size).max().orElse(0);
        Map<String, OffsetSpec> specials = Map.of(
            "earliest", OffsetSpec.earliest(), "latest", OffsetSpec.latest(), "maxTimestamp", OffsetSpec.maxTimestamp());
        List<Round> rounds = new ArrayList<>();
        for (var isolation : IsolationLevel.values()) {
            specials.forEach((name, spec) -> {
                Round round = new Round(isolation);
                partitions.forEach(one -> round.add(one, name, spec));
                rounds.add(round);
            });
            for (int i = 0; i < most; i++) {
                Round round = new Round(isolation);
                for (TopicPartition one : partitions) {
                    List<Long> times = targets.getOrDefault(one.toString(), List.of());
                    if (i < times.size()) round.add(one, times.get(i).toString(), OffsetSpec.forTimestamp(times.get(i)));
                }
                rounds.add(round);
            }
        }
        Map<String, Object> found = new TreeMap<>();
        for (int i = 0; i < rounds.size(); i += TOGETHER) {
            List<Round> some = rounds.subList(i, Math.min(rounds.size(), i + TOGETHER));
            for (Round round : some) round.ask(admin);
            for (Round round : some) round.note(found);
        }
        return found;
    }

    /** One question about each of many partitions. */
    private static final class Round {
        private final IsolationLevel isolation;
        private final Map<TopicPartition, String> names = new LinkedHashMap<>();
        private final Map<TopicPartition, OffsetSpec> specs = new LinkedHashMap<>();
        private final Map<TopicPartition, KafkaFuture<ListOffsetsResultInfo>> answers = new LinkedHashMap<>();

        Round(IsolationLevel isolation) {
            this.isolation = isolation;
        }

        void add(TopicPartition partition, String name, OffsetSpec spec) {
            names.put(partition, name);
            specs.put(partition, spec);
        }

        void ask(Admin admin) {
            var result = admin.listOffsets(specs, new ListOffsetsOptions(isolation));
            for (TopicPartition one : specs.keySet()) answers.put(one, result.partitionResult(one));
        }

        @SuppressWarnings("unchecked")
        void note(Map<String, Object> found) throws Exception {
            for (TopicPartition one : names.keySet()) {
                ListOffsetsResultInfo answer = answers.get(one).get();
                var levels = (Map<String, Map<String, Object>>) found.computeIfAbsent(one.toString(), key -> new TreeMap<String, Object>());
                levels.computeIfAbsent(isolation.toString().toLowerCase(), key -> new TreeMap<>())
                    .put(names.get(one), List.of(answer.offset(), answer.timestamp(), answer.leaderEpoch().orElse(-1)));
            }
        }
    }
}
