"""Log directories on which a stock broker is started, and what its clients must be answered."""

from __future__ import annotations

import base64
import hashlib
import json
import time
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tests.kafka import broker_data
from tests.kafka.oracle import Oracle
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from tests.conftest import Result

    Answers = dict[str, dict[str, list[int]]]
    Run = Callable[..., Result]

WHOLE_BYTES_MAX = 1024
SHOWN_MAX = 12
QUIET = {
    "log.cleaner.enable": "false",  # what is served is what is there
    "log.initial.task.delay.ms": "100",
    "log.retention.check.interval.ms": "200",  # what retention would take is gone at once
    "metadata.max.idle.interval.ms": "0",
    "group.initial.rebalance.delay.ms": "0",
    # open transactions stay open while they are looked at
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "600000",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
HARMLESS = (
    "EventPerformanceMonitor",  # the machine is slow
    "processExpiredBrokerHeartbeat",  # so too; the broker counts as heard of
    "apiKey=CONTROLLER_REGISTRATION",  # before the controller is active; it is tried again
    "Stopped loading records from",  # the node is shut down while a coordinator loads
)
"""What nodes log as an error that is none."""
ABORTING = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}


class Brokers(Oracle):
    """A JVM that runs stock nodes by their `server.properties`, see BrokerCommands.java."""

    command = ("kafkalog.harness.BrokerCommands",)
    options = (
        *(option for option in broker_data.JVM_OPTIONS if "defaultLogLevel" not in option),
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    )

    def ask(self, *command: object) -> Any:
        """Return the answer to a command.

        Raises:
            HarnessError: The command failed.
        """
        answer: Any = super().ask(*command)
        if isinstance(answer, dict) and set(answer) == {"error"}:
            raise broker_data.HarnessError(f"{command}\n{answer['error']}\n{self.log()}")
        return answer

    def serve(self, log_dir: Path, root: Path) -> broker_data.BrokerData:
        """Return what clients of a broker on a log directory see; the files stay below `root`."""
        self.ask("serve", log_dir, root / "expected")
        return broker_data.BrokerData(root)

    @contextmanager
    def on(self, *log_dirs: Path) -> Iterator[Running]:
        """Run a node on log directories within the block; shut it down cleanly at the end."""
        name = str(log_dirs[0])
        port = self.ask("run", name, ",".join(map(str, log_dirs)))["port"]
        try:
            yield Running(self, name, port)
        finally:
            self.ask("shut-down", name)

    def log(self) -> str:
        """Return the warnings and errors that the nodes have logged."""
        self._stderr.seek(0)
        return self._stderr.read()

    def kill(self) -> None:
        """End all nodes with SIGKILL."""
        self._process.kill()
        self._process.wait()


@dataclass(frozen=True)
class Running:
    """A node that runs.

    Attributes:
        brokers: the JVM.
        name: what the JVM calls it.
        port: where it listens.
    """

    brokers: Brokers
    name: str
    port: int

    def append(self, partition: str) -> int:
        """Append a record and return its offset."""
        topic, _, number = partition.rpartition("-")
        offset: int = self.brokers.ask("append", self.name, topic, number)
        return offset


@dataclass
class Life:
    """A node that runs within the block and is shut down cleanly at its end.

    Attributes:
        brokers: the JVM.
        properties: the file that it is started with.
        log_dir: its log directory.
        out: where the report goes.
        configs: those in addition to the file.
        name: what the JVM calls it.
        harmless: what it may log as an error.
    """

    brokers: Brokers
    properties: Path
    log_dir: Path
    out: Path
    configs: Mapping[str, str] = field(default_factory=dict)
    name: str = "node"
    harmless: tuple[str, ...] = ()

    def __enter__(self) -> Life:
        self._before = len(self.brokers.log())
        configs = {**QUIET, **self.configs}
        answer = self.brokers.ask("boot", self.name, str(self.properties), configs)
        self.addresses: dict[str, str] = answer["addresses"]
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.brokers.ask("shut-down", self.name)
        if kind is None:
            self.require_clean()

    def require_clean(self) -> None:
        """Require that it logged no error and renamed no directory as stray."""
        lines = self.brokers.log()[self._before :].splitlines()
        errors = [
            f"{line[:300]}\n  {cause[:300]}"
            for line, cause in pairwise([*lines, ""])
            if (" ERROR " in line or "stray" in line.lower())
            and not any(text in line for text in (*HARMLESS, *self.harmless))
        ]
        assert not errors, "\n".join(errors[:20])
        assert not list(self.log_dir.glob("*-stray"))

    def observe(self, truths: Mapping[str, Truth]) -> Told:
        """Return what clients see; ListOffsets gets the same questions as before."""
        targets = {name: truth.targets for name, truth in truths.items()}
        self.brokers.ask("observe", self.name, str(self.out), targets)
        told = Told(self.out)
        assert not told.report["leaderless"]
        assert not told.report["failedLogDirs"]
        return told

    def go_on(self, before: Mapping[str, Truth]) -> dict[str, Any]:
        """Let new producers append to partitions; return the offsets that are not as expected.

        GoingOn.java says what they append.
        """
        topics = {name.rpartition("-")[0] for name in before}
        given: dict[str, Any] = self.brokers.ask("go-on", self.name, sorted(topics))
        wanted = {
            name: [truth.end, truth.end + 1, truth.end + 2, truth.end + 4]
            for name, truth in before.items()
        }
        names = given.keys() | wanted.keys()
        return {name: given.get(name) for name in names if given.get(name) != wanted.get(name)}

    def await_stable(self) -> Told:
        """Return what clients see once no transaction is open any more."""
        deadline = time.monotonic() + HANG_S
        while True:
            told = self.observe({})
            opened = [name for name, truth in told.truths().items() if not truth.is_stable]
            if not opened:
                return told
            assert time.monotonic() < deadline, opened
            time.sleep(0.2)


NEW_KEYS = ["idempotent-0", "idempotent-1", "committed", "aborted"]
"""What new producers append to each partition, see GoingOn.java."""


@dataclass(frozen=True)
class Told:
    """What a broker answered its clients, as BrokerReport.java writes it."""

    root: Path

    @cached_property
    def report(self) -> dict[str, Any]:
        return json.loads((self.root / "report.json").read_text())

    def records(self, partition: str) -> list[dict[str, Any]]:
        return read_records(self.root / "records" / f"{partition}.ndjson")

    def truths(self) -> dict[str, Truth]:
        """Return these answers as the truth to compare a later broker with."""
        return {
            name: Truth(self.records(name), self.report["committed"][name], offsets)
            for name, offsets in self.report["offsets"].items()
        }

    def require(self, truths: Mapping[str, Truth]) -> None:
        """Require that each partition is as it was recorded."""
        differences = []
        for name, truth in truths.items():
            if self.records(name) != truth.records:
                differences.append(f"{name}: {len(self.records(name))} of {len(truth.records)}")
            committed = self.report["committed"][name]
            if truth.committed is not None and committed != truth.committed:
                differences.append(f"{name}: read_committed {len(committed)}")
            for isolation, wanted in truth.offsets.items():
                told = self.report["offsets"][name][isolation]
                differences += [
                    f"{name} {isolation} {question}: {told[question]}, was {one}"
                    for question, one in wanted.items()
                    if comparable(question, told[question], one) != comparable(question, one, one)
                ]
        shown = "\n".join(differences[:SHOWN_MAX])
        assert not differences, f"{len(differences)} differences:\n{shown}"


def comparable(question: str, answer: list[int], recorded: list[int]) -> list[int]:
    """Return the part of an answer that must be the same: leader and leader epoch change."""
    return answer if question.isdigit() and recorded[2] >= 0 else answer[:2]


@dataclass(frozen=True)
class Truth:
    """What was recorded of a partition while the broker ran that wrote it.

    Attributes:
        records: those of a consumer.
        committed: offsets of a read_committed consumer, None if not recorded.
        offsets: answers of ListOffsets by isolation and question: offset and timestamp, and the
            leader epoch where it was recorded.
    """

    records: list[dict[str, Any]]
    committed: list[int] | None
    offsets: Answers

    @property
    def end(self) -> int:
        return self.offsets["read_uncommitted"]["latest"][0]

    @property
    def is_stable(self) -> bool:
        """Return whether no transaction is open."""
        return self.end == self.offsets["read_committed"]["latest"][0]

    @property
    def targets(self) -> list[int]:
        """Return the times that ListOffsets was asked for."""
        return [int(name) for name in self.offsets["read_uncommitted"] if name.isdigit()]


def read_records(path: Path) -> list[dict[str, Any]]:
    """Read records into one form: long bytes as their digest, no leader epoch."""
    found = []
    for line in path.read_text().splitlines():
        row = json.loads(line)
        row.pop("leaderEpoch", None)
        for name in ("key", "value"):
            row[name] = short(row[name])
        row["headers"] = [[name, short(value)] for name, value in row["headers"]]
        found.append(row)
    return found


def short(value: Any) -> Any:
    if isinstance(value, str) and len(value) > 2 * WHOLE_BYTES_MAX:
        raw = bytes.fromhex(value)
        return {"len": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}
    return value


def truths(expected: Path) -> Iterator[tuple[str, Truth]]:
    """Yield what was recorded of each partition of a state."""
    path = expected / "lookup.json"
    recorded = json.loads(path.read_text()) if path.exists() else {}
    for name, told in recorded.items():
        committed = None
        offsets = expected / "records-committed" / f"{name}.offsets.json"
        of_transactions = expected / "records" / f"{name}.read_committed.ndjson"
        if offsets.exists():
            committed = json.loads(offsets.read_text())
        elif of_transactions.exists():
            committed = [row["offset"] for row in read_records(of_transactions)]
        yield (
            name,
            Truth(read_records(expected / "records" / f"{name}.ndjson"), committed, answers(told)),
        )


def answers(told: dict[str, Any]) -> Answers:
    """Convert `lookup.json` from either form to that of BrokerReport.java."""
    plain = {name: told[name] for name in ("earliest", "latest", "maxTimestamp") if name in told}
    stable = dict(plain)
    stable["latest"] = told.get("lastStableOffset") or told["latest_read_committed"]
    if "maxTimestampReadCommitted" in told:
        stable["maxTimestamp"] = told["maxTimestampReadCommitted"]
    elif stable["latest"]["offset"] != plain["latest"]["offset"]:
        stable.pop("maxTimestamp", None)  # nobody asked
    for query in told.get("timestamps", ()):
        plain[str(query["target"])] = query
        stable[str(query["target"])] = query.get("readCommitted", query)
    for query in told.get("offsetsForTimes", ()):
        plain[str(query["time"])] = query["answer"] or {"offset": -1, "timestamp": -1}
    return {
        "read_uncommitted": {name: listed(one) for name, one in plain.items()},
        "read_committed": {name: listed(one) for name, one in stable.items()},
    }


def listed(answer: dict[str, Any]) -> list[int]:
    epoch = answer.get("leaderEpoch")
    return [answer["offset"], answer["timestamp"], -1 if epoch is None else epoch]


class Staged:
    """A log directory without metadata, of partitions of many brokers, under names of its own.

    Its files are those of the partitions, not copies: do not write to them.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.truths: dict[str, Truth] = {}
        self._starts: dict[str, int] = {}
        root.mkdir(parents=True)

    def add(self, source: Path, topic: str, truth: Truth) -> None:
        """Take a partition's directory as partition 0 of a topic."""
        name = f"{topic}-0"
        (self.root / name).mkdir()
        for file in source.iterdir():
            if file.is_file() and file.name != "partition.metadata":
                (self.root / name / file.name).hardlink_to(file)
        topic_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        (self.root / name / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")
        start = checkpointed(source.parent / "log-start-offset-checkpoint", source.name)
        if start is not None:
            self._starts[topic] = start
            lines = [f"{topic} 0 {start}" for topic, start in self._starts.items()]
            text = "\n".join(("0", str(len(lines)), *lines, ""))
            (self.root / "log-start-offset-checkpoint").write_text(text)
        self.truths[name] = truth


def checkpointed(path: Path, partition: str) -> int | None:
    topic, _, number = partition.rpartition("-")
    lines = path.read_text().splitlines()[2:] if path.exists() else []
    words = (line.split() for line in lines)
    return next((int(offset) for *name, offset in words if name == [topic, number]), None)


def resurrect(
    kafkalog: Run, to: Path, *words: object, release: str = broker_data.RELEASE
) -> list[dict[str, Any]]:
    """Resurrect into a home for a release, require success, and return the rows."""
    result = kafkalog("resurrect", *words, "--to", to, "--kafka", release, "--format", "ndjson")
    assert result.status == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def life(
    brokers: Brokers, home: Path, number: int = 1, configs: Mapping[str, str] | None = None
) -> Life:
    """Return a life of the broker on a resurrected directory."""
    out = home.with_name(f"{home.name}-told-{number}")
    return Life(brokers, home / "server.properties", home / "log", out, configs or {})


def findings(kafkalog: Run, log_dir: Path) -> set[tuple[str, str]]:
    """Return the warnings and errors of `verify`: partition or file, and finding."""
    result = kafkalog("verify", "--level", "deep", log_dir, "--format", "ndjson")
    rows = map(json.loads, result.stdout.splitlines())
    found = {
        (row["path"].removeprefix(f"{log_dir}/").partition("/")[0], row["reference"])
        for row in rows
        if row["type"] == "defect" and row["severity"] != "note"
    }
    assert result.status == (1 if found else 0), (result.status, result.stderr)
    return found


def require_metadata(told: Told, before: Told) -> None:
    """Require equal metadata, but for epochs, replicas and what would delete old data."""
    for what in ("groups", "transactions", "acls", "scram", "quotas"):
        assert told.report[what] == before.report[what], what
    features = {**before.report["features"]}
    features.pop("eligible.leader.replicas.version", None)
    assert told.report["features"] == features
    assert set(told.report["topics"]) == set(before.report["topics"])
    for name, topic in before.report["topics"].items():
        new = told.report["topics"][name]
        assert new["id"] == topic["id"]
        keeps = {} if topic["internal"] else {"retention.ms": "-1", "retention.bytes": "-1"}
        kept = {**topic["configs"], **keeps}
        assert {key: new["configs"].get(key) for key in kept} == kept, name


def require_growth(told: Told, before: Mapping[str, Truth]) -> None:
    """Require that the records of `go_on` follow the old ones."""
    for name, truth in before.items():
        records = told.records(name)
        assert records[: len(truth.records)] == truth.records, name
        new = records[len(truth.records) :]
        assert [bytes.fromhex(record["key"]).decode() for record in new] == NEW_KEYS, name
        if truth.committed is not None and truth.is_stable:
            committed = [*truth.committed, *(record["offset"] for record in new[:3])]
            assert told.report["committed"][name] == committed, name
