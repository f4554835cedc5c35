"""The golden corpus, unpacked once a session, and a way to run the command line in this process."""

from __future__ import annotations

import atexit
import fcntl
import gc
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from kafkalog.io.jit import library
from kafkalog.io.paths import retry, tier_keys
from kafkalog_cli.main import run
from tests import durations, passes
from tests.checkout import ROOT
from tests.sampling import sample_of, soaks

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from pyspark.sql import SparkSession

# How long an example takes is up to the machine. `make test` draws the same examples in each run.
settings.register_profile(
    "kafkalog",
    deadline=None,
    derandomize=not soaks(),
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("kafkalog")

CORPUS = Path(__file__).parent / "corpus"
STATES_44 = sorted(path.name[:-7] for path in (CORPUS / "kafka-4.4").glob("*.tar.gz"))
STATES_43 = sorted(path.name[:-7] for path in (CORPUS / "kafka-4.3").glob("*.tar.gz"))
STATES_28 = sorted(path.name[:-7] for path in (CORPUS / "kafka-2.8").glob("*.tar.gz"))
OF_KAFKA_4 = [
    *(("kafka-4.4", name) for name in STATES_44),
    *(("kafka-4.3", name) for name in STATES_43),
]
"""Release and name of states; `make test` takes those of one name from one of the releases."""
SCENARIOS = sorted(path.name[:-7] for path in (CORPUS / "lookup").glob("*.tar.xz"))


@cache
def scenario_names(kind: str) -> list[str]:
    """Return the names of the log directories in an archive of the corpus."""
    with tarfile.open(CORPUS / kind / "scenarios.tar.xz") as archive:
        return sorted({name.split("/")[0] for name in archive.getnames()})


@dataclass(frozen=True)
class State:
    """A broker's log directories at one moment, and what Kafka said about them."""

    name: str
    root: Path
    expected: Path

    @property
    def log_dirs(self) -> list[Path]:
        if (self.root / "meta.properties").exists():
            return [self.root]
        return sorted(path for path in self.root.iterdir() if path.is_dir())

    def partitions(self) -> list[Path]:
        return sorted(
            path for log_dir in self.log_dirs for path in log_dir.iterdir() if path.is_dir()
        )


_MEMORY = Path("/dev/shm")  # noqa: S108 # pytest makes a directory of its own there
_ROOM_MIN = 8 << 30
"""More than all tests ever have at once: they remove what they made."""


_QUICK_JVM = (
    "-XX:TieredStopAtLevel=1 -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)


def pytest_configure(config: pytest.Config) -> None:
    """Let Ctrl-C reach what tests start, and keep their files in memory where there is room.

    A shell that runs a job in the background lets it ignore SIGINT, and its children inherit that.
    Tests sync thousands of small files.

    The JVMs that tests start live for seconds. The optimizing compiler costs more than it gains in
    that time, and so does verifying the classes of Kafka and Spark, which takes a sixth of Spark's
    start.

    Of the processes of a run the one that hears of all tests notes what passes.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.setdefault("JAVA_TOOL_OPTIONS", _QUICK_JVM)
    os.environ["KAFKALOG_PAGER"] = "cat"  # on the terminal of a test nobody leaves a pager
    if _MEMORY.is_dir() and min(shutil.disk_usage(_MEMORY).free, _free_memory()) > _ROOM_MIN:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))
    path = os.environ.get(passes.VARIABLE)
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(passes.Passes(Path(path)))


def _free_memory() -> int:
    """Return how much memory programs can use without swapping."""
    text = Path("/proc/meminfo").read_text()
    return 1024 * int(text.partition("MemAvailable:")[2].split()[0])


@pytest.fixture
def disk_path() -> Iterator[Path]:
    """A directory on a disk; `tmp_path` may be in memory only."""
    with tempfile.TemporaryDirectory(prefix="kafkalog-tests-") as path:
        yield Path(path)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None]:
    """Let one process compile the test modules, whose bytecode the others then load.

    What is collected lives as long as the process, so the garbage collector need not walk over it
    again and again. It does so at the exit only: else some libraries report leaks.
    """
    gc.disable()
    with open(__file__, "rb") as lock:
        if not sys.dont_write_bytecode:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                fcntl.flock(lock, fcntl.LOCK_SH)
        result = yield
    gc.freeze()
    gc.enable()
    atexit.register(gc.unfreeze)
    return result


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect some cases of long proofs, and what passed before a run was stopped."""
    for choose in (sample_of, passes.missing):
        items[:], left_out = choose(items)
        if left_out:
            config.hook.pytest_deselected(items=left_out)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Start two processes more than there are processors: many tests wait for other programs."""
    return len(os.sched_getaffinity(0)) + 2


_OF_CLUSTERS = ("cluster", "commands_on_a_cluster", "other_disks", "paths", "session")
_OF_SPARK = ("tests/spark/", "::test_examples_with_spark_run")
_OF_SPARK_AND_KAFKA = ("/test_living_broker.py", "/test_spark_kafka_")


class BySetUp(LoadScopeScheduling):
    """Schedules tests that share an expensive setup in the same process, the longest first.

    One process gets the tests with the Spark session, one those that also need a broker, and one
    those with the cluster. The tests of a file stay in one process, so that its fixtures are made
    once; of crashes those of a command. What takes longest starts first, by
    `tests/durations.json`: then all processes end at about the same time.
    """

    def _split_scope(self, nodeid: str) -> str:
        if any(f"tests/spark/test_{name}.py" in nodeid for name in _OF_CLUSTERS):
            return "cluster"
        if any(name in nodeid for name in _OF_SPARK):
            return "spark"
        if any(name in nodeid for name in _OF_SPARK_AND_KAFKA):
            return "spark and kafka"
        file, _, test = nodeid.partition("::")
        return f"{file}{test[test.index('[') :]}" if "/crash/test_crashes" in file else file

    def _assign_work_unit(self, node: Any) -> None:
        if not any(self.assigned_work.values()):
            kept = durations.kept()
            seconds = {
                scope: sum(kept.get(name, 0) for name in unit)
                for scope, unit in self.workqueue.items()
            }
            for scope in sorted(seconds, key=seconds.__getitem__, reverse=True):
                self.workqueue.move_to_end(scope)
        super()._assign_work_unit(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> BySetUp:
    return BySetUp(config, log)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session in this process with two workers, silent; starting it takes some ten seconds.

    If Java is missing, the tests that need it fail; they are never skipped.
    """
    from kafkalog.spark.session import spark_session
    from tests.spark.cluster import QUICK

    conf = {"spark.sql.shuffle.partitions": "2", "spark.driver.maxResultSize": "32m", **QUICK}
    with pytest.MonkeyPatch.context() as patched:
        # Workers import the functions of the tests.
        patched.setenv("PYTHONPATH", str(ROOT))
        with spark_session("local[2]", conf) as session:
            yield session


@pytest.fixture
def tell(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Report how much was tried; the summary of the run shows it even if the test passes."""
    return lambda text: record_property("tried", text)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests reported with `tell`, and how long each folder took."""
    reports = [one for some in terminalreporter.stats.values() for one in some]
    seconds = durations.of_reports(one for one in reports if isinstance(one, pytest.TestReport))
    terminalreporter.section("time per folder: seconds, share, cases")
    terminalreporter.write("\n".join([*durations.by_folder(seconds), ""]))
    durations.write_table(seconds)
    properties = [one.user_properties for one in terminalreporter.getreports("passed")]
    lines = [str(text) for some in properties for name, text in some if name == "tried"]
    if lines:
        terminalreporter.section("how much was tried")
        terminalreporter.write("\n".join([*sorted(lines), ""]))


@pytest.fixture(scope="session", autouse=True)
def _kernels() -> None:
    """Build the kernels from the sources in this checkout."""
    with Path(library.__file__).with_suffix(".so.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of several test processes one builds them
        if not library.is_current():
            library.build()
    assert library.is_current()
    if os.environ.get("KAFKALOG_GUARDED"):
        from tests.soak.guard import guard_kernels

        guard_kernels()


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Wait a moment for what fails for now, not a minute."""
    monkeypatch.setattr(retry, "BUDGET_S", 0.2)
    with retry.retrying():
        yield


@pytest.fixture(autouse=True)
def _tier_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the keys of tiers that a test gave: other processes get all keys."""
    monkeypatch.setattr(tier_keys, "_keys", {})


@pytest.fixture(scope="session")
def corpus_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked corpus; with several test processes the first one unpacks it for all."""
    base = tmp_path_factory.getbasetemp()
    if base.name.startswith("popen-"):
        base = base.parent
    target = base / "corpus"
    with (base / "corpus.lock").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        if not (target / "done").exists():
            for archive in sorted(CORPUS.glob("*/*.tar.*")):
                place = target / archive.parent.name
                if archive.parent.name == "kafka-2.8" and archive.name.endswith(".tar.gz"):
                    place /= archive.name[:-7]
                place.mkdir(parents=True, exist_ok=True)
                subprocess.run(["tar", "-xf", archive, "-C", place], check=True)
            for scenario in SCENARIOS:
                log = target / "lookup" / scenario / "log.tar.gz"
                subprocess.run(["tar", "-xf", log, "-C", log.parent], check=True)
            (target / "done").touch()
    return target


def state(corpus_dir: Path, release: str, name: str) -> State:
    root = corpus_dir / release
    return State(name, root / name, root / f"{name}.expected")


@pytest.fixture(params=[*OF_KAFKA_4, *(("kafka-2.8", name) for name in STATES_28)], ids="-".join)
def any_state(request: pytest.FixtureRequest, corpus_dir: Path) -> State:
    """Each archive of the corpus."""
    return state(corpus_dir, *request.param)


@dataclass(frozen=True)
class Result:
    """What one command line printed, and its exit status."""

    status: int
    stdout: bytes
    stderr: str


@pytest.fixture
def kafkalog(capfdbinary: pytest.CaptureFixture[bytes]) -> Callable[..., Result]:
    """Run `kafkalog` with some arguments in this process."""

    def call(*argv: object) -> Result:
        capfdbinary.readouterr()
        status = run([str(word) for word in argv])
        captured = capfdbinary.readouterr()
        if "ndjson" in argv and argv[0] != "sql" and find_spec("jsonschema") is not None:
            from tests.schemas import check_rows

            check_rows(captured.out)
        return Result(status, captured.out, captured.err.decode())

    return call
