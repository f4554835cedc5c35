"""Plans of the library: what would change, and nothing changed before `apply`."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from rich.progress import Progress as RichProgress

import kafkalog
from kafkalog.change.rescue import SalvagedSegment
from kafkalog.errors import Done, Event, NotFoundError, Progress, UsageError
from kafkalog.wire.producing.model import Replayed
from tests.checkout import ROOT
from tests.kafkalog.change.journal.test_undo import everything

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return shutil.copytree(ROOT / "examples" / "log-dir", tmp_path / "log-dir")


def test_a_salvage_is_planned_and_applied(tmp_path: Path) -> None:
    """With a row for each partition, totals, and an event for each row of the manifest."""
    events: list[Event] = []
    target = tmp_path / "rescued"
    plan = kafkalog.salvage("examples/damaged", to=target, on_event=events.append)
    assert not target.exists()
    assert [(one.topic, one.log_start_offset) for one in plan] == [("orders", 250)]
    assert plan.summary is not None
    assert (plan.summary.records, plan.summary.dry_run) == (240, True)
    assert repr(plan).startswith("Plan(salvage, 1 row, SalvagedPartition(")
    rows = [event.result for event in events if isinstance(event, Done)]
    assert any(isinstance(row, SalvagedSegment) for row in rows)
    assert sum(event.size_bytes for event in events if isinstance(event, Progress)) > 0
    with pytest.raises(UsageError, match="nothing to back up"):
        plan.apply(backup=str(tmp_path / "backup"))
    done = plan.apply()
    assert (done.records, done.dry_run) == (240, False)
    assert (target / "log" / "orders-0").is_dir()
    with pytest.raises(UsageError):
        kafkalog.salvage(to=target)


def test_a_resurrection_goes_to_one_place(log_dir: Path, tmp_path: Path) -> None:
    """To a new directory, into one that exists, or in place."""
    plan = kafkalog.resurrect(log_dir, to=tmp_path / "revived")
    assert {one.topic for one in plan} >= {"orders", "payments"}
    assert not (tmp_path / "revived").exists()
    summary = plan.apply()
    assert summary.partitions == len(plan)
    assert (tmp_path / "revived" / "log").is_dir()
    with pytest.raises(UsageError, match="not to both"):
        kafkalog.resurrect(log_dir, to="a", into="b")
    with pytest.raises(UsageError, match="one log directory"):
        kafkalog.resurrect(log_dir, log_dir)
    with pytest.raises(NotFoundError):
        kafkalog.resurrect(log_dir / "orders-0", into=tmp_path / "nowhere")
    options = kafkalog.ResurrectOptions(cluster_id="new")
    before = everything(log_dir)
    here = kafkalog.resurrect(log_dir, options=options)
    assert {**everything(log_dir), ".lock": b""} == {**before, ".lock": b""}
    with pytest.raises(UsageError, match="backup"):
        here.apply()


def test_a_run_is_undone_by_a_plan(log_dir: Path, tmp_path: Path) -> None:
    """With a row for each partition that would be restored, and an event for each step."""
    backup = str(tmp_path / "backup")
    before = everything(log_dir)
    plan = kafkalog.retention(
        log_dir / "orders-0", configs={"retention.ms": "240000"}, now="2024-01-01T00:19:10Z"
    )
    plan.apply(backup=backup)
    changed = everything(log_dir)
    assert changed != before
    events: list[Event] = []
    undo = kafkalog.undo(backup, on_event=events.append)
    assert [(one.topic, one.partition) for one in undo] == [("orders", 0)]
    assert everything(log_dir) == changed
    assert events == []
    undo.apply()
    assert {event.kind for event in events} == {"done"}
    after = everything(log_dir)
    assert {name for name in before if after.get(name) != before[name]} <= {".lock"}
    assert kafkalog.undo(backup) == []


def test_an_export_and_a_replay_are_planned(log_dir: Path, tmp_path: Path) -> None:
    """An export by its files; a replay by its records, which no cluster has to be there for."""
    plan = kafkalog.export(log_dir, to=tmp_path / "lake")
    assert not (tmp_path / "lake").exists()
    summary = plan.apply()
    assert [one.number for one in summary.parts] == [one.number for one in plan]
    replay = kafkalog.replay(log_dir / "orders-0")
    [one] = replay
    assert isinstance(one, Replayed)
    assert replay.to_dicts()[0]["records"] == one.records == 1000
    with pytest.raises(UsageError, match="address of a broker"):
        replay.apply()


def test_a_bar_is_drawn_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets the bytes that events tell of, and knows how many there will be."""
    drawn: list[float] = []
    real = RichProgress.advance

    def spied(self: RichProgress, task_id: object, advance: float = 1) -> None:
        drawn.append(advance)
        assert self.tasks[0].total
        real(self, task_id, advance)  # type: ignore[arg-type]

    monkeypatch.setattr(RichProgress, "advance", spied)
    findings = kafkalog.verify("examples/log-dir", progress=True)
    assert [*findings] == []
    assert sum(drawn) == findings.summary.checked_bytes
    drawn.clear()
    assert [*kafkalog.verify("examples/log-dir")] == []
    assert drawn == []
