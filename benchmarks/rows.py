"""What is measured, on which data, and what is wanted: each benchmark is one row here.

The first word of a command is a program (`kafkalog`, `DumpLogSegments`, or one of the system);
words in braces are places of the data set, see `Partition.places`, `{to}` a file to write and
`{kafkalog}` the program.
"""

from __future__ import annotations

from itertools import product

from benchmarks.datasets import (
    AVRO,
    CODECS,
    JSON,
    KEY_COUNTS,
    MANY,
    OFFSETS,
    PROTOBUF,
    SERVED,
    TIERED,
    axis_datasets,
    keyed,
    sized,
)  # fmt: skip
from benchmarks.limits import limit_rows
from benchmarks.row import CLEAN_OURS, CLEAN_THEIRS, DEEP, IN_PLACE, Row, Trend, Wanted, dump, times

KEYS_OF_300_MB = 917_874
PEAK_MB_MAX = 250


MEMORY = Wanted("MB", at_most=PEAK_MB_MAX)
SMALL = (Wanted("s", at_most=0.1), Wanted("MB", at_most=80))


def deep_rows() -> list[Row]:
    """All records with key and payload."""
    plain = {"300 MB": (times(20),), "1.2 GB": (times(28),), "4 GB": (times(28), MEMORY)}
    rows = [
        dump("Deep print", f"deep print, {size}", sized(size), *DEEP, wanted=wanted)
        for size, wanted in plain.items()
    ]
    for size, codec in product(("300 MB", "1.2 GB"), CODECS[1:]):
        name, data = f"deep print, {size} in {codec}", sized(size, codec)
        factor = 6 if size == "300 MB" else 10 if codec == "gzip" else 12
        rows.append(dump("Deep print", name, data, *DEEP, wanted=(times(factor),)))
    return rows


def shallow_rows() -> list[Row]:
    """Batch headers and checksums."""
    rows = {"300 MB": (times(3.5),), "4 GB": (times(6), MEMORY)}
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
    """Records for people and other programs; Kafka's tool has only its own text to offer."""
    table = "For other programs"
    ndjson = ("kafkalog", "dump-segment", "{partition}", "--format", "ndjson")
    export = "{kafkalog} dump-segment {partition} --to {to}.parquet"
    parquet = ("sh", "-c", f"rm -f {{to}}.parquet && {export}")
    print_all = ("DumpLogSegments", "--files", "{logs}", *DEEP)
    fast = Wanted("M records/s", at_least=1.5)
    return [
        Row(table, "table, 300 MB", sized("300 MB"), ndjson[:3], print_all),
        Row(table, "NDJSON, 300 MB", sized("300 MB"), ndjson, print_all, wanted=(times(6),)),
        Row(table, "NDJSON, 4 GB", sized("4 GB"), ndjson, wanted=(MEMORY,)),
        Row(table, "Parquet, 300 MB", sized("300 MB"), parquet, wanted=(fast,)),
        Row(table, "Parquet, 4 GB", sized("4 GB"), parquet, wanted=(MEMORY,)),
    ]


def decoding_rows() -> list[Row]:
    """An export with values decoded by the ids in them, against others.

    Those are an export without that, and a consumer's script that decodes value by value.
    """
    export = "rm -rf {to} && {kafkalog} export {partition} --to {to} -q"
    decode = export + " --value-format FORM@confluent -r {schemas}"
    script = "{python} -m benchmarks.consumer FORM {log} {to}.parquet"
    other = "times as fast as the other"
    avro = decode.replace("FORM", "avro") + " --value-schema {schemas}/1.avsc"
    rows = [
        Row("Decoding", "Avro of 10 fields, 1.5 M records", AVRO, ("sh", "-c", avro),
            ("sh", "-c", export), wanted=(Wanted(other, at_least=0.5),))
    ]  # fmt: skip
    for name, data, form in (("JSON", JSON, "json"), ("Protobuf", PROTOBUF, "protobuf")):
        ours = ("sh", "-c", decode.replace("FORM", form))
        for theirs, against, factor in (
            (export, "", 0.4), (script.replace("FORM", form), ", against a script", 1.5)
        ):  # fmt: skip
            title = f"{name} of 10 fields, 0.3 M records{against}"
            wanted = (Wanted(other, at_least=factor),)
            rows.append(Row("Decoding", title, data, ours, ("sh", "-c", theirs), wanted=wanted))
    return rows


def sql_rows() -> list[Row]:
    """Questions to a log, against a walk over its headers, and an export that DuckDB reads."""
    by_key = "select key, count(*) n from {} group by key order by n desc limit 10"
    ask = '{python} -c "import duckdb; duckdb.sql(\\"' + by_key + '\\").fetchall()"'
    export = "rm -rf {to} && {kafkalog} export {partition} --to {to} -q >/dev/null && "
    quick = ("kafkalog", "verify", "--level", "quick", "-q", "{partition}")
    files = ("sh", "-c", export + ask.replace("{}", "'{to}/**/*.parquet'"))
    return [
        Row("SQL", name, sized("1.2 GB"), ("kafkalog", "sql", "-c", query, "{partition}"), other,
            wanted=(Wanted("times as fast as the other", at_least=factor),))
        for name, query, other, factor in (
            ("SQL count(*), 1.2 GB", "select count(*) from records", quick, 0.83),
            ("SQL count by key, 1.2 GB", by_key.format("records"), files, 0.8))
    ]  # fmt: skip


def verify_rows() -> list[Row]:
    """Beside Kafka's shallow pass and its check of both indexes, which see less."""
    kafka = ("DumpLogSegments", "--verify-index-only", "--files", "{segments}")
    wanted = {
        ("quick", "1.2 GB"): (MEMORY,),
        ("standard", "300 MB"): (times(5), MEMORY),  # Kafka's time grows with the square
        ("standard", "1.2 GB"): (MEMORY,),
        ("standard", "4 GB"): (MEMORY,),
        ("deep", "1.2 GB"): (Wanted("GB/s", at_least=2), MEMORY),
        ("deep", "4 GB"): (MEMORY,),
    }
    return [
        Row("Verify", f"verify {level}, {size}", sized(size),
            ("kafkalog", "verify", "--level", level, "{partition}"),
            kafka if (level, size) == ("standard", "300 MB") else None, wanted=bounds)
        for (level, size), bounds in wanted.items()
    ]  # fmt: skip


def search_rows() -> list[Row]:
    """Records of one key, and values with a text."""
    questions = {
        "key, 300 MB": ("300 MB", ("--key", "{key}"), ()),
        "key, 1.2 GB": ("1.2 GB", ("--key", "{key}"), (Wanted("GB/s", at_least=1), MEMORY)),
        "value, 1.2 GB": ("1.2 GB", ("--value-regex", "{value_regex}"), (MEMORY,)),
    }
    rows = [
        Row("Search", f"find {name}", sized(size),
            ("kafkalog", "find", "{partition}", *options, "--format", "ndjson"), wanted=wanted)
        for name, (size, options, wanted) in questions.items()
    ]  # fmt: skip
    both = ("kafkalog", "diff", "{partition}", "{partition}")
    wanted = (Wanted("GB/s", at_least=1), MEMORY)  # of each of two sides
    return [*rows, Row("Search", "diff with itself, 1.2 GB", sized("1.2 GB"), both, wanted=wanted)]


def tier_rows() -> list[Row]:
    """The same segments in remote storage and in a log directory."""
    export = "rm -rf {to} && {kafkalog} export {} --to {to} -q >/dev/null"
    local = ("sh", "-c", export.replace("{}", "{partition}"))
    return [
        Row("Tiers", f"export of {what}, 1.2 GB", TIERED,
            ("sh", "-c", export.replace("{}", place)), local,
            wanted=(Wanted("times as fast as the other", at_least=0.8),))
        for what, place in (
            ("a tier", "{tier}"), ("a tier of Aiven's plugin in zstd", "{packed_tier}"))
    ]  # fmt: skip


def group_rows() -> list[Row]:
    """Groups and their lag, against Kafka's decoder of the same records."""
    name, data = "groups, 1 GB of __consumer_offsets", OFFSETS
    kafka = ("DumpLogSegments", "--files", "{logs}", "--offsets-decoder")
    ours, fast = ("kafkalog", "groups", "{log_dir}"), Wanted("M records/s", at_least=1.67)
    return [
        Row("Groups", name, data, ours, kafka, wanted=(times(20),)),
        Row("Groups", f"{name}, 1 processor", data, ours, cpus=1, wanted=(fast,)),
    ]


def disk_usage_rows() -> list[Row]:
    """A log directory of 10,000 partitions; coreutils' du has a row of its own."""
    commands: dict[str, tuple[tuple[str, ...], tuple[Wanted, ...]]] = {
        "du": (("kafkalog", "du"), (Wanted("s", at_most=2), MEMORY)),
        "du --forecast": (("kafkalog", "du", "--forecast"), (MEMORY,)),
        "simulate-retention": (("kafkalog", "simulate-retention"), ()),
        "du of coreutils": (("du", "--summarize", "--block-size=1"), ()),
    }
    return [
        Row("Disk usage", f"{name}, 10,000 partitions", MANY, (*words, "{log_dir}"), wanted=wanted)
        for name, (words, wanted) in commands.items()
    ]


def resurrection_rows() -> list[Row]:
    """A new log directory of 10,000 partitions; a mere copy of it has a row of its own."""
    make = "rm -rf {to} && {kafkalog} resurrect {log_dir} --to {to} -q"
    copy = "rm -rf {to} && cp --recursive {log_dir} {to} && sync --file-system {to}"
    wanted = (Wanted("s", at_most=60), Wanted("MB", at_most=300))
    return [
        Row("Resurrection", "resurrect, 10,000 partitions", MANY, ("sh", "-c", make),
            wanted=wanted),
        Row("Resurrection", "cp --recursive and sync, 10,000 partitions", MANY,
            ("sh", "-c", copy)),
    ]  # fmt: skip


def serve_rows() -> list[Row]:
    """What clients read of a server, beside a broker."""

    def command(server: str, client: str) -> tuple[str, ...]:
        return ("python", "-m", "benchmarks.serving", server, client, "{log_dir}", "{records}")

    rows = [
        Row("Serve", f"serve to {client}{how}, 1.2 GB", SERVED, command(server, client),
            command("broker", client), wanted=(times(1),), tells_figures=True)
        for (server, how), client in product(
            (("serve", ""), ("serve-through-memory", " through memory")),
            ("librdkafka", "perf-test"),
        )
    ]  # fmt: skip
    many = {
        "first record": ("first-record", Wanted("s", at_most=1)),
        "all records": ("librdkafka", Wanted("MB", at_most=150)),
    }
    return rows + [
        Row("Serve many partitions", f"serve, {name} of 10,000 partitions", MANY,
            command("serve", client), wanted=(wanted,), tells_figures=True)
        for name, (client, wanted) in many.items()
    ]  # fmt: skip


def keys_memory(keys: int) -> Wanted:
    """64 bytes a key, and what compaction takes without keys."""
    return Wanted("MB", at_most=round(150 + 64 * keys / 1e6))


def compaction_rows() -> list[Row]:
    """In place, beside Kafka's Cleaner: what the work takes in each process, and the process."""
    table = "Compaction"
    in_process = {"none": 8, "lz4": 4.5, "zstd": 4.5, "gzip": 3, "snappy": 4.5}
    names = {codec: "" if codec == "none" else f" in {codec}" for codec in CODECS}
    return [
        Row(
            table, f"compaction, 300 MB{name}", keyed("300 MB", codec), CLEAN_OURS,
            CLEAN_THEIRS,
            wanted=(Wanted("times Kafka's in process", at_least=in_process[codec]),
                    keys_memory(KEYS_OF_300_MB)),
            is_changing=True, tells_seconds=True,
        )
        for codec, name in names.items()
    ]  # fmt: skip


def key_rows() -> list[Row]:
    """How time and memory grow with the keys."""
    return [
        Row("Keys", f"compaction, {size} keys", keyed(size), CLEAN_OURS,
            wanted=(keys_memory(keys),), is_changing=True,
            tells_seconds=True)
        for size, keys in KEY_COUNTS.items()
    ]  # fmt: skip


def maintenance_rows() -> list[Row]:
    """Whole commands that change a partition."""
    table, data = "Maintenance", keyed("300 MB", "none")
    policy = ("--config", "cleanup.policy=compact")
    return [
        Row(
            table, "compact, 300 MB", data, ("kafkalog", "compact", *IN_PLACE, *policy),
            CLEAN_THEIRS, wanted=(times(6),), is_changing=True,
        ),
        Row(
            table, "rebuild-index, 300 MB", data, ("kafkalog", "rebuild-index", *IN_PLACE),
            ("CleanerTimes", "recover", "{copy}"), wanted=(times(3),), is_changing=True,
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
    from_late = ("--limit", "100", "--from-offset", "{late_offset}")
    questions = {
        "--help": (("kafkalog", "--help"), (Wanted("s", at_most=0.06),)),
        "ls": (("kafkalog", "ls", "{partition}"), ()),
        "lookup by offset": ((*lookup, "{late_offset}"), SMALL),
        "lookup by time": ((*lookup, "--timestamp", "{late_time}"), SMALL),
        "first 10 batches": ((*show, "{log}", "--batches", "--limit", "10"), SMALL),
        "first 10 records": ((*show, "{log}", "--limit", "10"), SMALL),
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


def cores_rows() -> list[Row]:
    """On one processor and on two, with the share of the GIL; the codecs beside what they need."""
    cases = [("verify deep", "verify", codec, sized("1.2 GB", codec)) for codec in ("none", "zstd")]
    cases += [("export", "export", codec, sized("1.2 GB", codec)) for codec in ("none", "zstd")]
    cases += [
        ("compaction", "compact", codec, keyed("1.2 GB", codec)) for codec in ("none", "zstd")
    ]
    cases += [("deep print", "print", codec, sized("1.2 GB", codec)) for codec in CODECS]
    faster = Wanted("times as fast on 2 processors", at_least=1.8)
    held = Wanted("% of the time with the GIL", at_most=10)
    return [
        Row(
            "More processors", more_processors(what, codec), data,
            ("python", "-m", "benchmarks.cores", work, "{partition}", "{work}"),
            wanted=(faster,) if work == "print" else (held, faster), tells_figures=True,
        )
        for what, work, codec, data in cases
    ]  # fmt: skip


def more_processors(what: str, codec: str) -> str:
    """The name of a row about one processor and two."""
    return f"{what} of 1.2 GB{'' if codec == 'none' else f' in {codec}'}, 1 and 2 processors"


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
    """Every benchmark, in the order of the record."""
    return [
        *deep_rows(), *shallow_rows(), *index_rows(), *verify_rows(), *search_rows(),
        *export_rows(), *decoding_rows(), *sql_rows(), *tier_rows(), *group_rows(),
        *disk_usage_rows(),
        *resurrection_rows(), *serve_rows(),
        *compaction_rows(), *key_rows(), *maintenance_rows(),
        *small_segment_rows(), *small_question_rows(), *scaling_rows(), *limit_rows(),
        *cores_rows(), *axis_rows(), *physical_rows(),
    ]  # fmt: skip


TRENDS = tuple(
    Trend(f"{name}, {figure}, {small} to {large}", figure, f"{name}, {small}", f"{name}, {large}")
    for name, figure, small, large in (
        ("deep print", "time per byte", "1.2 GB", "4 GB"),
        ("shallow", "time per byte", "300 MB", "4 GB"),
        ("NDJSON", "time per byte", "300 MB", "4 GB"),
        ("Parquet", "time per byte", "300 MB", "4 GB"),
        ("deep print", "memory", "300 MB", "4 GB"),
        ("shallow", "memory", "300 MB", "4 GB"),
        ("NDJSON", "memory", "300 MB", "4 GB"),
        ("Parquet", "memory", "300 MB", "4 GB"),
        ("compaction", "time per byte", "5 M keys", "20 M keys"),
    )
) + tuple(
    Trend(
        f"CPU of the deep print, 1.2 GB in {codec}, against uncompressed and {codec} alone",
        "CPU beside the codec", more_processors("deep print", "none"),
        more_processors("deep print", codec), at_most=1.3,
    )
    for codec in CODECS[1:]
)  # fmt: skip
DECODERS_DATASET = sized("100 MB")
REHEARSAL_DATASET = sized("10 MB")  # large enough for the kernels to be loaded
