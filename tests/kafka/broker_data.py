"""Builds the Java side of these tests, runs it, and reads its results.

`kafkalog.harness.LiveBroker` starts one real Kafka node, feeds it, and writes the folders of
`BrokerData`; `kafkalog.harness.DumpTool` is DumpLogSegments for many calls; `KafkaOracle` drives
Kafka's storage classes over copies of partition directories.

All of them run on one release of Kafka: the newest, unless KAFKALOG_KAFKA names another (4.3, say).
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from formats.releases import newest, releases
from releases import KEPT, NEWEST
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

RELEASE = os.environ.get("KAFKALOG_KAFKA") or newest().name
"""The release that tests run against unless they name another."""
_NAMES = [one.name for one in releases()]
KNOWN = _NAMES[_NAMES.index(RELEASE) :]
"""That release and the older ones, whose files it reads."""
OLDEST = _NAMES[-1]
VERSIONS = {one.rpartition(".")[0]: one for one in (NEWEST, *KEPT)}
HERE = Path(__file__).parent
ORACLE = "org.apache.kafka.storage.internals.log.KafkaOracle"
BUILD_SECONDS_MAX = 900
JVM_OPTIONS = (
    "-Xms256m",
    "-Xmx1g",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dfile.encoding=UTF-8",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=" + os.environ.get("KAFKALOG_KAFKA_LOG", "off"),
)


_SHARING = ("-Xlog:disable", "-Xlog:all=error:stderr")
"""Without a word if an archive does not fit: its classes are loaded from the jars then."""
_archives: dict[str, Path] = {}
"""Where this process has the loaded classes of a release."""


class HarnessError(Exception):
    """The Java side failed; the message quotes its output."""


@dataclass(frozen=True)
class BrokerData:
    """The log directory of a real broker in two states, and what Kafka's own clients and tools say.

    `clean` is the directory after the shutdown, `live` a copy made while the broker was running
    and at rest. `expected` has the layout of the golden corpus: `records`, `records-committed` and
    `lookup.json` hold for both states, `dump/clean` and `dump/live` for one each.
    """

    root: Path

    @property
    def expected(self) -> Path:
        return self.root / "expected"

    def log_dir(self, state: str) -> Path:
        return self.root / state

    @cached_property
    def facts(self) -> dict[str, Any]:
        return json.loads((self.expected / "state.json").read_text())

    @cached_property
    def lookups(self) -> dict[str, dict[str, Any]]:
        return json.loads((self.expected / "lookup.json").read_text())

    def partitions(self) -> list[str]:
        return sorted(self.lookups)

    def records(self, partition: str) -> Iterator[dict[str, Any]]:
        with (self.expected / "records" / f"{partition}.ndjson").open() as lines:
            yield from map(json.loads, lines)

    def committed_offsets(self, partition: str) -> list[int]:
        path = self.expected / "records-committed" / f"{partition}.offsets.json"
        return json.loads(path.read_text())

    def dumps(self, state: str) -> dict[str, dict[str, Any]]:
        """Map each output file to the arguments, exit status and stderr of DumpLogSegments."""
        return json.loads((self.dump_dir(state) / "exit-codes.json").read_text())

    def dump_dir(self, state: str) -> Path:
        return self.expected / "dump" / state


def missing_tool() -> str | None:
    """Name the programs that are not installed; return None if all are."""
    missing = [name for name in ("java", "javac", "mvn") if shutil.which(name) is None]
    return f"not on this machine: {', '.join(missing)}" if missing else None


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Let one process at a time into the block, also across the workers of pytest-xdist."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        yield


def sources_digest(home: Path) -> str:
    digest = hashlib.sha256()
    for path in [home / "pom.xml", *sorted((home / "src").rglob("*"))]:
        if path.is_file():
            digest.update(f"{path.relative_to(home)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


def target(release: str = RELEASE) -> Path:
    """Return where the classes and the jars of a release are."""
    return HERE / "target" / release


def build(release: str = RELEASE) -> None:
    """Compile for a release and fetch its jars, unless this was done with exactly these sources."""
    words = (f"-Dkafka.release={release}", f"-Dkafka.version={VERSIONS[release]}")
    package(HERE, target(release), *words)


def share_classes(release: str = RELEASE) -> None:
    """Let JVMs of this process begin with the classes that a broker and a client have loaded.

    The JVMs of tests live for seconds, of which loading these classes takes one.
    """
    home = target(release)
    archive = home / "classes.jsa"
    with locked(home / "build.lock"):
        stamp = home / "built-from.txt"
        if not archive.exists() or archive.stat().st_mtime_ns < stamp.stat().st_mtime_ns:
            staged = home / "classes.jsa.new"  # a JVM crashes on half of one
            staged.unlink(missing_ok=True)
            with tempfile.TemporaryDirectory(prefix="kafkalog-classes-") as place:
                options = (*JVM_OPTIONS, *_SHARING, f"-XX:ArchiveClassesAtExit={staged}")
                words = (f"{place}/log", "1", "100", "1")
                name = "kafkalog.harness.FilledBroker"
                java(name, *words, cwd=Path(place), options=options, release=release)
            staged.replace(archive)
    _archives[release] = archive


def package(home: Path, into: Path, *words: str) -> None:
    """Let Maven package a project, unless this was done with exactly these sources."""
    stamp = into / "built-from.txt"
    with locked(into / "build.lock"):
        digest = " ".join([sources_digest(home), *words])
        if stamp.exists() and stamp.read_text() == digest:
            return
        stamp.unlink(missing_ok=True)
        command = ["mvn", "-q", "-B", "-f", str(home / "pom.xml"), "package", *words]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=BUILD_SECONDS_MAX, check=False
        )
        if done.returncode:
            raise HarnessError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
        stamp.write_text(digest)


def java_command(
    main: str,
    *args: str,
    options: tuple[str, ...] = JVM_OPTIONS,
    lib: str = "",
    release: str = RELEASE,
) -> list[str]:
    """Return the command that runs a class of the harness; the jars in `lib` come first."""
    home = target(release)
    places = [home / lib / "*"] if lib else []
    places += [home / "kafka-harness.jar", home / "lib" / "*"]
    if release in _archives and not lib:
        options = (*options, *_SHARING, f"-XX:SharedArchiveFile={_archives[release]}")
    class_path = os.pathsep.join(map(str, places))
    return ["java", *options, "-cp", class_path, main, *args]


def java(
    main: str,
    *args: str,
    cwd: Path,
    stdin: str = "",
    options: tuple[str, ...] = JVM_OPTIONS,
    seconds_max: float = HANG_S,
    release: str = RELEASE,
) -> str:
    """Run a class of the harness to its end and return its stdout."""
    done = subprocess.run(
        java_command(main, *args, options=options, release=release),
        cwd=cwd,
        input=stdin,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=seconds_max,
        check=False,
    )
    sys.stderr.write(done.stderr)
    if done.returncode:
        raise HarnessError(f"{main} {' '.join(args)}: status {done.returncode}\n{done.stderr}")
    return done.stdout


@dataclass(frozen=True)
class PastLife:
    """The log directory that a broker left at the end of a life; tests copy it.

    Attributes:
        log_dir: the directory that it left.
        seed: the seed for the next life.
    """

    log_dir: Path
    seed: int


def run_first_life(root: Path, seed: int) -> PastLife:
    """Run a broker's first life below `root` and close it cleanly, unless that was done before."""
    done = root / "seed"
    if not done.exists():
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        run_broker_life(root / "log", seed, 1, "closed")
        done.write_text(str(seed))
    return PastLife(root / "log", int(done.read_text()))


def run_second_life(root: Path, first: PastLife) -> PastLife:
    """Run a broker's second life below `root` and kill it, unless that was done before."""
    done = root / "seed"
    if not done.exists():
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        shutil.copytree(first.log_dir, root / "log")
        run_broker_life(root / "log", first.seed, 2, "killed")
        done.write_text(str(first.seed))
    return PastLife(root / "log", first.seed)


def run_live_broker(root: Path, seed: int) -> BrokerData:
    """Run a broker below `root` to its end, unless that was done before."""
    data = BrokerData(root)
    if (data.expected / "state.json").exists():
        return data
    shutil.rmtree(root, ignore_errors=True)
    (root / "cwd").mkdir(parents=True)
    java("kafkalog.harness.LiveBroker", str(root), str(seed), cwd=root / "cwd")
    return data


def run_broker_life(log_dir: Path, seed: int, life: int, end: str) -> None:
    """Run one more life of a broker on a log directory; `end` is `closed` or `killed`."""
    words = (str(log_dir), str(seed), str(life), end)
    java("kafkalog.harness.BrokerLife", *words, cwd=log_dir.parent)


@dataclass(frozen=True)
class Dump:
    """The results of DumpLogSegments for one list of arguments."""

    exit: int
    stdout: bytes
    stderr: str


def dump(calls: Iterable[list[str]], cwd: Path) -> list[Dump]:
    """Run DumpLogSegments for each list of arguments, in one JVM that starts in `cwd`.

    The tool may change the files it reads: `cwd` has to be a copy.
    """
    lines = "".join(json.dumps(call) + "\n" for call in calls)
    answers = map(json.loads, java("kafkalog.harness.DumpTool", cwd=cwd, stdin=lines).splitlines())
    return [Dump(a["exit"], base64.b64decode(a["stdout"]), a["stderr"]) for a in answers]


def fingerprint(root: Path) -> dict[str, tuple[int, int, str]]:
    """Map relative path to size, mtime in ns and digest, for every file and folder below."""
    seen = {}
    for path in sorted(root.rglob("*")):
        facts = path.stat()
        digest = ""
        if path.is_file():
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "blake2b").hexdigest()
        seen[str(path.relative_to(root))] = (facts.st_size, facts.st_mtime_ns, digest)
    return seen
