"""Translation of Spark's errors to ours: one sentence, a hint, and the path of the log.

An error in a task arrives as text with a traceback in it, a failure in the driver as a Java
exception, and a dead driver as a refused connection.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from kafkalog import errors
from kafkalog.errors import (
    EngineError,
    InternalError,
    KafkaLogError,
    LimitExceededError,
    UnsupportedError,
    UsageError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
        name, message, path, position = ours[-1]
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
    return LimitExceededError(
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
