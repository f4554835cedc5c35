"""Runs a Spark job and waits for it: reports progress, and cancels it on an interrupt.

A py4j call blocks its thread until the JVM answers. So it runs in a thread of its own.
"""

from __future__ import annotations

import gc
import importlib
import threading
import uuid
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from kafkalog.paths import file_system
from kafkalog.spark.errors import driver_lost, errors_as_ours

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import SparkSession


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
    except OSError as raised:
        raise driver_lost() from raised
    except KeyboardInterrupt:
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
    """

    name: str
    given: tuple[str, ...]

    @classmethod
    def of(cls, function: Callable[..., object]) -> Self:
        """Return the reference to a function."""
        return cls(
            f"{function.__module__}:{function.__name__}", tuple(file_system.registered_uris())
        )

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
