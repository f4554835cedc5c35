"""Every command shows and writes the same by the schemas as by fast code (`formats.decoder`)."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

import kafkalog as library
from formats import decoder
from kafkalog.errors import UsageError
from kafkalog.spark.settings import driver_settings
from tests.decoders import COPY, ROOT, Decoder, Done, Job
from tests.sampling import drawn_for, sampled, tries_everything

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tests.conftest import Result

NOW = "--now 2026-01-01"
COMPACT = f"--all --allow-old-formats --config cleanup.policy=compact --high-watermark end {NOW}"
READS = {
    "records": "dump-segment DIR --internal --format ndjson",
    "batches": "dump-segment DIR --internal --batches --format ndjson",
    "table of records": "dump-segment DIR --internal --exact",
    "table of batches": "dump-segment DIR --internal --batches",
    "committed records": "dump-segment DIR --internal --read-committed --format csv",
    "Kafka's text": "kafka-dump-log --deep-iteration --print-data-log --files LOGS",
    "Kafka's text of indexes": "kafka-dump-log --files INDEXES",
    "offset index": "dump-segment *.index --format ndjson",
    "time index": "dump-segment *.timeindex --format ndjson",
    "transaction index": "dump-segment *.txnindex --format ndjson",
    "producer snapshot": "dump-segment *.snapshot --format ndjson",
    "deep verify": "verify DIR --level deep --format ndjson",
    "quick verify": "verify DIR --level quick --format ndjson",
    "find": "find DIR --key-regex . --format ndjson",
    "find the last": "find DIR --value-regex 1 --last 3",
    "lookup by time": f"lookup-offset DIR --internal --timestamp @1 --timestamp=-1h {NOW} --show",
    "lookup by offset": "lookup-offset DIR 3 --internal --explain --no-index",
    "lookup of the largest time": "lookup-offset DIR --internal --special max-timestamp",
    "sql": "sql -c 'select * from records order by topic, partition, \"offset\"' DIR --internal",
    "sql of batches": "sql -c 'select * from batches order by path, position' DIR --internal",
    "sql of indexes": "sql -c 'select * from offset_index order by all' DIR --internal",
    "profile": "profile DIR --internal --exact",
    "groups": f"groups DIR {NOW} --format ndjson",
    "transactions": f"transactions DIR {NOW} --format ndjson",
    "metadata": f"metadata DIR {NOW} --format ndjson",
    "retention": f"retention DIR {NOW} --format ndjson",
    "roll": "simulate-roll PARTITION --format ndjson",
    "plan of a compaction": f"compact DIR {COMPACT} --format ndjson",
    "audit": f"verify --compaction DIR {NOW} --format ndjson",
    "start": f"recover DIR {NOW} --scan start --format ndjson",
    "indexes compared": f"rebuild-index DIR {NOW} --format ndjson",
    "ls": "ls DIR --files --format ndjson",
    "anatomy": "anatomy LOG --limit 99 --format ndjson",
    "diff": "diff DIR OTHER --all --records --format ndjson",
}
WRITES = {
    "export of NDJSON": "export DIR --to out --internal --file-format ndjson",
    "export of CSV": "export DIR --to out --internal --file-format csv",
    "export of Parquet": "export DIR --to out --internal --file-format parquet",
    "export of batches": "export DIR --to out --internal --table batches --file-format ndjson",
    "salvage": "salvage DIR --to out",
    "compact": f"compact {COPY} {COMPACT} --apply --yes",
    "rebuild-index": f"rebuild-index {COPY} --apply --yes {NOW}",
    "recover": f"recover {COPY} --apply --yes --allow-loss {NOW}",
}
COMMANDS = READS | WRITES
PARSED = {
    "records": ("record", "record", "message"),
    "batches": ("batch", "header", "record_batch.Message"),
    "offset index": ("offset_index_entry", "offset index entry"),
    "time index": ("time_index_entry", "time index entry"),
}
"""Type of a line of NDJSON, and what each was parsed as, once at least."""
STRUCTURES = ("header", "record", "varint", "offset index entry", "time index entry")
BY_HAND = re.compile(r"(?<![\w.])struct\.(Struct\(|unpack)|int\.from_bytes\(")
READ_BY_HAND = {
    "formats/constants.py": "the layouts",
    "formats/decoder.py": "bits that a schema has parsed",
    "formats/message_codec.py": "requests of clients",
    "kafkalog/answers/anatomy/payloads.py": "keys of internal topics",
    "kafkalog/answers/anatomy/writes.py": "answers of the kernel of Linux",
    "kafkalog/io/broker_lock.py": "locks",
    "kafkalog/node/cluster_image/replay.py": "ids of topics",
    "kafkalog/io/codecs/gzip.py": "compression",
    "kafkalog/io/codecs/lz4.py": "compression",
    "kafkalog/io/codecs/snappy.py": "compression",
    "kafkalog/io/codecs/zstd.py": "compression",
    "kafkalog/log/columns/chunks.py": "how much a kernel needs, which scans it again",
    "kafkalog/log/columns/side_files.py": "the number of producers in a snapshot",
    "kafkalog/change/compaction/buckets.py": "files of our own",
    "kafkalog/io/jit/library.py": "ELF",
    "kafkalog/io/paths/chunked.py": "manifests of tiers",
    "kafkalog/files/payloads/offset_commits.py": "values of __consumer_offsets",
    "kafkalog/node/recovery/node_dirs.py": "ids of directories",
    "kafkalog/wire/server/connection.py": "requests of clients",
    "kafkalog/spark/settings.py": "what the driver's process says",
    "kafkalog/node/state/offset_columns.py": "keys of __consumer_offsets",
    "kafkalog/node/state/transactions.py": "values of __transaction_state",
    "kafkalog/io/storage/locks.py": "locks",
    "kafkalog/log/typed/avro_resolution.py": "values of Avro",
    "kafkalog/log/typed/avro_types.py": "values of Avro",
    "kafkalog/log/typed/avro_values.py": "values of Avro",
    "kafkalog/log/typed/framing.py": "ids of a registry",
    "kafkalog/log/typed/json_schema.py": "decimals in JSON",
    "kafkalog/log/typed/proto_known.py": "decimals in Protobuf",
    "kafkalog_cli/output/kafka_text.py": "keys and values as numbers",
}
"""Modules that decode numbers without a layout, and which."""


def log_dirs(corpus: Path) -> list[Path]:
    """Return all directories with logs, local or of a tier."""
    return sorted({path.parent.parent for path in corpus.rglob("*.log")})


def job_of(name: str, log_dir: Path, other: Path, *, kernels: bool) -> Job | None:
    """Return the job of a command over a log directory; None if that has nothing for it."""
    places = {
        "DIR": [log_dir],
        "OTHER": [other],
        "PARTITION": sorted({path.parent for path in log_dir.glob("*/*.log")})[:1],
        "LOG": sorted(log_dir.glob("*/*.log"))[:1],
    }
    lists = {"LOGS": ("*.log",), "INDEXES": ("*.index", "*.timeindex", "*.txnindex", "*.snapshot")}
    argv: list[str] = []
    for word in shlex.split(COMMANDS[name]):
        paths = places.get(word)
        if word.startswith("*."):
            paths = sorted(log_dir.glob(f"*/{word}"))
        if word in lists:
            found = [path for one in lists[word] for path in sorted(log_dir.glob(f"*/{one}"))]
            argv.append(",".join(map(str, found)))
        argv += [word] if paths is None and word not in lists else map(str, paths or ())
        if paths == [] or argv[-1] == "":
            return None
    copied = str(log_dir) if COPY in argv else None
    return Job(argv, copied, "*index" if name == "rebuild-index" else None, kernels)


def jobs_of(corpus: Path) -> list[tuple[str, Job]]:
    """Return all commands over all log directories."""
    every = log_dirs(corpus)
    pairs = zip(every, [*every[1:], every[0]], strict=True)
    # Before and after are next to each other.
    others = [after if one.parent == after.parent else one for one, after in pairs]
    return [
        (name, job)
        for name in COMMANDS
        for number, log_dir in enumerate(every)
        if (job := job_of(name, log_dir, others[number], kernels=bool(number % 2)))
    ]


def some_jobs_of(corpus: Path) -> list[tuple[str, Job]]:
    """Return half of the commands, each over a log directory."""
    jobs: dict[str, list[Job]] = {name: [] for name in COMMANDS}
    for name, job in jobs_of(corpus):
        jobs[name].append(job)
    return [
        (name, drawn_for(f"decoders: {name}").choice(jobs[name])) for name in sampled([*jobs], 2)
    ]


def compared(jobs: Sequence[tuple[str, Job]], place: Path) -> Iterator[tuple[str, Job, Done, Done]]:
    """Yield each job with what it did by fast code and by the schemas."""
    with ExitStack() as stack:
        both = [stack.enter_context(Decoder(name, place / name)) for name in decoder.NAMES]
        for name, job in jobs:
            for one in both:
                one.begin(job)
            yield name, job, both[0].end(), both[1].end()


def is_wrong(name: str, fast: Done, by_schema: Done) -> bool:
    """Return whether the two differ, or something was shown that no schema has parsed."""
    kind, *structures = PARSED.get(name, ("nothing",))
    shown = by_schema.stdout.count(f'{{"type":"{kind}",')
    if shown > sum(by_schema.parsed.get(one, 0) for one in structures):
        return True
    return fast != by_schema


@pytest.mark.parametrize("part", range(8 if tries_everything() else 1))
def test_the_schemas_decode_what_fast_code_decodes(
    corpus_dir: Path, tmp_path: Path, part: int
) -> None:
    """Status, output and files of every command over every corpus; half of them by kernels.

    Fast code raises in the process of the schemas, which parse as much as the output shows.
    """
    jobs = jobs_of(corpus_dir)[part::8] if tries_everything() else some_jobs_of(corpus_dir)
    wrong = []
    parsed: Counter[str] = Counter()
    for name, job, fast, by_schema in compared(jobs, tmp_path):
        if is_wrong(name, fast, by_schema):
            wrong.append((job, fast, by_schema))
        parsed.update(by_schema.parsed)
    assert not wrong, f"{len(wrong)} of {len(jobs)}: {wrong[0]}"
    assert min(parsed[one] for one in STRUCTURES) > len(jobs), parsed


def test_an_unknown_decoder_is_refused(
    kafkalog: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By each parser and by the library; the help needs none."""
    monkeypatch.setattr(decoder, "CHOSEN", "schemas")
    index = "examples/log-dir/orders-0/00000000000000000000.index"
    for argv in (["ls", "examples/log-dir"], ["kafka-dump-log", "--files", index]):
        result = kafkalog(*argv)
        assert (result.status, result.stdout) == (2, b"")
        assert "KAFKALOG_DECODER is 'schemas'; it can be fast or schema." in result.stderr
    with pytest.raises(UsageError, match="'schemas'"):
        library.open("examples/log-dir")
    assert kafkalog("ls", "--help").status == 0


def test_workers_of_spark_have_the_decoder_of_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those on other machines do not inherit its environment."""
    name = f"spark.executorEnv.{decoder.VARIABLE}"
    assert name not in driver_settings("spark://one:1", {}, "/directory", [])
    monkeypatch.setattr(decoder, "BY_SCHEMA", True)
    monkeypatch.setattr(decoder, "CHOSEN", "schema")
    assert driver_settings("spark://one:1", {}, "/directory", [])[name] == "schema"


def test_only_layouts_decode_numbers() -> None:
    """A layout can be read by its schema: what is read past it is none of a log or an index."""
    found = {
        str(path.relative_to(ROOT))
        for package in ("formats", "kafkalog", "kafkalog_cli")
        for path in (ROOT / package).rglob("*.py")
        if BY_HAND.search(path.read_text()) and not path.stem.endswith("kernels")
    }
    assert found == set(READ_BY_HAND)
