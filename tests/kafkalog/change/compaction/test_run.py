"""`kafkalog.compact`: one call plans or compacts a partition, a log directory or a copy."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

import kafkalog
from kafkalog.change.compaction import compact as compact_module
from kafkalog.change.compaction import distributed
from kafkalog.change.journal import undo
from kafkalog.errors import InternalError, RefusedError, UsageError
from kafkalog.io.engine import LocalEngine
from tests.checkout import ROOT
from tests.kafkalog.change.journal.test_undo import everything

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOW_MS = 1_704_070_800_000  # 2024-01-01T01:00:00Z
OPTIONS: dict[str, Any] = {
    "take_all": True, "configs": {"cleanup.policy": "compact"}, "now": NOW_MS,
}  # fmt: skip


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    target = tmp_path / "log-dir"
    shutil.copytree(ROOT / "examples" / "log-dir", target)
    return target


def test_a_plan_is_what_is_done(log_dir: Path, tmp_path: Path) -> None:
    """Without `apply` nothing is written; `undo` restores a run with a backup."""
    before = everything(log_dir)
    planned = kafkalog.compact(log_dir, **OPTIONS)
    assert everything(log_dir) == before
    compacted = [one for one in planned if one.skipped is None]
    assert [one.partition.topic for one in compacted] == ["orders"]
    backup = str(tmp_path / "backup")
    done = planned.apply(backup=backup)
    assert [one.tally for one in done] == [one.tally for one in planned]
    sizes = [one.compaction.after_bytes for one in done if one.compaction is not None]
    assert sizes == [one.compaction.after_bytes for one in planned if one.compaction is not None]
    assert everything(log_dir) != before
    records = kafkalog.Log(log_dir / "orders-0").scan(["key"], to_offset=750).to_table()
    keys = records["key"].to_pylist()
    assert len(keys) == len(set(keys))
    undo(backup, in_place=True)
    after = everything(log_dir)
    assert {name for name in before if after.get(name) != before[name]} <= {".lock"}


def test_a_copy_is_compacted_and_the_source_stays(log_dir: Path, tmp_path: Path) -> None:
    """The copy is a log directory of its own."""
    before = everything(log_dir)
    plan = kafkalog.compact(log_dir / "orders-0", to=str(tmp_path / "copy"), **OPTIONS)
    [done] = plan.apply()
    assert done.error is None
    found = everything(log_dir)
    found.pop(".lock", None)
    before.pop(".lock", None)
    assert found == before
    sizes = [
        sum(path.stat().st_size for path in where.glob("orders-0/*.log"))
        for where in (log_dir, tmp_path / "copy")
    ]
    assert sizes[1] < sizes[0]


def test_a_partition_that_fails_costs_no_other(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a log directory the failure is a result; for a single partition it is raised."""
    shutil.copytree(log_dir / "orders-0", log_dir / "orders-1")
    checkpoint = log_dir / "replication-offset-checkpoint"
    text = checkpoint.read_text().replace("orders 0 1000", "orders 0 1000\norders 1 1000")
    version, count, *rest = text.splitlines()
    checkpoint.write_text("\n".join([version, str(int(count) + 1), *rest]) + "\n")
    real = compact_module.compact_partition

    def failing(candidate: Any, *args: Any) -> Any:
        if candidate.partition.path.endswith("orders-0"):
            raise ZeroDivisionError("a bug of ours")
        return real(candidate, *args)

    monkeypatch.setattr(compact_module, "compact_partition", failing)
    found = {one.partition.path[-8:]: one for one in kafkalog.compact(log_dir, **OPTIONS)}
    assert isinstance(found["orders-0"].error, InternalError)
    assert found["orders-1"].compaction is not None
    with pytest.raises(InternalError, match="a bug of ours"):
        kafkalog.compact(log_dir / "orders-0", **OPTIONS)


def test_what_makes_no_sense_is_refused(log_dir: Path) -> None:
    """The refusal comes before anything is read."""
    with pytest.raises(UsageError, match="load factor"):
        kafkalog.compact(log_dir, load_factor=0)
    with pytest.raises(UsageError, match="one partition"):
        kafkalog.compact(log_dir, up_to_offset=7)
    with pytest.raises(RefusedError):
        kafkalog.compact(log_dir / "payments-0")  # not a compacted topic


class CountingEngine(LocalEngine):
    tasks = 0

    def run(self, work: Any, tasks: Any, **options: Any) -> Any:
        self.tasks += len(tasks)
        return super().run(work, tasks, **options)


def test_tasks_of_an_engine_keep_to_their_memory(log_dir: Path, tmp_path: Path) -> None:
    """Keys that do not fit are divided into buckets, one task each; the result is the same."""
    wanted = kafkalog.compact(log_dir, **OPTIONS)
    counts = []
    for memory in (None, 1):
        copy = shutil.copytree(log_dir, tmp_path / f"copy-{memory}")
        engine = CountingEngine(1)
        plan = kafkalog.compact(copy, engine=engine, task_memory=memory, **OPTIONS)
        engine.tasks = 0
        found = plan.apply()
        assert [one.tally for one in found] == [one.tally for one in wanted]
        counts.append(engine.tasks)
    assert counts[1] > counts[0] > 0


def test_the_command_passes_the_memory_of_a_task_on(
    log_dir: Path, kafkalog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`kafkalog.task.memory` limits the plan for the engine's tasks."""
    given: list[int | None] = []
    real = distributed.compact_partitions

    def spied(*args: Any, task_memory: int | None, **options: Any) -> Any:
        given.append(task_memory)
        return real(*args, task_memory=task_memory, **options)

    @contextmanager
    def local(_: Any) -> Iterator[LocalEngine]:
        yield LocalEngine(1)

    monkeypatch.setattr(distributed, "compact_partitions", spied)
    monkeypatch.setattr("kafkalog_cli.engines.EngineChoice.open", local)
    arguments = ("--all", "--config", "cleanup.policy=compact", "--spark", "local[*]")
    result = kafkalog("compact", log_dir, *arguments, "--spark-conf", "kafkalog.task.memory=2KiB")
    assert result.status == 0, result.stderr
    assert given == [2048]
