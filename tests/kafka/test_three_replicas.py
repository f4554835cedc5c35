"""Replicas through leader changes: streams and exports give what a read_committed consumer gets.

Broker 1 was alone and wrote records that the others never had. They became leaders, and it cut its
log. A partition was moved to another log directory, and a topic was deleted and created again.
"""

from __future__ import annotations

import json
import shutil
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import kafkalog
from kafkalog.check.comparison.model import Verdict
from kafkalog.errors import Listener, RefusedError
from kafkalog.model import Isolation, Replicas
from kafkalog.tables import Bounds, Request, TableName, plan_splits, read_split
from kafkalog.tables.schemas import table_schema
from kafkalog.tables.tailing import LossWarnings, Tail
from tests.kafka import broker_data
from tests.kafkalog.change.lake.exporting import export, table_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    Rows = list[tuple[int, bytes]]

COMMITTED = Request(isolation=Isolation.READ_COMMITTED, replicas=Replicas.BEST, split_bytes=1 << 12)
LOG_DIRS = ("1", "2", "3", "3b")


@pytest.fixture(scope="module")
def phases(harness: None, tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: ARG001
    """The log directories of three brokers after each of three phases, and what was consumed."""
    root = tmp_path_factory.mktemp("three-replicas")
    (root / "cwd").mkdir()
    broker_data.java("kafkalog.harness.ThreeReplicas", str(root), cwd=root / "cwd")
    return root


def consumed(phases: Path, phase: int, topic: str) -> Rows:
    lines = (phases / str(phase) / "records" / f"{topic}-0.ndjson").read_text().splitlines()
    rows = map(json.loads, lines)
    return [(row["offset"], bytes.fromhex(row["value"])) for row in rows]


class Follower:
    """A stream over log directories that change from one phase to the next."""

    def __init__(self, phases: Path, place: Path, names: Sequence[str], topic: str) -> None:
        self._phases, self._place, self._names = phases, place, names
        self._request = replace(COMMITTED, bounds=Bounds(topics=frozenset({topic})))
        self.position: dict[str, list[int]] = {}

    def go_to(self, phase: int) -> None:
        shutil.rmtree(self._place, ignore_errors=True)
        for name in self._names:
            shutil.copytree(self._phases / str(phase) / "log" / name, self._place / name)

    def take(self, listener: Listener | None = None) -> Rows:
        """Return the rows of a batch; positions go through JSON, as between two runs of a query."""
        paths = [str(self._place / name) for name in self._names]
        tail = Tail(paths, self._request, listener)
        start = self.position or tail.beginning()
        end = json.loads(json.dumps(tail.advance(start, None)))
        found = rows_of(tail.splits(start, end))
        self.position = end
        return found


def rows_of(splits: Iterable[Any]) -> Rows:
    schema = table_schema(TableName.RECORDS, ["offset", "value"])
    batches = (one for split in splits for one in read_split(split, schema))
    return [(row["offset"], row["value"]) for one in batches for row in one.to_pylist()]


@pytest.mark.parametrize("phase", [1, 2, 3])
def test_tables_and_exports_are_what_a_consumer_is_given(
    phases: Path, tmp_path: Path, phase: int
) -> None:
    """One table is of broker 1 alone, one of all brokers with each record once."""
    log = phases / str(phase) / "log"
    for names in (("1",), LOG_DIRS):
        paths = [log / name for name in names]
        to = tmp_path / f"{phase}-{len(names)}"
        export(paths, to, COMMITTED)
        found = table_of(to).to_pylist()
        read = plan_splits([str(path) for path in paths], COMMITTED)
        for topic in ("orders",) if names == ("1",) or phase == 2 else ("orders", "moved", "again"):
            rows = [(row["offset"], row["value"]) for row in found if row["topic"] == topic]
            wanted = consumed(phases, phase, topic)
            assert sorted(rows) == wanted
            assert rows_of(one for one in read if one.topic == topic) == wanted
            assert wanted


@pytest.mark.parametrize("names", [("1",), LOG_DIRS])
def test_a_replica_that_was_cut_and_filled_again_is_told(
    phases: Path, tmp_path: Path, names: Sequence[str]
) -> None:
    """The stream has read records that the log no longer has: it stops, or goes back."""
    stream = Follower(phases, tmp_path / "logs", names, "orders")
    first, second, third = (consumed(phases, phase, "orders") for phase in (1, 2, 3))
    assert second[: len(first)] == first
    assert third[: len(second)] != second
    stream.go_to(1)
    assert stream.take() == first
    stream.go_to(2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert stream.take() == second[len(first) :]
    stream.go_to(3)
    with pytest.raises(RefusedError, match="The log is another one from offset"):
        stream.take()
    with pytest.warns(UserWarning, match="The log is another one from offset"):
        found = stream.take(LossWarnings())
    divergence = next(a[0] for a, b in zip(second, third, strict=False) if a != b)
    assert found == [row for row in third if row[0] >= divergence]


def test_a_partition_that_was_moved_is_read_on(phases: Path, tmp_path: Path) -> None:
    """Broker 3 has it in its other directory now: no record comes twice."""
    stream = Follower(phases, tmp_path / "logs", ("3", "3b"), "moved")
    first, last = consumed(phases, 1, "moved"), consumed(phases, 3, "moved")
    stream.go_to(1)
    assert stream.take() == first
    before = [path.parent.name for path in (tmp_path / "logs").glob("*/moved-0")]
    stream.go_to(3)
    after = [path.parent.name for path in (tmp_path / "logs").glob("*/moved-0")]
    assert sorted([*before, *after]) == ["3", "3b"]
    assert stream.take(LossWarnings()) == last[len(first) :]


def test_a_topic_that_was_made_again_begins_anew(phases: Path, tmp_path: Path) -> None:
    """Broker 2 has another topic of the same name; the loss of the first one is reported."""
    stream = Follower(phases, tmp_path / "logs", ("2",), "again")
    stream.go_to(1)
    assert stream.take() == consumed(phases, 1, "again")
    stream.go_to(3)
    with pytest.raises(RefusedError):
        stream.take()
    with pytest.warns(UserWarning, match="is another topic of that name now"):
        assert stream.take(LossWarnings()) == consumed(phases, 3, "again")


def test_diff_predicts_where_a_broker_cut_its_log(phases: Path) -> None:
    """Broker 1 before its return is compared with the leader that it then followed."""
    before, leader, after = (
        phases / phase / "log" / broker / "orders-0"
        for phase, broker in (("2", "1"), ("3", "2"), ("3", "1"))
    )
    [found] = kafkalog.diff(before, leader)
    assert found.verdict == Verdict.DIFFERENT
    assert found.truncation is not None
    assert found.truncation.follower == "left"
    [done] = kafkalog.diff(before, after)
    assert found.truncation.offset == done.identical_up_to == found.identical_up_to
    alone, given = consumed(phases, 2, "orders"), consumed(phases, 3, "orders")
    kept = dict(given)
    lost = [offset for offset, value in alone if kept.get(offset) != value]
    assert min(lost) == found.truncation.offset
    assert found.left_only_records + found.differing >= len(lost) > 0
    [agreed] = kafkalog.diff(after, leader)
    assert agreed.verdict == Verdict.IDENTICAL
