// Prints every config of a topic as Kafka defines it: one JSON object a line, and which of the given texts it takes.
package kafkalog.harness;

import com.fasterxml.jackson.databind.ObjectMapper;

import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.storage.internals.log.LogConfig;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

public final class TopicConfigs {

    private TopicConfigs() { }

    public static void main(String[] texts) throws Exception {
        ObjectMapper json = new ObjectMapper();
        for (ConfigDef.ConfigKey key : new TreeMap<>(LogConfig.configKeys()).values()) {
            Map<String, Object> line = new LinkedHashMap<>();
            line.put("name", key.name);
            line.put("type", key.type.name().toLowerCase());
            line.put("default", key.defaultValue);
            List<String> synonyms = new ArrayList<>();
            List<String> sevens = new ArrayList<>();
            ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS.getOrDefault(key.name, List.of()).forEach(synonym -> {
                synonyms.add(synonym.name());
                sevens.add(synonym.converter().apply("7"));
            });
            line.put("synonyms", synonyms);
            line.put("sevens", sevens);
            Map<String, Object> taken = new LinkedHashMap<>();
            for (String text : texts) {
                try {
                    Object value = ConfigDef.parseType(key.name, text, key.type);
                    if (key.validator != null) key.validator.ensureValid(key.name, value);
                    taken.put(text, value);
                } catch (ConfigException refused) {
                    // not taken
                }
            }
            line.put("taken", taken);
            System.out.println(json.writeValueAsString(line));
        }
    }
}
