"""One name, several topics: no command gives rows of two of them, or of the one that is gone.

The identity matrix: what a second PATH may hold of the topics of the first one, in both orders, by
every command that reads. A new command is covered once it is in `COMMANDS`.
"""

from __future__ import annotations

import json
import struct
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from formats.message_schema import schema
from kafkalog.errors import Event, KafkaLogError, Note, UsageError
from kafkalog.spark.options import parse_options
from kafkalog.spark.reading import batch_tasks, columns_of, read_task
from kafkalog.spark.source import TailReader
from kafkalog.wire.server.catalog import Catalog
from kafkalog.wire.server.model import ServeListener, ServeOptions
from kafkalog_cli.panels import COMMANDS as NAMES
from tests.builders import batch, record, write_log
from tests.kafkalog.change.resurrection.test_resurrect import topic, write_metadata

TOPICS = ("orders", "__consumer_offsets", "__transaction_state")
LIVE = {name: f"{letter * 21}A" for name, letter in zip(TOPICS, "KLM", strict=True)}
DEAD = {name: f"{letter * 21}A" for name, letter in zip(TOPICS, "VWX", strict=True)}
CLUSTER, OTHER_CLUSTER = "c" * 22, "d" * 22
MARK = "of-the-newer-one"
"""In records that only the second PATH has: a value, a group and a transactional id."""
UUID = "ab" * 16


def written(number: int, name: str, version: int, **fields: Any) -> bytes:
    return struct.pack(">h", number) + schema(name, version).build(fields)


def record_of(name: str, text: str) -> bytes:
    if name == "orders":
        return record(0, text.encode(), text.encode())
    if name == "__consumer_offsets":
        key = written(1, "OffsetCommitKey", 0, group=text, topic="orders", partition=0)
        value = written(
            3, "OffsetCommitValue", 3, offset=2, leaderEpoch=0, metadata="", commitTimestamp=1
        )
        return record(0, key, value)
    key = written(0, "TransactionLogKey", 0, transactionalId=text)
    value = written(
        0, "TransactionLogValue", 0, producerId=7, producerEpoch=0, transactionTimeoutMs=1,
        transactionStatus=0, transactionPartitions=None, transactionLastUpdateTimestampMs=1,
        transactionStartTimestampMs=1,
    )  # fmt: skip
    return record(0, key, value)


def node(
    log_dir: Path,
    ids: dict[str, str] | None,
    *,
    marked: bool = True,
    number: int = 2,
    cluster: str = CLUSTER,
    suffix: str = "",
) -> Path:
    """Make a log directory with the topics; if marked, with a later epoch and a longer log."""
    for name in TOPICS:
        texts = [f"{name}-{i}" for i in range(3)] + [MARK] * marked
        batches = [
            batch(i, [record_of(name, text)], epoch=int(text == MARK))
            for i, text in enumerate(texts)
        ]
        place = log_dir / f"{name}-0{suffix}"
        write_log(place, *batches)
        epochs = ["0 0", "1 3"] if marked else ["0 0"]
        (place / "leader-epoch-checkpoint").write_text(
            "".join(f"{line}\n" for line in ("0", len(epochs), *epochs))
        )
        if ids is not None:
            (place / "partition.metadata").write_text(f"version: 0\ntopic_id: {ids[name]}")
    lines = [f"{name} 0 {3 + marked}\n" for name in TOPICS]
    (log_dir / "replication-offset-checkpoint").write_text(f"0\n{len(lines)}\n{''.join(lines)}")
    (log_dir / "meta.properties").write_text(f"version=1\ncluster.id={cluster}\nnode.id={number}\n")
    return log_dir


def image(log_dir: Path, *more: bytes) -> None:
    """Write a metadata log in which the live topics are."""
    topics = [value for name in TOPICS for value in topic(name, LIVE[name], 1, (1, 2, 3))]
    write_metadata(log_dir, *topics, *more)


def without_image(root: Path) -> list[Path]:
    return [node(root / "a", LIVE, marked=False, number=1)]


def with_image(root: Path) -> list[Path]:
    [found] = without_image(root)
    image(found)
    return [found]


def another(root: Path) -> list[Path]:
    return [*with_image(root), node(root / "b", DEAD)]


def unnamed_among_two(root: Path) -> list[Path]:
    return [*with_image(root), node(root / "b", None), node(root / "c", DEAD, number=3)]


def stale_image(root: Path) -> list[Path]:
    """The broker that was down still has the metadata of that time."""
    [found] = with_image(root)
    other = node(root / "b", DEAD)
    old = [value for name in TOPICS for value in topic(name, DEAD[name], 1, (1, 2, 3))]
    records = [record(delta, None, value) for delta, value in enumerate(old)]
    write_log(other / "__cluster_metadata-0", batch(0, records, epoch=0))
    return [found, other]


JOINED, LEFT_OUT, REFUSED, IGNORED = "joined", "left out", "refused", "ignored"
STATES: dict[str, tuple[str, Callable[[Path], list[Path]]]] = {
    "same id": (JOINED, lambda root: [*without_image(root), node(root / "b", LIVE)]),
    "same id, with metadata": (JOINED, lambda root: [*with_image(root), node(root / "b", LIVE)]),
    "same node": (JOINED, lambda root: [*without_image(root), node(root / "b", LIVE, number=1)]),
    "no id": (JOINED, lambda root: [*without_image(root), node(root / "b", None)]),
    "other id": (LEFT_OUT, another),
    "other id, stale metadata": (LEFT_OUT, stale_image),
    "no id, two others": (LEFT_OUT, unnamed_among_two),
    "other id, no metadata": (
        REFUSED, lambda root: [*without_image(root), node(root / "b", DEAD)]
    ),
    "other cluster": (
        REFUSED, lambda root: [*with_image(root), node(root / "b", LIVE, cluster=OTHER_CLUSTER)]
    ),
    **{
        state: (
            IGNORED,
            lambda root, state=state, ids=ids: [
                *with_image(root), node(root / "b", ids, suffix=f".{UUID}-{state}")
            ],
        )
        for state, ids in (("future", LIVE), ("delete", DEAD), ("stray", DEAD))
    },
}  # fmt: skip


@dataclass(frozen=True)
class Seen:
    """What a command made of some PATHs: its status, whether it read a record with the mark."""

    status: int
    is_marked: bool
    said: str
    output: str = ""


Run = Callable[[Sequence[Path], Path, Callable[..., Any]], Seen]


def shown(*words: str, mark: str = MARK) -> Run:
    """Run a command that shows what it reads; PATHs come where `*` is."""

    def run(paths: Sequence[Path], to: Path, kafkalog: Callable[..., Any]) -> Seen:
        at = words.index("*")
        before, after = (
            [one.format(to=to) for one in some] for some in (words[:at], words[at + 1 :])
        )
        found = kafkalog(*before, *paths, *after)
        output = found.stdout.decode()
        return Seen(found.status, mark in output, found.stderr, output)

    return run


def asked(question: Callable[[Sequence[str]], bool]) -> Run:
    """Ask the library."""

    def run(paths: Sequence[Path], to: Path, kafkalog: Callable[..., Any]) -> Seen:
        del to, kafkalog
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                is_marked = question([str(path) for path in paths])
            except KafkaLogError as error:
                return Seen(error.exit_code, False, str(error))
        return Seen(0, is_marked, "".join(str(one.message) for one in said))

    return run


class NotesAsWarnings(ServeListener):
    """Warns of what a server notes."""

    def hear(self, event: Event) -> None:
        if isinstance(event, Note):
            warnings.warn(event.text, stacklevel=2)


def serves(paths: Sequence[str]) -> bool:
    catalog = Catalog(paths, ServeOptions(internal=True), NotesAsWarnings())
    ends = {
        catalog.log(one).log.log_end_offset
        for topic in catalog.topics.values() if topic.name != "__cluster_metadata"
        for one in topic.partitions.values()
    }  # fmt: skip
    assert len(ends) == 1
    return ends == {4}


def spark_reads(paths: Sequence[str]) -> bool:
    options = parse_options({"paths": json.dumps(paths), "internal": "true"})
    columns = columns_of(options)
    tables = [rows for task in batch_tasks(options) for rows in read_task(task, options, columns)]
    found = [row["value"] for table in tables for row in table.to_pylist()]
    assert found.count(b"orders-1") <= 1
    return MARK.encode() in found


def spark_streams(paths: Sequence[str]) -> bool:
    options = parse_options({"paths": json.dumps(paths), "internal": "true"})
    reader = TailReader(options, columns_of(options))
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    tasks = reader.partitions({}, end)
    found = [row["value"] for one in tasks for rows in reader.read(one) for row in rows.to_pylist()]
    assert found.count(b"orders-1") <= 1
    return MARK.encode() in found


NDJSON = ("--format", "ndjson")
COMMANDS: dict[str, Run] = {
    "dump-segment": shown("dump-segment", "*", "--internal", *NDJSON),
    "lookup-offset": shown(
        "lookup-offset", "*", "3", "--topic", "orders", *NDJSON, mark='"found":true'
    ),
    "find": shown("find", "*", "--value-regex", ".", *NDJSON),
    "find --replicas all": shown("find", "*", "--value-regex", ".", "--replicas", "all"),
    "serve": asked(serves),
    "groups": shown("groups", "*", *NDJSON),
    "transactions": shown("transactions", "*", *NDJSON),
    "export": shown("export", "*", "--to", "{to}", *NDJSON, mark='"rows":4'),
    "export --append": shown("export", "*", "--to", "{to}", *NDJSON, "--append", mark='"rows":4'),
    "replay": shown("replay", "*", "--dry-run", *NDJSON, mark='"records":4'),
    "profile": shown("profile", "*", *NDJSON, mark='"records":4'),
    "sql": shown("sql", "-c", "select cast(value as varchar) from records", "*"),
    "sql of batches": shown("sql", "-c", "select last_offset from batches", "*", mark="3"),
    "sql of groups": shown("sql", "-c", "select * from groups", "*"),
    "Spark": asked(spark_reads),
    "Spark stream": asked(spark_streams),
}
OTHERS = {
    "each directory by itself": {
        "ls", "du", "report", "verify", "salvage", "recover", "rebuild-index", "compact",
        "retention", "simulate-roll", "undo",
    },
    "one file": {"anatomy", "kafka-dump-log"},
    "one PATH": {"metadata"},
    "PATH against PATH": {"diff", "quorum"},
    "no PATH": {"explain"},
    "has its own tests of ids": {"resurrect"},
}  # fmt: skip
"""Commands that never take rows from several directories, by why."""


def test_every_command_is_here() -> None:
    known = {name.split()[0] for name in COMMANDS if not name.startswith("Spark")}
    assert known | set().union(*OTHERS.values()) == set(NAMES)


@pytest.mark.sampled(12, each_value=True)
@pytest.mark.parametrize("backwards", [False, True], ids=["in order", "backwards"])
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("command", COMMANDS)
def test_rows_are_of_one_topic(
    tmp_path: Path, kafkalog: Callable[..., Any], command: str, state: str, *, backwards: bool
) -> None:
    """The directory of another topic is left out and named, or nothing is read at all."""
    outcome, build = STATES[state]
    paths = build(tmp_path / "in")
    run = COMMANDS[command]
    alone = run(paths[:1], tmp_path / "alone", kafkalog)
    assert (alone.is_marked, "topic" in alone.said) == (False, False)
    seen = run(paths[::-1] if backwards else paths, tmp_path / "together", kafkalog)
    if outcome == REFUSED:
        assert (seen.status, seen.is_marked) == (UsageError.exit_code, False)
        assert all(str(path) in seen.said for path in paths), seen.said
        return
    assert seen.is_marked == (outcome == JOINED)
    if outcome != JOINED:
        assert seen.status == alone.status
    losers = [path for path in paths[1:] if str(path) in seen.said]
    assert losers == (paths[1:] if outcome == LEFT_OUT else []), seen.said
