"""The wheel brings its kernels: their tests pass without numba, a compiler and a checkout."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.delivery.conftest import ROOT
from tests.sampling import tries_everything

if TYPE_CHECKING:
    from pathlib import Path

INSTALLED_SIZE_MAX = 90_000_000  # without compiled modules, which `pip` adds
QUICK = [
    "tests/kafkalog/log/columns/test_fact_twins.py",
    "tests/kafkalog/log/columns/test_unpacking.py",
]


def all_suites() -> list[str]:
    """Return what the Makefile has between guard pages, but for what looks at the sources."""
    found = re.search(
        r"^KERNEL_SUITES := ((?:.*\\\n)*.*)", (ROOT / "Makefile").read_text(), re.MULTILINE
    )
    assert found
    names = found[1].replace("\\\n", " ").split()
    assert all((ROOT / name).exists() for name in names)
    return [*names, "--ignore=tests/kafkalog/log/columns/test_native.py"]


def plain_environ() -> dict[str, str]:
    """Return the environment without what leads to this checkout, as a test before may have set.

    With PYTHONPATH, pip takes the checkout for an installed kafkalog.
    """
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST", "PYTHON", "KAFKALOG"))
    }


def install(python: Path, *what: str | Path) -> None:
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-compile"]
    words = [*pip, "--constraint", ROOT / "constraints.txt", *what]
    subprocess.run(words, check=True, env=plain_environ())


def test_kernels_of_the_wheel(wheel: Path, tmp_path: Path):
    """Those of reading facts and decompressing; `make test-all` runs all.

    What a user installs without extras stays small: most of it is numpy.
    """
    environment = tmp_path / "environment"
    python = environment / "bin" / "python"
    suites, more = (all_suites(), ["fastavro", "polars"]) if tries_everything() else (QUICK, [])
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    install(python, wheel)
    packages = next((environment / "lib").glob("python*/site-packages"))
    size = sum(path.stat().st_size for path in packages.rglob("*") if not path.is_symlink())
    assert size < INSTALLED_SIZE_MAX, f"{size:,}"
    install(python, "pyarrow", "pytest", "pytest-xdist", "hypothesis", "zstandard", *more)
    found = "import importlib.util as i, kafkalog; print(i.find_spec('numba'), kafkalog.__file__)"
    place = tmp_path / "place"
    shutil.copytree(ROOT / "tests", place / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "examples", place / "examples")
    shutil.copyfile(ROOT / "pyproject.toml", place / "pyproject.toml")
    inherited = plain_environ()
    told = subprocess.run([python, "-c", found], check=True, capture_output=True, text=True,
                          cwd=place, env=inherited)  # fmt: skip
    assert told.stdout.startswith(f"None {environment}")
    done = subprocess.run(
        [python, "-m", "pytest", "-q", *suites],
        check=False, capture_output=True, text=True, cwd=place, env=inherited,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-9000:] + done.stderr
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout, done.stdout
