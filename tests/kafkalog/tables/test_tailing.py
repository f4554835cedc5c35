"""Positions of streams: a topic id, a partition, an offset, and the leader epoch before it."""

from __future__ import annotations

import importlib
import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.errors import NothingFoundError, RefusedError, UsageError
from kafkalog.log.defects import Events
from kafkalog.model import Replicas
from kafkalog.node import view
from kafkalog.tables import Request, read_split
from kafkalog.tables.model import Bounds, LossReason, TableName, log_of
from kafkalog.tables.schemas import table_schema
from kafkalog.tables.tailing import LossWarnings, Tail
from tests.builders import write_log
from tests.kafkalog.tables.test_other_disks import IDS, TOPIC_ID, batches, make_log

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from kafkalog.node.unified_log import UnifiedLog
    from kafkalog.tables.planning import Target

SECOND = f"{60:020}.log"


class Stream:
    """Takes batch after batch, as Spark does: positions pass through JSON."""

    def __init__(self, *log_dirs: Path, **options: Any) -> None:
        self._paths = [str(path) for path in log_dirs]
        self._options = options
        self.position: dict[str, list[int]] = {}

    def take(self, **options: Any) -> list[tuple[int, bytes]]:
        tail = Tail(self._paths, Request(replicas=Replicas.BEST), **{**self._options, **options})
        start = self.position or tail.beginning()
        end = json.loads(json.dumps(tail.advance(start, None)))
        schema = table_schema(TableName.RECORDS, ["offset", "value"])
        rows = [
            (row["offset"], row["value"])
            for split in tail.splits(start, end)
            for one in read_split(split, schema)
            for row in one.to_pylist()
        ]
        self.position = end
        return rows


def rows(first: int, end: int) -> list[tuple[int, bytes]]:
    return [(n, b"%d" % n) for n in range(first, end)]


def note_epochs(partition: Path, *entries: Sequence[int]) -> None:
    lines = [f"{epoch} {start}\n" for epoch, start in entries]
    (partition / "leader-epoch-checkpoint").write_text(f"0\n{len(lines)}\n{''.join(lines)}")


@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_a_log_that_was_cut_and_filled_again_is_told(tmp_path: Path, has_checkpoint: bool) -> None:
    """The log ends at the same offset: only the epochs reveal that records were replaced."""
    partition = make_log(tmp_path)
    if has_checkpoint:
        note_epochs(partition, (0, 0))
    stream = Stream(tmp_path)
    assert stream.take() == rows(0, 120)
    new = batches(90, 12, epoch=1)
    (partition / SECOND).write_bytes(b"".join(batches(60, 10) + new))
    if has_checkpoint:
        note_epochs(partition, (0, 0), (1, 90))
    with pytest.raises(RefusedError, match="another one from offset 90 on"):
        stream.take()
    with pytest.warns(UserWarning, match="another one from offset 90 on"):
        assert stream.take(listener=LossWarnings()) == rows(90, 126)
    assert stream.take() == []


def test_the_same_end_after_a_cut_is_no_reason_to_go_on(tmp_path: Path) -> None:
    """The offset alone would say that nothing is new."""
    partition = make_log(tmp_path)
    note_epochs(partition, (0, 0))
    stream = Stream(tmp_path, listener=LossWarnings())
    stream.take()
    (partition / SECOND).write_bytes(b"".join(batches(60, 10) + batches(90, 10, epoch=1)))
    note_epochs(partition, (0, 0), (1, 90))
    with pytest.warns(UserWarning, match="another one from offset 90 on"):
        assert stream.take() == rows(90, 120)
    assert stream.take() == []


def test_a_batch_that_was_planned_before_a_cut_is_told(tmp_path: Path) -> None:
    """A restarted query repeats its last batch."""
    partition = make_log(tmp_path)
    note_epochs(partition, (0, 0))
    tail = Tail([str(tmp_path)], Request())
    start = tail.beginning()
    end = tail.advance(start, None)
    (partition / SECOND).write_bytes(b"".join(batches(60, 10) + batches(90, 10, epoch=1)))
    note_epochs(partition, (0, 0), (1, 90))
    with pytest.raises(RefusedError, match="another one from offset 90 on"):
        tail.splits(start, end)


def test_a_segment_that_was_lost_is_told(tmp_path: Path) -> None:
    """A batch query refuses such a log as well."""
    partition = make_log(tmp_path)
    write_log(partition, *batches(130, 2), name=f"{130:020}")
    stream = Stream(tmp_path)
    with pytest.raises(RefusedError, match="lacks the offsets 120 to 129"):
        stream.take()
    with pytest.warns(UserWarning, match="lacks the offsets 120 to 129"):
        assert stream.take(listener=LossWarnings()) == rows(0, 120) + rows(130, 136)


@pytest.mark.parametrize("table", [TableName.RECORDS, TableName.BATCHES])
@pytest.mark.parametrize("after", ["listed_again", "splits_of"])
def test_what_retention_takes_during_the_planning_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: str, table: TableName
) -> None:
    """Before or after the last listing, when it is known already where to continue."""
    partition = make_log(tmp_path)
    tail = Tail([str(tmp_path)], Request(table), heard := Events())
    start, end = {key: [30, 0] for key in tail.beginning()}, tail.end()

    def of_retention() -> None:
        for path in partition.glob(f"{0:020}.*"):
            path.unlink()

    before_next(monkeypatch, after, of_retention)
    splits = tail.splits(start, end)
    assert [(one.first_offset, one.end_offset, one.reason) for one in heard.heard] == [
        (30, 60, LossReason.DELETED)
    ]
    schema = table_schema(table, ["offset" if table == TableName.RECORDS else "base_offset"])
    found = [row for split in splits for one in read_split(split, schema)
             for row in one.column(0).to_pylist()]  # fmt: skip
    assert found == [*range(60, 120, 1 if table == TableName.RECORDS else 3)]


@pytest.mark.parametrize("after", ["listed_again", "splits_of"])
def test_a_topic_that_is_deleted_during_the_planning_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    partition = make_log(tmp_path)
    tail = Tail([str(tmp_path)], Request(), heard := Events())
    start, end = {key: [30, 0] for key in tail.beginning()}, tail.end()
    before_next(
        monkeypatch, after, lambda: partition.rename(tmp_path / f"orders-0.{'0' * 32}-delete")
    )
    assert tail.splits(start, end) == []
    assert {(one.first_offset, one.reason) for one in heard.heard} == {
        (30, LossReason.GONE), (120, LossReason.GONE)
    }  # fmt: skip


def before_next(monkeypatch: pytest.MonkeyPatch, name: str, change: Callable[[], object]) -> None:
    """Change files once, before the planning of a log calls a function."""
    module = "tailing" if name == "listed_again" else "planning"
    real = getattr(importlib.import_module(f"kafkalog.tables.{module}"), name)
    changes = [change]

    def late(*args: Any, **options: Any) -> Any:
        while changes:
            changes.pop()()
        return real(*args, **options)

    monkeypatch.setattr(f"kafkalog.tables.{module}.{name}", late)


def test_a_partition_in_another_log_directory_is_the_same(tmp_path: Path) -> None:
    """A broker moves partitions between disks; one without an id is recognised by its name."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "meta.properties").write_text(IDS)
    partition = make_log(tmp_path / "a")
    write_log(tmp_path / "a" / "plain-0", *batches(0, 5))
    stream = Stream(tmp_path / "a", tmp_path / "b")
    assert len(stream.take()) == 135
    for name in ("orders-0", "plain-0"):
        shutil.move(tmp_path / "a" / name, tmp_path / "b" / name)
    assert stream.take() == []
    write_log(tmp_path / "b" / partition.name, *batches(120, 2), name=f"{120:020}")
    assert stream.take() == rows(120, 126)


def test_a_topic_that_was_deleted_and_made_again_is_another_one(tmp_path: Path) -> None:
    """The new topic is read from its beginning. Records lost with the old one are reported."""
    partition = make_log(tmp_path)
    stream = Stream(tmp_path)
    stream.take()
    shutil.rmtree(partition)
    with pytest.raises(RefusedError, match="is not here any more; 120 was to be read next"):
        stream.take()
    write_log(partition, *batches(0, 2))
    (partition / "partition.metadata").write_text(TOPIC_ID.replace("Ag", "Bg"))
    with pytest.raises(RefusedError, match="is another topic of that name now"):
        stream.take()
    with pytest.warns(UserWarning, match="is another topic of that name now"):
        assert stream.take(listener=LossWarnings()) == rows(0, 6)
    assert stream.take() == []


def test_a_position_never_goes_back(tmp_path: Path) -> None:
    """A high watermark that is stale, or another replica's, does not make records be read twice."""
    partition = make_log(tmp_path)
    watermarks = tmp_path / "replication-offset-checkpoint"
    watermarks.write_text("0\n1\norders 0 100\n")
    stream = Stream(tmp_path)
    assert stream.take() == rows(0, 100)
    watermarks.write_text("0\n1\norders 0 90\n")
    assert stream.take() == []
    watermarks.write_text("0\n1\norders 0 120\n")
    assert stream.take() == rows(100, 120)
    assert (partition / SECOND).exists()


def test_a_partition_that_gets_a_topic_id_is_the_same(tmp_path: Path) -> None:
    """This happens when a cluster of an old release is upgraded."""
    partition = make_log(tmp_path)
    (partition / "partition.metadata").unlink()
    stream = Stream(tmp_path)
    assert stream.take() == rows(0, 120)
    (partition / "partition.metadata").write_text(TOPIC_ID)
    write_log(partition, *batches(120, 1), name=f"{120:020}")
    assert stream.take() == rows(120, 123)


@pytest.mark.filterwarnings("ignore:Offsets 60 to 68 of orders-0 come from the copy")
@pytest.mark.parametrize("copies", [1, 2])
def test_a_log_that_never_rests_is_listed_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copies: int
) -> None:
    """While a busy machine lists all logs, one is rolled and cleaned. A copy keeps everything."""
    log_dirs = [tmp_path / str(number) for number in range(copies)]
    for log_dir in log_dirs:
        log_dir.mkdir()
    partition, *_ = (make_log(log_dir) for log_dir in log_dirs)
    if copies == 1:
        (tmp_path / "0" / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 60\n")
    stream = Stream(*log_dirs)
    [first] = batches(60, 1)

    def changed_at_once(target: Target, request: Request) -> UnifiedLog:
        log = log_of(target, request)
        *_, last = sorted(partition.glob("*.log"))
        base = int(last.stem) + 3  # newer records replace those of its first batch
        last.with_name(f"{base:020}.log").write_bytes(last.read_bytes()[len(first) :])
        last.unlink()
        return log

    monkeypatch.setattr(view, "is_broker_running", lambda _: True)
    monkeypatch.setattr("kafkalog.tables.tailing.log_of", changed_at_once)
    assert stream.take() == (rows(0, 120) if copies > 1 else rows(0, 60) + rows(69, 120))


def test_a_checkpoint_of_another_release_is_refused(tmp_path: Path) -> None:
    """The old format had offsets by path, without epochs."""
    make_log(tmp_path)
    stream = Stream(tmp_path)
    stream.position = {str(tmp_path / "orders-0"): 60}  # type: ignore[dict-item]
    with pytest.raises(UsageError, match="has no offset and epoch"):
        stream.take()


def test_a_stream_of_an_unknown_topic_does_not_begin(tmp_path: Path) -> None:
    """A topic that is deleted later is a loss, which is another case."""
    make_log(tmp_path)
    tail = Tail([str(tmp_path)], Request(bounds=Bounds({"payments"}), named=Bounds({"payments"})))
    with pytest.raises(NothingFoundError, match="No partition of the topic payments is here"):
        tail.beginning()
    with pytest.raises(NothingFoundError, match="No partition of the topic payments is here"):
        tail.end(is_first=True)
    assert tail.end() == {}
