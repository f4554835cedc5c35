"""Waiting for what pyspark does: with a deadline, and such that Ctrl-C is heard at once.

A call of py4j blocks its thread until the JVM answers. So it is made in a thread of its own.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_Result = TypeVar("_Result")


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
    """Call a function; after `timeout_s` it goes on alone and `TimeoutError` is raised."""
    return in_thread(function).result(timeout_s)
