"""`kafkalog.apply_retention`: one call plans or trims a partition or a log directory."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

import kafkalog
from kafkalog.change.retention import run as retention_run
from kafkalog.errors import InternalError, UsageError
from tests.checkout import ROOT
from tests.kafkalog.change.journal.test_undo import everything
from tests.kafkalog.change.repair.test_run import Remembering

if TYPE_CHECKING:
    from pathlib import Path

OPTIONS: dict[str, Any] = {"configs": {"retention.ms": "240000"}, "now": 1_704_067_950_000}


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    target = tmp_path / "log-dir"
    shutil.copytree(ROOT / "examples" / "log-dir", target)
    return target


def test_a_plan_is_what_is_done(log_dir: Path, tmp_path: Path) -> None:
    """The segments that `retention` names go; `undo` restores them from a backup."""
    before = everything(log_dir)
    planned = kafkalog.retention(log_dir / "orders-0", **OPTIONS)
    assert everything(log_dir) == before
    assert [len(one.plan.segments) for one in planned] == [2]
    assert not any(one.is_done for one in planned)
    backup = str(tmp_path / "backup")
    done = planned.apply(backup=backup)
    assert [one.is_done for one in done] == [True]
    log = kafkalog.Log(log_dir / "orders-0")
    assert [segment.base_offset for segment in log.segments] == [500, 750]
    assert log.offsets.log_start_offset.value == 500
    kafkalog.undo(backup).apply()
    assert [segment.base_offset for segment in log.segments] == [0, 250, 500, 750]


def test_a_partition_that_fails_costs_no_other(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listener receives the error; without a listener it is raised."""
    real = retention_run.plan_trim

    def failing(partition: Any, *args: Any, **options: Any) -> Any:
        if partition.path.endswith("orders-0"):
            raise ZeroDivisionError("a bug of ours")
        return real(partition, *args, **options)

    monkeypatch.setattr(retention_run, "plan_trim", failing)
    listener = Remembering()
    found = kafkalog.retention(log_dir, on_event=listener.hear, **OPTIONS)
    names = [one.plan.partition.name.name for one in found if one.plan.partition.name]
    assert "payments-0" in names
    assert "orders-0" not in names
    assert [type(error) for error in listener.errors] == [InternalError]
    assert any("__cluster_metadata-0 is left alone" in note for note in listener.notes)
    with pytest.raises(InternalError):
        kafkalog.retention(log_dir, **OPTIONS)


def test_a_log_start_is_one_logs(log_dir: Path) -> None:
    """Other partitions would need another offset."""
    with pytest.raises(UsageError, match="one partition"):
        kafkalog.retention(log_dir, log_start_offset=7)
