package kafkalog.harness;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Stream;

/** Copies, listings and removal of directory trees; copies keep times and stay sparse. */
final class Trees {
    private static final int BLOCK_BYTES = 1 << 16;
    private static final byte[] ZEROS = new byte[BLOCK_BYTES];

    private Trees() { }

    /** All regular files below a folder, sorted; a file that vanishes meanwhile is left out. */
    static List<Path> files(Path root) throws IOException {
        return all(root).stream().filter(p -> Files.isRegularFile(p, LinkOption.NOFOLLOW_LINKS)).toList();
    }

    private static List<Path> all(Path root) throws IOException {
        while (true) {
            try (Stream<Path> walk = Files.walk(root)) {
                return walk.sorted().toList();
            } catch (UncheckedIOException e) {
                if (!(e.getCause() instanceof NoSuchFileException)) throw e; // else it vanished: look again
            }
        }
    }

    /** Relative path to "size mtime" of every file but the checkpoints, which a broker rewrites all the time. */
    static Map<String, String> listing(Path root) throws IOException {
        Map<String, String> out = new TreeMap<>();
        for (Path p : files(root)) {
            String name = p.getFileName().toString();
            if (name.endsWith("-checkpoint") || name.endsWith(".tmp")) continue;
            try {
                out.put(root.relativize(p).toString(), Files.size(p) + " " + Files.getLastModifiedTime(p));
            } catch (NoSuchFileException e) {
                out.put(root.relativize(p).toString(), "gone");
            }
        }
        return out;
    }

    static void copy(Path from, Path to) throws IOException {
        List<Path> all = all(from);
        for (Path p : all) {
            Path target = to.resolve(from.relativize(p).toString());
            if (Files.isDirectory(p)) Files.createDirectories(target);
            else if (!p.getFileName().toString().endsWith(".tmp")) copyFile(p, target);
        }
        for (int i = all.size() - 1; i >= 0; i--) {
            Path p = all.get(i);
            Path target = to.resolve(from.relativize(p).toString());
            if (Files.exists(target)) Files.setLastModifiedTime(target, Files.getLastModifiedTime(p));
        }
    }

    private static void copyFile(Path from, Path to) throws IOException {
        ByteBuffer block = ByteBuffer.allocate(BLOCK_BYTES);
        try (FileChannel in = FileChannel.open(from, StandardOpenOption.READ);
             RandomAccessFile out = new RandomAccessFile(to.toFile(), "rw")) {
            long size = 0;
            while (in.read(block.clear(), size) > 0) {
                int n = block.position();
                if (!Arrays.equals(block.array(), 0, n, ZEROS, 0, n)) {
                    out.seek(size);
                    out.write(block.array(), 0, n);
                }
                size += n;
            }
            out.setLength(size);
        }
    }

    /** Removes what is in a folder, not the folder. */
    static void empty(Path root) throws IOException {
        try (Stream<Path> walk = Files.walk(root)) {
            for (Path p : walk.sorted(Comparator.reverseOrder()).toList())
                if (!p.equals(root)) Files.delete(p);
        }
    }
}
