"""Spark's error texts become one sentence with the right exit status."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafkalog.errors import KafkaLogError, NotFoundError
from kafkalog.spark.job import reason_in, spark_error

if TYPE_CHECKING:
    from pathlib import Path

WORKER = 'Traceback (most recent call last):\n  File "worker.py", line 1, in main\n'


class SparkSaidError(Exception):
    """Stands for an error of pyspark's."""

    __module__ = "pyspark.errors"


@pytest.mark.parametrize(
    ("text", "reference", "status", "said"),
    [
        (f"{WORKER}ModuleNotFoundError: No module named 'kafkalog'", "unsupported", 5, "install"),
        ("[PYTHON_VERSION_MISMATCH] Python in worker has 3.9", "unsupported", 5, "version"),
        ("x\n: java.lang.OutOfMemoryError: Java heap space", "limit-exceeded", 7, "memory"),
        (f"{WORKER}MemoryError\n", "limit-exceeded", 7, "memory"),
        ("Total size is bigger than spark.driver.maxResultSize", "limit-exceeded", 7, "results"),
        ("ExecutorLostFailure (executor 1 exited)", "engine-failed", 3, "lost"),
        ("An error occurred while calling o32.collect", "engine-failed", 3, "died"),
        ("Answer from Java side is empty", "engine-failed", 3, "died"),
        (f"{WORKER}  x\nValueError: odd\n\n\tat java", "engine-failed", 3, "ValueError: odd"),
        (f'{WORKER}  File "/x/kafkalog/tables/reading.py", line 3, in f\nValueError: odd\n\n\tat j',
         "internal-error", 70, "ValueError: odd"),
        ("Cannot call methods on a stopped SparkContext.", "engine-failed", 3, "ended"),
        ("An error occurred while calling o1.x.\n: j.E: y\n\tat a", "engine-failed", 3, "j.E: y"),
        (f"{WORKER}kafkalog.errors.NotFoundError: There is no x.\n", "path-not-found", 2, "no x"),
    ],
)  # fmt: skip
def test_text_of_spark_is_told(text: str, reference: str, status: int, said: str) -> None:
    error = spark_error(SparkSaidError(text))
    assert error is not None
    assert (error.reference, error.exit_code) == (reference, status)
    assert said in error.message
    assert "\n" not in error.message


def test_what_spark_did_not_raise_is_left_alone() -> None:
    """Errors of ours that no error of Spark's caused, too: Spark's log would not help."""
    assert spark_error(ValueError("x")) is None
    assert spark_error(NotFoundError("x")) is None
    error = KafkaLogError("x")
    error.__cause__ = SparkSaidError("y")
    assert spark_error(error) is error


def test_reason_in_a_log_is_the_first_cause(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    assert reason_in(str(log)) is None
    log.write_text("WARN NativeCodeLoader: nothing\n")
    assert reason_in(str(log)) is None
    log.write_text(
        "2026-11-21 20:58:33.728 ERROR X: Exception while bootstrapping\n"
        "java.lang.RuntimeException: javax.security.sasl.SaslException: Mismatched response.\n"
        "\tat a.B.c(B.java:1)\n"
        "Caused by: javax.security.sasl.SaslException: Mismatched response.\n"
        "org.apache.spark.SparkException: Exception thrown in awaitResult: \n"
        "Caused by: org.apache.spark.SparkException: Message is dropped\n"
    )
    assert reason_in(str(log)) == "SaslException: Mismatched response."
