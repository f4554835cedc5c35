"""A command's files belong to the owner of what they replace, or of the log directory."""

from __future__ import annotations

import os
import stat
from itertools import product
from typing import TYPE_CHECKING

import pytest

from kafkalog.change.compaction.log_dirs import working_copy
from kafkalog.change.journal import Run
from kafkalog.change.rescue import salvage
from kafkalog.errors import RefusedError
from kafkalog.files.log_dir import open_path
from kafkalog.io.storage import Changes
from tests.crash.commands import CLEANER_OFFSETS, COMMANDS, Command, run_undo, swap
from tests.kafkalog.change.journal.test_undo import everything

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Result

IS_ROOT = os.geteuid() == 0
OWNER = (12345, 23456) if IS_ROOT else (os.getuid(), os.getgid())
CHANGING = (
    "retention", "compact-by-tasks", "compact-by-tasks-in-buckets",
    "compact-transactions-in-three-groups", "recover-unclean-crc_active_mid",
    "recover-unclean-logstart_above_leo", "recover-full-offset_overflow_split",
    "recover-clean-index_missing_all", "rebuild-index", "swap-with-backup",
)  # fmt: skip


def given_away(top: Path) -> None:
    """Give a tree to the broker's user, without access for others."""
    for path in (top, *top.rglob("*")):
        if IS_ROOT:
            os.chown(path, *OWNER)
        path.chmod(0o750 if path.is_dir() else 0o640)


def strangers(top: Path) -> dict[str, tuple[int, int, str]]:
    """Return the files that do not belong to the broker's user, or that others can access."""
    found = {}
    for path in (top, *top.rglob("*")):
        status = path.stat()
        mode = stat.S_IMODE(status.st_mode)
        if (status.st_uid, status.st_gid) != OWNER or mode & ~(0o750 if path.is_dir() else 0o640):
            found[str(path.relative_to(top))] = (status.st_uid, status.st_gid, oct(mode))
    return found


@pytest.mark.parametrize("name", CHANGING)
def test_a_changed_log_directory_stays_its_owners(
    corpus_dir: Path, tmp_path: Path, name: str
) -> None:
    """New segments, indexes and checkpoints, too: a broker that is not root could not start."""
    command = next(command for command in COMMANDS if command.name == name)
    log_dir = command.ready(corpus_dir, tmp_path)
    for checkpoint in log_dir.glob("*-checkpoint"):
        if checkpoint.name != CLEANER_OFFSETS:
            checkpoint.unlink()  # one that is made has nothing to take after
    (log_dir / ".lock").unlink(missing_ok=True)
    given_away(log_dir)
    command.run(tmp_path, None)
    assert strangers(log_dir) == {}
    if (tmp_path / "backup").exists():
        run_undo(tmp_path)
        assert strangers(log_dir) == {}


def test_a_new_checkpoint_is_the_owners_of_the_directory(tmp_path: Path) -> None:
    """It replaces nothing; its permissions are at most those of the directory."""
    given_away(tmp_path)
    before = os.umask(0)
    try:
        Changes(str(tmp_path)).replace("log-start-offset-checkpoint", b"0\n0\n")
    finally:
        os.umask(before)
    assert strangers(tmp_path) == {}


def test_results_in_new_directories_are_the_owners_of_the_source(
    corpus_dir: Path, tmp_path: Path
) -> None:
    """What is salvaged or copied from a closed directory is not readable by all."""
    log_dir = Command("", swap).ready(corpus_dir, tmp_path)
    given_away(log_dir)
    salvage(open_path(str(log_dir)), str(tmp_path / "salvaged"))
    assert strangers(tmp_path / "salvaged") == {}
    target = open_path(str(log_dir))
    with working_copy(target, str(tmp_path / "copied")):
        pass
    assert strangers(tmp_path / "copied") == {}


def test_a_checkpoint_that_is_a_link_is_refused(corpus_dir: Path, tmp_path: Path) -> None:
    """A replacement would get the permissions of the link, 0777, and leave its target behind."""
    log_dir = Command("", swap).ready(corpus_dir, tmp_path)
    (log_dir / CLEANER_OFFSETS).rename(tmp_path / "elsewhere")
    (log_dir / CLEANER_OFFSETS).symlink_to(tmp_path / "elsewhere")
    before = everything(log_dir)
    with pytest.raises(RefusedError) as caught, Run(str(log_dir)):
        pass
    assert caught.value.path == str(log_dir / CLEANER_OFFSETS)
    with pytest.raises(RefusedError):
        Changes(str(log_dir)).replace(CLEANER_OFFSETS, b"0\n0\n")
    assert everything(log_dir) == before


@pytest.mark.parametrize(
    ("command", "how"),
    [
        *product(("compact", "recover"), ((), ("--apply",))),
        ("retention", ("--apply",)),  # its plan only reads
    ],
)
def test_commands_refuse_a_checkpoint_that_is_a_link(
    corpus_dir: Path,
    tmp_path: Path,
    kafkalog: Callable[..., Result],
    command: str,
    how: tuple[str, ...],
) -> None:
    """Both a plan under the lock and the change end with status 4, and the link stays."""
    log_dir = Command("", swap).ready(corpus_dir, tmp_path)
    (log_dir / CLEANER_OFFSETS).rename(tmp_path / "elsewhere")
    (log_dir / CLEANER_OFFSETS).symlink_to(tmp_path / "elsewhere")
    found = kafkalog(command, log_dir, *how)
    assert (found.status, found.stderr.split("\n")[0]) == (4, "error: refused")
    assert (log_dir / CLEANER_OFFSETS).is_symlink()


@pytest.mark.parametrize("name", ["../x", "a/b", "..", "", "/x"])
def test_changes_take_names_of_files_alone(tmp_path: Path, name: str) -> None:
    """No step can leave the directory."""
    (tmp_path / "in").mkdir()
    (tmp_path / "x").write_text("x")
    changes = Changes(str(tmp_path / "in"))
    for step in (
        lambda: changes.remove(name, missing_ok=True),
        lambda: changes.rename(name, "y"),
        lambda: changes.rename("y", name),
        lambda: changes.link(str(tmp_path / "x"), name),
        lambda: changes.make_directory(name),
        lambda: changes.remove_directory(name),
        lambda: changes.truncate(name, 0),
        lambda: changes.exchange(name, "y"),
        lambda: changes.replace(name, b""),
    ):
        with pytest.raises(RefusedError):
            step()
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == ["in", "x"]


def test_a_directory_that_became_a_link_is_not_followed(tmp_path: Path) -> None:
    """Somebody replaces it by a link between two steps."""
    (tmp_path / "t-0").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "x").write_text("x")
    changes = Changes(str(tmp_path / "t-0"))
    (tmp_path / "t-0").rmdir()
    (tmp_path / "t-0").symlink_to(tmp_path / "other")
    with pytest.raises(Exception, match="Not a directory"):
        changes.remove("x")
    with pytest.raises(Exception, match="Not a directory"):
        changes.replace("y", b"")
    assert os.listdir(tmp_path / "other") == ["x"]
