"""Compiled kernels are kept where nobody else can put any, or nowhere."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from kafkalog.columnar.cache import cache_directory

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_it_is_made_for_this_user_alone(tmp_path: Path):
    """Whatever the umask; what is above it stays as it is."""
    before = os.umask(0)
    try:
        path = cache_directory({"XDG_CACHE_HOME": str(tmp_path / "x")})
    finally:
        os.umask(before)
    assert path == str(tmp_path / "x" / "kafkalog")
    assert mode(tmp_path / "x" / "kafkalog") == 0o700


def test_home_is_the_second_choice(tmp_path: Path):
    """As the XDG rules have it: a relative path counts as none."""
    wanted = str(tmp_path / ".cache" / "kafkalog")
    assert cache_directory({"HOME": str(tmp_path)}) == wanted
    assert cache_directory({"HOME": str(tmp_path), "XDG_CACHE_HOME": "here"}) == wanted
    assert cache_directory({}) is None


def test_a_directory_open_to_others_is_closed(tmp_path: Path):
    """It is ours, so it may be."""
    path = tmp_path / "kafkalog"
    path.mkdir(parents=True)
    path.chmod(0o777)
    assert cache_directory({"XDG_CACHE_HOME": str(tmp_path)}) == str(path)
    assert mode(path) == 0o700


def test_a_link_or_a_file_is_not_used(tmp_path: Path):
    """A link could lead to where somebody else writes."""
    (tmp_path / "other").mkdir(mode=0o700)
    (tmp_path / "kafkalog").symlink_to(tmp_path / "other")
    assert cache_directory({"XDG_CACHE_HOME": str(tmp_path)}) is None
    (tmp_path / "file").write_bytes(b"")
    assert cache_directory({"XDG_CACHE_HOME": str(tmp_path / "file")}) is None


def test_somebody_elses_directory_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Whoever owns it can put code in."""
    assert cache_directory({"XDG_CACHE_HOME": str(tmp_path)})
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert cache_directory({"XDG_CACHE_HOME": str(tmp_path)}) is None
