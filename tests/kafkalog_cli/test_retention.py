"""`retention`: the plan, the consent, the report, and the way back."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from docgen import output
from kafkalog.change.journal import undo
from tests.checkout import ROOT
from tests.conftest import Result

if TYPE_CHECKING:
    from pathlib import Path

Run = Callable[..., Result]
WORDS = ("--config", "retention.ms=240000", "--now", "2024-01-01T00:12:30Z")
IN_PLACE = ("--apply", "--yes")


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return shutil.copytree(ROOT / "examples" / "log-dir", tmp_path / "log-dir")


def files(root: Path) -> dict[str, bytes]:
    paths = (path for path in sorted(root.rglob("*")) if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(root)): path.read_bytes() for path in paths}


def rows(result: Result, kind: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in result.stdout.splitlines()]
    for row in found:
        assert output.mistakes(row) == []
    return [row for row in found if row["type"] == kind]


def test_the_plan_changes_nothing_and_comes_true(log_dir: Path, kafkalog: Run) -> None:
    """Each row is the same, except whether it was performed."""
    before = files(log_dir)
    plan = kafkalog("retention", log_dir, *WORDS, "--format", "ndjson")
    assert plan.status == 0
    assert files(log_dir) == before
    done = kafkalog("retention", log_dir, *WORDS, *IN_PLACE, "--format", "ndjson")
    assert done.status == 0
    planned, applied = rows(plan, "retention_applied"), rows(done, "retention_applied")
    assert [row["performed"] for row in planned] == [False] * len(planned)
    changed = [row for row in applied if row["performed"]]
    assert [row["topic"] for row in changed] == ["orders"]
    assert [row | {"performed": False} for row in applied] == planned
    gone = {f"orders-0/{name}" for name in changed[0]["deleted_files"]}
    assert before.keys() - files(log_dir).keys() == gone
    simulated = kafkalog("simulate-retention", log_dir / "orders-0", *WORDS, "--format", "ndjson")
    assert rows(simulated, "retention_summary")[0]["deleted_segments"] == 0


def test_verify_finds_nothing_afterwards(log_dir: Path, kafkalog: Run) -> None:
    """Checked at the deepest level."""
    kafkalog("retention", log_dir, *WORDS, *IN_PLACE)
    result = kafkalog("verify", log_dir, "--level", "deep")
    assert (result.status, result.stdout.count(b"nothing wrong")) == (0, 1)


def test_contradictions_are_refused(log_dir: Path, kafkalog: Run) -> None:
    before = files(log_dir)
    for words, hint in (
        (("--apply", "--check"), "plan"),
        (("--yes",), "plan"),
        (("--backup", "b"), "plan"),
        (("--apply", "--log-start-offset", "9"), "partition"),
    ):
        result = kafkalog("retention", log_dir, *WORDS, *words)
        assert result.status == 2
        assert hint in result.stderr
    assert files(log_dir) == before


def test_a_backup_brings_the_bytes_back(log_dir: Path, tmp_path: Path, kafkalog: Run) -> None:
    """All files return, including leader epochs."""
    before = files(log_dir)
    backup = tmp_path / "backup"
    result = kafkalog("retention", log_dir, *WORDS, *IN_PLACE, "--backup", backup)
    assert result.status == 0, result.stderr
    assert files(log_dir) != before
    undo(str(backup / "journal.ndjson"), in_place=True)
    assert files(log_dir) == before


def test_kept_files_stay_until_a_run_may_remove_them(log_dir: Path, kafkalog: Run) -> None:
    """With --keep-deleted there is nothing left to do; without it, the run removes the files."""
    words = ("retention", log_dir / "orders-0", *WORDS, *IN_PLACE)
    assert kafkalog(*words, "--keep-deleted").status == 0
    assert len(list(log_dir.glob("orders-0/*.deleted"))) == 7
    again = kafkalog(*words, "--keep-deleted")
    assert (again.status, b"nothing to do" in again.stdout) == (0, True)
    finished = kafkalog(*words)
    assert (finished.status, b"7 .deleted files" in finished.stdout) == (0, True)
    assert not list(log_dir.glob("orders-0/*.deleted"))
    assert kafkalog(*words[:-1], "--check").status == 2
    assert kafkalog(*words[:-2], "--check").status == 0


def test_a_refused_partition_does_not_stop_the_others(log_dir: Path, kafkalog: Run) -> None:
    """The run continues, and the status reflects the refusal."""
    (log_dir / "payments-0" / f"{0:020}.log.swap").touch()
    result = kafkalog("retention", log_dir, *WORDS, *IN_PLACE)
    assert result.status == 8
    assert "kafkalog recover" in result.stderr
    assert not (log_dir / "orders-0" / f"{0:020}.log").exists()


def test_an_active_segment_that_stays_is_told(log_dir: Path, kafkalog: Run) -> None:
    """A broker would roll the log and delete it."""
    result = kafkalog("retention", log_dir / "orders-0", "--config", "retention.ms=0")
    assert result.status == 0
    assert b"the active segment stays" in result.stdout


def test_the_simulation_has_no_apply(log_dir: Path, kafkalog: Run) -> None:
    """It shows the same verdicts."""
    words = (log_dir / "orders-0", *WORDS, "-o", "ndjson")
    plan, simulation = kafkalog("retention", *words), kafkalog("simulate-retention", *words)
    assert rows(simulation, "retention") == rows(plan, "retention")
    assert rows(simulation, "retention_applied") == []
    before = files(log_dir)
    assert kafkalog("simulate-retention", *words, "--apply").status == 2
    assert files(log_dir) == before


def test_a_plan_with_something_to_do_is_a_no_to_a_check(log_dir: Path, kafkalog: Run) -> None:
    words = ("retention", log_dir, *WORDS)
    assert kafkalog(*words, "--check").status == 1
    assert kafkalog(*words, "--apply", "--dry-run").status == 0
    assert kafkalog(*words, "--apply").status == 0
    assert kafkalog(*words, "--check").status == 0


def test_only_what_is_chosen_is_deleted(log_dir: Path, kafkalog: Run) -> None:
    before = files(log_dir)
    for words in (("-t", "!orders"), ("-p", "1-9"), ("-t", "payments")):
        assert kafkalog("retention", log_dir, *WORDS, *words, "--apply").status == 0
    assert files(log_dir) == before
    assert kafkalog("retention", log_dir, *WORDS, "-t", "no-topic", "--apply").status == 1
    assert kafkalog("retention", log_dir, *WORDS, "-t", "ord*", "--apply").status == 0
    assert files(log_dir) != before
