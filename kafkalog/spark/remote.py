"""Sessions over Spark Connect: the driver is a server, this process a client without a JVM."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from kafkalog.errors import EngineError, UsageError
from kafkalog.spark.environment import environment
from kafkalog.spark.settings import SQL_SETTINGS
from kafkalog.spark.waiting import call_within

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

_STOP_S = 10.0


@contextmanager
def remote_session(
    master: str, conf: Mapping[str, str], timeout_s: float
) -> Iterator[SparkSession]:
    """A session of its own on a server of Spark Connect.

    Raises:
        UsageError: the address or a setting is not one that the server takes.
        EngineError: the server does not answer in time.
    """
    said = {
        "SPARK_CONNECT_MODE_ENABLED": "1",
        "GRPC_VERBOSITY": os.environ.get("GRPC_VERBOSITY", "NONE"),  # it would talk on stderr
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
            with suppress(Exception):  # it is over, whatever the server says
                call_within(_STOP_S, session.stop)


def _wait_for_server(master: str, timeout_s: float) -> None:
    """A call would be tried again for minutes; the channel says sooner whether anybody is there."""
    import grpc
    from pyspark.errors import PySparkException
    from pyspark.sql.connect.client import DefaultChannelBuilder

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
        hint="Is a Spark Connect server running there? --connect-timeout sets how long to wait.",
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
