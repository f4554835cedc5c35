"""`kafkalog.verify`: one run over many targets, with or without an engine or a state."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

import kafkalog
from kafkalog.errors import Event, KafkaLogError, NotFoundError, Progress, UsageError
from kafkalog.io.engine import LocalEngine

if TYPE_CHECKING:
    from pathlib import Path

LOG_DIR = "examples/log-dir"
DAMAGED = "examples/damaged"
REFERENCES = ["batch-crc-mismatch", "batch-length-invalid"]


def references(findings: kafkalog.Findings) -> list[str]:
    return [defect.reference for defect in findings]


def test_targets_are_paths_or_what_open_gives() -> None:
    """Both kinds are checked and counted in one run."""
    findings = kafkalog.verify(LOG_DIR, kafkalog.Log(f"{DAMAGED}/orders-0"), level="quick")
    assert "batch-length-invalid" in references(findings)
    assert findings.summary.files == 65
    assert findings.summary.is_complete


def test_a_target_that_cannot_be_opened_is_raised_or_heard() -> None:
    """With `on_event`, the other targets are still checked."""
    with pytest.raises(NotFoundError):
        kafkalog.verify(f"{DAMAGED}/orders-0", "examples/nowhere")
    events: list[Event] = []
    findings = kafkalog.verify("examples/nowhere", f"{DAMAGED}/orders-0", on_event=events.append)
    assert references(findings) == REFERENCES
    errors = [event for event in events if event.kind == "defect"]
    assert [type(error) for error in errors] == [NotFoundError]
    assert findings.errors == errors
    read = sum(event.size_bytes for event in events if isinstance(event, Progress))
    assert read == findings.summary.checked_bytes


def test_a_failure_of_ours_costs_one_target(monkeypatch: pytest.MonkeyPatch) -> None:
    """The iterator raises it, unless `on_event` handles it."""
    from kafkalog.check.verify import Verification

    real = Verification.check

    def failing(self: Verification, target: object) -> object:
        if getattr(target, "path", "").endswith("customers-0"):
            raise ZeroDivisionError("a bug of ours")
        return real(self, target)  # type: ignore[arg-type]

    monkeypatch.setattr(Verification, "check", failing)
    paths = (f"{LOG_DIR}/customers-0", f"{DAMAGED}/orders-0")
    with pytest.raises(KafkaLogError, match="a bug of ours"):
        list(kafkalog.verify(*paths))
    findings = kafkalog.verify(*paths, on_event=lambda _: None)
    assert references(findings) == REFERENCES
    assert [error.reference for error in findings.errors] == ["internal-error"]


def test_an_engine_finds_the_same() -> None:
    """The tasks of an engine read the same files."""
    here, there = kafkalog.verify(DAMAGED), kafkalog.verify(DAMAGED)
    assert [*here] == [*there.run(engine=LocalEngine(2))]
    assert here.summary == there.summary


def test_a_state_is_remembered_and_written_outside(tmp_path: Path) -> None:
    """The file exists after the run, and never inside the targets."""
    logs = shutil.copytree(LOG_DIR, tmp_path / "logs")
    state = tmp_path / "verify.state"
    assert references(kafkalog.verify(logs, state=str(state))) == []
    assert state.stat().st_size
    again = kafkalog.verify(logs, state=str(state))
    assert references(again) == []
    with pytest.raises(UsageError, match="inside the checked directory"):
        kafkalog.verify(logs, state=str(logs / "state"))
    with pytest.raises(UsageError, match="order of work"):
        next(again.run(engine=LocalEngine(1)))


def test_a_seed_is_a_samples() -> None:
    """With `sample`, the same seed selects the same segments; without it, a seed is refused."""
    chosen = [
        kafkalog.verify(LOG_DIR, level="deep", sample=0.3, seed=7).schedule.segments_chosen
        for _ in range(2)
    ]
    assert chosen[0] == chosen[1] > 0
    with pytest.raises(UsageError):
        kafkalog.verify(LOG_DIR, seed=7)
