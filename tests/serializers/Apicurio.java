import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.google.protobuf.DescriptorProtos.FileDescriptorProto;
import com.google.protobuf.Descriptors.FileDescriptor;
import com.google.protobuf.DynamicMessage;
import com.google.protobuf.Message;
import com.google.protobuf.TimestampProto;
import io.apicurio.registry.resolver.ParsedSchemaImpl;
import io.apicurio.registry.resolver.SchemaLookupResult;
import io.apicurio.registry.resolver.SchemaResolver;
import io.apicurio.registry.serde.AbstractKafkaSerializer;
import io.apicurio.registry.serde.Legacy4ByteIdHandler;
import io.apicurio.registry.serde.avro.AvroKafkaSerializer;
import io.apicurio.registry.serde.protobuf.ProtobufKafkaSerializer;
import io.apicurio.registry.utils.protobuf.schema.FileDescriptorUtils;
import io.apicurio.registry.utils.protobuf.schema.ProtobufSchema;
import java.io.File;
import java.lang.reflect.Proxy;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.io.DecoderFactory;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeaders;

/**
 * Serializes values of the corpus again with Apicurio's serializers: with ids of 8 and of 4 bytes
 * before them, and in headers.
 */
public class Apicurio {
    static final ObjectMapper JSON = new ObjectMapper();

    /** A resolver that knows one schema, in place of a registry. */
    @SuppressWarnings("unchecked")
    static <S, D> SchemaResolver<S, D> resolver(long id, S schema) {
        SchemaLookupResult<S> found = SchemaLookupResult.<S>builder()
            .globalId(id).contentId(id)
            .parsedSchema(new ParsedSchemaImpl<S>().setParsedSchema(schema))
            .build();
        return (SchemaResolver<S, D>) Proxy.newProxyInstance(
            Apicurio.class.getClassLoader(), new Class<?>[] {SchemaResolver.class},
            (proxy, method, arguments) -> method.getName().equals("resolveSchema") ? found : null);
    }

    static <S, D> ArrayNode serialized(AbstractKafkaSerializer<S, D> serializer, D value, String way) {
        boolean isInHeaders = way.equals("apicurio-headers");
        serializer.configure(Map.of(
            "apicurio.registry.serde.validation-enabled", "false",
            "apicurio.registry.headers.enabled", isInHeaders), false);
        if (way.equals("apicurio4")) {
            serializer.setIdHandler(new Legacy4ByteIdHandler());
        }
        RecordHeaders headers = new RecordHeaders();
        byte[] data = isInHeaders
            ? serializer.serialize("topic", headers, value)
            : serializer.serialize("topic", value);
        ArrayNode found = JSON.createArrayNode().add(Base64.getEncoder().encodeToString(data));
        ArrayNode pairs = JSON.createArrayNode();
        for (Header header : headers) {
            pairs.addArray().add(header.key()).add(Base64.getEncoder().encodeToString(header.value()));
        }
        return isInHeaders ? found.add(pairs) : found;
    }

    static ArrayNode avro(int id, String text, byte[] data, String way) throws Exception {
        Schema schema = new Schema.Parser().parse(text);
        Object value = new GenericDatumReader<>(schema)
            .read(null, DecoderFactory.get().binaryDecoder(data, 5, data.length - 5, null));
        return serialized(new AvroKafkaSerializer<Object>(resolver(id, schema)), value, way);
    }

    static ArrayNode protobuf(int id, FileDescriptor file, byte[] data, String way) throws Exception {
        Message value = DynamicMessage.parseFrom(
            file.getMessageTypes().get(0), Arrays.copyOfRange(data, 6, data.length));
        ProtobufSchema schema = new ProtobufSchema(
            file, FileDescriptorUtils.fileDescriptorToProtoFile(file.toProto()));
        return serialized(new ProtobufKafkaSerializer<Message>(resolver(id, schema)), value, way);
    }

    static FileDescriptor descriptor(JsonNode version, FileDescriptor... known) throws Exception {
        byte[] data = Base64.getDecoder().decode(version.get("schema").asText());
        FileDescriptorProto proto = FileDescriptorProto.parseFrom(data);
        FileDescriptor[] wanted = Arrays.stream(known)
            .filter(one -> proto.getDependencyList().contains(one.getName()))
            .toArray(FileDescriptor[]::new);
        return FileDescriptor.buildFrom(proto, wanted);
    }

    static ObjectNode again(JsonNode made, String way) throws Exception {
        boolean isAvro = made.get("form").asText().equals("avro");
        Map<Integer, JsonNode> versions = new HashMap<>();
        FileDescriptor place = null;
        for (JsonNode version : made.get("versions")) {
            versions.put(version.get("id").asInt(), version);
            if (version.get("subject").asText().equals("place.proto")) {
                place = descriptor(version);
            }
        }
        ArrayNode records = JSON.createArrayNode();
        for (JsonNode record : made.get("records")) {
            byte[] data = Base64.getDecoder().decode(record.get(0).asText());
            int id = java.nio.ByteBuffer.wrap(data, 1, 4).getInt();
            JsonNode version = versions.get(id);
            ArrayNode found = isAvro
                ? avro(id, version.get("schema").asText(), data, way)
                : protobuf(id, descriptor(version, place, TimestampProto.getDescriptor()), data, way);
            records.add(found.insert(1, record.get(1)));
        }
        ObjectNode found = (ObjectNode) made.deepCopy();
        found.put("name", way + "-" + made.get("name").asText());
        found.put("framing", way.replace("-headers", ""));
        found.set("records", records);
        return found;
    }

    public static void main(String[] arguments) throws Exception {
        File file = new File(arguments[0]);
        ObjectNode corpus = (ObjectNode) JSON.readTree(file);
        ArrayNode cases = (ArrayNode) corpus.get("cases");
        for (JsonNode made : cases.deepCopy()) {
            if (made.get("name").asText().matches("users|shipments")) {
                for (String way : new String[] {"apicurio", "apicurio4", "apicurio-headers"}) {
                    cases.add(again(made, way));
                }
            }
        }
        ((ObjectNode) corpus.get("made_by")).put("apicurio-registry-serdes", arguments[1]);
        JSON.writerWithDefaultPrettyPrinter().writeValue(file, corpus);
    }
}
