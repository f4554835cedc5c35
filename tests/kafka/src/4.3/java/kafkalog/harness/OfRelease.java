package kafkalog.harness;

import org.apache.kafka.metadata.bootstrap.BootstrapDirectory;
import org.apache.kafka.metadata.bootstrap.BootstrapMetadata;
import org.apache.kafka.storage.internals.log.UnifiedLog;

/** The calls that differ between releases, for Kafka 4.3. */
public final class OfRelease {
    private OfRelease() { }

    /** Closes a log as `LogManager` does when the broker stops. */
    public static void close(UnifiedLog log) {
        log.close();
    }

    /** The records of `bootstrap.checkpoint` in a directory. */
    static BootstrapMetadata bootstrap(String directory) throws Exception {
        return new BootstrapDirectory(directory).read();
    }
}
