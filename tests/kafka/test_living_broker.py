"""All readers next to a working broker: none fails, and nothing is missing or false.

The broker appends, rolls, cleans with a backoff of a second, deletes by size, moves log starts, and
creates and deletes topics all the time. Each value begins with its offset, or says whether its
transaction was committed, so that a row can be checked by its place. Rows end at the high watermark
that the broker has noted. In the end everything is compared with a consumer.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.kafka import broker_data
from tests.kafka.living_questions import asked
from tests.kafka.living_spark import SparkReads
from tests.sampling import new_seed, soaks, tries_everything
from tests.waiting import HANG_S, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.conftest import Result

    Kafkalog = Callable[..., Result]
    Seen = tuple[str, int, bytes]
    """A topic, the last offset of an export of it, and the checksum of that."""

pytestmark = pytest.mark.kafka

SECONDS: Final = 1800 if soaks() else 300 if tries_everything() else 0
MOVING_SECONDS: Final = SECONDS // 2
ROUNDS_MIN: Final = 2
"""All rounds of `make test`: its broker lives as long as they take."""
LEVELS: Final = (("deep",), ("quick", "standard"))
"""At which levels `verify` is run in one round, and in the next."""
NUMBERED: Final = ("steady", "compacted", "retained", "trimmed")
GRAVE: Final = ("damage", "warning", "index")


class LivingBroker:
    """The process, and its log directory."""

    def __init__(self, process: subprocess.Popen[str], log_dir: Path) -> None:
        self._process = process
        self.log_dir = log_dir
        self.log_dirs = [one for one in (log_dir, log_dir.with_name("log2")) if one.exists()]

    def steady_end(self) -> int:
        """Return how many records of `steady` have been acknowledged."""
        return int(self._ask("end"))

    def rest(self) -> None:
        """Stop the load, and have a consumer read everything."""
        assert self._ask("rest") == "rested\n"

    def consumed(self, topic: str) -> dict[int, bytes]:
        """Return what a read_committed consumer got once the broker was idle: value by offset."""
        with (self.log_dir.parent / "consumed" / topic).open() as lines:
            records = map(json.loads, lines)
            return {one["offset"]: bytes.fromhex(one["value"]) for one in records}

    def watermark(self, topic: str) -> int | None:
        """Return the high watermark that the broker has noted."""
        try:
            text = (self.log_dir / "replication-offset-checkpoint").read_text()
        except FileNotFoundError:
            return None
        fields = [line.split() for line in text.splitlines()[2:]]
        return next((int(offset) for name, _, offset in fields if name == topic), None)

    def _ask(self, line: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline()


def wait_for_logs(log_dir: Path) -> None:
    """Wait for the directories of topics; clients see a topic before its directory exists."""
    until(lambda: all((log_dir / f"{topic}-0").exists() for topic in NUMBERED))


@contextmanager
def living_broker(root: Path, seed: int, *more: str) -> Iterator[LivingBroker]:
    """Run a broker under load, and shut it down at the end.

    It keeps deleting the topic `again` and creating it again. For `make test` it is calm: the first
    rounds find the same kinds of files as those of a broker that works hard.
    """
    if not tries_everything():
        more += ("calm",)
    (root / "cwd").mkdir(parents=True)
    for name in ("log", "log2") if "moves" in more else ("log",):
        (root / name).mkdir()
    process = subprocess.Popen(
        ["nice", "-n", "5", *broker_data.java_command(
            "kafkalog.harness.LivingBroker", str(root), str(seed), *more)],
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
        assert process.wait(HANG_S) == 0


def rows(result: Result) -> list[dict[str, Any]]:
    assert result.status == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def require_numbered(offsets: list[int], values: list[str], topic: str, end: int) -> None:
    """Require each offset once, in order, with the value that was appended there."""
    assert offsets == sorted(set(offsets)), topic
    assert [int(value.split(" ", 1)[0]) for value in values] == offsets, topic
    if topic == "steady" and end:
        assert offsets[:end] == list(range(end))
        assert offsets == list(range(len(offsets)))


def dumped(broker: LivingBroker, kafkalog: Kafkalog) -> None:
    """Check `dump-segment`: all records, those of a key, and those that were committed."""
    end = broker.steady_end()
    for topic in NUMBERED:
        for option in ((), ("--key-regex", "^key-1")):
            found = rows(
                kafkalog("dump-segment", broker.log_dir / f"{topic}-0",
                         "--key-format", "text", "--value-format", "text", "--format", "ndjson",
                         *option)
            )  # fmt: skip
            offsets, values = [r["offset"] for r in found], [r["value"] for r in found]
            require_numbered(offsets, values, topic, 0 if option else end)


def committed(broker: LivingBroker, kafkalog: Kafkalog) -> None:
    """Require that no aborted record is shown up to the last stable offset."""
    place = broker.log_dir / "transactional-0"
    found = rows(
        kafkalog("dump-segment", place, "--isolation", "read_committed", "--key-format", "text",
                 "--value-format", "text",
                 "--format", "ndjson")
    )  # fmt: skip
    offsets = [row["offset"] for row in found]
    assert offsets == sorted(set(offsets))
    data = [row for row in found if not row["is_control"]]
    assert {row["value"].split(" ")[0] for row in data} <= {"committed"}


def verified(broker: LivingBroker, kafkalog: Kafkalog, levels: tuple[str, ...]) -> None:
    """Require that `verify` finds nothing above a note."""
    for level in levels:
        result = kafkalog("verify", "--level", level, "--format", "ndjson", *broker.log_dirs)
        found = [json.loads(line) for line in result.stdout.splitlines()]
        grave = [one for one in found if one.get("severity") in GRAVE]
        assert (grave, result.status) == ([], 0), result.stderr


def parquet(place: Path, topic: str) -> dict[int, bytes]:
    """Return the values of an export by offset; each offset occurs once."""
    import pyarrow.parquet as pq

    parts = sorted(place.glob(f"topic={topic}/**/*.parquet"))
    found = [row for part in parts for row in pq.read_table(part).to_pylist()]
    values = {row["offset"]: row["value"] for row in sorted(found, key=itemgetter("offset"))}
    assert len(values) == len(found), topic
    return values


def exported(
    broker: LivingBroker, kafkalog: Kafkalog, place: Path, topics: tuple[str, ...], *words: str
) -> dict[str, dict[int, bytes]]:
    """Export into Parquet and remove the files; return value by topic and offset."""
    place /= "export"
    words += tuple(word for topic in topics for word in ("--topic", topic))
    words += ("--format", "ndjson")
    result = kafkalog("export", broker.log_dir, "--to", place, *words)
    found = {topic: parquet(place, topic) for topic in topics}
    shutil.rmtree(place)
    told = [json.loads(line) for line in result.stdout.splitlines()]
    defects = [row for row in told if row["type"] == "defect"]
    assert result.status == (8 if defects else 0), result.stderr
    for one in defects:  # the broker was quicker
        assert one["reference"] == "deleted-while-reading"
        told_of = re.match("Offsets ([0-9]+) to ([0-9]+) of (retained|trimmed)-0", one["detail"])
        assert told_of is not None, one
        assert not set(range(int(told_of[1]), int(told_of[2]) + 1)) & found[told_of[3]].keys()
    return found


def exported_to_the_end(broker: LivingBroker, kafkalog: Kafkalog, place: Path) -> None:
    """Require that an export has everything that was acknowledged."""
    end = broker.steady_end()
    found = exported(broker, kafkalog, place, NUMBERED, "--isolation", "log")
    for topic, values in found.items():
        require_numbered(list(values), [one.decode() for one in values.values()], topic, end)


def exported_as_consumed(broker: LivingBroker, kafkalog: Kafkalog, place: Path) -> list[Seen]:
    """Compare an export with a consumer, up to the high watermark or last stable offset."""
    before = broker.watermark("steady")
    found = exported(broker, kafkalog, place, ("steady", "ledger"), "--isolation", "read_committed")
    require_end(len(found["steady"]), before, broker.watermark("steady"))
    return [(topic, max(values, default=-1), digest(values)) for topic, values in found.items()]


def digest(values: dict[int, bytes]) -> bytes:
    """Return a checksum of many values and their offsets."""
    return hashlib.sha256(repr(values).encode()).digest()


def require_end(end: int, before: int | None, after: int | None) -> None:
    """Require that rows end at a high watermark that was noted meanwhile, if one was."""
    assert before is None or before <= end
    assert after is None or before is None or end <= after


def records(profile: Result) -> int:
    """Return how many records a profile counts."""
    [one] = [row for row in rows(profile) if row["type"] == "profile"]
    return int(one["records"])


def profiled(broker: LivingBroker, kafkalog: Kafkalog) -> None:
    """Run `profile` to the log end and to the high watermark."""
    place = broker.log_dir / "steady-0"
    words = ("--format", "ndjson")
    end = broker.steady_end()
    assert records(kafkalog("profile", place, *words, "--isolation", "log")) >= end
    before = broker.watermark("steady")
    found = records(kafkalog("profile", place, *words))
    require_end(found, before, broker.watermark("steady"))


def looked_up(broker: LivingBroker, kafkalog: Kafkalog) -> None:
    """Require that `ls` and `lookup-offset` answer, and the same with indexes as without."""
    for option in ((), ("--segments",), ("--files",)):
        assert kafkalog("ls", broker.log_dir, *option).status == 0
    names = ("earliest", "latest", "max-timestamp")
    words = [word for name in names for word in ("--special", name)]
    words += ["--isolation", "log", "--format", "ndjson", "--no-index"]
    for topic in NUMBERED:
        found = rows(kafkalog("lookup-offset", broker.log_dir / f"{topic}-0", *words))
        earliest, latest, newest = (row["offset"] for row in found)
        assert earliest <= newest < latest


def require_consumed(broker: LivingBroker, seen: list[Seen]) -> None:
    """Require that all exported rows are what the consumer got, up to where it ended."""
    consumed = {topic: broker.consumed(topic) for topic in ("steady", "ledger")}
    for topic, end, found in seen:
        values = {offset: one for offset, one in consumed[topic].items() if offset <= end}
        assert digest(values) == found, topic


def test_readers_and_checks_beside_a_working_broker(
    harness: None,
    tmp_path: Path,
    kafkalog: Kafkalog,
    spark: SparkSession,
    tell: Callable[[str], None],
) -> None:
    """Two rounds, Spark in one; five minutes in `make test-all`, half an hour in `make soak`."""
    assert harness is None
    seed = new_seed()
    sys.stderr.write(f"seed {seed}\n")
    rounds = 0
    seen: list[Seen] = []
    with living_broker(tmp_path, seed, "again") as broker:
        over = time.monotonic() + SECONDS
        reads = SparkReads(spark, broker, tmp_path / "copies")
        while time.monotonic() < over or rounds < ROUNDS_MIN:
            dumped(broker, kafkalog)
            committed(broker, kafkalog)
            verified(broker, kafkalog, LEVELS[rounds % 2])
            exported_to_the_end(broker, kafkalog, tmp_path)
            seen += exported_as_consumed(broker, kafkalog, tmp_path)
            profiled(broker, kafkalog)
            looked_up(broker, kafkalog)
            asked(broker, kafkalog, tmp_path)
            if not rounds or tries_everything():  # its starts take half of a round
                reads.batches()
                reads.go_on()
            rounds += 1
        reads.meet_a_passing_topic()
        broker.rest()
    result = kafkalog("verify", "--level", "deep", "--format", "ndjson", tmp_path / "log")
    assert result.status == 0, result.stdout
    require_consumed(broker, seen)
    assert any(end > 0 for topic, end, _ in seen if topic == "ledger")
    reads.require_complete()
    tell(f"{rounds} rounds beside a working broker")


def test_readers_beside_a_broker_that_moves_partitions(
    harness: None, tmp_path: Path, kafkalog: Kafkalog, tell: Callable[[str], None]
) -> None:
    """One topic goes back and forth between two log directories."""
    assert harness is None
    seed = new_seed()
    sys.stderr.write(f"seed {seed}\n")
    rounds = 0
    seen: list[tuple[int, bytes]] = []
    with living_broker(tmp_path, seed, "moves") as broker:
        until(lambda: any(path.stat().st_size for one in broker.log_dirs
                          for path in one.glob("moving-0/*.log")))  # fmt: skip
        over = time.monotonic() + MOVING_SECONDS
        while time.monotonic() < over or rounds < ROUNDS_MIN:
            words = ("--topic", "moving", "--format", "ndjson")
            place = tmp_path / "export"
            done = kafkalog("export", *broker.log_dirs, "--to", place, *words)
            assert done.status == 0, done
            assert b'"type":"defect"' not in done.stdout
            values = parquet(place, "moving")
            shutil.rmtree(place)
            require_numbered(list(values), [one.decode() for one in values.values()], "moving", 0)
            assert list(values) == list(range(len(values)))
            seen.append((len(values), digest(values)))
            verified(broker, kafkalog, LEVELS[rounds % 2])
            asked(broker, kafkalog, tmp_path)
            rounds += 1
        broker.rest()
    consumed = broker.consumed("moving")
    for end, found in seen:
        assert digest({offset: one for offset, one in consumed.items() if offset < end}) == found
    tell(f"{rounds} rounds while a broker moved partitions")
