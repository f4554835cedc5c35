"""All readers beside a real broker that works: nothing dies, nothing is missing, nothing is false.

The broker appends, rolls, cleans with a backoff of a second, deletes by size, moves log starts, and
creates and deletes topics all the time. What a row has to be follows from where it is: values begin
with their offset, or say whether their transaction was committed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.kafka import broker_data

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.conftest import Result

    Kafkalog = Callable[..., Result]

pytestmark = pytest.mark.kafka

SECONDS: Final = float(os.environ.get("KAFKALOG_LIVING_SECONDS", "180"))
NUMBERED: Final = ("steady", "compacted", "retained", "trimmed")
GRAVE: Final = ("damage", "warning", "index")


class LivingBroker:
    """The process, and its log directory."""

    def __init__(self, process: subprocess.Popen[str], log_dir: Path) -> None:
        self._process = process
        self.log_dir = log_dir

    def steady_end(self) -> int:
        """How many records of `steady` have been acknowledged."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


def wait_for_logs(log_dir: Path) -> None:
    """A topic is there for clients before its directory is."""
    over = time.monotonic() + broker_data.RUN_SECONDS_MAX
    while not all((log_dir / f"{topic}-0").exists() for topic in NUMBERED):
        assert time.monotonic() < over
        time.sleep(0.1)


@contextmanager
def living_broker(root: Path, seed: int) -> Iterator[LivingBroker]:
    """A broker under load; it shuts down at the end."""
    (root / "cwd").mkdir(parents=True)
    (root / "log").mkdir()
    process = subprocess.Popen(
        ["nice", "-n", "5", *broker_data.java_command(
            "kafkalog.harness.LivingBroker", str(root), str(seed))],
        cwd=root / "cwd",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "running\n"
            wait_for_logs(root / "log")
            yield LivingBroker(process, root / "log")
        except BaseException:
            process.kill()
            raise
        process.stdin.close()
        assert process.wait(broker_data.RUN_SECONDS_MAX) == 0


def rows(result: Result) -> list[dict[str, Any]]:
    assert result.status == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def require_numbered(offsets: list[int], values: list[str], topic: str, end: int) -> None:
    """Each offset once, in order, with the value that was appended there."""
    assert offsets == sorted(set(offsets)), topic
    assert [int(value.split(" ", 1)[0]) for value in values] == offsets, topic
    if topic == "steady" and end:
        assert offsets[:end] == list(range(end))
        assert offsets == list(range(len(offsets)))


def dumped(broker: LivingBroker, kafkalog: Kafkalog) -> None:
    """`dump-segment`: all, what is found by a key, and what was committed."""
    end = broker.steady_end()
    for topic in NUMBERED:
        for option in ((), ("--key-regex", "^key-1")):
            found = rows(
                kafkalog("dump-segment", broker.log_dir / f"{topic}-0", "--records",
                         "--bytes", "utf8", "--format", "ndjson", *option)
            )  # fmt: skip
            offsets, values = [r["offset"] for r in found], [r["value"] for r in found]
            require_numbered(offsets, values, topic, 0 if option else end)


def committed(broker: LivingBroker, kafkalog: Kafkalog) -> None:
    """Nothing that was aborted is shown, up to the last stable offset."""
    place = broker.log_dir / "transactional-0"
    found = rows(
        kafkalog("dump-segment", place, "--records", "--read-committed", "--bytes", "utf8",
                 "--format", "ndjson")
    )  # fmt: skip
    offsets = [row["offset"] for row in found]
    assert offsets == sorted(set(offsets))
    data = [row for row in found if not row["is_control"]]
    assert {row["value"].split(" ")[0] for row in data} <= {"committed"}


def verified(broker: LivingBroker, kafkalog: Kafkalog) -> None:
    """Nothing above a note, at all levels."""
    for level in ("quick", "standard", "deep"):
        result = kafkalog("verify", "--level", level, "--format", "ndjson", broker.log_dir)
        found = [json.loads(line) for line in result.stdout.splitlines()]
        grave = [one for one in found if one.get("severity") in GRAVE]
        assert (grave, result.status) == ([], 0), result.stderr


def exported(broker: LivingBroker, kafkalog: Kafkalog, tmp_path: Path) -> None:
    """`export` of the whole log directory into Parquet."""
    import pyarrow.parquet as pq

    end = broker.steady_end()
    place = tmp_path / f"export-{time.monotonic_ns()}"
    topics = [word for topic in NUMBERED for word in ("--topic", topic)]
    result = kafkalog("export", broker.log_dir, "--to", place, *topics, "--engine", "local",
        "--end", "log",
    )  # fmt: skip
    assert result.status == 0, result.stderr
    for topic in NUMBERED:
        parts = sorted(place.glob(f"topic={topic}/**/*.parquet"))
        found = [row for part in parts for row in pq.read_table(part).to_pylist()]
        found.sort(key=lambda row: row["offset"])
        values = [row["value"].decode() for row in found]
        require_numbered([row["offset"] for row in found], values, topic, end)


def profiled(broker: LivingBroker, kafkalog: Kafkalog) -> None:
    """`profile`, `ls` and `lookup-offset` answer."""
    end = broker.steady_end()
    found = rows(
        kafkalog(
            "profile",
            "--engine",
            "local",
            broker.log_dir / "steady-0",
            "--end",
            "log",
            "--format",
            "ndjson",
        )
    )
    assert any(row.get("records", 0) >= end for row in found), found
    for option in ((), ("--segments",), ("--files",)):
        assert kafkalog("ls", broker.log_dir, *option).status == 0
    for topic in NUMBERED:
        place = broker.log_dir / f"{topic}-0"
        words = ["--special", "earliest", "--special", "latest", "--isolation", "log"]
        assert len(rows(kafkalog("lookup-offset", place, *words, "--format", "ndjson"))) == 2


def test_readers_and_checks_beside_a_working_broker(
    harness: None, tmp_path: Path, kafkalog: Kafkalog
) -> None:
    """Round after round, for as long as KAFKALOG_LIVING_SECONDS says."""
    assert harness is None
    seed = int(os.environ.get("KAFKALOG_SEED") or time.time_ns() % (1 << 31))
    sys.stderr.write(f"seed {seed}\n")
    rounds = 0
    with living_broker(tmp_path, seed) as broker:
        over = time.monotonic() + SECONDS
        while time.monotonic() < over or not rounds:
            dumped(broker, kafkalog)
            committed(broker, kafkalog)
            verified(broker, kafkalog)
            exported(broker, kafkalog, tmp_path)
            profiled(broker, kafkalog)
            rounds += 1
    result = kafkalog("verify", "--level", "deep", "--format", "ndjson", tmp_path / "log")
    assert result.status == 0, result.stdout
    print(rounds, "rounds")
