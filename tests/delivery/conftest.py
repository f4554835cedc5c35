"""Checkouts to build in, and the wheel that all tests of what is delivered share."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.checkout import ROOT

if TYPE_CHECKING:
    from pathlib import Path

FOLDERS = (
    "delivery", "docgen", "formats", "kafkalog", "kafkalog_cli", "pyspark_kafkalog",
    "tests/delivery",
)  # fmt: skip
FILES = ("LICENSE", "MANIFEST.in", "README.md", "pyproject.toml", "setup.py")
TIME = 1_700_000_000
IDENTITY = {
    "GIT_AUTHOR_DATE": f"{TIME} +0000", "GIT_COMMITTER_DATE": f"{TIME} +0000",
    "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@b", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1",
}  # fmt: skip


def checkout(place: Path) -> str:
    """Make a checkout of these sources with one commit; return its name."""
    place.mkdir()
    for name in FILES:
        shutil.copyfile(ROOT / name, place / name)
    ignored = shutil.ignore_patterns("__pycache__", "*.so*")
    for name in FOLDERS:
        shutil.copytree(ROOT / name, place / name, ignore=ignored, copy_function=shutil.copyfile)
    (place / ".gitignore").write_text("*.so\nbuild/\n*.egg-info/\n")
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "one"]):
        subprocess.run(["git", *words], cwd=place, check=True, env=os.environ | IDENTITY)
    described = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], cwd=place, check=True,
                               capture_output=True, text=True)  # fmt: skip
    return described.stdout.strip()


def built(place: Path, to: Path, *what: str, umask: int = 0o022) -> dict[str, str]:
    """Build there with the packages of this environment; return the SHA-256 of each file."""
    for path in (ROOT / "kafkalog" / "io" / "jit").glob(
        "*.so"
    ):  # else each build compiles for a minute
        shutil.copy(path, place / "kafkalog" / "io" / "jit" / path.name)
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", *what, "--outdir", to, "."],
        cwd=place, check=False, capture_output=True, text=True, umask=umask,
        env={name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in to.iterdir()}


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of these sources; with several test processes the first one builds it for all."""
    base = tmp_path_factory.getbasetemp()
    if base.name.startswith("popen-"):
        base = base.parent
    with (base / "wheel.lock").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        if not (base / "wheel").exists():
            checkout(base / "wheel-sources")
            built(base / "wheel-sources", base / "wheel", "--wheel")
    [path] = (base / "wheel").glob("*.whl")
    return path
