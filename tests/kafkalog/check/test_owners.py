"""Files that a broker under its own user could not open are named, also to root.

The owners are what `os.stat` is made to say: only root may give files away.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.check import owners
from kafkalog.check.verify import Verification
from kafkalog.model import Level, Severity
from tests.builders import copy_tree

if TYPE_CHECKING:
    from collections.abc import Callable

KAFKA = 1000
PARTITION = "txn-0"
LOG = f"{PARTITION}/00000000000000000119.log"

Says = tuple[int, int, int]
"""User, group and permissions."""


@pytest.fixture
def log_dir(corpus_dir: Path, tmp_path: Path) -> Path:
    return copy_tree(corpus_dir / "kafka-4.3" / "txn", tmp_path / "txn")


def found(
    log_dir: Path, patch: pytest.MonkeyPatch, says: Callable[[str, bool], Says]
) -> dict[str, str]:
    """Return the findings by path in the log directory.

    `says` gets a path and whether it is a directory, and returns its owner, group and mode.
    """

    def status(path: str) -> os.stat_result | None:
        real = os.stat(path)
        is_directory = Path(path).is_dir()
        uid, gid, mode = says(os.path.relpath(path, log_dir), is_directory)
        kind = real.st_mode & ~0o7777
        return os.stat_result((kind | mode, *real[1:4], uid, gid, *real[6:]))

    patch.setattr(owners, "_status", status)
    rows: list[Any] = [
        one for one in Verification(Level.QUICK).verify(log_dir) if one.reference == "owner-differs"
    ]
    assert all(one.severity == Severity.WARNING for one in rows)
    return {os.path.relpath(one.path, log_dir): one.detail for one in rows}


def usual(_: str, is_directory: bool) -> Says:
    return KAFKA, KAFKA, 0o755 if is_directory else 0o644


@pytest.mark.parametrize("owner", [KAFKA, 0])
def test_one_owner_is_no_finding(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch, owner: int
) -> None:
    """Also if it is root, and none of the files may be written: that is a copy."""
    for mode in (0o600, 0o444):
        assert not found(log_dir, monkeypatch, lambda _, is_dir, mode=mode: (
            owner, owner, 0o755 if is_dir else mode
        ))  # fmt: skip


@pytest.mark.parametrize(("says", "closed"), [
    ((0, 0, 0o600), True), ((0, 0, 0o644), True), ((0, 0, 0o666), False),
    ((0, KAFKA, 0o660), False), ((0, KAFKA, 0o640), True), ((KAFKA, 0, 0o600), False),
    ((KAFKA, KAFKA, 0o400), True), ((0, 0, 0o602), True),
])  # fmt: skip
def test_a_log_that_the_broker_cannot_write(
    log_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    says: Says,
    closed: bool,
) -> None:
    rows = found(
        log_dir, monkeypatch, lambda path, is_dir: says if path == LOG else usual(path, is_dir)
    )
    assert rows.keys() == ({LOG} if closed else set())
    if closed:
        assert rows[LOG] == (
            f"It belongs to user {says[0]}, group {says[1]}, with mode {says[2]:03o}: user {KAFKA} "
            "cannot read and write it."
        )


@pytest.mark.parametrize("name", [
    f"{PARTITION}/leader-epoch-checkpoint", f"{PARTITION}/partition.metadata", "meta.properties",
    "replication-offset-checkpoint",
])  # fmt: skip
def test_small_files_need_to_be_read(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """They are replaced as a whole."""
    for mode, closed in ((0o600, {name}), (0o644, set())):
        rows = found(log_dir, monkeypatch, lambda path, is_dir, mode=mode: (
            (0, 0, mode) if path == name else usual(path, is_dir)
        ))  # fmt: skip
        assert rows.keys() == closed


def test_a_partition_that_root_restored(log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its directory says it all, if that is root's, too; else each of its files does."""

    def of_root(path: str, is_dir: bool) -> Says:
        is_inside = path == PARTITION or path.startswith(f"{PARTITION}/")
        return (0, 0, 0o755 if is_dir else 0o600) if is_inside else usual(path, is_dir)

    assert found(log_dir, monkeypatch, of_root).keys() == {PARTITION}
    rows = found(log_dir, monkeypatch, lambda path, is_dir: (
        usual(path, is_dir) if is_dir else of_root(path, is_dir)
    ))  # fmt: skip
    assert rows.keys() == {f"{PARTITION}/{one.name}" for one in (log_dir / PARTITION).iterdir()}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_real_owners(log_dir: Path) -> None:
    """Root can read it: nothing else would say so."""
    for one in (log_dir, *log_dir.rglob("*")):
        os.chown(one, KAFKA, KAFKA)
    os.chown(log_dir / LOG, 0, 0)
    (log_dir / LOG).chmod(0o600)
    rows = [
        one for one in Verification(Level.QUICK).verify(log_dir) if one.reference == "owner-differs"
    ]
    assert [one.path for one in rows] == [str(log_dir / LOG)]
