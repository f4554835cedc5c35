"""A broker deletes a topic, or its oldest segment, between any two calls of a reader.

The answer is that of the files as they are then: no error, and all rows of the other partitions.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Result

    Run = Callable[..., Result]
    Change = Callable[[Path], None]

EXAMPLE = Path(__file__).parents[2] / "examples" / "log-dir"
VICTIM = "orders-0"
LINES = {
    "ls": "ls {dir} --format ndjson",
    "dump": "dump-segment {dir} --format ndjson",
    "find": "find {dir} --value-regex . --format ndjson",
    "lookup": "lookup-offset {dir} --timestamp 0 --format ndjson",
    "diff": "diff {dir} {example} --all --format ndjson",
    "groups": "groups {dir} --format ndjson",
    "transactions": "transactions {dir} --now 0 --format ndjson",
    "report": "report {dir} --now 0 --to {to}",
    "simulate": "simulate-retention {dir} --config retention.ms=1 --now 0 --format ndjson",
    "sql": "sql SELECT {dir} --format ndjson",
}


def deleted(partition: Path) -> None:
    """Delete the topic as a broker does: the directory gets another name first."""
    partition.rename(partition.with_name(f"{VICTIM}.0123456789abcdef0123456789abcdef-delete"))


def removed(partition: Path) -> None:
    shutil.rmtree(partition)


def shortened(partition: Path) -> None:
    """Delete the oldest segment, as retention does."""
    for path in partition.glob(f"{0:020d}.*"):
        path.unlink()


class Changes:
    """Changes a partition before one of the calls about its files, after it was listed.

    Attributes:
        calls: how many such calls there were.
    """

    def __init__(
        self, patch: pytest.MonkeyPatch, partition: Path, change: Change, before: int | None
    ) -> None:
        self.calls = 0
        self._partition, self._change, self._before = partition, change, before
        self._is_listed = False
        for name in ("open", "stat", "lstat", "listdir", "scandir"):
            patch.setattr(os, name, self._wrapped(getattr(os, name), is_listing="dir" in name))

    def _wrapped(self, call: Callable[..., Any], *, is_listing: bool) -> Callable[..., Any]:
        def wrapped(path: Any = ".", *args: Any, **options: Any) -> Any:
            whole = str(self._partition)
            is_about = str(path) == whole or str(path).startswith(f"{whole}/")
            if is_about and self._is_listed:
                if self.calls == self._before:
                    self._is_listed = False  # what the change itself calls
                    self._change(self._partition)
                    self._before = None
                self.calls += 1
            result = call(path, *args, **options)
            self._is_listed |= is_listing and str(path) == whole and self._before is not None
            return result

        return wrapped


def others(done: Result) -> set[bytes]:
    """Return the rows about the other partitions."""
    about = (b"orders", b"log_dir", b"summary", b"group", b"PAGE", b"/to ")  # sums, too
    return {row for row in done.stdout.splitlines() if not any(one in row for one in about)}


def try_change(
    name: str, change: Change, before: int | None, tmp_path: Path, kafkalog: Run
) -> tuple[Result, int]:
    """Run a line over a directory in which a partition is changed before one of the calls."""
    log_dir, to = tmp_path.resolve() / "log-dir", tmp_path / "to"
    shutil.rmtree(log_dir, ignore_errors=True)
    shutil.copytree(EXAMPLE, log_dir)
    to.unlink(missing_ok=True)
    words = [word.format(dir=log_dir, to=to, example=EXAMPLE) for word in LINES[name].split()]
    words = ["select * from records" if word == "SELECT" else word for word in words]
    with pytest.MonkeyPatch.context() as patch:
        changes = Changes(patch, log_dir / VICTIM, change, -1 if before is None else before)
        return kafkalog(*words), changes.calls


@pytest.mark.parametrize("change", [deleted, removed, shortened])
@pytest.mark.parametrize("name", LINES)
def test_a_vanishing_file_is_no_error(name: str, change: Change, tmp_path: Path, kafkalog: Run):
    whole, count = try_change(name, change, None, tmp_path, kafkalog)
    assert whole.status == 0, whole
    assert count > 10
    for part in (0, 0.25, 0.4, 0.55, 0.7, 0.85, 1):
        before = round(part * (count - 1))
        done, _ = try_change(name, change, before, tmp_path, kafkalog)
        # A copy that is gone on one side is a difference, and a report says what is absent.
        is_finding = name in ("diff", "sql", "report")
        assert done.status in ((0, 1) if is_finding else (0,)), (before, done)
        assert others(done) >= others(whole), (before, done)


def test_what_is_in_another_place_now_is_not_said_to_be_deleted(tmp_path: Path, kafkalog: Run):
    """It is given as well, but was listed before the partition came there: rows are missing."""
    one, other = tmp_path.resolve() / "one", tmp_path.resolve() / "other"
    for before in (20, 30, 40):
        for path in (one, other):
            shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(EXAMPLE, one)
        shutil.copytree(EXAMPLE, other, ignore=shutil.ignore_patterns(VICTIM))
        with pytest.MonkeyPatch.context() as patch:
            Changes(patch, one / VICTIM, lambda path: shutil.move(path, other / VICTIM), before)
            done = kafkalog("dump-segment", other, one, "--topic", "orders", "--format", "ndjson")
        assert done.status == 3 or len(done.stdout.splitlines()) == 1000, (before, done)
