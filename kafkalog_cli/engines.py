"""The options that choose an engine, and the engine they choose."""

from __future__ import annotations

import signal
import sys
from contextlib import contextmanager
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

import typer

from formats.late_classes import dataclass
from kafkalog.errors import UsageError
from kafkalog.io.paths.requests import requests
from kafkalog_cli.options import parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafkalog.io.engine import Engine


class EngineName(StrEnum):
    """What runs the tasks of a command."""

    LOCAL = "local"
    SPARK = "spark"


EngineOption = Annotated[EngineName | None, typer.Option(
    "--engine", help="Default: local, or spark where --master or --spark-conf is given.",
)]  # fmt: skip
ThreadsOption = Annotated[int | None, typer.Option(
    "--threads", metavar="N", min=1, help="Threads of --engine local; default: one per processor.",
)]  # fmt: skip
MasterOption = Annotated[str | None, typer.Option(
    "--master", metavar="URL",
    help="Spark master (local[*]): local[N], spark://…, yarn, k8s://…, sc://….",
)]  # fmt: skip
SparkConfOption = Annotated[list[str] | None, typer.Option(
    "--spark-conf", metavar="NAME=VALUE", help="A Spark setting; repeatable.",
)]  # fmt: skip

ConnectTimeoutOption = Annotated[str, typer.Option(
    "--connect-timeout", metavar="DURATION", help="How long to wait for the Spark master.",
)]  # fmt: skip

_MASTER = "local[*]"


@dataclass(frozen=True)
class SparkChoice:
    """The options about Spark."""

    master: str | None
    conf: list[str] | None
    connect_timeout: str
    quiet: bool = False

    @property
    def is_given(self) -> bool:
        return self.master is not None or bool(self.conf)

    @contextmanager
    def start(self) -> Iterator[Callable[[], Any]]:
        """Start a `pyspark.sql.SparkSession`, which ends with the block; what it gets waits for it.

        Raises:
            UsageError: a setting is not NAME=VALUE, the timeout not a duration, or requests are
                bounded.
            KafkaLogError: as `starting_session`.
        """
        conf = settings(self.conf or [], "--spark-conf", "a Spark setting")
        timeout_s = parse_duration(self.connect_timeout)
        requests().leave()  # tasks in other processes would not keep to the bound
        from kafkalog.spark.session import starting_session
        from kafkalog_cli.main import show_pandas
        from kafkalog_cli.output.progress import waiting_for

        show_pandas()
        master = self.master or _MASTER
        with (
            _broken_pipes_raised(),
            starting_session(master, conf, connect_timeout_s=timeout_s) as started,
        ):

            def session() -> Any:
                with waiting_for("starting Spark …", enabled=not self.quiet):
                    return started()

            yield session


@contextmanager
def _broken_pipes_raised() -> Iterator[None]:
    """End the block, not the process, if the reader goes away: Spark's files must be removed."""
    before = signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGPIPE, before)


@dataclass(frozen=True)
class EngineChoice:
    """The options about the engine."""

    name: EngineName | None
    spark: SparkChoice
    threads: int | None = None

    @property
    def is_spark(self) -> bool:
        if self.name is None:
            return self.spark.is_given
        return self.name == EngineName.SPARK

    @contextmanager
    def open(self) -> Iterator[Engine]:
        """Open the engine, which ends with the block; Spark starts only on request.

        Raises:
            KafkaLogError: as `SparkChoice.start`.
        """
        with self.start() as engine:
            yield engine()

    @contextmanager
    def start(self) -> Iterator[Callable[[], Engine]]:
        """Start the engine while the block plans; what it gets waits for it. Raises as `open`."""
        if not self.is_spark:
            from kafkalog.io.engine import LocalEngine

            yield lambda: self._shown(LocalEngine(self.threads))
            return
        with self.spark.start() as session:
            from kafkalog.spark.engine import SparkEngine, parallelism_of

            def engine() -> Engine:
                opened = session()
                return self._shown(SparkEngine(opened, parallelism_of(opened)))

            yield cache(engine)  # a second call must not start another

    def _shown(self, engine: Engine) -> Engine:
        if self.spark.quiet or not sys.stderr.isatty():
            return engine
        from kafkalog_cli.output.progress import ShownEngine

        return ShownEngine(engine)


def settings(texts: list[str], option: str, what: str) -> dict[str, str]:
    """Return the settings that an option has given as `NAME=VALUE`.

    Raises:
        UsageError: one has another form.
    """
    found = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise UsageError(f"{text!r} is not {what}.", hint=f"{option} NAME=VALUE")
        found[name] = value
    return found
