"""`kafkalog.recover`: one call plans or recovers a partition or a log directory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import kafkalog
from kafkalog.change.repair import run as repair_run
from kafkalog.errors import Event, InternalError, KafkaLogError, Listener, Note, RefusedError
from tests.builders import batch, record, write_log
from tests.kafkalog.change.journal.test_undo import everything
from tests.kafkalog.test_view import killed

if TYPE_CHECKING:
    from pathlib import Path


class Remembering(Listener):
    def __init__(self) -> None:
        self.errors: list[KafkaLogError] = []
        self.notes: list[str] = []

    def hear(self, event: Event) -> None:
        if isinstance(event, KafkaLogError):
            self.errors.append(event)
        if isinstance(event, Note) and "has no __cluster_metadata-0" not in event.text:
            self.notes.append(event.text)


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """The log directory of a killed broker, with a torn batch at the end of both partitions."""
    target = tmp_path / "log-dir"
    for name in ("t-0", "u-0"):
        killed(target, batch(0, [record(), record(1)]), batch(2, [record()])[:-3])
        if name == "u-0":
            write_log(target / name, batch(0, [record(), record(1)]), batch(2, [record()])[:-3])
    return target


def offsets(log: Path) -> list[int]:
    return [found.offset for found in kafkalog.Log(log).records(on_event=lambda _: None)]


def test_a_plan_writes_nothing_and_is_what_is_done(log_dir: Path) -> None:
    """It cuts off the torn batch, as a start would."""
    before = everything(log_dir)
    planned = kafkalog.recover(log_dir)
    assert everything(log_dir) == before
    assert [one.log_end_offset for one in planned] == [2, 2]
    assert [one.done for one in planned] == [None, None]
    done = planned.apply()
    assert [one.done.log_end_offset for one in done if one.done] == [2, 2]
    for name in ("t-0", "u-0"):
        assert list(kafkalog.Log(log_dir / name).verify()) == []
        assert offsets(log_dir / name) == [0, 1]
    assert [one.plan.changes for one in kafkalog.recover(log_dir)] == [(), ()]


def test_one_that_must_not_be_recovered_stops_the_others(log_dir: Path) -> None:
    """It would lose records below the high watermark, which another replica may still have."""
    (log_dir / "replication-offset-checkpoint").write_text("0\n1\nt 0 3\n")
    before = everything(log_dir)
    planned = kafkalog.recover(log_dir)
    assert [one.refused is None for one in planned] == [False, True]
    with pytest.raises(RefusedError):
        planned.apply()
    found = everything(log_dir)
    found.pop(".lock", None)
    before.pop(".lock", None)
    assert found == before
    done = kafkalog.recover(log_dir, allow_loss=True).apply()
    assert all(one.done is not None for one in done)


def test_a_partition_that_fails_costs_no_other(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listener gets the error; without a listener it is raised."""
    real = repair_run.perform_recovery

    def failing(plan: Any, *args: Any, **options: Any) -> Any:
        if plan.partition.path.endswith("t-0"):
            raise ZeroDivisionError("a bug of ours")
        return real(plan, *args, **options)

    monkeypatch.setattr(repair_run, "perform_recovery", failing)
    listener = Remembering()
    found = kafkalog.recover(log_dir, on_event=listener.hear).apply()
    assert [one.done is None for one in found] == [True, False]
    [error] = listener.errors
    assert isinstance(error, InternalError)
    assert error.path == str(log_dir / "t-0")
    with pytest.raises(InternalError):
        kafkalog.recover(log_dir).apply()
