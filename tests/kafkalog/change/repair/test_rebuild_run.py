"""`kafkalog.rebuild_index`: one call compares or rebuilds the indexes of partitions."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

import kafkalog
from kafkalog.change.repair import Comparison, rebuild
from kafkalog.errors import InternalError
from tests.checkout import ROOT
from tests.kafkalog.change.journal.test_undo import everything
from tests.kafkalog.change.repair.test_run import Remembering

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Copy the example log directory, without one index."""
    target = tmp_path / "log-dir"
    shutil.copytree(ROOT / "examples" / "log-dir", target)
    (target / "orders-0" / "00000000000000000250.index").unlink()
    return target


def missing(found: Iterable[rebuild.IndexedPartition]) -> list[str]:
    indexes = [index for one in found for index in one.indexes]
    return [index.path[-30:] for index in indexes if index.result == Comparison.MISSING]


def test_a_missing_index_is_found_and_rebuilt(log_dir: Path, tmp_path: Path) -> None:
    """Without `apply` nothing is written; `undo` removes it again."""
    before = everything(log_dir)
    found = kafkalog.rebuild_index(log_dir)
    assert everything(log_dir) == before
    assert missing(found) == ["ders-0/00000000000000000250.index"[-30:]]
    assert not any(one.is_done for one in found)
    backup = str(tmp_path / "backup")
    done = found.apply(backup=backup)
    assert all(one.is_done for one in done)
    assert missing(kafkalog.rebuild_index(log_dir)) == []
    kafkalog.undo(backup).apply()
    assert missing(kafkalog.rebuild_index(log_dir)) == missing(found)


def test_a_log_stands_for_its_segment(log_dir: Path) -> None:
    """Given a `.log`, it scans no other segment."""
    path = log_dir / "orders-0" / "00000000000000000500.log"
    [found] = kafkalog.rebuild_index(path)
    assert {index.base_offset for index in found.indexes} == {500}


def test_a_partition_that_fails_costs_no_other(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listener gets the error; without a listener it is raised."""
    real = rebuild.rebuild_indexes

    def failing(partition: Any, *args: Any) -> Any:
        if partition.path.endswith("customers-0"):
            raise ZeroDivisionError("a bug of ours")
        return real(partition, *args)

    monkeypatch.setattr(rebuild, "rebuild_indexes", failing)
    with pytest.raises(InternalError):
        kafkalog.rebuild_index(log_dir).apply()
    listener = Remembering()
    kafkalog.rebuild_index(log_dir, on_event=listener.hear).apply()
    assert [type(error) for error in listener.errors] == [InternalError]
    assert (log_dir / "orders-0" / "00000000000000000250.index").exists()
