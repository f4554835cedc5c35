package kafkalog.harness;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;

import org.apache.kafka.common.utils.*;
import org.apache.kafka.common.utils.internals.*; // 4.4 moved some of them here
import org.apache.kafka.tools.DumpLogSegments;

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.TreeMap;

/**
 * DumpLogSegments many times in one JVM. The tool prints file names as they were given, so the working directory of this
 * JVM is where the relative names start; and it may change what it reads, so it gets copies.
 */
public final class DumpTool {
    private static final String DEEP = "--deep-iteration --print-data-log";
    private static final Map<String, String> DECODERS = Map.of(
        "__consumer_offsets", "--offsets-decoder",
        "__transaction_state", "--transaction-log-decoder",
        "__cluster_metadata", "--cluster-metadata-decoder",
        "__share_group_state", "--share-group-state-decoder");

    record Result(int exit, byte[] stdout, String stderr) { }

    /** A call of the tool that ended the process. */
    private static final class Ended extends RuntimeException {
        final int status;

        Ended(int status) {
            super(null, null, false, false);
            this.status = status;
        }
    }

    private DumpTool() { }

    static Result run(List<String> args) {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        PrintStream stdout = System.out;
        PrintStream stderr = System.err;
        int status = 0;
        Exit.setExitProcedure((code, message) -> {
            throw new Ended(code);
        });
        System.setOut(new PrintStream(out, false, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, false, StandardCharsets.UTF_8));
        try {
            DumpLogSegments.main(args.toArray(new String[0]));
        } catch (Ended e) {
            status = e.status;
        } catch (Throwable e) {
            // what the JVM does with an exception that leaves main
            System.err.print("Exception in thread \"main\" ");
            e.printStackTrace();
            status = 1;
        } finally {
            System.out.flush();
            System.err.flush();
            System.setOut(stdout);
            System.setErr(stderr);
            Exit.resetExitProcedure();
        }
        return new Result(status, out.toByteArray(), err.toString(StandardCharsets.UTF_8));
    }

    /** Name of the output file -> options, for one file of a log directory. */
    static Map<String, String> calls(String file) {
        Map<String, String> calls = new LinkedHashMap<>();
        String name = file.substring(file.lastIndexOf('/') + 1);
        String folder = file.substring(0, Math.max(0, file.lastIndexOf('/')));
        String topic = folder.replaceAll("-\\d+$", "");
        if (name.endsWith(".checkpoint")) topic = "__cluster_metadata";
        if (name.endsWith(".log") || name.endsWith(".checkpoint")) {
            calls.put(file + ".txt", DEEP);
            calls.put(file + ".shallow.txt", "");
            calls.put(file + ".deep.txt", "--deep-iteration");
            calls.put(file + ".plain.txt", DEEP + " --skip-record-metadata");
            calls.put(file + ".part.txt", DEEP + " --max-bytes 3000");
            if (DECODERS.containsKey(topic)) calls.put(file + ".decoded.txt", DECODERS.get(topic));
        } else {
            calls.put(file + ".txt", "");
            if (name.endsWith("index") && !name.endsWith(".txnindex")) {
                calls.put(file + ".verify.txt", "--verify-index-only");
                calls.put(file + ".sanity.txt", "--index-sanity-check");
            }
        }
        return calls;
    }

    /** Is this a file that somebody would give to the tool? Side files without an offset in the name are not. */
    static boolean isDumped(String file) {
        String name = file.substring(file.lastIndexOf('/') + 1);
        return name.endsWith(".checkpoint") || (file.contains("/") && name.matches("\\d{20}\\..*"));
    }

    /**
     * Dumps each file of a log directory in each way and writes the outputs into a folder like corpus/.../dump.
     * Works on a copy in the working directory; a folder that the tool changed is put back before the next call.
     *
     * @return the calls that changed files
     */
    static List<String> dumpAll(Path logDir, Path to, ObjectMapper json) throws IOException {
        Path here = Path.of("").toAbsolutePath();
        Trees.copy(logDir, here);
        Map<String, Object> exits = new TreeMap<>();
        List<String> changing = new ArrayList<>();
        for (Path p : Trees.files(logDir)) {
            String file = logDir.relativize(p).toString();
            if (!isDumped(file)) continue;
            Path folder = Objects.requireNonNullElse(Path.of(file).getParent(), Path.of(""));
            Map<String, String> before = Trees.listing(logDir.resolve(folder));
            for (Map.Entry<String, String> call : calls(file).entrySet()) {
                List<String> args = new ArrayList<>();
                if (!call.getValue().isEmpty()) args.addAll(List.of(call.getValue().split(" ")));
                args.addAll(List.of("--files", file));
                Result r = run(args);
                Path out = to.resolve(call.getKey());
                Files.createDirectories(out.getParent());
                Files.write(out, r.stdout());
                Map<String, Object> facts = new LinkedHashMap<>();
                facts.put("args", args);
                facts.put("exit", r.exit());
                if (!r.stderr().isEmpty()) facts.put("stderr", r.stderr().replace(here.toString(), "<CWD>"));
                exits.put(call.getKey(), facts);
                if (!folder.toString().isEmpty() && !Trees.listing(here.resolve(folder)).equals(before)) {
                    changing.add(String.join(" ", args));
                    Trees.empty(here.resolve(folder));
                    Trees.copy(logDir.resolve(folder), here.resolve(folder));
                }
            }
        }
        json.writeValue(to.resolve("exit-codes.json").toFile(), exits);
        Trees.empty(here);
        return changing;
    }

    /** Reads calls from stdin, a JSON array of arguments a line; answers {"exit", "stdout" (base64), "stderr"}, a line each. */
    public static void main(String[] argv) throws IOException {
        ObjectMapper json = new ObjectMapper();
        PrintStream stdout = System.out;
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        in.lines().filter(line -> !line.isBlank()).forEach(line -> {
            try {
                List<String> args = new ArrayList<>();
                for (JsonNode arg : json.readTree(line)) args.add(arg.asText());
                Result r = run(args);
                Map<String, Object> answer = new LinkedHashMap<>();
                answer.put("exit", r.exit());
                answer.put("stdout", Base64.getEncoder().encodeToString(r.stdout()));
                answer.put("stderr", r.stderr());
                stdout.println(json.writeValueAsString(answer));
                stdout.flush();
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        });
    }
}
