"""The engine that `--spark` and `--spark-conf` choose."""

from __future__ import annotations

import signal
import sys
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from formats.late_classes import dataclass
from kafkalog.errors import UsageError
from kafkalog.io.paths.requests import requests
from kafkalog_cli.session import session
from kafkalog_cli.values import parse_duration, parse_settings, parse_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kafkalog.io.engine import Engine
    from kafkalog_cli.options import Spark

_CONNECT_TIMEOUT: Final = "kafkalog.connect.timeout"
_TASK_MEMORY: Final = "kafkalog.task.memory"
_OURS: Final = {_CONNECT_TIMEOUT: "30s", _TASK_MEMORY: "1GiB"}
"""What `--spark-conf` sets besides Spark's own settings: name to default."""


@dataclass(frozen=True)
class EngineChoice:
    """What runs the tasks of a command.

    Attributes:
        url: the Spark master; None for this process.
        conf: settings of Spark, and ours.
        threads: how many threads this process uses; None for one per processor, up to 8.
    """

    url: str | None
    conf: Mapping[str, str]
    threads: int | None = None

    @property
    def is_spark(self) -> bool:
        return self.url is not None

    @property
    def task_memory(self) -> int:
        """The memory for the keys of one task, in bytes. Raises `UsageError`."""
        return parse_size(self._own(_TASK_MEMORY))

    def _own(self, name: str) -> str:
        return self.conf.get(name, _OURS[name])

    @contextmanager
    def start_spark(self) -> Iterator[Callable[[], Any]]:
        """Start a `pyspark.sql.SparkSession`, which ends with the block; what it gets waits for it.

        Raises:
            UsageError: requests are bounded.
            KafkaLogError: as `starting_session`.
        """
        assert self.url is not None, "Spark was not chosen"
        requests().leave()  # tasks in other processes would not keep to the bound
        from kafkalog.spark.session import starting_session
        from kafkalog_cli.output.progress import waiting_for
        from kafkalog_cli.without_pandas import show_pandas

        show_pandas()
        conf = {name: value for name, value in self.conf.items() if name not in _OURS}
        timeout_s = parse_duration(self._own(_CONNECT_TIMEOUT))
        with (
            _broken_pipes_raised(),
            starting_session(self.url, conf, connect_timeout_s=timeout_s) as started,
        ):

            def opened() -> Any:
                with waiting_for("starting Spark …", enabled=not session().is_quiet):
                    return started()

            yield opened

    @contextmanager
    def open(self) -> Iterator[Engine]:
        """Open the engine, which ends with the block; Spark starts only on request.

        Raises:
            KafkaLogError: as `start_spark`.
        """
        with self.start() as engine:
            yield engine()

    @contextmanager
    def start(self) -> Iterator[Callable[[], Engine]]:
        """Start the engine while the block plans; what it gets waits for it. Raises as `open`."""
        if not self.is_spark:
            from kafkalog.io.engine import LocalEngine

            yield lambda: _shown(LocalEngine(self.threads))
            return
        with self.start_spark() as started:
            from kafkalog.spark.engine import SparkEngine

            def engine() -> Engine:
                return _shown(SparkEngine(started()))

            yield cache(engine)  # a second call must not start another


def engine_choice(given: Spark, threads: int | None = None) -> EngineChoice:
    """Return what runs the tasks: Spark, or threads of this process.

    Raises:
        UsageError: there are settings without Spark, one is not NAME=VALUE, or not one of ours.
    """
    settings = parse_settings(given.spark_conf, "--spark-conf", "a Spark setting")
    if settings and given.spark is None:
        raise UsageError("--spark-conf requires --spark.", hint="For example --spark 'local[*]'.")
    for name in settings:
        if name.startswith("kafkalog.") and name not in _OURS:
            raise UsageError(f"There is no setting {name}.", hint=f"There are {', '.join(_OURS)}.")
    return EngineChoice(given.spark, settings, threads)


def _shown(engine: Engine) -> Engine:
    if session().is_quiet or not sys.stderr.isatty():
        return engine
    from kafkalog_cli.output.progress import ShownEngine

    return ShownEngine(engine)


@contextmanager
def _broken_pipes_raised() -> Iterator[None]:
    """End the block, not the process, if the reader goes away: Spark's files must be removed."""
    before = signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGPIPE, before)
