"""Failing calls of `sql` in the planning process, by tests/kafkalog_cli/test_failing_calls.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kafkalog_cli.test_failing_calls import Given, log_dir, try_faults

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.conftest import Result

__all__ = ["log_dir"]

QUERY = "select partition, count(*) n, max(offset) last from records group by all order by all"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("view", ["recovered", "as-is"])
def test_a_call_that_fails_is_told(
    view: str, log_dir: Path, tmp_path: Path, spark: SparkSession,
    kafkalog: Callable[..., Result], tell: Callable[[str], None],
):  # fmt: skip
    """The rows are the same, or the error names what could not be read."""
    master = spark.sparkContext.master
    words = [
        "sql",
        "--spark",
        master,
        "--view",
        view,
        "--format",
        "ndjson",
        "-c",
        QUERY,
        str(log_dir),
    ]
    given = Given(log_dir.parent, words, tmp_path / "to", None)
    try_faults(f"sql-{view}", given, kafkalog, tell)
