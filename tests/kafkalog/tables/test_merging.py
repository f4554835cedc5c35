"""Several copies of a partition: what a sound copy has is read, even if others are damaged.

The expected records are those that Kafka's consumers read before the logs were damaged.
"""

from __future__ import annotations

import json
import random
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.errors import Listener
from kafkalog.log.defects import Events
from kafkalog.model import Defect, Isolation, Replicas
from kafkalog.tables import Request, TableName, plan_splits, read_split
from kafkalog.tables.listeners import COPIED, MISSING
from kafkalog.tables.model import Split
from kafkalog.tables.reading import count_split
from kafkalog.tables.schemas import table_schema
from tests.builders import batch, flip, record, write_log
from tests.conftest import State, state

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.conftest import Result

LOGS = [
    ("txn", "txn-0"), ("txn", "txn-1"), ("txn", "txn-2"),
    ("compact-2-later-passes", "compact-txn-0"), ("compact-2-later-passes", "compact-open-txn-0"),
    ("compact-2-later-passes", "compact-lag-0"),
]  # fmt: skip


def copies_of(found: State, partition: str, place: Path, count: int = 3) -> list[Path]:
    """Copy a partition and its log directory's files into each of the log directories."""
    paths = []
    for number in range(count):
        path = place / str(number)
        path.mkdir(parents=True)
        for one in found.root.iterdir():
            if one.is_file():
                shutil.copy2(one, path)
        shutil.copytree(found.root / partition, path / partition)
        paths.append(path)
    return paths


def damage(partition: Path, drawn: random.Random) -> list[str]:
    """Damage some files of a partition; return a description of the damage."""
    done = []
    for _ in range(drawn.randint(1, 4)):
        files = sorted(one for one in partition.iterdir() if one.name != "partition.metadata")
        logs = [one for one in files if one.suffix == ".log" and one.stat().st_size]
        if not files:
            break
        file = drawn.choice(logs if logs and drawn.random() < 0.7 else files)
        data = bytearray(file.read_bytes())
        kind = drawn.choice(["flip", "flip", "zeros", "cut", "remove"] if data else ["remove"])
        at = drawn.randrange(len(data)) if data else 0
        if kind == "remove":
            file.unlink()
        elif kind == "flip":
            data[at] ^= 1 << drawn.randrange(8)
        elif kind == "zeros":
            data[at : at + 512] = bytes(len(data[at : at + 512]))
        else:
            del data[at:]
        if kind != "remove":
            file.write_bytes(data)
        done.append(f"{kind} {file.name} at {at}")
    return done


def rows_of(
    paths: Sequence[Path], isolation: Isolation, size: int = 1 << 27
) -> tuple[list[tuple[int, Any]], list[Defect]]:
    """Read a partition through JSON, as tasks do; return its rows and findings."""
    schema = table_schema(TableName.RECORDS, ["offset", "value", "topic"])
    request = Request(isolation=isolation, replicas=Replicas.BEST, split_bytes=size)
    heard = Events()
    rows: list[tuple[int, Any]] = []
    for split in plan_splits([str(path) for path in paths], request, heard):
        split = Split.from_json(json.loads(json.dumps(split.as_json())))
        before = len(rows)
        for one in read_split(split, schema, heard):
            rows += [(row["offset"], row["value"]) for row in one.to_pylist()]
        assert sum(count_split(split, Listener())) == len(rows) - before
    return rows, [one for one in heard.defects if one.reference not in (COPIED, *MISSING)]


def consumed(found: State, partition: str) -> list[tuple[int, bytes | None]]:
    lines = (found.expected / "records" / f"{partition}.ndjson").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    return [
        (row["offset"], None if row["value"] is None else bytes.fromhex(row["value"]))
        for row in rows
    ]


def committed(found: State, partition: str) -> list[int]:
    text = (found.expected / "records-committed" / f"{partition}.offsets.json").read_text()
    offsets: list[int] = json.loads(text)
    return offsets


@pytest.mark.sampled(120)
@pytest.mark.parametrize("seed", range(240))
def test_random_damage_to_two_of_three_copies_loses_nothing(
    corpus_dir: Path, tmp_path: Path, seed: int
) -> None:
    drawn = random.Random(seed)
    name, partition = LOGS[seed % len(LOGS)]
    original = state(corpus_dir, "kafka-4.3", name)
    paths = copies_of(original, partition, tmp_path)
    damaged = drawn.sample(paths, 2)
    for path in damaged:
        print(path, damage(path / partition, drawn))
    size = drawn.choice([1 << 27, 3000])
    rows, found = rows_of(paths, Isolation.READ_UNCOMMITTED, size)
    assert rows == consumed(original, partition)
    assert not found
    rows, found = rows_of(paths, Isolation.READ_COMMITTED, size)
    assert [offset for offset, _ in rows] == committed(original, partition)
    assert not found


def damaged_copies(corpus_dir: Path, place: Path) -> tuple[list[Path], State]:
    """Three copies of a log, none of them sound: each has lost another segment."""
    original = state(corpus_dir, "kafka-4.3", "txn")
    paths = copies_of(original, "txn-0", place)
    for path, base in zip(paths, (0, 233, 437), strict=True):
        log = path / "txn-0" / f"{base:020}.log"
        data = bytearray(log.read_bytes())
        data[200:-200] = bytes(len(data) - 400)
        log.write_bytes(data)
    return paths, original


def test_all_readers_take_each_range_from_a_copy_that_is_sound(
    corpus_dir: Path, tmp_path: Path, kafkalog: Callable[..., Result]
) -> None:
    """No copy is complete, but together they are.

    A note says which offsets came from which copy.
    """
    paths, original = damaged_copies(corpus_dir, tmp_path)
    wanted = [offset for offset, _ in consumed(original, "txn-0")]
    query = 'select "offset" from records'
    for form in ([], ["--isolation", "read_committed"]):
        result = kafkalog("sql", *form, "--format", "ndjson", "-c", query, *paths)
        assert result.status == 0, result.stderr
        offsets = [json.loads(line)["offset"] for line in result.stdout.splitlines()]
        assert offsets == (committed(original, "txn-0") if form else wanted)
        assert "read-from-copy" in result.stderr
    for limit in ([], ["--limit", 9]):
        result = kafkalog("find", "--value-regex", "", *limit, "--format", "ndjson", *paths)
        assert result.status == 0, result.stderr
        lines = [json.loads(line) for line in result.stdout.splitlines()]
        offsets = [one["offset"] for one in lines if "value" in one]
        assert offsets == wanted[: limit[1] if limit else None]
    for path in paths:
        assert kafkalog("sql", "--format", "ndjson", "-c", query, path).status == 8


def test_what_no_copy_has_is_a_finding_as_ever(
    corpus_dir: Path, tmp_path: Path, kafkalog: Callable[..., Result]
) -> None:
    paths, original = damaged_copies(corpus_dir, tmp_path)
    result = kafkalog("sql", "--format", "ndjson", "-c", 'select "offset" from records', *paths[:1])
    alone = result.stdout
    for path in paths[1:]:
        shutil.copy2(paths[0] / "txn-0" / f"{0:020}.log", path / "txn-0")
    result = kafkalog("sql", "--format", "ndjson", "-c", 'select "offset" from records', *paths)
    assert result.status == 8
    assert result.stdout == alone
    assert len(alone.splitlines()) < len(consumed(original, "txn-0"))


def test_batches_of_another_leader_epoch_never_help(tmp_path: Path) -> None:
    """A copy that did not follow the later leader has other records at the same offsets."""
    paths = [tmp_path / str(number) / "t-0" for number in range(3)]
    old = batch(5, [record(0, value=b"stale")], epoch=1)
    new = batch(5, [record(0, value=b"right")], epoch=2)
    first = batch(0, [record(at, value=b"both") for at in range(5)], epoch=1)
    last = batch(6, [record(0, value=b"later")], epoch=2)
    for path, one in zip(paths, (new, old, new), strict=True):
        path.mkdir(parents=True)
        write_log(path, first, one, *([] if one == old else [last]))
        epochs = ["1 0"] if one == old else ["1 0", "2 5"]
        text = "\n".join(["0", str(len(epochs)), *epochs, ""])
        (path / "leader-epoch-checkpoint").write_text(text)
    log = next(paths[0].glob("*.log"))
    log.write_bytes(flip(log.read_bytes(), 8 * (len(first) + len(new) - 2)))
    rows, found = rows_of(paths[:2], Isolation.READ_UNCOMMITTED)
    assert [offset for offset, _ in rows] == [0, 1, 2, 3, 4, 6]
    assert [one.reference for one in found] == ["batch-crc-mismatch"]
    rows, found = rows_of(paths, Isolation.READ_UNCOMMITTED)
    assert rows[5:] == [(5, b"right"), (6, b"later")]
    assert not found
