"""What pyspark logs of errors that it also raises is not shown: the errors are."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_NAMES: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_NOWHERE: Final = logging.NullHandler()


@contextmanager
def silent_loggers() -> Iterator[None]:
    """pyspark's and py4j's loggers write nothing to stderr while the block runs."""
    from pyspark.logger import PySparkLogger

    loggers: list[logging.Logger]
    loggers = [PySparkLogger.getLogger(name) for name in _NAMES]  # the only right way to make them
    before = [logger.disabled for logger in loggers]
    # py4j logs some errors by the root logger, which writes to stderr where it has no handler.
    shared = [logging.getLogger(), logging.getLogger("py4j")]
    for logger in loggers:
        logger.disabled = True
    for logger in shared:
        logger.addHandler(_NOWHERE)
    try:
        yield
    finally:
        for logger in shared:
            logger.removeHandler(_NOWHERE)
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled
