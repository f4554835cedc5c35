package kafkalog.harness;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.message.FetchResponseData;
import org.apache.kafka.common.message.RequestHeaderData;
import org.apache.kafka.common.message.ResponseHeaderData;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;

import java.io.BufferedReader;
import java.io.DataInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.Socket;
import java.net.SocketException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;

/**
 * Requests as JSON, sent as Kafka's own classes write them, and the answers as these read them. A line of stdin is
 * `{"port", "api", "version", "body"}`; a line of stdout is the answer's body, or `{"closed": true}` where the other side hung up.
 * Fields that a version lacks are left out. Each port has one connection, kept until somebody closes it.
 */
public final class ProtocolBridge {
    private static final String MESSAGES = "org.apache.kafka.common.message.";
    private static final int PATIENCE_MS = 60_000;

    private final Map<Integer, Socket> sockets = new HashMap<>();
    private int correlation;

    private ProtocolBridge() {
    }

    public static void main(String[] argv) throws Exception {
        ObjectMapper json = new ObjectMapper();
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        ProtocolBridge bridge = new ProtocolBridge();
        for (String line = lines.readLine(); line != null; line = lines.readLine())
            out.println(json.writeValueAsString(bridge.ask(json, json.readTree(line))));
        Runtime.getRuntime().halt(0);
    }

    private JsonNode ask(ObjectMapper json, JsonNode question) throws Exception {
        String api = question.get("api").asText();
        short version = (short) question.get("version").asInt();
        Class<?> converter = Class.forName(MESSAGES + api + "RequestDataJsonConverter");
        ApiMessage body = (ApiMessage) converter.getMethod("read", JsonNode.class, short.class).invoke(null, question.get("body"), version);
        ApiKeys key = ApiKeys.forId(body.apiKey());
        int port = question.get("port").asInt();
        ByteBuffer answer;
        try {
            Socket socket = sockets.get(port);
            if (socket == null) {
                socket = new Socket("127.0.0.1", port);
                socket.setSoTimeout(PATIENCE_MS);
                socket.setTcpNoDelay(true);
                sockets.put(port, socket);
            }
            socket.getOutputStream().write(written(key, version, body));
            DataInputStream in = new DataInputStream(socket.getInputStream());
            byte[] bytes = new byte[in.readInt()];
            in.readFully(bytes);
            answer = ByteBuffer.wrap(bytes);
        } catch (EOFException | SocketException e) {
            Socket socket = sockets.remove(port);
            if (socket != null) socket.close();
            return json.createObjectNode().put("closed", true);
        }
        ByteBufferAccessor reading = new ByteBufferAccessor(answer);
        int told = new ResponseHeaderData(reading, key.responseHeaderVersion(version)).correlationId();
        ApiMessage response = ApiMessageType.fromApiKey(key.id).newResponse();
        try {
            response.read(reading, version);
        } catch (RuntimeException e) {
            return json.createObjectNode().put("unreadable", e.toString());
        }
        Class<?> writer = Class.forName(MESSAGES + api + "ResponseDataJsonConverter");
        ObjectNode found = (ObjectNode) writer.getMethod("write", response.getClass(), short.class, boolean.class)
            .invoke(null, response, version, false);
        if (told != correlation) found.put("correlation", "another");
        if (answer.hasRemaining()) found.put("bytesLeft", answer.remaining());
        if (response instanceof FetchResponseData fetched) describe(fetched, found);
        return found;
    }

    private byte[] written(ApiKeys key, short version, ApiMessage body) {
        RequestHeaderData header = new RequestHeaderData().setRequestApiKey(key.id).setRequestApiVersion(version)
            .setCorrelationId(++correlation).setClientId("bridge");
        ObjectSerializationCache cache = new ObjectSerializationCache();
        short headerVersion = key.requestHeaderVersion(version);
        int size = header.size(cache, headerVersion) + body.size(cache, version);
        ByteBuffer buffer = ByteBuffer.allocate(4 + size).putInt(size);
        ByteBufferAccessor writing = new ByteBufferAccessor(buffer);
        header.write(writing, cache, headerVersion);
        body.write(writing, cache, version);
        return buffer.array();
    }

    /** Adds to each partition its whole batches and their digest, and how many bytes of another come after them. */
    private static void describe(FetchResponseData data, ObjectNode found) throws Exception {
        for (int t = 0; t < data.responses().size(); t++) {
            var partitions = data.responses().get(t).partitions();
            for (int p = 0; p < partitions.size(); p++) {
                ObjectNode node = (ObjectNode) found.get("responses").get(t).get("partitions").get(p);
                if (!(partitions.get(p).records() instanceof MemoryRecords records)) continue;
                ByteBuffer whole = records.buffer().duplicate();
                var batches = node.putArray("batches");
                int end = 0;
                for (MutableRecordBatch batch : records.batches()) {
                    batches.add(batch.magic() + ":" + batch.baseOffset() + "-" + batch.lastOffset() + ":" + batch.sizeInBytes());
                    end += batch.sizeInBytes();
                }
                byte[] bytes = new byte[whole.remaining()];
                whole.get(bytes);
                node.put("digest", HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(Arrays.copyOf(bytes, end))));
                node.put("part", bytes.length - end);
            }
        }
    }
}
