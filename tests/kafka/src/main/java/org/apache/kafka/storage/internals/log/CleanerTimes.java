// Times what Kafka's own classes take over one partition directory, for the benchmarks.
// Part of kafkalog's tests/kafka.
package org.apache.kafka.storage.internals.log;

import org.apache.kafka.common.TopicPartition;

import java.io.File;
import java.util.Optional;

/**
 * {@code clean DIR}: one pass of the Cleaner over all but the active segment. {@code recover DIR}:
 * the indexes of the first segment made anew by LogSegment.recover. Prints the seconds that took.
 */
public class CleanerTimes {

    public static void main(String[] args) throws Exception {
        KafkaOracle.Args options = new KafkaOracle.Args(
            new String[] {"--config", "cleanup.policy=compact", "--hw", "leo"}, 0);
        File directory = new File(args[1]).getCanonicalFile();
        long nanoseconds = args[0].equals("clean") ? clean(directory, options) : recover(directory, options);
        System.out.printf("{\"seconds\": %.6f}%n", nanoseconds / 1e9);
    }

    private static long clean(File directory, KafkaOracle.Args options) throws Exception {
        try (KafkaOracle.Ctx opened = new KafkaOracle.Ctx(directory, options, true)) {
            long end = opened.log.activeSegment().baseOffset();
            LogToClean dirty = new LogToClean(opened.log, 0, end, false);
            Cleaner cleaner = KafkaOracle.cleaner(options, opened.time);
            long start = System.nanoTime();
            cleaner.doClean(dirty, opened.time.now);
            long taken = System.nanoTime() - start;
            opened.sched.runDelayed();
            return taken;
        }
    }

    private static long recover(File directory, KafkaOracle.Args options) throws Exception {
        KafkaOracle.FixedTime time = new KafkaOracle.FixedTime(options.now());
        TopicPartition partition = UnifiedLog.parseTopicPartitionName(directory);
        LogSegment segment = LogSegment.open(
            directory, 0, new LogConfig(options.config()), time, true, 0, false, "");
        ProducerStateManager producers = new ProducerStateManager(
            partition, directory, 900_000, new ProducerStateManagerConfig(86_400_000, false), time);
        long start = System.nanoTime();
        segment.recover(producers, UnifiedLog.createLeaderEpochCache(
            directory, partition, new LogDirFailureChannel(10), Optional.empty(),
            new KafkaOracle.InlineScheduler()));
        segment.flush();
        long taken = System.nanoTime() - start;
        segment.close();
        return taken;
    }
}
