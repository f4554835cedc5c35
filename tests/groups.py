"""`make test-all`: every test with every case, in groups that can be run one by one.

`python -m tests.groups [GROUP ...]` runs the groups named, or all that have not passed on these
sources yet. It ends with status 1 if one fails. What each did is in `build/test-all/summary.txt`.
A group that was stopped goes on with the tests that have not passed on these sources.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime

import pytest

from formats.releases import releases
from tests import passes
from tests.checkout import ROOT
from tests.sampling import TIER_VARIABLE

PLACE = ROOT / "build" / "test-all"
PYTEST = [sys.executable, "-m", "pytest", "-n", "auto", "--durations=10"]


@dataclass(frozen=True)
class Group:
    """Tests that run together.

    Attributes:
        paths: what pytest is given, relative to the root; the group `plain` has what is in no
            other group.
        environ: more variables.
        command: what is run in place of pytest.
    """

    paths: tuple[str, ...] = ()
    environ: dict[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()


def kernel_suites() -> tuple[str, ...]:
    """Return the tests that run every kernel, on sound and on damaged batches."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    [named] = re.findall(r"^KERNEL_SUITES := ((?:.*\\\n)*.*)", text, re.MULTILINE)
    return tuple(named.replace("\\\n", " ").split())


def _matching(pattern: str) -> tuple[str, ...]:
    return tuple(sorted(str(path.relative_to(ROOT)) for path in ROOT.glob(pattern)))


_ON_SPARK = _matching("tests/kafka/test_spark_kafka_*.py")
_CLIENTS = "tests/kafka/serve/test_clients.py"
_WITH_KAFKA = tuple(
    one for one in _matching("tests/kafka/**/test_*.py") if one not in (*_ON_SPARK, _CLIENTS)
)
_OLDER = {
    f"kafka-{one.name}": Group(_WITH_KAFKA, {"KAFKALOG_KAFKA": one.name}) for one in releases()[1:]
}
GROUPS = {
    "plain": Group(),
    "kafka": Group(_WITH_KAFKA),
    **_OLDER,
    "spark": Group(("tests/spark", *_ON_SPARK)),
    "crash": Group(("tests/crash", *_matching("tests/kafkalog/*/test_crashes.py"))),
    "foreign": Group(("tests/foreign", _CLIENTS)),
    "browser": Group(("tests/browser",)),
    "delivery": Group(("tests/delivery",)),
    "guarded": Group(kernel_suites(), {"KAFKALOG_GUARDED": "1"}),
    "pythons": Group(command=(sys.executable, "-m", "tests.pythons")),
    "aarch64": Group(command=(sys.executable, "-m", "tests.aarch64")),
}
_SHARED = ("guarded", "pythons", "aarch64", *_OLDER)
"""Groups that run tests of other groups in another way."""


@dataclass(frozen=True)
class Outcome:
    """What a group did.

    Attributes:
        of: the sources that it ran on.
        status: of pytest, or of the command.
        passed: how many tests passed, also before the group was stopped.
        failed: how many failed.
        skipped: how many were skipped.
        seconds: how long the last run took.
        ended: when, ISO 8601 in UTC.
    """

    of: str
    status: int
    passed: int
    failed: int
    skipped: int
    seconds: float
    ended: str


def plain_arguments() -> list[str]:
    """Return what leaves out the tests of all other groups."""
    others = [one for name, one in GROUPS.items() if name not in ("plain", *_SHARED)]
    return ["tests", *(f"--ignore={path}" for one in others for path in one.paths)]


def sources() -> str:
    """Return a name of the sources as they are in this checkout, committed or not."""

    def git(*words: str) -> bytes:
        return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True).stdout

    head, changes = git("rev-parse", "--short=12", "HEAD").decode().strip(), git("diff", "HEAD")
    return f"{head}+{hashlib.sha256(changes).hexdigest()[:8]}" if changes else head


def run(name: str) -> Outcome:
    """Run a group, or what has not passed of it, with its output in a file next to its results."""
    group, kept = GROUPS[name], PLACE / f"{name}.passes"
    words = group.command or [*PYTEST, *(group.paths or plain_arguments())]
    log, began, of = PLACE / f"{name}.log", time.monotonic(), sources()
    with log.open("wb") as out:
        done = subprocess.run(
            words, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, check=False,
            env=os.environ | {TIER_VARIABLE: "all"} | group.environ | passes.begin(kept, of),
        )  # fmt: skip
    last = log.read_text(encoding="utf-8", errors="replace").splitlines()[-1:]
    counts = Counter({what: int(n) for n, what in re.findall(r"(\d+) (\w+)", "".join(last))})
    failed = counts["failed"] + counts["error"] + counts["errors"]
    ended = datetime.now(UTC).isoformat(timespec="seconds")
    took = round(time.monotonic() - began, 1)
    # A run that was stopped after its last test leaves nothing to the next one.
    nothing_left = done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED and passes.count(kept)
    status, passed = 0 if nothing_left else done.returncode, passes.count(kept) or counts["passed"]
    return Outcome(of, status, passed, failed, counts["skipped"], took, ended)


def earlier() -> dict[str, Outcome]:
    """Return what the groups did when they last ran."""
    found = {}
    for name in GROUPS:
        path = PLACE / f"{name}.json"
        if path.exists():
            found[name] = Outcome(**json.loads(path.read_text(encoding="utf-8")))
    return found


def summary(outcomes: dict[str, Outcome]) -> str:
    """Return a table of all groups."""
    now = sources()
    lines = [f"{'GROUP':10} {'MINUTES':>7} {'PASSED':>6} {'FAILED':>6} {'SKIPPED':>7}  RESULT"]
    for name in GROUPS:
        one = outcomes.get(name)
        if one is None:
            lines.append(f"{name:10} {'-':>7} {'-':>6} {'-':>6} {'-':>7}  not run")
            continue
        result = "passed" if one.status == 0 else f"status {one.status}"
        result += "" if one.of == now else ", on other sources"
        lines.append(
            f"{name:10} {one.seconds / 60:7.1f} {one.passed:6} {one.failed:6} {one.skipped:7}  "
            f"{result}, {one.ended}"
        )
    minutes = sum(one.seconds for one in outcomes.values()) / 60
    cases = sum(one.passed for one in outcomes.values())
    return "\n".join([*lines, f"{'all':10} {minutes:7.1f} {cases:6}  sources {now[:12]}", ""])


def main() -> int:
    """Run what is asked for, and print what all groups did."""
    PLACE.mkdir(parents=True, exist_ok=True)
    asked = sys.argv[1:]
    unknown = [name for name in asked if name not in GROUPS]
    if unknown:
        print(f"no such group: {', '.join(unknown)}; there are {', '.join(GROUPS)}")
        return 2
    before, now = earlier(), sources()
    passed = {name for name, one in before.items() if one.status == 0 and one.of == now}
    for name in asked or [one for one in GROUPS if one not in passed]:
        print(f"{name}: output in {(PLACE / name).relative_to(ROOT)}.log", flush=True)
        outcome = run(name)
        text = json.dumps(asdict(outcome), indent=1) + "\n"
        (PLACE / f"{name}.json").write_text(text, encoding="utf-8")
        (PLACE / "summary.txt").write_text(summary(earlier()), encoding="utf-8")
    outcomes = earlier()
    print(summary(outcomes), end="")
    return int(any(outcomes[name].status for name in asked or GROUPS))


if __name__ == "__main__":
    sys.exit(main())
