"""What is measured, on which data, and what is wanted: each benchmark is one row here.

The first word of a command is a program (`kafkalog`, `DumpLogSegments`, or one of the system);
words in braces are places of the data set, see `Partition.places`, `{to}` a file to write and
`{kafkalog}` the program.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from benchmarks.datasets import Dataset

if TYPE_CHECKING:
    from benchmarks.processes import Figures, Pair

CODECS = ("none", "lz4", "zstd", "gzip", "snappy")
SIZES = {
    "1 MB": 8_300,
    "10 MB": 83_000,
    "100 MB": 830_000,
    "300 MB": 2_500_000,
    "1.2 GB": 10_000_000,
    "4 GB": 33_100_000,
}
KEYS = {"1 M": 1_000_000, "5 M": 5_000_000, "20 M": 20_000_000}
AXIS_BYTES = 32_000_000

DEEP = ("--deep-iteration", "--print-data-log")
PEAK_MB_MAX = 250


def inside(figures: Figures) -> float:
    """What a process said that its work took."""
    assert figures.inside_s is not None
    return figures.inside_s


@dataclass(frozen=True)
class Wanted:
    """A bound on one figure of a row."""

    figure: str
    at_least: float | None = None
    at_most: float | None = None

    def value(self, pair: Pair, records: int, size_bytes: int) -> float:
        """The figure, of a log of so many records and bytes."""
        if self.figure == "times Kafka's":
            assert pair.theirs is not None
            return pair.theirs.wall_s / pair.ours.wall_s
        if self.figure == "times Kafka's in process":
            assert pair.theirs is not None
            return inside(pair.theirs) / inside(pair.ours)
        if self.figure == "M records/s":
            return records / pair.ours.wall_s / 1e6
        if self.figure == "GB/s":
            return size_bytes / pair.ours.wall_s / 1e9
        return {"s": pair.ours.wall_s, "MB": pair.ours.peak_mb}[self.figure]

    def is_met(self, value: float) -> bool:
        """Whether a figure is within the bound."""
        low = self.at_least is None or value >= self.at_least
        return low and (self.at_most is None or value <= self.at_most)

    def text(self) -> str:
        """The bound in words."""
        sign, bound = ("≥", self.at_least) if self.at_most is None else ("≤", self.at_most)
        return f"{sign} {bound:g} {self.figure}"


@dataclass(frozen=True)
class Row:
    """One benchmark: our command, what it is compared with, and what is wanted.

    Attributes:
        is_changing: the commands change what they are about: each run gets a copy.
        tells_seconds: the commands print the seconds that their work took in the process.
        may_be_done: little data needs no work, and the command says so by its status.
    """

    table: str
    name: str
    dataset: str
    ours: tuple[str, ...]
    theirs: tuple[str, ...] | None = None
    compare: bool = False
    cpus: int = 2
    wanted: tuple[Wanted, ...] = ()
    is_changing: bool = False
    tells_seconds: bool = False
    may_be_done: bool = False

    @property
    def title(self) -> str:
        """Table and name."""
        return f"{self.table}: {self.name}"


@dataclass(frozen=True)
class Trend:
    """How a figure of two rows on data of different sizes may change."""

    name: str
    figure: str
    small: str
    large: str
    at_most: float = 1.1


def axis_datasets() -> dict[str, Dataset]:
    """The data of the JMH axes, about as large each: name in the table and data set."""
    made = {}
    for codec, per_batch, value in (
        *product(CODECS, (1, 10, 200), (100, 1000)),
        *product(("none", "zstd"), (10,), (10_000, 100_000)),
    ):
        name = f"{codec}, {per_batch} a batch, {value} B"
        made[name] = _axis(name, codec=codec, per_batch=per_batch, value_size=value)
    for codec in ("none", "lz4"):
        name = f"{codec}, 50 a batch, 1000 B, 5 headers"
        made[name] = _axis(name, codec=codec, per_batch=50, value_size=1000, headers=5)
        name = f"{codec}, 10 a batch, 100 B, transactional"
        made[name] = _axis(name, codec=codec, per_batch=10, value_size=100,
                           batches_per_transaction=10)  # fmt: skip
    return made


def _axis(
    name: str, *, codec: str, per_batch: int, value_size: int, headers: int = 0,
    batches_per_transaction: int = 0,
) -> Dataset:  # fmt: skip
    size = value_size + 20 + 38 * headers + 61 / per_batch
    return Dataset(
        "axis-" + name.replace(", ", "-").replace(" ", "-"),
        int(AXIS_BYTES / size),
        codec,
        per_batch,
        value_size,
        headers,
        batches_per_transaction,
    )


def sized(size: str, codec: str = "none") -> str:
    """The name of the data set of a size."""
    return f"{size}-{codec}".replace(" ", "-")


def datasets() -> dict[str, Dataset]:
    """All data sets by name."""
    made = [Dataset(sized(size), count) for size, count in SIZES.items()]
    made += [
        Dataset(sized(size, codec), SIZES[size], codec)
        for size, codec in product(("300 MB", "1.2 GB"), CODECS[1:])
    ]
    made += [
        Dataset(keyed("300 MB", codec), SIZES["300 MB"], codec, distinct=1_000_000, is_closed=True)
        for codec in CODECS
    ]
    made += [
        Dataset(keyed(size), keys * 3 // 2, value_size=20, distinct=keys, is_closed=True,
                in_turn=True)
        for size, keys in KEYS.items()
    ]  # fmt: skip
    return {dataset.name: dataset for dataset in (*made, *axis_datasets().values())}


def keyed(size: str, codec: str | None = None) -> str:
    """The name of a data set with many keys and an empty active segment."""
    return f"keys-{sized(size, codec) if codec else size.replace(' ', '-')}"


def dump(
    table: str,
    name: str,
    dataset: str,
    *options: str,
    files: str = "{logs}",
    wanted: tuple[Wanted, ...] = (),
    cpus: int = 2,
) -> Row:
    """Our drop-in and Kafka's tool with the same arguments; on one processor only for the time."""
    words = ("--files", files, *options)
    ours, theirs = ("kafkalog", "kafka-dump-log", *words), ("DumpLogSegments", *words)
    return Row(table, name, dataset, ours, theirs, cpus > 1, cpus, wanted)


def times(factor: float) -> Wanted:
    """So many times as fast as Kafka's tool."""
    return Wanted("times Kafka's", at_least=factor)


MEMORY = Wanted("MB", at_most=PEAK_MB_MAX)
SMALL = (Wanted("s", at_most=0.25), Wanted("MB", at_most=80))


def deep_rows() -> list[Row]:
    """All records with key and payload."""
    plain = {"300 MB": (times(8),), "1.2 GB": (times(20),), "4 GB": (times(20), MEMORY)}
    rows = [
        dump("Deep print", f"deep print, {size}", sized(size), *DEEP, wanted=wanted)
        for size, wanted in plain.items()
    ]
    for (size, factor), codec in product({"300 MB": 6, "1.2 GB": 10}.items(), CODECS[1:]):
        name, data = f"deep print, {size} in {codec}", sized(size, codec)
        rows.append(dump("Deep print", name, data, *DEEP, wanted=(times(factor),)))
    return rows


def shallow_rows() -> list[Row]:
    """Batch headers and checksums."""
    rows = {"300 MB": (times(2.5),), "4 GB": (times(6), MEMORY)}
    return [
        dump("Shallow", f"shallow, {size}", sized(size), wanted=wanted)
        for size, wanted in rows.items()
    ]


def index_rows() -> list[Row]:
    """Each entry against the log."""
    return [
        dump("Indexes", f"{kind} verified, 300 MB", sized("300 MB"), "--verify-index-only",
             files=f"{{{word}}}", wanted=(times(factor),))
        for kind, word, factor in (("offset index", "index", 3), ("time index", "timeindex", 200))
    ]  # fmt: skip


def export_rows() -> list[Row]:
    """Records for other programs; Kafka's tool has only its own text to offer."""
    table = "For other programs"
    ndjson = ("kafkalog", "dump-segment", "{partition}", "--format", "ndjson")
    export = "{kafkalog} dump-segment {partition} --format parquet --to {to}"
    parquet = ("sh", "-c", f"rm -f {{to}} && {export}")
    print_all = ("DumpLogSegments", "--files", "{logs}", *DEEP)
    fast = Wanted("M records/s", at_least=1.5)
    return [
        Row(table, "NDJSON, 300 MB", sized("300 MB"), ndjson, print_all, wanted=(times(6),)),
        Row(table, "NDJSON, 4 GB", sized("4 GB"), ndjson, wanted=(MEMORY,)),
        Row(table, "Parquet, 300 MB", sized("300 MB"), parquet, wanted=(fast,)),
        Row(table, "Parquet, 4 GB", sized("4 GB"), parquet, wanted=(MEMORY,)),
    ]


def verify_rows() -> list[Row]:
    """Beside Kafka's shallow pass and its check of both indexes, which see less."""
    kafka = ("DumpLogSegments", "--verify-index-only", "--files", "{segments}")
    wanted = {
        ("quick", "1.2 GB"): (MEMORY,),
        ("standard", "300 MB"): (times(5), MEMORY),  # Kafka's time grows with the square
        ("standard", "1.2 GB"): (MEMORY,),
        ("standard", "4 GB"): (MEMORY,),
        ("deep", "1.2 GB"): (Wanted("GB/s", at_least=1), MEMORY),
        ("deep", "4 GB"): (MEMORY,),
    }
    return [
        Row("Verify", f"verify {level}, {size}", sized(size),
            ("kafkalog", "verify", "--level", level, "{partition}"),
            kafka if (level, size) == ("standard", "300 MB") else None, wanted=bounds)
        for (level, size), bounds in wanted.items()
    ]  # fmt: skip


CLEAN_OURS = ("python", "-m", "benchmarks.compaction", "{copy}")


def compaction_rows() -> list[Row]:
    """In place, beside Kafka's Cleaner: what the work takes in each process, and the process."""
    table = "Compaction"
    in_process = {"none": 8, "lz4": 4, "zstd": 4, "gzip": 1.5, "snappy": 4}
    names = {codec: "" if codec == "none" else f" in {codec}" for codec in CODECS}
    return [
        Row(
            table, f"compaction, 300 MB{name}", keyed("300 MB", codec), CLEAN_OURS,
            ("CleanerTimes", "clean", "{copy}"),
            wanted=(Wanted("times Kafka's in process", at_least=in_process[codec]),),
            is_changing=True, tells_seconds=True,
        )
        for codec, name in names.items()
    ]  # fmt: skip


def key_rows() -> list[Row]:
    """How time and memory grow with the keys."""
    return [
        Row("Keys", f"compaction, {size} keys", keyed(size), CLEAN_OURS,
            wanted=(Wanted("MB", at_most=150 + 64 * keys / 1e6),), is_changing=True,
            tells_seconds=True)
        for size, keys in KEYS.items()
    ]  # fmt: skip


def maintenance_rows() -> list[Row]:
    """Whole commands that change a partition."""
    table, data = "Maintenance", keyed("300 MB", "none")
    in_place = ("{copy}", "--in-place", "--yes")
    policy = ("--config", "cleanup.policy=compact")
    return [
        Row(
            table, "compact, 300 MB", data, ("kafkalog", "compact", *in_place, *policy),
            ("CleanerTimes", "clean", "{copy}"), wanted=(times(4),), is_changing=True,
        ),
        Row(
            table, "rebuild-index, 300 MB", data, ("kafkalog", "rebuild-index", *in_place),
            ("CleanerTimes", "recover", "{copy}"), wanted=(times(3),), is_changing=True,
            may_be_done=True,
        ),
    ]  # fmt: skip


def small_segment_rows() -> list[Row]:
    """Every mode on a segment where start-up is most of the time."""
    modes = {
        "deep print": DEEP,
        "records without content": ("--deep-iteration",),
        "content without metadata": (*DEEP, "--skip-record-metadata"),
        "shallow": (),
    }
    index_modes = {
        "": (),
        ", verified": ("--verify-index-only",),
        ", sanity": ("--index-sanity-check",),
    }
    files = {"offset index": "{index}", "time index": "{timeindex}"}
    cases = [(mode, options, "{logs}") for mode, options in modes.items()]
    cases += [
        (kind + mode, options, file)
        for (kind, file), (mode, options) in product(files.items(), index_modes.items())
    ]
    return [
        dump("A segment of 1 MB", f"{mode}, 1 MB", sized("1 MB"), *options, files=file,
             wanted=(times(1),))
        for mode, options, file in cases
    ]  # fmt: skip


def small_question_rows() -> list[Row]:
    """What must not depend on the size of the segment."""
    lookup, show = ("kafkalog", "lookup-offset", "{partition}"), ("kafkalog", "dump-segment")
    head = "{kafkalog} kafka-dump-log --files {log} --deep-iteration --print-data-log | head -1"
    from_late = ("--records", "--limit", "100", "--from-offset", "{late_offset}")
    questions = {
        "--help": (("kafkalog", "--help"), (Wanted("s", at_most=0.1),)),
        "ls": (("kafkalog", "ls", "{partition}"), ()),
        "lookup by offset": ((*lookup, "{late_offset}"), SMALL),
        "lookup by time": ((*lookup, "--timestamp", "{late_time}"), SMALL),
        "first 10 batches": ((*show, "{log}", "--batches", "--limit", "10"), SMALL),
        "first 10 records": ((*show, "{log}", "--records", "--limit", "10"), SMALL),
        "100 records at two thirds": ((*show, "{log}", *from_late), ()),
        "first line of the deep print": (("sh", "-c", head), (Wanted("s", at_most=0.8),)),
    }
    return [
        Row("Small questions", name, sized("1.2 GB"), command, wanted=wanted)
        for name, (command, wanted) in questions.items()
    ]


def scaling_rows() -> list[Row]:
    """The deep print on one and two processors."""
    return [
        dump("Scaling", f"{size}, {cpus} {'threads' if cpus > 1 else 'thread'}", sized(size),
             *DEEP, cpus=cpus)
        for size, cpus in product(("100 MB", "1.2 GB", "4 GB"), (1, 2))
    ]  # fmt: skip


def axis_rows() -> list[Row]:
    """Kafka's JMH axes."""
    return [
        dump("Kafka's JMH axes", name, dataset.name, *DEEP)
        for name, dataset in axis_datasets().items()
    ]


def physical_rows() -> list[Row]:
    """What the machine does with the bytes alone, and the lines of our output counted."""
    lines = "{kafkalog} kafka-dump-log --files {logs} --deep-iteration --print-data-log | wc -l"
    commands = {
        "cat": ("cat", "{log}"),
        "md5sum": ("md5sum", "{log}"),
        "our deep print into wc -l": ("sh", "-c", lines),
    }
    return [
        Row("Physical references", f"{name}, 300 MB", sized("300 MB"), command)
        for name, command in commands.items()
    ]


def all_rows() -> list[Row]:
    """Every benchmark, in the order of the page."""
    return [
        *deep_rows(), *shallow_rows(), *index_rows(), *verify_rows(), *export_rows(),
        *compaction_rows(), *key_rows(), *maintenance_rows(),
        *small_segment_rows(), *small_question_rows(), *scaling_rows(), *axis_rows(),
        *physical_rows(),
    ]  # fmt: skip


TRENDS = tuple(
    Trend(f"{name}, {figure}, {small} to {large}", figure, f"{name}, {small}", f"{name}, {large}")
    for name, figure, small, large in (
        ("deep print", "time a byte", "1.2 GB", "4 GB"),
        ("shallow", "time a byte", "300 MB", "4 GB"),
        ("NDJSON", "time a byte", "300 MB", "4 GB"),
        ("Parquet", "time a byte", "300 MB", "4 GB"),
        ("deep print", "memory", "300 MB", "4 GB"),
        ("shallow", "memory", "300 MB", "4 GB"),
        ("NDJSON", "memory", "300 MB", "4 GB"),
        ("Parquet", "memory", "300 MB", "4 GB"),
        ("compaction", "time a byte", "5 M keys", "20 M keys"),
    )
)
DECODERS_DATASET = sized("100 MB")
REHEARSAL_DATASET = sized("10 MB")  # large enough for the kernels to be loaded
