"""`python -m tests.pythons`: the wheel of these sources on every Python from 3.11 on that is here.

Each gets an environment of its own with the wheel, without numba and a compiler, and runs the tests
of formats and of kernels. The status is 1 if one fails, or if none is found but this one.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.delivery.conftest import ROOT, built, checkout

PLACE = ROOT / "build" / "pythons"
NUMBERS = ("3.11", "3.12", "3.13", "3.14")
NEEDED = ("hypothesis", "polars", "pytest", "pytest-xdist", "zstandard")
SUITES = (
    "tests/formats", "tests/kafkalog/log/columns/test_fact_twins.py",
    "tests/kafkalog/log/columns/test_unpacking.py", "tests/kafkalog/test_codecs.py",
    "tests/kafkalog/test_records.py", "tests/kafkalog_cli/test_dump_both_ways.py",
)  # fmt: skip


def found() -> dict[str, Path]:
    """Return the interpreters on the path and of pyenv, one for each number."""
    homes = [Path(one) for one in os.environ["PATH"].split(os.pathsep)]
    homes += sorted((Path.home() / ".pyenv" / "versions").glob("*/bin"))
    return {
        number: home / f"python{number}"
        for number in NUMBERS for home in homes
        if works(home / f"python{number}")
    }  # fmt: skip


def works(python: Path) -> bool:
    """Return whether an interpreter is there; pyenv has scripts for some that are not."""
    if not python.exists():
        return False
    return not subprocess.run([python, "-c", ""], check=False, capture_output=True).returncode


def main() -> int:
    """Build the wheel, and run the tests with each Python."""
    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.mkdir(parents=True)
    checkout(PLACE / "sources")
    built(PLACE / "sources", PLACE / "wheel", "--wheel")
    [wheel] = (PLACE / "wheel").glob("*.whl")
    tests = PLACE / "tests"
    shutil.copytree(ROOT / "tests", tests, ignore=shutil.ignore_patterns("__pycache__", "target"))
    shutil.copyfile(ROOT / "pyproject.toml", PLACE / "pyproject.toml")
    inherited = {name: value for name, value in os.environ.items()
                 if not name.startswith(("PYTEST", "PYTHON", "KAFKALOG"))}  # fmt: skip
    passed, failed = 0, 0
    pythons = found()
    for number, interpreter in pythons.items():
        home = PLACE / number
        subprocess.run([interpreter, "-m", "venv", home], check=True)
        python = home / "bin" / "python"
        line = [python, "-m", "pip", "install", "--quiet", f"{wheel}[arrow]", *NEEDED]
        subprocess.run(line, check=True)
        done = subprocess.run(
            [python, "-m", "pytest", "-q", "-n", "auto", *SUITES],
            cwd=PLACE, env=inherited, check=False, capture_output=True, text=True,
        )  # fmt: skip
        last = (done.stdout.strip().splitlines() or [done.stderr])[-1]
        print(f"Python {number}: {last}" if done.returncode == 0 else done.stdout, flush=True)
        passed += sum(map(int, re.findall(r"(\d+) passed", last)))
        failed += done.returncode != 0
    print(f"Pythons: {', '.join(pythons)}")
    print(f"{failed} failed, {passed} passed")
    return int(failed > 0 or len(pythons) < 2)


if __name__ == "__main__":
    sys.exit(main())
