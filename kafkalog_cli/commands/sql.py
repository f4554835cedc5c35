"""`kafkalog sql`: Spark SQL over the tables of log directories."""

from __future__ import annotations

import os
import time
from typing import Annotated

import typer

from kafkalog.model import Isolation, LogView
from kafkalog.tables.model import End, Replicas, TableName
from kafkalog_cli.engines import ConnectTimeoutOption, MasterOption, SparkChoice, SparkConfOption
from kafkalog_cli.options import (
    BytesOption,
    EndOption,
    InternalOption,
    PathsArgument,
    ReadCommittedOption,
    ViewOption,
)
from kafkalog_cli.output.text import BytesFormat
from kafkalog_cli.output.writer import Format


def sql(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="One statement of Spark SQL.")],
    paths: PathsArgument,
    read_committed: ReadCommittedOption = False,
    end: EndOption = End.WATERMARK,
    replicas: Annotated[
        Replicas | None,
        typer.Option(
            help="If several PATHs hold a partition: all copies, or the most recent one "
            "(default for records)."
        ),
    ] = None,
    internal: InternalOption = False,
    view: ViewOption = LogView.STARTED,
    text: Annotated[
        bool, typer.Option("--text", help="Show keys and values as text (UTF-8) instead of bytes.")
    ] = False,
    master: MasterOption = "local[*]",
    spark_conf: SparkConfOption = None,
    connect_timeout: ConnectTimeoutOption = "30s",
    form: Annotated[Format, typer.Option("--format", help="Output format.")] = Format.TABLE,
    bytes_form: BytesOption = BytesFormat.AUTO,
) -> int:
    """Query records, batches, indexes, transactions, producers and damage with Spark SQL.

    Each table is a view: records, batches, offset_index, time_index, transactions, segments,
    producers, defects; `describe batches` lists its columns. Records have key, value, topic,
    partition, offset, timestamp, timestampType and headers, and if the query names them
    timestamp_ms, sequence, producer_id, producer_epoch, leader_epoch, is_transactional,
    compression, magic, batch_base_offset, batch_position, decoded, path, log_dir and state.

    Filters on topic, partition, offset and timestamp skip what indexes show to be irrelevant.
    Nothing is written. Damaged batches are skipped; the view defects lists them. Needs Java 17.


    \b
    kafkalog sql "select topic, count(*) records from records group by topic" /var/lib/kafka
    kafkalog sql --text "select key, value from records where offset = 42" orders-0
    kafkalog sql --format ndjson "select * from defects" /var/lib/kafka
    """
    _tell_time_in_utc()
    from kafkalog.tables import Request
    from kafkalog.tables.model import partition_ends
    from kafkalog.tables.planning import find_targets
    from kafkalog_cli.outcome import Outcome
    from kafkalog_cli.output.query import query_view, require_names
    from kafkalog_cli.output.writer import Writer

    options = {
        "isolation": "read_committed" if read_committed else "read_uncommitted",
        "end": end,
        "internal": str(internal).lower(),
        "view": str(view),
        "decode": "text" if text else "bytes",
    }
    if replicas is not None:
        options["replicas"] = replicas
    outcome = Outcome()
    request = Request(
        isolation=Isolation.READ_COMMITTED if read_committed else Isolation.READ_UNCOMMITTED,
        replicas=replicas or Replicas.ALL, internal=internal, end=end, view=view,
    )  # fmt: skip
    targets = find_targets(paths, request)
    outcome.differs(target.difference for target in targets)
    with SparkChoice(master, spark_conf, connect_timeout).open() as session:
        from kafkalog.spark.query import run_query, tables_of

        if TableName.RECORDS in tables_of(query):
            outcome.leaves_out(partition_ends(targets, request))
        answer = run_query(session, query, paths, options)
        require_names(answer, form)
        with Writer(query_view(answer, bytes_form), form, outcome.defect) as writer:
            for row in answer.rows:
                writer.write(row)
    return outcome.status


def _tell_time_in_utc() -> None:
    """pyspark gives times without a zone, in that of the process; some hours are there twice."""
    os.environ["TZ"] = "UTC"
    time.tzset()
