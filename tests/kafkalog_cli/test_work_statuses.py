"""Exit statuses of the commands that write: incomplete, and nothing to do."""

from __future__ import annotations

import errno
import json
import shutil
from typing import TYPE_CHECKING

from kafkalog.errors import INCOMPLETE
from tests.crash.test_faults import Fault
from tests.kafkalog_cli.test_maintenance import COMMANDS, IN_PLACE, every_command, log_dir
from tests.sampling import tries_everything

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

    from tests.conftest import Result

    Run = Callable[..., Result]

__all__ = ["log_dir"]

FAULTS = 12 if tries_everything() else 4


def contents(log_dir: Path) -> dict[str, bytes]:
    """Return each file but the lock, and but new ones that brokers ignore."""
    return {
        str(path.relative_to(log_dir)): path.read_bytes()
        for path in log_dir.rglob("*")
        if path.is_file() and path.name != ".lock" and path.suffix not in (".tmp", ".cleaned")
    }


def hurt(log_dir: Path) -> None:
    """Leave work for each of the commands, as a crash does."""
    (log_dir / ".kafka_cleanshutdown").unlink()
    for name in ("orders-0", "orders-1"):
        first, *_, last = sorted((log_dir / name).glob("*.log"))
        first.with_suffix(".index").unlink()
        last.write_bytes(last.read_bytes() + b"torn")


@every_command
def test_a_finished_run_given_again_has_nothing_to_do(
    command: str, log_dir: Path, kafkalog: Run
) -> None:
    """Both in place and as a plan, which --check agrees to."""
    shutil.rmtree(log_dir / "__cluster_metadata-0")  # it knows one partition of the two
    if command in ("recover", "rebuild-index"):
        (log_dir / "orders-0" / f"{0:020}.index").unlink()
    words = (command, log_dir, *COMMANDS[command])
    assert kafkalog(*words, *IN_PLACE).status == 0
    before = contents(log_dir)
    for more in (IN_PLACE, (), ("--check",)):
        again = kafkalog(*words, *more, "-o", "ndjson")
        assert again.status == 0, (more, again.stderr)
        summary = json.loads(again.stdout.splitlines()[-1])
        assert (summary["status"], summary["changed"]) == (0, 0)
    assert contents(log_dir) == before


@every_command
def test_a_failure_after_a_change_is_partly_done(
    command: str, log_dir: Path, kafkalog: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Status 4 claims that nothing changed: it is given exactly when that is true."""
    if command == "recover":
        hurt(log_dir)
    if command == "rebuild-index":
        (log_dir / "orders-0" / f"{0:020}.index").unlink()
    before = contents(log_dir)
    statuses = set()
    for number in range(1, 1000):
        with monkeypatch.context() as patch:
            fault = Fault(patch, number, (errno.EIO, errno.ENOSPC)[number % 2])
            result = kafkalog(command, log_dir, *COMMANDS[command], *IN_PLACE)
        has_changed = contents(log_dir) != before
        if fault.failed is None:
            break
        if "error: " in result.stderr:
            statuses.add(result.status)
            expected = INCOMPLETE if has_changed else 4
            assert result.status == expected, (number, fault.failed, result.stderr)
        if len(statuses) == 2 and number > FAULTS:
            break
        if has_changed:
            restore(log_dir, before)
    assert statuses == {4, INCOMPLETE}


def restore(log_dir: Path, before: dict[str, bytes]) -> None:
    """Put the files back."""
    for path in log_dir.rglob("*"):
        if path.is_file() and path.name != ".lock" and str(path.relative_to(log_dir)) not in before:
            path.unlink()
    for name, data in before.items():
        path = log_dir / name
        if not path.exists() or path.read_bytes() != data:
            path.write_bytes(data)


def test_a_refusal_beside_work_that_is_done_is_partly_done(log_dir: Path, kafkalog: Run) -> None:
    """A second run is refused and changes nothing."""
    (log_dir / "payments-0" / f"{0:020}.log.swap").touch()
    words = ("retention", log_dir, *COMMANDS["retention"])
    assert [kafkalog(*words, *IN_PLACE).status for _ in range(2)] == [INCOMPLETE, 4]


def test_an_export_given_again_has_nothing_to_do(
    log_dir: Path, tmp_path: Path, kafkalog: Run
) -> None:
    words = ("export", log_dir / "orders-0", "--to", tmp_path / "to")
    assert [kafkalog(*words).status for _ in range(2)] == [0, 0]


TO = ("--to", "{to}")
WRITERS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "retention": (COMMANDS["retention"], (*IN_PLACE, "--backup", "{backup}")),
    "undo": ((), IN_PLACE),
    "compact": (COMMANDS["compact"], IN_PLACE),
    "recover": (COMMANDS["recover"], IN_PLACE),
    "rebuild-index": (COMMANDS["rebuild-index"], IN_PLACE),
    "salvage": ((), TO),
    "resurrect": ((), TO),
    "export": ((), TO),
    "replay": ((), ()),
}
"""Commands that write, with options of a plan, and more for the work, except that of `replay`."""


def test_a_writing_command_ends_with_one_summary(
    log_dir: Path, tmp_path: Path, kafkalog: Run
) -> None:
    """A plan, the work, and where that can be given again, a run without anything to do."""
    shutil.rmtree(log_dir / "__cluster_metadata-0")  # it knows one partition of the two
    backup = tmp_path / "backup"

    def summary(words: list[object]) -> dict[str, int]:
        done = kafkalog(*words, "-o", "ndjson")
        rows = [json.loads(row) for row in done.stdout.splitlines()]
        found = [row for row in rows if row["type"].endswith("_summary")]
        assert found == rows[-1:], (words, done.stderr)
        assert found[0]["status"] == done.status, words
        return found[0]

    for command, (options, more) in WRITERS.items():
        if command in ("recover", "rebuild-index"):
            (log_dir / "orders-0" / f"{0:020}.index").unlink()
        places = {"to": tmp_path / command, "backup": backup}
        plan = [command, backup if command == "undo" else log_dir, *options]
        work = [*plan, *(word.format(**places) for word in more)]
        assert summary(plan)["changed"] == 0, plan
        assert (summary(work)["changed"] > 0) == bool(more), work
        if more == IN_PLACE or command in ("export", "replay"):
            assert (summary(work)["status"], summary(work)["changed"]) == (0, 0), work
