import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.ZoneOffset;
import java.util.Base64;
import java.util.Collection;
import java.util.Map;
import java.util.TreeMap;
import java.util.UUID;
import org.apache.avro.Conversions;
import org.apache.avro.Schema;
import org.apache.avro.data.TimeConversions;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericFixed;
import org.apache.avro.generic.IndexedRecord;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.DecoderFactory;

/**
 * Reads values by Avro's resolution, and prints each as JSON.
 *
 * Each line of the input has the base64 of a writer's schema, of a reader's, and of values. The output has
 * a line for each value, `!` and the reason if it is refused.
 */
public class ResolvedValues {
    private static final GenericData DATA = new GenericData();

    public static void main(String[] args) throws Exception {
        DATA.addLogicalTypeConversion(new Conversions.DecimalConversion());
        DATA.addLogicalTypeConversion(new Conversions.BigDecimalConversion());
        DATA.addLogicalTypeConversion(new TimeConversions.DateConversion());
        DATA.addLogicalTypeConversion(new TimeConversions.TimeMillisConversion());
        DATA.addLogicalTypeConversion(new TimeConversions.TimeMicrosConversion());
        DATA.addLogicalTypeConversion(new TimeConversions.TimestampMillisConversion());
        DATA.addLogicalTypeConversion(new TimeConversions.TimestampMicrosConversion());
        DATA.addLogicalTypeConversion(new TimeConversions.TimestampNanosConversion());
        DATA.addLogicalTypeConversion(new TimeConversions.LocalTimestampMillisConversion());
        DATA.addLogicalTypeConversion(new TimeConversions.LocalTimestampMicrosConversion());
        DATA.addLogicalTypeConversion(new TimeConversions.LocalTimestampNanosConversion());
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        String line;
        while ((line = in.readLine()) != null) {
            String[] parts = line.split("\t", -1);
            Schema writer = new Schema.Parser().parse(text(parts[0]));
            Schema reader = new Schema.Parser().parse(text(parts[1]));
            for (int i = 2; i < parts.length; i++) {
                out.println(answer(writer, reader, Base64.getDecoder().decode(parts[i])));
            }
        }
        out.flush();
    }

    private static String text(String part) {
        return new String(Base64.getDecoder().decode(part), StandardCharsets.UTF_8);
    }

    private static String answer(Schema writer, Schema reader, byte[] bytes) {
        try {
            BinaryDecoder decoder = DecoderFactory.get().binaryDecoder(bytes, null);
            Object value = new GenericDatumReader<Object>(writer, reader, DATA).read(null, decoder);
            if (!decoder.isEnd()) {
                return "!more bytes than the value has";
            }
            StringBuilder found = new StringBuilder();
            show(found, value, reader);
            return found.toString();
        } catch (Exception | StackOverflowError error) {
            return ("!" + error).replace('\n', ' ').replace('\r', ' ');
        }
    }

    private static void show(StringBuilder to, Object value, Schema schema) {
        String logical = schema.getLogicalType() == null ? "" : schema.getLogicalType().getName();
        switch (schema.getType()) {
            case UNION -> showBranch(to, value, schema);
            case RECORD -> {
                String before = "{";
                for (Schema.Field field : schema.getFields()) {
                    quote(to.append(before), field.name());
                    show(to.append(':'), ((IndexedRecord) value).get(field.pos()), field.schema());
                    before = ",";
                }
                to.append(schema.getFields().isEmpty() ? "{}" : "}");
            }
            case ARRAY -> {
                String before = "";
                to.append('[');
                for (Object one : (Collection<?>) value) {
                    show(to.append(before), one, schema.getElementType());
                    before = ",";
                }
                to.append(']');
            }
            case MAP -> {
                Map<String, Object> sorted = new TreeMap<>();
                ((Map<?, ?>) value).forEach((key, one) -> sorted.put(key.toString(), one));
                String before = "";
                to.append('{');
                for (Map.Entry<String, Object> entry : sorted.entrySet()) {
                    quote(to.append(before), entry.getKey());
                    show(to.append(':'), entry.getValue(), schema.getValueType());
                    before = ",";
                }
                to.append('}');
            }
            case FLOAT -> quote(to, bits((double) (Float) value));
            case DOUBLE -> quote(to, bits((Double) value));
            case STRING, ENUM -> quote(to, value.toString());
            case BYTES, FIXED -> quote(to, bytes(value, logical));
            case INT, LONG -> to.append(number(value));
            default -> to.append(value);
        }
    }

    private static void showBranch(StringBuilder to, Object value, Schema schema) {
        int place = DATA.resolveUnion(schema, value);
        Schema branch = schema.getTypes().get(place);
        boolean isPlain = branch.getType() == Schema.Type.NULL || !isStruct(schema);
        if (!isPlain) {
            to.append("{\"branch\":").append(place).append(",\"value\":");
        }
        show(to, value, branch);
        if (!isPlain) {
            to.append('}');
        }
    }

    /** Return whether a union has several types that are not numbers of two widths. */
    private static boolean isStruct(Schema union) {
        int integers = 0;
        int floats = 0;
        int all = 0;
        for (Schema one : union.getTypes()) {
            boolean isPlain = one.getLogicalType() == null;
            integers += isPlain && (one.getType() == Schema.Type.INT || one.getType() == Schema.Type.LONG) ? 1 : 0;
            floats += isPlain && (one.getType() == Schema.Type.FLOAT || one.getType() == Schema.Type.DOUBLE) ? 1 : 0;
            all += one.getType() == Schema.Type.NULL ? 0 : 1;
        }
        return all > 1 && integers < all && floats < all;
    }

    private static String bits(double value) {
        return "f" + String.format("%016x", Double.doubleToLongBits(value));
    }

    /** Return a number; of dates the days, of times of day the nanoseconds, of moments the microseconds. */
    private static String number(Object value) {
        if (value instanceof LocalDate date) {
            return Long.toString(date.toEpochDay());
        }
        if (value instanceof LocalTime time) {
            return Long.toString(time.toNanoOfDay());
        }
        Instant moment = value instanceof LocalDateTime local ? local.toInstant(ZoneOffset.UTC)
            : value instanceof Instant instant ? instant : null;
        if (moment == null) {
            return value.toString();
        }
        BigInteger micros = BigInteger.valueOf(moment.getEpochSecond()).multiply(BigInteger.valueOf(1_000_000));
        return micros.add(BigInteger.valueOf(moment.getNano() / 1000)).toString();
    }

    private static String bytes(Object value, String logical) {
        if (value instanceof BigDecimal decimal) {
            return decimal.toPlainString();
        }
        byte[] raw;
        if (value instanceof GenericFixed fixed) {
            raw = fixed.bytes();
        } else {
            ByteBuffer buffer = ((ByteBuffer) value).duplicate();
            raw = new byte[buffer.remaining()];
            buffer.get(raw);
        }
        ByteBuffer buffer = ByteBuffer.wrap(raw);
        if (logical.equals("uuid")) {
            return new UUID(buffer.getLong(), buffer.getLong()).toString();
        }
        if (logical.equals("duration")) {
            buffer.order(ByteOrder.LITTLE_ENDIAN);
            return Integer.toUnsignedString(buffer.getInt()) + " " + Integer.toUnsignedString(buffer.getInt()) + " "
                + Integer.toUnsignedString(buffer.getInt());
        }
        StringBuilder found = new StringBuilder("x");
        for (byte one : raw) {
            found.append(String.format("%02x", one));
        }
        return found.toString();
    }

    private static StringBuilder quote(StringBuilder to, String text) {
        to.append('"');
        for (char one : text.toCharArray()) {
            if (one == '"' || one == '\\' || one < 32 || one > 126) {
                to.append(String.format("\\u%04x", (int) one));
            } else {
                to.append(one);
            }
        }
        return to.append('"');
    }
}
