package kafkalog.harness;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;

import kafka.server.KafkaConfig;
import kafka.server.KafkaRaftServer;
import kafka.tools.StorageTool;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ElectionNotNeededException;
import org.apache.kafka.common.metadata.MetadataJsonConverters;
import org.apache.kafka.common.metadata.MetadataRecordType;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.metadata.bootstrap.BootstrapMetadata;
import org.apache.kafka.metadata.util.BatchFileWriter;
import org.apache.kafka.server.common.ApiMessageAndVersion;

import java.io.BufferedReader;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;

/**
 * Stock Kafka nodes by their `server.properties`, for one test after the other, in one JVM. A line of stdin is a JSON array, its
 * answer a line with a JSON value; an object with `error` is what an exception said.
 *
 * `["boot", NAME, FILE, {CONFIG: VALUE}]` starts a node, on free ports unless a config has
 * its listeners; `["observe", NAME, OUT, {PARTITION: [TIME, ...]}]` tells all that
 * clients see (see BrokerReport), and `["list-offsets", ADDRESS, {PARTITION: [TIME, ...]}]` what
 * ListOffsets answers at an address; `["run", NAME, LOG_DIR[,LOG_DIR...]]` starts a node on log directories that are there, see
 * ServedLogs, where `["append", NAME, TOPIC, PARTITION]` gives the offset of a new record; `["serve", LOG_DIR, OUT]` is a whole
 * life in which clients only look; `["live", LOG_DIR, SEED, LIFE]` is one more of BrokerLife, closed at its end. `["go-on", NAME, [TOPIC, ...]]` produces; `["shut-down", NAME]` closes it cleanly. `["format", FILE, CLUSTER]`
 * formats, `["fill", NAME, PART]` gives three brokers something (see ClusterLoad), `["reassign", NAME, [NODE, ...]]` moves all partitions,
 * `["create", NAME, [TOPIC, ...]]` creates topics, `["ports", COUNT]` finds free
 * ports, `["log-in", ADDRESS]` is what the SCRAM user is shown. `["checkpoint", DIR]` reads `bootstrap.checkpoint`,
 * `["write-checkpoint", DIR, [RECORD, ...]]` writes it, both by Kafka's own
 * classes; `["shell", FILE]` is what the metadata shell shows of it.
 */
public final class BrokerCommands {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final long PATIENCE_MS = 600_000;

    private final Map<String, KafkaRaftServer> servers = new TreeMap<>();
    private final Map<String, String> listeners = new TreeMap<>();

    private BrokerCommands() {
    }

    public static void main(String[] argv) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err); // whatever Kafka prints
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        BrokerCommands commands = new BrokerCommands();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Object answer;
            try {
                answer = commands.answer(JSON.readTree(line));
            } catch (Throwable e) {
                StringWriter trace = new StringWriter();
                e.printStackTrace(new PrintWriter(trace));
                answer = Map.of("error", trace.toString());
            }
            out.println(JSON.writeValueAsString(answer));
        }
        Runtime.getRuntime().halt(0); // brokers that nobody shut down die
    }

    private Object answer(JsonNode words) throws Exception {
        String what = words.get(0).asText();
        String name = words.get(1).asText();
        switch (what) {
            case "boot":
                return boot(name, Path.of(words.get(2).asText()), words.get(3));
            case "observe":
                return new BrokerReport(listeners.get(name)).write(Path.of(words.get(2).asText()), targets(words.get(3)));
            case "list-offsets":
                String patience = String.valueOf(PATIENCE_MS);
                Map<String, Object> config = Map.of("bootstrap.servers", name, "request.timeout.ms", patience, "default.api.timeout.ms", patience);
                try (Admin admin = Admin.create(config)) {
                    return BrokerReport.offsets(admin, BrokerReport.partitions(admin), targets(words.get(2)));
                }
            case "go-on":
                List<String> topics = new ArrayList<>();
                words.get(2).forEach(topic -> topics.add(topic.asText()));
                return new GoingOn(listeners.get(name)).produce(topics);
            case "run":
                return run(name, words.get(2).asText());
            case "append":
                return ServedLogs.append(listeners.get(name), words.get(2).asText(), words.get(3).asInt());
            case "serve":
                ServedLogs.serve(Path.of(name), Path.of(words.get(2).asText()));
                return Map.of();
            case "live":
                BrokerLife.run(Path.of(name), words.get(2).asLong(), words.get(3).asInt(), false);
                return Map.of();
            case "create":
                create(name, words.get(2));
                return Map.of();
            case "ports":
                return LiveBroker.freePorts(words.get(1).asInt());
            case "format":
                return format(Path.of(name), words.get(2).asText());
            case "fill":
                return new ClusterLoad(listeners.get(name), words.get(2).asInt()).fill();
            case "log-in":
                return logIn(name);
            case "reassign":
                return reassign(name, words.get(2));
            case "shut-down":
                KafkaRaftServer server = servers.remove(name);
                server.shutdown();
                server.awaitShutdown();
                return Map.of();
            case "checkpoint":
                return records(OfRelease.bootstrap(name));
            case "write-checkpoint":
                write(Path.of(name, "bootstrap.checkpoint"), words.get(2));
                return Map.of();
            case "shell":
                return Map.of("tree", MetadataTrees.shell(name));
            default:
                throw new IllegalArgumentException(what);
        }
    }

    private static Map<String, List<Long>> targets(JsonNode ofPartitions) {
        Map<String, List<Long>> targets = new HashMap<>();
        ofPartitions.fields().forEachRemaining(one -> {
            List<Long> times = new ArrayList<>();
            one.getValue().forEach(time -> times.add(time.asLong()));
            targets.put(one.getKey(), times);
        });
        return targets;
    }

    private Map<String, Object> boot(String name, Path file, JsonNode configs) throws Exception {
        Properties config = new Properties();
        try (InputStream in = Files.newInputStream(file)) {
            config.load(in);
        }
        configs.fields().forEachRemaining(one -> config.put(one.getKey(), one.getValue().asText()));
        String[] urls = config.getProperty("listeners").split(",");
        int[] ports = LiveBroker.freePorts(urls.length);
        for (int i = 0; i < urls.length && !configs.has("listeners"); i++) {
            String old = urls[i].trim().substring(urls[i].trim().indexOf("://") + 3);
            String other = "127.0.0.1:" + ports[i];
            config.replaceAll((key, value) -> value.toString().replace(old, other));
        }
        long begin = System.nanoTime();
        servers.put(name, start(config));
        Map<String, String> addresses = new TreeMap<>();
        for (String url : config.getProperty("listeners").split(",")) addresses.put(url.replaceFirst("://.*", "").trim(), url.replaceFirst(".*://", "").trim());
        listeners.put(name, addresses.get("PLAINTEXT"));
        return Map.of("addresses", addresses, "ms", (System.nanoTime() - begin) / 1_000_000);
    }

    private Map<String, Object> run(String name, String logDirs) throws Exception {
        int[] ports = LiveBroker.freePorts(2);
        servers.put(name, ServedLogs.start(logDirs, ports));
        listeners.put(name, "127.0.0.1:" + ports[0]);
        return Map.of("port", ports[0]);
    }

    /** A node that has started; one that cannot is taken down again, and the exception is that of its start. */
    static KafkaRaftServer start(Properties config) {
        config.putIfAbsent("broker.heartbeat.interval.ms", LiveBroker.HEARTBEAT_MS);
        KafkaRaftServer server = new KafkaRaftServer(new KafkaConfig(config, false), Time.SYSTEM);
        try {
            server.startup();
        } catch (Throwable e) {
            server.shutdown();
            server.awaitShutdown();
            throw e;
        }
        return server;
    }

    private static Map<String, Object> format(Path file, String cluster) {
        String[] args = {"format", "--cluster-id", cluster, "--config", file.toString()};
        if (StorageTool.execute(args, new PrintStream(OutputStream.nullOutputStream())) != 0) throw new IllegalStateException("format");
        return Map.of();
    }

    /** What the user of ClusterLoad may see, by its password. */
    private static Map<String, Object> logIn(String address) throws Exception {
        Map<String, Object> config = Map.of("bootstrap.servers", address, "security.protocol", "SASL_PLAINTEXT", "sasl.mechanism", "SCRAM-SHA-512",
            "sasl.jaas.config", "org.apache.kafka.common.security.scram.ScramLoginModule required username=\"" + ClusterLoad.USER
                + "\" password=\"" + ClusterLoad.PASSWORD + "\";");
        try (Admin admin = Admin.create(config)) {
            return Map.of("topics", admin.listTopics().names().get().stream().sorted().toList());
        }
    }

    /** Creates topics of one partition each, whose records stay. */
    private void create(String name, JsonNode topics) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", listeners.get(name)))) {
            List<NewTopic> wanted = new ArrayList<>();
            topics.forEach(one -> wanted.add(new NewTopic(one.asText(), 1, (short) 1).configs(Map.of("retention.ms", "-1"))));
            admin.createTopics(wanted).all().get();
        }
    }

    /** Gives partitions other replicas, waits until all of these are in sync, and makes the first one the leader. */
    private Map<String, Object> reassign(String name, JsonNode replicas) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", listeners.get(name)))) {
            Map<TopicPartition, Optional<NewPartitionReassignment>> wanted = new LinkedHashMap<>();
            List<Integer> nodes = new ArrayList<>();
            replicas.forEach(node -> nodes.add(node.asInt()));
            for (TopicPartition one : BrokerReport.partitions(admin)) wanted.put(one, Optional.of(new NewPartitionReassignment(nodes)));
            admin.alterPartitionReassignments(wanted).all().get();
            long deadline = System.nanoTime() + PATIENCE_MS * 1_000_000;
            while (!admin.listPartitionReassignments().reassignments().get().isEmpty()) {
                if (System.nanoTime() > deadline) throw new IllegalStateException("no end of the reassignment");
                Thread.sleep(100);
            }
            try {
                admin.electLeaders(ElectionType.PREFERRED, wanted.keySet()).all().get();
            } catch (ExecutionException e) {
                if (!(e.getCause() instanceof ElectionNotNeededException)) throw e;
            }
        }
        return Map.of();
    }

    private static List<Object> records(BootstrapMetadata metadata) {
        List<Object> found = new ArrayList<>();
        for (ApiMessageAndVersion one : metadata.records())
            found.add(Map.of("type", MetadataRecordType.fromId(one.message().apiKey()).name(), "version", one.version(),
                "data", MetadataJsonConverters.writeJson(one.message(), one.version())));
        return found;
    }

    private static void write(Path file, JsonNode records) throws Exception {
        Files.delete(file);
        try (BatchFileWriter writer = BatchFileWriter.open(file)) {
            for (JsonNode one : records) {
                short type = MetadataRecordType.valueOf(one.get("type").asText()).id();
                short version = (short) one.get("version").asInt();
                writer.append(new ApiMessageAndVersion(MetadataJsonConverters.readJson(one.get("data"), type, version), version));
            }
        }
    }
}
