// Prints what a release of Kafka knows, as one JSON object: errors, APIs, features, configs of topics and groups.

import com.fasterxml.jackson.databind.ObjectMapper;

import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.common.Feature;
import org.apache.kafka.server.common.FeatureVersion;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.storage.internals.log.LogConfig;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

public final class Facts {

    public static void main(String[] none) throws Exception {
        Map<String, Object> facts = new LinkedHashMap<>();
        Map<String, Object> errors = new LinkedHashMap<>();
        for (Errors error : Errors.values()) errors.put(error.name(), error.code());
        facts.put("errors", errors);
        facts.put("metadata", levels());
        facts.put("features", features());
        facts.put("topics", configs(LogConfig.configKeys()));
        facts.put("groups", configs(GroupConfig.CONFIG_DEF.configKeys()));
        System.out.println(new ObjectMapper().writerWithDefaultPrettyPrinter().writeValueAsString(facts));
    }

    private static Map<String, Object> levels() {
        Map<String, Object> levels = new LinkedHashMap<>();
        for (MetadataVersion version : MetadataVersion.VERSIONS) {
            levels.put(String.valueOf(version.featureLevel()), version.version());
        }
        return levels;
    }

    private static Map<String, Object> features() {
        Map<String, Object> features = new TreeMap<>();
        features.put("metadata.version", List.of(MetadataVersion.MINIMUM_VERSION.featureLevel(),
            MetadataVersion.latestProduction().featureLevel()));
        for (Feature feature : Feature.FEATURES) {
            features.put(feature.featureName(), List.of(feature.minimumProduction(), feature.latestProduction(),
                feature.defaultLevel(MetadataVersion.latestProduction())));
        }
        return features;
    }

    private static List<Object> configs(Map<String, ConfigDef.ConfigKey> keys) {
        List<Object> lines = new ArrayList<>();
        for (ConfigDef.ConfigKey key : new TreeMap<>(keys).values()) {
            Map<String, Object> line = new LinkedHashMap<>();
            line.put("name", key.name);
            line.put("type", key.type.name().toLowerCase());
            line.put("default", key.defaultValue);
            line.put("valid", key.validator == null ? "" : key.validator.toString());
            List<Object> synonyms = new ArrayList<>();
            ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS.getOrDefault(key.name, List.of()).forEach(synonym ->
                synonyms.add(List.of(synonym.name(), synonym.converter().apply("7"))));
            line.put("synonyms", synonyms);
            lines.add(line);
        }
        return lines;
    }
}
