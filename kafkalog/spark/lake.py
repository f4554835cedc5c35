"""Exports of log directories to files and tables, by the workers of a session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalog.change import lake
from kafkalog.spark.engine import SparkEngine

if TYPE_CHECKING:
    import os

    from pyspark.sql import SparkSession

    from kafkalog.change.lake import ExportSummary
    from kafkalog.change.lake.plan import Part
    from kafkalog.change.plan import Plan


def export(
    session: SparkSession,
    *paths: str | os.PathLike[str],
    to: str | os.PathLike[str],
    **options: Any,
) -> Plan[Part, ExportSummary]:
    """Plan to write the records of logs, or other tables of them, to files: Spark's tasks do it.

        export(spark, "/var/lib/kafka", to="/lake").apply()

    The rows never pass through a JVM. Each task writes whole files, whose names and bytes do not
    depend on who writes them, and the driver commits them: a task may be done twice.

    Args:
        session: the Spark session, which stays open.
        paths: log directories, partition directories or logs, which all workers see.
        to: as for `kafkalog.export`; all workers see it.
        options: those of `kafkalog.export`.

    Raises:
        as `kafkalog.export`.
    """
    return lake.export(*paths, to=to, engine=SparkEngine(session), **options)
