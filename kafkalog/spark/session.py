"""Sessions of Spark: local[*], a cluster, or Spark Connect; created and ended in one place.

A session writes nothing to stderr: Spark's and Java's output goes to a file, which is named when
they fail. No process and no file is left when the block ends.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import socket
import tempfile
import time
import warnings
from concurrent.futures import Future, wait
from contextlib import ExitStack, contextmanager, suppress
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kafkalog.errors import EngineError, KafkaLogError, UsageError
from kafkalog.spark.job import (
    call_within,
    driver_lost,
    errors_as_ours,
    in_thread,
    reason_in,
    spark_error,
)
from kafkalog.spark.settings import (
    SQL_SETTINGS,
    check_master,
    driver_environment,
    driver_settings,
    environment,
    find_java,
    is_connect,
    is_local,
    require_connect,
    require_pyspark,
    silent_loggers,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import SparkSession

    from kafkalog.spark.settings import DriverProcess


_STOP_S = 10.0


@contextmanager
def remote_session(
    master: str, conf: Mapping[str, str], timeout_s: float
) -> Iterator[SparkSession]:
    """Open a new session on a Spark Connect server.

    Raises:
        UsageError: the address is malformed, or the server rejects a setting.
        EngineError: the server does not answer in time.
    """
    said = {
        "SPARK_CONNECT_MODE_ENABLED": "1",
        "GRPC_VERBOSITY": os.environ.get("GRPC_VERBOSITY", "NONE"),  # gRPC would write to stderr
    }
    with environment(said):
        _wait_for_server(master, timeout_s)
        from pyspark.sql import SparkSession

        def connect() -> SparkSession:
            session = SparkSession.builder.remote(master).create()
            for name, value in SQL_SETTINGS.items():
                session.conf.set(name, value)
            return session

        try:
            session = call_within(timeout_s, connect)
        except TimeoutError:
            raise _no_answer(master, timeout_s) from None
        try:
            _set_all(session, conf)
            yield session
        finally:
            with suppress(Exception):  # the session is over, whatever the server says
                call_within(_STOP_S, session.stop)


def _wait_for_server(master: str, timeout_s: float) -> None:
    """Check early that the server is reachable, because a call would be retried for minutes."""
    import grpc
    from pyspark.errors import PySparkException
    from pyspark.sql.connect.client import DefaultChannelBuilder  # what the session itself uses

    try:
        channel = DefaultChannelBuilder(master).toChannel()
    except PySparkException as raised:
        raise UsageError(f"{master!r} is not a Spark Connect address: {raised}") from raised
    try:
        grpc.channel_ready_future(channel).result(timeout_s)
    except grpc.FutureTimeoutError:
        raise _no_answer(master, timeout_s) from None
    finally:
        channel.close()


def _no_answer(master: str, timeout_s: float) -> EngineError:
    return EngineError(
        f"{master} did not answer within {timeout_s:g} seconds.",
        hint="Does a Spark Connect server run there? The setting kafkalog.connect.timeout is how "
        "long to wait.",
    )


def _set_all(session: Any, conf: Mapping[str, str]) -> None:
    from pyspark.errors import PySparkException

    for name, value in conf.items():
        try:
            session.conf.set(name, value)
        except PySparkException as raised:
            raise UsageError(
                f"The server does not let {name} be set to {value!r}.",
                note=str(raised).partition("\n")[0],
                hint="Over Spark Connect only session settings can be changed.",
            ) from raised


CONNECT_TIMEOUT_S: Final = 30.0
"""Default time limit for a master to answer."""

END_TIMEOUT_S: Final = 15.0
"""Default time limit for a driver to end."""

_JVM_START_S: Final = 120.0
_JVM_STOP_S: Final = 15.0
_LOOK_S: Final = 0.1
_SET_BY_PYSPARK: Final = (
    "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "SPARK_AUTH_SOCKET_TIMEOUT",
    "SPARK_BUFFER_SIZE",
)  # fmt: skip
"""Variables that pyspark sets in a thread. Add them before the thread starts: adding a variable can
move the environment, and another thread may read it meanwhile."""
_PREFIX: Final = "kafkalog-spark-"
_LOCK: Final = "session.lock"
_Result = TypeVar("_Result")


@contextmanager
def spark_session(
    master: str = "local[*]",
    conf: Mapping[str, str] | None = None,
    *,
    connect_timeout_s: float = CONNECT_TIMEOUT_S,
    end_timeout_s: float = END_TIMEOUT_S,
) -> Iterator[SparkSession]:
    """Open a session that ends with the block.

    If this process already has a session with a driver, that one is used unchanged and stays open:
    Spark allows no second one.

    Args:
        master: `local[*]`, `local[N]`, `spark://…`, `yarn`, `k8s://…`, or `sc://…`
            (Spark Connect).
        conf: Spark settings, which override ours and those of `spark-defaults.conf`.
        connect_timeout_s: how long the master may take to answer.
        end_timeout_s: how long the driver may take to end before it is killed.

    Raises:
        UsageError: the master or a setting is invalid; another session is open; also, from the
            block, a query that Spark does not understand.
        UnsupportedError: pyspark or Java is missing or too old, or kafkalog is missing where
            the tasks run.
        EngineError: the master does not answer, or Spark failed in the block. The note names
            the log, which is kept.
        OutOfMemoryError: Spark ran out of memory in the block.

    Cost:
        About 4 to 8 seconds with a driver of its own. The driver takes `spark.driver.memory`;
        by default at most 3 GiB with local masters, else 1 GiB.
    """
    with starting_session(
        master, conf, connect_timeout_s=connect_timeout_s, end_timeout_s=end_timeout_s
    ) as started:
        yield started()


@contextmanager
def starting_session(
    master: str = "local[*]",
    conf: Mapping[str, str] | None = None,
    *,
    connect_timeout_s: float = CONNECT_TIMEOUT_S,
    end_timeout_s: float = END_TIMEOUT_S,
) -> Iterator[Callable[[], SparkSession]]:
    """Start a session in the background; the block gets a function that waits for it.

    Arguments, errors and cost are those of `spark_session`. A start that fails is an error where
    the session is asked for; a session that nobody asks for ends with the block as well.
    """
    check_master(master)
    require_pyspark()
    conf = dict(conf or {})
    session = _open_already(master)
    if session is not None:
        with errors_as_ours():
            yield lambda: session
    elif is_connect(master):
        require_connect()

        with silent_loggers(), errors_as_ours(), ExitStack() as opened:
            remote = remote_session(master, conf, connect_timeout_s)
            yield cache(lambda: opened.enter_context(remote))
    else:
        with _own_driver(master, conf, connect_timeout_s, end_timeout_s) as started:
            yield started


def _open_already(master: str) -> SparkSession | None:
    """Return the session with a driver that this process already has, or None."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    # SparkSession.active() misses a context without a session, and takes a stopped one for active.
    context = SparkContext._active_spark_context  # noqa: SLF001
    if context is None:
        return None
    there = str(context.master)
    if there != master and not (is_local(there) and is_local(master)):
        raise UsageError(
            f"This process already has a Spark session with {there}.",
            hint="One process has one driver: end that session first.",
        )
    return SparkSession.builder.getOrCreate()


@contextmanager
def _own_driver(
    master: str, conf: Mapping[str, str], timeout_s: float, end_timeout_s: float
) -> Iterator[Callable[[], SparkSession]]:
    from kafkalog.spark.settings import DriverProcess, java_options

    find_java()
    if master.startswith("spark://"):
        _look_for_master(master, timeout_s)
    with (
        scratch_directory() as directory,
        environment(driver_environment(master, conf)),
        silent_loggers(),
        ExitStack() as held,
    ):
        settings = driver_settings(master, conf, directory, java_options(directory))
        process = DriverProcess(directory, settings)
        held.enter_context(environment({n: os.environ.get(n, "") for n in _SET_BY_PYSPARK}))
        connected = in_thread(partial(_connected, process, master, timeout_s))
        try:
            with errors_as_ours():  # the text of some is in the JVM
                yield connected.result
        except OSError as raised:
            if process.is_alive:
                raise
            raise driver_lost() from raised
        finally:
            _end(process, connected, end_timeout_s)


def _look_for_master(master: str, timeout_s: float) -> None:
    """Raise if no standalone master listens, before a JVM is started in vain."""
    reason = ""
    for place in master.removeprefix("spark://").split(","):
        host, _, port = place.rpartition(":")
        if not re.fullmatch(r"\d{1,5}", port) or not host:
            raise UsageError(f"{place!r} is not of the form HOST:PORT.", hint="spark://HOST:PORT")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout_s).close()
        except (OSError, OverflowError) as raised:
            reason = str(raised)
        else:
            return
    raise EngineError(f"No Spark master answers at {master}.", note=f"{reason}.")


def _connected(process: DriverProcess, master: str, timeout_s: float) -> SparkSession:
    """Return the session of a JVM; the master must answer in time."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway = process.connect(_JVM_START_S)

    def connect() -> SparkSession:
        context: Any = SparkContext(gateway=gateway)
        # It would print the errors of a dying JVM to stderr; nothing public sets that server.
        context._accumulatorServer.handle_error = _pass_over  # noqa: SLF001
        return SparkSession(context)

    limit_s = max(timeout_s, _JVM_START_S) if is_local(master) else timeout_s
    try:
        return _result_within(limit_s, in_thread(connect), process, master)
    except TimeoutError:
        process.kill()
        raise EngineError(
            f"{master} did not answer within {limit_s:g} seconds.",
            note=reason_in(process.log_path),
            hint="The setting kafkalog.connect.timeout is how long to wait; the log may say more.",
        ) from None


def _result_within(
    limit_s: float, future: Future[_Result], process: DriverProcess, master: str
) -> _Result:
    """Wait for a session, as long as the master may take to answer.

    The driver logs when it contacts a standalone master and when that has registered it. The rest
    of its start is its own: on a busy machine that can take longer than the master.

    Raises:
        TimeoutError: the master did not answer in time.
        EngineError: the master is not to blame, but the driver does not finish starting.
    """
    from kafkalog.spark.settings import ASKS_MASTER, IS_REGISTERED

    is_standalone = master.startswith("spark://")
    began = time.monotonic()
    asked = None if is_standalone else began
    while not wait([future], _LOOK_S).done:
        now = time.monotonic()
        if asked is None and process.has_logged(ASKS_MASTER):
            asked = now
        if asked is None or (is_standalone and process.has_logged(IS_REGISTERED)):
            if now - began > _JVM_START_S + limit_s:
                process.kill()
                raise EngineError("The Spark driver did not finish starting.")
        elif now - asked > limit_s:
            raise TimeoutError
    return future.result()


def _pass_over(*_: object) -> None:
    """Ignore the broken sockets of a dying JVM; its waiters get an error."""


def _end(process: DriverProcess, connected: Future[SparkSession], timeout_s: float) -> None:
    """Stop the session, end the JVM, and make pyspark forget both."""
    # In this order: pyspark asks the JVM while it stops.
    session = None
    try:
        if connected.done() and connected.exception() is None:
            session = connected.result()
        if session is not None and process.is_alive:
            with suppress(Exception):  # from a dying driver: it is ended below
                call_within(_JVM_STOP_S, session.stop)
        process.end(timeout_s)
    finally:
        process.kill()
        wait([connected], _JVM_STOP_S)  # a start that nobody waited for fails now
        _forget(session)


def _forget(session: Any) -> None:
    """Clear what pyspark keeps in its classes; otherwise it would keep using the dead JVM."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if session is not None:
        with warnings.catch_warnings(), suppress(Exception):  # it closes whatever it still can
            warnings.simplefilter("ignore", RuntimeWarning)
            session.sparkContext.stop()
        with suppress(Exception):  # if the JVM does not answer, the first attempt stops early
            session.sparkContext.stop()
    # stop() clears these only if the JVM still answers, and the gateway never: pyspark expects one
    # JVM per process.
    SparkContext._active_spark_context = None  # noqa: SLF001
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
    SparkSession._instantiatedSession = SparkSession._activeSession = None  # noqa: SLF001


@contextmanager
def scratch_directory() -> Iterator[str]:
    """Create a directory for a session or a query. After an error of Spark its log stays there.

    The next session removes leftovers of killed processes: a lock shows which are alive.
    """
    _sweep()
    directory = tempfile.mkdtemp(prefix=_PREFIX)
    kept = False
    with open(os.path.join(directory, "new.lock"), "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.rename(lock.name, os.path.join(directory, _LOCK))  # nobody sees it unlocked
        try:
            with errors_as_ours():
                yield directory
        except KafkaLogError as error:
            kept = spark_error(error) is not None and _keep_log(directory, error)
            raise
        finally:
            if not kept:
                shutil.rmtree(directory, ignore_errors=True)


def _sweep() -> None:
    """Remove the directories of this user's sessions whose processes are dead."""
    # Tidying up must not keep a session from starting.
    with suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            is_session = entry.name.startswith(_PREFIX) and entry.is_dir(follow_symlinks=False)
            if is_session and entry.stat(follow_symlinks=False).st_uid == os.geteuid():
                _remove_if_dead(entry.path)


def _remove_if_dead(directory: str) -> None:
    """Remove a session's directory, unless its process is alive or it is an unlocked, kept log."""
    flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    with suppress(OSError):
        descriptor = os.open(os.path.join(directory, _LOCK), flags)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(directory, ignore_errors=True)
        finally:
            os.close(descriptor)


def _keep_log(directory: str, error: KafkaLogError) -> bool:
    """Remove all but the log, and name it in the error; return whether there is one."""
    from kafkalog.spark.settings import LOG_NAME

    log = os.path.join(directory, LOG_NAME)
    if isinstance(error, UsageError) or not os.path.exists(log) or not os.path.getsize(log):
        return False
    for entry in os.scandir(directory):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
        elif entry.name != LOG_NAME:
            with suppress(FileNotFoundError):
                os.unlink(entry.path)
    error.note = f"{error.note} Spark's log: {log}" if error.note else f"Spark's log: {log}"
    return True
