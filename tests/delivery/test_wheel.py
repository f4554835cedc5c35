"""The wheel brings its kernels: their tests pass without numba, a compiler and a checkout."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import Distribution, distribution, distributions
from typing import TYPE_CHECKING

from packaging.requirements import Requirement

from tests.delivery.conftest import ROOT
from tests.sampling import tries_everything

if TYPE_CHECKING:
    from pathlib import Path

INSTALLED_SIZE_MAX = 90_000_000  # without compiled modules, which `pip` adds
WITH_TESTS = ["pyarrow", "pytest", "pytest-xdist", "hypothesis", "zstandard"]
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


def needed(found: Distribution) -> list[str]:
    """Return the names of the packages that one needs without extras."""
    asked = map(Requirement, found.requires or ())
    return [one.name for one in asked if not one.marker or one.marker.evaluate({"extra": ""})]


def link(packages: Path, *names: str) -> int:
    """Link packages of this environment, and what they need; return the size of all files.

    They come from the same constraints.
    """
    asked, known, size = [*names], set(), 0
    while asked:
        found = distribution(asked.pop())
        if found.name in known:
            continue
        known.add(found.name)
        paths = [path for path in found.files or () if path.suffix != ".pyc"]
        size += sum(os.path.getsize(path.locate()) for path in paths)
        for top in {path.parts[0] for path in paths} - {"..", "__pycache__"}:
            if not (packages / top).exists():
                (packages / top).symlink_to(str(found.locate_file(top)))
        asked += needed(found)
    return size


def test_kernels_of_the_wheel(wheel: Path, tmp_path: Path):
    """Those of reading facts and decompressing; `make test-all` runs all.

    What a user installs without extras stays small: most of it is numpy. In a sample, the packages
    that it needs are those of this environment; `test_bundle.py` lets pip install them.
    """
    environment = tmp_path / "environment"
    python = environment / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    packages = next((environment / "lib").glob("python*/site-packages"))
    install(python, wheel, *([] if tries_everything() else ["--no-deps"]))
    size = sum(path.stat().st_size for path in packages.rglob("*") if not path.is_symlink())
    if not tries_everything():
        [own] = distributions(name="kafkalog", path=[str(packages)])
        size += link(packages, *needed(own))
    assert size < INSTALLED_SIZE_MAX, f"{size:,}"
    if tries_everything():
        suites = all_suites()
        install(python, *WITH_TESTS, f"{wheel}[schemas]", "fastavro", "jsonschema", "polars")
    else:
        suites = QUICK
        link(packages, *WITH_TESTS)
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
