import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.PrintStream;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.kafka.connect.data.Date;
import org.apache.kafka.connect.data.Decimal;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.data.Time;
import org.apache.kafka.connect.data.Timestamp;
import org.apache.kafka.connect.json.JsonConverter;

/**
 * Writes random values of random schemas with Kafka's JsonConverter, and reads them with it: `SEED COUNT`. Each line is
 * JSON: `message`, base64; `value`, what was read, without types. The last lines are floating-point numbers that JSON
 * lacks, or whose sign its reader drops, which JsonConverter reads as zero: their `value` is what was written.
 */
public class ConnectMessages {
  private static final String[] NAMES = {
    "io.debezium.time.Date", "io.debezium.time.Time", "io.debezium.time.MicroTime", "io.debezium.time.NanoTime",
    "io.debezium.time.Timestamp", "io.debezium.time.MicroTimestamp", "io.debezium.time.NanoTimestamp",
    "io.debezium.time.ZonedTimestamp", "io.debezium.time.ZonedTime", "io.debezium.time.Year",
    "io.debezium.time.MicroDuration", "io.debezium.time.Interval", "io.debezium.data.Json", "io.debezium.data.Uuid",
    "io.debezium.data.Enum", "io.debezium.data.Bits", "io.debezium.data.VariableScaleDecimal", "of.nobody",
  };
  private static final long DAY = 86_400_000L;
  private final Random random;

  private ConnectMessages(long seed) {
    random = new Random(seed);
  }

  public static void main(String[] args) throws Exception {
    ConnectMessages drawn = new ConnectMessages(Long.parseLong(args[0]));
    ObjectMapper json = new ObjectMapper();
    PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    JsonConverter reader = converter(Map.of("replace.null.with.default", "false"));
    for (int i = 0; i < Integer.parseInt(args[1]); i++) {
      Schema schema = drawn.random.nextInt(4) == 0 ? drawn.schema(2) : drawn.struct(0);
      JsonConverter writer = converter(Map.of(
          "decimal.format", drawn.random.nextBoolean() ? "NUMERIC" : "BASE64",
          "replace.null.with.default", String.valueOf(drawn.random.nextBoolean())));
      for (int j = 0; j < 3; j++) {
        byte[] message = writer.fromConnectData("t", schema, drawn.value(schema));
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("message", Base64.getEncoder().encodeToString(message));
        line.put("value", shown(reader.toConnectData("t", message).value()));
        out.println(json.writeValueAsString(line));
      }
    }
    JsonConverter writer = converter(Map.of());
    for (double one : new double[] {Double.NaN, Double.POSITIVE_INFINITY, Double.NEGATIVE_INFINITY, -0.0}) {
      for (Schema schema : new Schema[] {Schema.FLOAT64_SCHEMA, Schema.FLOAT32_SCHEMA}) {
        Object value = schema == Schema.FLOAT64_SCHEMA ? (Object) one : (Object) (float) one;
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("message", Base64.getEncoder().encodeToString(writer.fromConnectData("t", schema, value)));
        line.put("value", shown(value));
        out.println(json.writeValueAsString(line));
      }
    }
    out.flush();
  }

  private static JsonConverter converter(Map<String, String> more) {
    Map<String, String> configs = new HashMap<>(more);
    configs.put("schemas.enable", "true");
    configs.put("converter.type", "value");
    JsonConverter converter = new JsonConverter();
    converter.configure(configs);
    return converter;
  }

  private Schema struct(int depth) {
    SchemaBuilder made = SchemaBuilder.struct().name("of.struct" + depth);
    int count = 1 + random.nextInt(6);
    for (int i = 0; i < count; i++) {
      made.field((random.nextInt(8) == 0 ? "é \"" : "f") + i, schema(depth + 1));
    }
    return dressed(made, null);
  }

  private Schema schema(int depth) {
    switch (random.nextInt(depth < 4 ? 22 : 17)) {
      case 0: return dressed(SchemaBuilder.int8(), (byte) 7);
      case 1: return dressed(SchemaBuilder.int16(), (short) 7);
      case 2: return dressed(SchemaBuilder.int32(), 7);
      case 3: return dressed(SchemaBuilder.int64(), 7L);
      case 4: return dressed(SchemaBuilder.float32(), 0.5f);
      case 5: return dressed(SchemaBuilder.float64(), 0.1);
      case 6: return dressed(SchemaBuilder.bool(), true);
      case 7: return dressed(SchemaBuilder.string(), "so");
      case 8: return dressed(SchemaBuilder.bytes(), ByteBuffer.wrap(new byte[] {1, 2}));
      case 9: {
        int scale = random.nextInt(6);
        SchemaBuilder made = Decimal.builder(scale);
        if (random.nextBoolean()) {
          made.parameter("connect.decimal.precision", String.valueOf(scale + 20));
        }
        return dressed(made, new BigDecimal(BigInteger.TEN, scale));
      }
      case 10: return dressed(Date.builder(), new java.util.Date(3 * DAY));
      case 11: return dressed(Time.builder(), new java.util.Date(1234));
      case 12: return dressed(Timestamp.builder(), new java.util.Date(1234));
      case 13: case 14: case 15: case 16: return named(NAMES[random.nextInt(NAMES.length)]);
      case 17: return dressed(SchemaBuilder.array(schema(depth + 1)), null);
      case 18: return dressed(SchemaBuilder.map(SchemaBuilder.string().build(), schema(depth + 1)), null);
      case 19: return dressed(SchemaBuilder.map(key(), schema(depth + 1)), null);
      default: return struct(depth);
    }
  }

  private Schema key() {
    switch (random.nextInt(4)) {
      case 0: return SchemaBuilder.int32().build();
      case 1: return SchemaBuilder.int64().build();
      case 2: return SchemaBuilder.bool().build();
      default: return Date.builder().build();
    }
  }

  private Schema named(String name) {
    SchemaBuilder made;
    if (name.endsWith(".VariableScaleDecimal")) {
      made = SchemaBuilder.struct().field("scale", Schema.INT32_SCHEMA).field("value", Schema.BYTES_SCHEMA);
    } else if (name.endsWith(".Date") || name.endsWith(".Time") || name.endsWith(".Year")) {
      made = SchemaBuilder.int32();
    } else if (name.contains(".Zoned") || name.endsWith(".Interval") || name.contains(".data.J")
        || name.endsWith(".Uuid") || name.endsWith(".Enum") || name.endsWith("nobody")) {
      made = SchemaBuilder.string();
    } else if (name.endsWith(".Bits")) {
      made = SchemaBuilder.bytes();
    } else {
      made = SchemaBuilder.int64();
    }
    return dressed(made.name(name).version(1), null);
  }

  private Schema dressed(SchemaBuilder made, Object other) {
    if (random.nextInt(2) == 0) {
      made.optional();
    }
    if (other != null && random.nextInt(5) == 0) {
      made.defaultValue(other);
    }
    if (random.nextInt(8) == 0) {
      made.doc("what it is: \"schema\":, \"payload\": {}");
    }
    return made.build();
  }

  private Object value(Schema schema) {
    if (schema.isOptional() && random.nextInt(4) == 0) {
      return null;
    }
    String name = schema.name() == null ? "" : schema.name();
    switch (name) {
      case Decimal.LOGICAL_NAME:
        return new BigDecimal(new BigInteger(random.nextInt(60), random).negate(),
            Integer.parseInt(schema.parameters().get("scale")));
      case Date.LOGICAL_NAME: return new java.util.Date((random.nextInt(60_000) - 30_000) * DAY);
      case Time.LOGICAL_NAME: return new java.util.Date(random.nextInt((int) DAY));
      case Timestamp.LOGICAL_NAME: return new java.util.Date(random.nextLong() % 60_000_000_000_000L);
      case "io.debezium.time.Date": return random.nextInt(2_000_000) - 700_000;
      case "io.debezium.time.Time": return random.nextInt((int) DAY);
      case "io.debezium.time.MicroTime": return random.nextInt((int) DAY) * 1000L + random.nextInt(1000);
      case "io.debezium.time.NanoTime": return random.nextInt((int) DAY) * 1_000_000L + random.nextInt(1_000_000);
      case "io.debezium.time.Timestamp": return random.nextLong() % 60_000_000_000_000L;
      case "io.debezium.time.MicroTimestamp": return random.nextLong() % 60_000_000_000_000_000L;
      case "io.debezium.time.ZonedTimestamp":
        return String.format("%04d-0%d-1%dT0%d:00:00.%06dZ", 1 + random.nextInt(9999), 1 + random.nextInt(9),
            random.nextInt(10), random.nextInt(10), random.nextInt(1_000_000));
      default:
    }
    switch (schema.type()) {
      case INT8: return (byte) random.nextInt();
      case INT16: return (short) random.nextInt();
      case INT32: return name.isEmpty() ? random.nextInt() : Integer.valueOf(random.nextInt(3000));
      case INT64: return random.nextLong();
      case FLOAT32: return random.nextInt(4) == 0 ? 0.1f : Float.intBitsToFloat(random.nextInt() & 0xBFFFFFFF);
      case FLOAT64: return random.nextInt(4) == 0 ? 0.1 : random.nextGaussian() * Math.pow(10, random.nextInt(40) - 20);
      case BOOLEAN: return random.nextBoolean();
      case STRING: return text();
      case BYTES: {
        byte[] made = new byte[random.nextInt(9)];
        random.nextBytes(made);
        return made;
      }
      case ARRAY: {
        List<Object> made = new ArrayList<>();
        for (int i = random.nextInt(4); i > 0; i--) {
          made.add(value(schema.valueSchema()));
        }
        return made;
      }
      case MAP: {
        Map<Object, Object> made = new LinkedHashMap<>();
        for (int i = random.nextInt(4); i > 0; i--) {
          made.put(value(schema.keySchema()), value(schema.valueSchema()));
        }
        return made;
      }
      default: {
        Struct made = new Struct(schema);
        for (Field field : schema.fields()) {
          boolean isBytes = name.endsWith(".VariableScaleDecimal") && field.name().equals("value");
          boolean isScale = name.endsWith(".VariableScaleDecimal") && field.name().equals("scale");
          Object one = isBytes ? new BigInteger(80, random).negate().toByteArray()
              : isScale ? Integer.valueOf(random.nextInt(40)) : value(field.schema());
          made.put(field, one);
        }
        return made;
      }
    }
  }

  private String text() {
    String[] some = {"", "a", "\"schema\":{}", "é€\uD83D\uDE00", "\\ \n\t\u0001", "null", "}"};
    return some[random.nextInt(some.length)] + some[random.nextInt(some.length)];
  }

  private static Object shown(Object value) {
    if (value instanceof Float one) {
      return Map.of("float", String.format("%08x", Float.floatToIntBits(one)));
    } else if (value instanceof Double one) {
      return Map.of("double", String.format("%016x", Double.doubleToLongBits(one)));
    } else if (value instanceof byte[] one) {
      return Map.of("bytes", Base64.getEncoder().encodeToString(one));
    } else if (value instanceof ByteBuffer one) {
      byte[] bytes = new byte[one.remaining()];
      one.duplicate().get(bytes);
      return Map.of("bytes", Base64.getEncoder().encodeToString(bytes));
    } else if (value instanceof BigDecimal one) {
      return Map.of("decimal", one.toPlainString());
    } else if (value instanceof java.util.Date one) {
      return Map.of("millis", one.getTime());
    } else if (value instanceof Collection<?> many) {
      List<Object> made = new ArrayList<>();
      many.forEach(one -> made.add(shown(one)));
      return made;
    } else if (value instanceof Map<?, ?> many) {
      List<Object> made = new ArrayList<>();
      many.forEach((key, one) -> {
        List<Object> pair = new ArrayList<>();
        pair.add(shown(key));
        pair.add(shown(one));
        made.add(pair);
      });
      return Map.of("map", made);
    } else if (value instanceof Struct one) {
      Map<String, Object> made = new LinkedHashMap<>();
      for (Field field : one.schema().fields()) {
        made.put(field.name(), shown(one.getWithoutDefault(field.name())));
      }
      return Map.of("struct", made);
    }
    return value;
  }
}
