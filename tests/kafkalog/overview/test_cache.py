"""Scripts of pages are cached where nobody else can write, or not at all."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from kafkalog.overview import cache
from kafkalog.overview.cache import cache_directory, keep, read_kept

if TYPE_CHECKING:
    from pathlib import Path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_it_is_made_for_this_user_alone(tmp_path: Path):
    """This holds for any umask; the directories above it stay as they are."""
    before = os.umask(0)
    try:
        path = cache_directory({"XDG_CACHE_HOME": str(tmp_path / "x")})
    finally:
        os.umask(before)
    assert path == str(tmp_path / "x" / "kafkalog")
    assert mode(tmp_path / "x" / "kafkalog") == 0o700


def test_home_is_the_second_choice(tmp_path: Path):
    """The XDG rules apply: a relative path does not count."""
    wanted = str(tmp_path / ".cache" / "kafkalog")
    assert cache_directory({"HOME": str(tmp_path)}) == wanted
    assert cache_directory({"HOME": str(tmp_path), "XDG_CACHE_HOME": "here"}) == wanted
    assert cache_directory({}) is None


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the message of a refusal."""
    words: list[str] = []
    monkeypatch.setattr(cache, "on_refused", [words.append])
    return words


@pytest.mark.parametrize("open_to", [0o777, 0o770, 0o702])
def test_a_directory_that_others_can_write_is_refused_as_it_is(
    tmp_path: Path, refused: list[str], open_to: int
):
    """A script from others would be in our pages; closing the directory now does not help."""
    path = tmp_path / "kafkalog"
    path.mkdir(parents=True)
    path.chmod(open_to)
    assert cache_directory({"XDG_CACHE_HOME": str(tmp_path)}) is None
    assert mode(path) == open_to
    assert refused == [f"the scripts of pages cannot be cached: others can write to {path}"]
    assert read_kept(str(path / "x.js")) is None
    keep(str(path / "x.js"), b"code")
    assert not list(path.iterdir())


def test_a_file_that_others_can_write_is_not_read(tmp_path: Path, refused: list[str]):
    """Neither is a link, nor a FIFO, which would hang; a file of ours replaces it."""
    path = tmp_path / "kafkalog" / "x.js"
    assert cache_directory({"XDG_CACHE_HOME": str(tmp_path)})
    keep(str(path), b"code")
    assert (read_kept(str(path)), mode(path)) == (b"code", 0o600)
    path.chmod(0o666)
    assert read_kept(str(path)) is None
    assert refused == [f"the scripts of pages cannot be cached: others can write to {path}"]
    other = tmp_path / "other"
    path.rename(other)
    other.chmod(0o600)
    path.symlink_to(other)
    assert read_kept(str(path)) is None
    path.unlink()
    os.mkfifo(path)
    assert read_kept(str(path)) is None
    keep(str(path), b"code")
    assert read_kept(str(path)) == b"code"


@pytest.mark.parametrize("what", ["directory", "file"])
def test_what_belongs_to_another_user_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
):
    """Its owner can write to it, even if it is private."""
    path = tmp_path / "kafkalog" / "x.js"
    assert cache_directory({"XDG_CACHE_HOME": str(tmp_path)})
    keep(str(path), b"code")
    if os.geteuid() == 0:
        os.chown(path if what == "file" else path.parent, 12345, 12345)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert read_kept(str(path)) is None


def test_a_link_or_a_file_is_not_used(tmp_path: Path):
    """A link could lead to a directory in which somebody else writes."""
    (tmp_path / "other").mkdir(mode=0o700)
    (tmp_path / "kafkalog").symlink_to(tmp_path / "other")
    assert cache_directory({"XDG_CACHE_HOME": str(tmp_path)}) is None
    (tmp_path / "file").write_bytes(b"")
    assert cache_directory({"XDG_CACHE_HOME": str(tmp_path / "file")}) is None


def test_somebody_elses_directory_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Its owner can put scripts into it."""
    assert cache_directory({"XDG_CACHE_HOME": str(tmp_path)})
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert cache_directory({"XDG_CACHE_HOME": str(tmp_path)}) is None
