"""The engine on Spark gives the results of the local engine, and readable errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafkalog.errors import (
    CorruptDataError,
    EngineError,
    InternalError,
    LimitExceededError,
    UsageError,
)
from kafkalog.io.engine import LocalEngine
from kafkalog.spark.engine import SparkEngine
from kafkalog.spark.job import errors_as_ours
from kafkalog.spark.session import spark_session
from tests.spark import work

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def numbers(count: int) -> list[dict[str, int]]:
    return [{"number": number} for number in range(count)]


def test_results_are_those_of_the_local_engine(spark: SparkSession) -> None:
    here = dict(LocalEngine(2).run(work.doubled, numbers(7)))
    assert dict(SparkEngine(spark, 2).run(work.doubled, numbers(7))) == here
    assert here == {number: {"doubled": 2 * number} for number in range(7)}
    assert list(SparkEngine(spark, 2).run(work.doubled, [])) == []


def test_progress_adds_up(spark: SparkSession, tmp_path: Path) -> None:
    """It is reported in this thread while tasks run, and never exceeds the number of tasks."""
    told: list[int] = []
    tasks = [{"number": number, "directory": str(tmp_path), "seconds": 0.6} for number in range(6)]
    list(SparkEngine(spark, 2).run(work.slow, tasks, done=told.append))
    assert sum(told) == 6
    assert len([count for count in told if count]) >= 2
    assert min(told) >= 0


def test_error_of_a_task_is_that_of_the_local_engine(spark: SparkSession) -> None:
    """If several tasks fail, the error of the lowest number is raised."""
    with pytest.raises(CorruptDataError) as caught:
        list(SparkEngine(spark, 2).run(work.corrupt, numbers(6)))
    error = caught.value
    assert (error.reference, error.path, error.position) == ("batch-crc-mismatch", "/x", 3)
    with pytest.raises(CorruptDataError):
        list(LocalEngine(2).run(work.corrupt, numbers(6)))


def test_mistake_in_a_task_is_an_internal_error(spark: SparkSession) -> None:
    """The error blames neither the data nor Spark, and Spark does not repeat the task."""
    with pytest.raises(InternalError) as caught:
        list(SparkEngine(spark, 2).run(work.mistaken, numbers(1)))
    assert caught.value.exit_code == 70
    assert caught.value.message == "internal error: KeyError: 'missing'."


def test_worker_that_dies_is_told(spark: SparkSession) -> None:
    """As when the kernel kills a process that takes too much memory; the session continues."""
    with pytest.raises(EngineError, match="Spark workers were lost"):
        list(SparkEngine(spark, 2).run(work.crash, numbers(1)))
    assert dict(SparkEngine(spark, 2).run(work.doubled, numbers(1))) == {0: {"doubled": 0}}


def test_results_that_are_too_large_are_a_limit(spark: SparkSession) -> None:
    """`spark.driver.maxResultSize` bounds the memory of the driver."""
    with pytest.raises(LimitExceededError) as caught:
        list(SparkEngine(spark, 2).run(work.large, [{"size": 40 << 20}] * 2))
    assert caught.value.exit_code == 7
    assert "spark.driver.maxResultSize" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("query", "said"),
    [("SELECT * FROM nothing", "TABLE_OR_VIEW_NOT_FOUND"), ("SELCT 1", "PARSE_SYNTAX_ERROR")],
)
def test_query_that_is_none_is_usage(spark: SparkSession, query: str, said: str) -> None:
    """The error has one line, without pyspark's own logging."""
    with pytest.raises(UsageError, match=said) as caught, errors_as_ours():
        spark.sql(query).collect()
    assert "\n" not in caught.value.message


def test_session_that_is_open_is_used(spark: SparkSession) -> None:
    """Spark has one driver per process: a second session of the same kind is the same one."""
    with spark_session("local[*]") as same:
        assert same is spark
    assert SparkEngine(spark).workers == 2
    with pytest.raises(UsageError, match="already"), spark_session("spark://127.0.0.1:1"):
        pass


def test_arrow_and_pandas_are_silent(
    spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    assert list(spark.range(3).toPandas()["id"]) == [0, 1, 2]
    assert capfd.readouterr() == ("", "")
