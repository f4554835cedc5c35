package kafkalog.harness;

import com.fasterxml.jackson.databind.ObjectMapper;

import org.apache.kafka.common.message.SnapshotFooterRecord;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.record.internal.FileLogInputStream.FileChannelRecordBatch;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.utils.*;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.internals.*; // 4.4 moved some of them here
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;
import org.apache.kafka.image.loader.LoaderManifest;
import org.apache.kafka.image.loader.MetadataBatchLoader;
import org.apache.kafka.image.loader.MetadataLoader;
import org.apache.kafka.image.node.MetadataImageNode;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.metadata.util.SnapshotFileReader;
import org.apache.kafka.raft.Batch;
import org.apache.kafka.raft.ControlRecord;
import org.apache.kafka.raft.LeaderAndEpoch;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.OffsetAndEpoch;
import org.apache.kafka.server.config.DefaultSupportedConfigChecker;
import org.apache.kafka.server.fault.FaultHandler;
import org.apache.kafka.shell.command.Commands;
import org.apache.kafka.shell.node.printer.ShellNodePrinter;
import org.apache.kafka.shell.state.MetadataShellPublisher;
import org.apache.kafka.shell.state.MetadataShellState;
import org.apache.kafka.snapshot.FileRawSnapshotReader;
import org.apache.kafka.snapshot.RecordsSnapshotReader;
import org.apache.kafka.snapshot.Snapshots;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/**
 * Metadata images as Kafka's metadata shell shows them. A line of stdin is a JSON array; its answer is a line with a JSON
 * array of texts: `["shell", SNAPSHOT...]` what the shell says of each snapshot, `["at", DIR, OFFSET...]` the image as a
 * broker has it that has loaded the newest snapshot at or below each offset, and the log from there up to the offset.
 */
public final class MetadataTrees {
    private static final MetadataRecordSerde SERDE = new MetadataRecordSerde();

    private MetadataTrees() { }

    public static void main(String[] argv) throws Exception {
        ObjectMapper json = new ObjectMapper();
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = json.readValue(line, String[].class);
            List<String> answers = new ArrayList<>();
            if (words[0].equals("shell"))
                for (int i = 1; i < words.length; i++) answers.add(shell(words[i]));
            else
                for (int i = 2; i < words.length; i++) answers.add(tree(image(Path.of(words[1]), Long.parseLong(words[i]))));
            out.println(json.writeValueAsString(answers));
        }
        Runtime.getRuntime().halt(0);
    }

    /** What `MetadataShell.run` does, without its race: it waits forever if the file is read before the shell listens. */
    static String shell(String snapshot) throws Exception {
        MetadataShellState state = new MetadataShellState();
        CountDownLatch loaded = new CountDownLatch(1);
        MetadataShellPublisher publisher = new MetadataShellPublisher(state) {
            @Override
            public void onMetadataUpdate(MetadataDelta delta, MetadataImage image, LoaderManifest manifest) {
                super.onMetadataUpdate(delta, image, manifest);
                loaded.countDown();
            }
        };
        SnapshotFileReader[] reader = {null};
        StringWriter text = new StringWriter();
        try (MetadataLoader loader = new MetadataLoader.Builder().setFaultHandler(fault()).setNodeId(-1)
                .setHighWaterMarkAccessor(() -> reader[0].highWaterMark())
                .setSupportedConfigChecker(new DefaultSupportedConfigChecker()).build()) {
            reader[0] = new SnapshotFileReader(snapshot, loader);
            try (SnapshotFileReader closed = reader[0]; PrintWriter writer = new PrintWriter(text)) {
                loader.installPublishers(List.of(publisher)).get();
                closed.startup();
                if (!loaded.await(30, TimeUnit.SECONDS)) throw new IllegalStateException("not loaded: " + snapshot);
                new Commands(false).parseCommand(List.of("tree", "/")).run(Optional.empty(), writer, state);
            }
        }
        return text.toString();
    }

    private static String tree(MetadataImage image) {
        StringWriter text = new StringWriter();
        try (PrintWriter writer = new PrintWriter(text)) {
            ShellNodePrinter printer = new ShellNodePrinter(writer);
            printer.enterNode(MetadataImageNode.NAME);
            new MetadataImageNode(image).print(printer);
            printer.leaveNode();
        }
        return text.toString();
    }

    private static MetadataImage image(Path directory, long end) throws Exception {
        MetadataImage[] image = {MetadataImage.EMPTY};
        var loader = new MetadataBatchLoader(
            new LogContext(), Time.SYSTEM, fault(), (delta, next, manifest) -> image[0] = next, (type, name) -> true);
        long start = -1;
        for (OffsetAndEpoch id : snapshots(directory))
            if (id.offset() <= end && id.offset() > start) {
                image[0] = snapshot(directory, id);
                start = id.offset();
            }
        loader.resetToImage(image[0]);
        for (Path segment : segments(directory))
            try (FileRecords records = FileRecords.open(segment.toFile(), false)) {
                for (FileChannelRecordBatch batch : records.batches()) {
                    if (batch.lastOffset() < start || batch.baseOffset() >= end) continue;
                    loader.loadBatch(batch(batch, end), LeaderAndEpoch.UNKNOWN);
                    loader.maybeFlushBatches(LeaderAndEpoch.UNKNOWN, true);
                }
            }
        return image[0];
    }

    /** The part of a batch below an offset. */
    private static Batch<ApiMessageAndVersion> batch(FileChannelRecordBatch batch, long end) {
        List<ApiMessageAndVersion> messages = new ArrayList<>();
        int control = 0;
        for (Record record : batch) {
            if (record.offset() >= end) break;
            if (batch.isControlBatch()) control++;
            else messages.add(SERDE.read(new ByteBufferAccessor(record.value()), record.valueSize()));
        }
        if (batch.isControlBatch())
            return Batch.control(batch.baseOffset(), batch.partitionLeaderEpoch(), batch.maxTimestamp(), batch.sizeInBytes(),
                Collections.nCopies(control, ControlRecord.of(new SnapshotFooterRecord())));
        return Batch.data(batch.baseOffset(), batch.partitionLeaderEpoch(), batch.maxTimestamp(), batch.sizeInBytes(), messages);
    }

    private static MetadataImage snapshot(Path directory, OffsetAndEpoch id) {
        MetadataDelta delta = new MetadataDelta.Builder().build();
        try (var reader = RecordsSnapshotReader.of(
                FileRawSnapshotReader.open(directory, id), SERDE, BufferSupplier.NO_CACHING, 8 << 20, true, new LogContext())) {
            while (reader.hasNext())
                for (ApiMessageAndVersion record : reader.next().records()) delta.replay(record.message());
            delta.finishSnapshot();
            return delta.apply(new MetadataProvenance(
                reader.lastContainedLogOffset(), reader.lastContainedLogEpoch(), reader.lastContainedLogTimestamp(), true));
        }
    }

    private static List<OffsetAndEpoch> snapshots(Path directory) throws Exception {
        try (Stream<Path> files = Files.list(directory)) {
            return files.flatMap(file -> Snapshots.parse(file).stream())
                .filter(file -> !file.partial() && !file.deleted()).map(file -> file.snapshotId()).sorted().toList();
        }
    }

    private static List<Path> segments(Path directory) throws Exception {
        try (Stream<Path> files = Files.list(directory)) {
            return files.filter(file -> file.toString().endsWith(".log")).sorted().toList();
        }
    }

    private static FaultHandler fault() {
        return (message, cause) -> new RuntimeException(message, cause);
    }
}
