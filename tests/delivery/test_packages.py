"""The wheel and the archive of sources: the same commit gives the same bytes, wherever it is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from typing import TYPE_CHECKING

import pytest

from delivery.bundle import glibc_needed
from docgen.manual import COMPLETIONS, MANUAL, manual_pages
from kafkalog.io.jit import library
from kafkalog_cli.version import commit
from tests.delivery.conftest import TIME, built, checkout
from tests.sampling import tries_everything

if TYPE_CHECKING:
    from pathlib import Path


def test_the_same_commit_gives_the_same_bytes(tmp_path: Path):
    """Neither the directory, the times and modes of files nor the umask matter.

    The archive of the sources gives the same wheel. Its kernels are taken from this checkout here;
    `test_packages_with_kernels_of_their_own` compiles them.
    """
    name = checkout(tmp_path / "one")
    first = built(tmp_path / "one", tmp_path / "to1", "--sdist", "--wheel")
    place = tmp_path / "another-place"
    assert checkout(place) == name
    what = ["--sdist", "--wheel"] if tries_everything() else ["--sdist"]
    second = built(place, tmp_path / "to2", *what, umask=0o077)
    assert len(second) == len(what)
    assert second.items() <= first.items()
    [archive] = (tmp_path / "to1").glob("*.tar.gz")
    [wheel] = (tmp_path / "to1").glob("*.whl")
    with tarfile.open(archive) as members:
        assert {(one.mtime, one.uid, one.uname) for one in members.getmembers()} == {(TIME, 0, "")}
        assert not [one for one in members.getnames() if one.endswith(".so")]
        assert f"{archive.name.removesuffix('.tar.gz')}/tests/delivery/conftest.py" in (
            members.getnames()
        )
        members.extractall(tmp_path, filter="data")
    place = tmp_path / archive.name.removesuffix(".tar.gz")
    again = built(place, tmp_path / "to3", "--wheel", umask=0o077)
    assert again == {wheel.name: first[wheel.name]}
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", archive, wheel], check=True)
    with zipfile.ZipFile(wheel) as members:
        assert members.read("kafkalog_cli/commit.txt").decode() == f"{name} {TIME}\n"
        for level in library.levels():
            assert f"kafkalog/io/jit/{library.library_file(level)}" in members.namelist()
        assert not [one for one in members.namelist() if one.startswith(("tests/", "delivery/"))]
        members.extractall(tmp_path / "unpacked")  # noqa: S202 # it was just built here
    data = tmp_path / "unpacked" / "kafkalog-0.1.0.data" / "data"
    texts = {str(one.relative_to(data)): one for one in data.rglob("*") if one.is_file()}
    assert {*texts} == {*manual_pages(), *COMPLETIONS.values()}
    assert f"kafkalog 0.1.0 ({name})" in texts[MANUAL].read_text()
    assert wheel.name.endswith(f"-py3-none-manylinux_2_17_{os.uname().machine}.whl")
    assert int(glibc_needed(tmp_path / "unpacked").removeprefix("2.")) <= 17


@pytest.mark.thorough("tests/delivery/test_packages.py::test_the_same_commit_gives_the_same_bytes")
def test_packages_with_kernels_of_their_own(tmp_path: Path):
    """`python -m build`, whole and twice, with all that it asks for."""
    checkout(tmp_path / "one")
    found = []
    for number in (1, 2):
        to = tmp_path / f"to{number}"
        subprocess.run([sys.executable, "-m", "build", "--outdir", to, tmp_path / "one"],
                       check=True, capture_output=True)  # fmt: skip
        found.append({path.name: path.read_bytes() for path in to.iterdir()})
    assert found[0] == found[1]
    assert len(found[0]) == 2


def test_the_version_has_the_commit(tmp_path: Path, kafkalog):
    """That of git in a checkout, marked if files were changed; that of the file in a build."""
    known = commit()
    shown = kafkalog("--version").stdout.decode()
    assert shown.startswith("0.1.0")
    assert known is None or shown == f"0.1.0 ({known.name})\n"
    place = tmp_path / "one"
    name = checkout(place)
    code = "from kafkalog_cli.version import commit; print(commit())"

    def told() -> str:
        done = subprocess.run([sys.executable, "-c", code], cwd=place, check=True,
                              capture_output=True, text=True)  # fmt: skip
        return done.stdout.strip()

    assert told() == f"Commit(name='{name}', time={TIME})"
    (place / "README.md").write_text("changed")
    assert told() == f"Commit(name='{name}-dirty', time={TIME})"
    (place / "kafkalog_cli" / "commit.txt").write_text("abc 7\n")
    assert told() == "Commit(name='abc', time=7)"
    for spoiled in ("", "abc", "abc seven"):
        (place / "kafkalog_cli" / "commit.txt").write_text(spoiled)
        assert "dirty" in told()
    (place / "kafkalog_cli" / "commit.txt").unlink()
    shutil.rmtree(place / ".git")
    assert told() == "None"
