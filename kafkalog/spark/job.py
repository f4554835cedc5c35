"""Runs a Spark job and waits for it: reports progress, cancels it on an interrupt, explains errors.

A py4j call blocks its thread until the JVM answers. So it runs in a thread of its own.

An error in a task arrives as text with a traceback in it, a failure in the driver as a Java
exception, and a dead driver as a refused connection.
"""

from __future__ import annotations

import gc
import importlib
import re
import threading
import uuid
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeVar

from kafkalog import errors
from kafkalog.errors import (
    EngineError,
    InternalError,
    KafkaLogError,
    LimitExceededError,
    OutOfMemoryError,
    UnsupportedError,
    UsageError,
)
from kafkalog.io.paths import file_system
from kafkalog.io.paths.tier_keys import TierKeys, keys_in_use

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import SparkSession


_OURS: Final = re.compile(
    r"kafkalog\.errors\.(\w+): (.+?)(?: \[([^]]+?)(?:, position (\d+))?])?$", re.MULTILINE
)
_PYTHON: Final = re.compile(
    r"^(?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit)(?:: .+)?$", re.MULTILINE
)
_OUR_CODE: Final = re.compile(r'File "[^"]*\b(?:pyspark_)?kafkalog[/\\][^"]*\.py", line')
_JAVA: Final = re.compile(r"^(.*[ .]|)(\w+(?:Exception|Error)): (.+)$", re.MULTILINE)
_CAUSE: Final = re.compile(r"^Caused by: (?:[\w.$]+: )?(.+)$", re.MULTILINE)
_LENGTH_MAX: Final = 300
_LOG_TAIL_SIZE: Final = 256 << 10


def spark_error(raised: BaseException) -> KafkaLogError | None:
    """Return our error for an error of Spark; None if Spark did not raise it.

    One of our errors that already stands for one of Spark's is returned unchanged.
    """
    if isinstance(raised, KafkaLogError):
        is_of_spark = isinstance(raised, EngineError) or _is_of_spark(raised.__cause__)
        return raised if is_of_spark else None
    if not _is_of_spark(raised):
        return None
    return _error_of(_text_of(raised), is_query=_is_query(raised))


@contextmanager
def errors_as_ours() -> Iterator[None]:
    """Translate errors of Spark that leave the block."""
    try:
        yield
    except Exception as raised:  # raised by three packages, one of which may be missing
        error = spark_error(raised)
        if error is None or error is raised:
            raise
        raise error from raised


def driver_lost() -> EngineError:
    """Return the error for a JVM that has died."""
    return EngineError(
        "The Spark driver died.",
        hint="If memory ran out: --spark-conf spark.driver.memory=4g",
    )


def reason_in(log_path: str) -> str | None:
    """Return the first cause, else the first exception, in a log of Spark's, as `Name: message.`"""
    try:
        with open(log_path, "rb") as log:
            log.seek(max(0, log.seek(0, 2) - _LOG_TAIL_SIZE))
            text = log.read().decode(errors="replace")
    except OSError:
        return None
    found = [match for match in _JAVA.findall(text) if not match[0].startswith("\tat")]
    if not found:
        return None
    causes = [match for match in found if match[0].startswith("Caused by: ")]
    _, name, message = (causes or found)[0]  # later ones are often consequences
    return f"{name}: {_shortened(message).rstrip('.')}."


def _is_of_spark(raised: BaseException | None) -> bool:
    """Return whether pyspark, py4j or gRPC raised it; packages that were not loaded cannot have."""
    names = {kind.__module__.partition(".")[0] for kind in type(raised).__mro__}
    return bool(names & {"pyspark", "py4j", "grpc"})


def _is_query(raised: BaseException) -> bool:
    """Return whether the error is about the query itself."""
    return type(raised).__name__ in {"AnalysisException", "ParseException"}


def _text_of(raised: BaseException) -> str:
    """Return the error's full text; a Java exception is asked for it, unless its JVM is dead."""
    try:
        return str(raised)
    except Exception:  # noqa: BLE001 # py4j asks the JVM for the text, and anything can come of it
        return f"{type(raised).__name__}: the driver does not answer"


def _error_of(text: str, *, is_query: bool) -> KafkaLogError:
    ours = _OURS.findall(text)
    if ours:
        name, message, path, position = ours[-1]  # the innermost one is the cause
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, KafkaLogError):
            error: KafkaLogError = kind(
                message.strip(),
                path=path or None,
                position=int(position) if position else None,
            )
            return error
    for pattern, make in _KNOWN:
        if re.search(pattern, text):
            return make(text)
    if is_query:
        return UsageError(_first_line(text))
    in_python = _PYTHON.findall(text) if "Traceback (most recent call last)" in text else []
    # A failing disk or network is no fault of ours.
    if in_python and _OUR_CODE.search(text) and not in_python[-1].startswith("OSError"):
        return InternalError(
            f"internal error in a Spark task: {_shortened(in_python[-1])}",
            note="This is not about the data; no answer of this run is complete.",
        )
    if in_python:
        return EngineError(f"A Spark task failed: {_shortened(in_python[-1])}")
    causes = _CAUSE.findall(text)
    return EngineError(f"Spark failed: {_shortened(causes[-1]) if causes else _first_line(text)}")


def _first_line(text: str) -> str:
    """Return the first informative line of an exception."""
    for line in text.splitlines():
        if line.strip() and not re.match(r"An error occurred while calling|\s*at |: *$", line):
            return _shortened(line.strip().lstrip(": "))
    return "no reason given."


def _shortened(text: str) -> str:
    text = re.sub(r" *SQLSTATE: \w+", "", text).strip()
    return text if len(text) <= _LENGTH_MAX else text[: _LENGTH_MAX - 1] + "…"


def _not_installed(_: str) -> KafkaLogError:
    return UnsupportedError(
        "kafkalog is not installed where Spark tasks run.",
        hint="Install kafkalog[spark] on every machine of the cluster, and name its Python: "
        "--spark-conf spark.pyspark.python=/path/to/python",
    )


def _other_python(_: str) -> KafkaLogError:
    return UnsupportedError(
        "Spark tasks run with another version of Python.",
        hint="Name a Python of the same version: --spark-conf spark.pyspark.python=/path/to/python",
    )


def _results_too_large(_: str) -> KafkaLogError:
    return LimitExceededError(
        "The results of all tasks exceed the limit of the driver.",
        hint="--spark-conf spark.driver.maxResultSize=4g",
    )


def _out_of_memory(_: str) -> KafkaLogError:
    return OutOfMemoryError(
        "Spark ran out of memory.",
        hint="--spark-conf spark.driver.memory=4g, and spark.executor.memory on a cluster",
    )


def _worker_lost(text: str) -> KafkaLogError:
    lost = re.search(r"ExecutorLostFailure[^\n]*|Python worker exited unexpectedly", text)
    return EngineError(
        "Spark workers were lost repeatedly.",
        note=_shortened(lost[0]) if lost else None,
        hint="If memory ran out: --spark-conf spark.executor.memory=4g",
    )


def _ended(_: str) -> KafkaLogError:
    return EngineError("The Spark cluster ended the application.", hint="See its log.")


def _lost(_: str) -> KafkaLogError:
    return driver_lost()


_KNOWN: Final[tuple[tuple[str, Callable[[str], KafkaLogError]], ...]] = (
    (r"ModuleNotFoundError: No module named '(kafkalog|formats)\b", _not_installed),
    (r"PYTHON_VERSION_MISMATCH", _other_python),
    (r"spark\.driver\.maxResultSize", _results_too_large),
    (r"OutOfMemoryError|\bMemoryError\b|ArrowMemoryError", _out_of_memory),
    (r"ExecutorLostFailure|Python worker exited unexpectedly", _worker_lost),
    (r"Answer from Java side is empty|Error while (sending|receiving)|does not answer", _lost),
    (r"stopped SparkContext|SparkContext (was|has been) shut ?down", _ended),
    (r"\A\s*An error occurred while calling \S+\s*\Z", _lost),
    (r"StatusCode\.UNAVAILABLE", _lost),
)


_POLL_S = 0.2
_CANCEL_S = 5.0
_Result = TypeVar("_Result")


def run_job(
    session: SparkSession, action: Callable[[], _Result], tell: Callable[[int], None] | None = None
) -> _Result:
    """Run an action of Spark, such as `frame.collect`, and return its result.

    Args:
        session: a session of this process or of Spark Connect.
        action: called in another thread.
        tell: called in this thread with the number of tasks that the last stage has done so far,
            once there is more than one stage.

    Raises:
        KafkaLogError: Spark could not do it.
        KeyboardInterrupt: the job was cancelled first.
    """
    job: _Job = _RemoteJob(session) if is_remote(session) else _DriverJob(session)

    def act() -> _Result:
        job.begin()
        return action()

    future: Future[_Result] = in_thread(act)
    try:
        with errors_as_ours():
            while not wait([future], _POLL_S).done:
                if tell is not None:
                    tell(job.tasks_done())
            return future.result()
    # py4j reaches nobody any more.
    except OSError as raised:
        raise driver_lost() from raised
    except KeyboardInterrupt:
        # A JVM that hangs must not hold up Ctrl-C.
        with suppress(TimeoutError):
            call_within(_CANCEL_S, job.cancel)
        wait([future], _CANCEL_S)
        raise
    finally:
        job.end()


def is_remote(session: SparkSession) -> bool:
    """Return whether the session belongs to Spark Connect."""
    return type(session).__module__.startswith("pyspark.sql.connect.")


class _Job(Protocol):
    def begin(self) -> None:
        """Start; called in the thread that runs the action."""

    def tasks_done(self) -> int:
        """Return how many tasks the last stage has done; 0 while there is only one stage."""

    def cancel(self) -> None:
        """Cancel the running job."""

    def end(self) -> None:
        """Stop waiting."""


class _DriverJob:
    """Observes a local driver: a job group, through the status tracker."""

    def __init__(self, session: SparkSession) -> None:
        self._context = session.sparkContext
        self._group = f"kafkalog-{uuid.uuid4()}"

    def begin(self) -> None:
        self._context.setJobGroup(self._group, "kafkalog", interruptOnCancel=True)

    def tasks_done(self) -> int:
        tracker = self._context.statusTracker()
        stages: set[int] = set()
        for job in tracker.getJobIdsForGroup(self._group):
            info = tracker.getJobInfo(job)
            stages.update(info.stageIds if info is not None else ())
        if len(stages) < 2:
            return 0
        last = tracker.getStageInfo(max(stages))
        # Its information is dropped after a while.
        return 0 if last is None else int(last.numCompletedTasks)

    def cancel(self) -> None:
        self._context.cancelJobGroup(self._group)

    def end(self) -> None:
        pass


class _RemoteJob:
    """Observes a Spark Connect server: a tag, and the server's progress reports on its stages."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._tag = f"kafkalog-{uuid.uuid4()}"
        self._stages: dict[int, int] = {}
        session.registerProgressHandler(self._hear)  # type: ignore[arg-type] # wider

    def _hear(self, *, stages: Iterable[Any] | None, **_: object) -> None:
        for stage in stages or ():
            self._stages[stage.stage_id] = stage.num_completed_tasks

    def begin(self) -> None:
        self._session.addTag(self._tag)

    def tasks_done(self) -> int:
        stages = dict(self._stages)
        return stages[max(stages)] if len(stages) > 1 else 0

    def cancel(self) -> None:
        self._session.interruptTag(self._tag)

    def end(self) -> None:
        self._session.removeProgressHandler(self._hear)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Called:
    """A function of one of our modules, sent to a worker.

    Attributes:
        name: `module:function`.
        given: URIs that were registered in this process: their options apply there, too.
        keys: the keys of tiers that this process uses: it uses them there, too.
    """

    name: str
    given: tuple[str, ...] = field(repr=False)
    keys: TierKeys = field(repr=False)

    @classmethod
    def of(cls, function: Callable[..., object]) -> Self:
        name = f"{function.__module__}:{function.__name__}"
        return cls(name, tuple(file_system.registered_uris()), keys_in_use())

    def load(self) -> Callable[..., Any]:
        """Return the function, in the worker."""
        module, _, function = self.name.partition(":")
        found: Callable[..., Any] = getattr(importlib.import_module(module), function)
        settle(self.given)
        return found


def settle(given: tuple[str, ...]) -> None:
    """Prepare a worker: register the URIs, and exempt loaded objects from garbage collection."""
    for uri in given:
        file_system.normalize(uri)
    if not gc.get_freeze_count():
        gc.freeze()  # hidden from the garbage collector, once per worker


def in_thread(function: Callable[[], _Result]) -> Future[_Result]:
    """Call a function in a thread that does not keep this process from ending."""
    future: Future[_Result] = Future()

    def call() -> None:
        try:
            result = function()
        except BaseException as raised:  # noqa: BLE001 # raised again in the thread that waits
            future.set_exception(raised)
        else:
            future.set_result(result)

    threading.Thread(target=call, name="kafkalog-spark", daemon=True).start()
    return future


def call_within(timeout_s: float, function: Callable[[], _Result]) -> _Result:
    """Call a function; raise `TimeoutError` after `timeout_s`, while it keeps running."""
    return in_thread(function).result(timeout_s)
