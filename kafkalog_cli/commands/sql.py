"""`kafkalog sql`: run Spark SQL over the tables of log directories."""

from __future__ import annotations

import math
import os
import time
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kafkalog.errors import UsageError
from kafkalog.model import Isolation, LogView
from kafkalog.tables.model import End, Replicas, TableName
from kafkalog_cli import options as opt
from kafkalog_cli.engines import ConnectTimeoutOption, MasterOption, SparkChoice, SparkConfOption
from kafkalog_cli.output.objects import Column, View
from kafkalog_cli.output.text import BytesFormat, bytes_cell, bytes_value, dumps
from kafkalog_cli.output.writer import Format

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.spark.query import Answer

Values = tuple[Any, ...]


def sql(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="One statement of Spark SQL.")],
    paths: opt.PathsArgument,
    read_committed: opt.ReadCommittedOption = False,
    end: opt.EndOption = End.WATERMARK,
    replicas: opt.AnyReplicasOption = None,
    internal: opt.InternalOption = False,
    view: opt.ViewOption = LogView.STARTED,
    text: Annotated[bool, typer.Option(
        "--text", help="Show keys and values as text (UTF-8) instead of bytes.",
    )] = False,
    master: MasterOption = "local[*]",
    spark_conf: SparkConfOption = None,
    connect_timeout: ConnectTimeoutOption = "30s",
    form: Annotated[Format, typer.Option("--format", help="Output format.")] = Format.TABLE,
    bytes_form: opt.BytesOption = BytesFormat.AUTO,
) -> int:  # fmt: skip
    """Query records, batches, indexes, transactions, producers and damage with Spark SQL.

    Each table is a view: records, batches, offset_index, time_index, transactions, segments,
    producers, defects; `describe batches` lists its columns. Records have key, value, topic,
    partition, offset, timestamp, timestampType and headers, and if the query names them
    timestamp_ms, sequence, producer_id, producer_epoch, leader_epoch, is_transactional,
    compression, magic, batch_base_offset, batch_position, decoded, path, log_dir and state.

    Filters on topic, partition, offset and timestamp skip what indexes show to be irrelevant.
    Nothing is written. Damaged batches are skipped; the view defects lists them. Needs Java 17.


    \b
    kafkalog sql "select topic, count(*) from records group by 1" /var/lib/kafka
    kafkalog sql --text "select key, value from records where offset = 4" orders-0
    kafkalog sql --format ndjson "select * from defects" /var/lib/kafka
    """
    _use_utc()
    from kafkalog.tables import Request
    from kafkalog.tables.model import partition_ends
    from kafkalog.tables.planning import find_targets
    from kafkalog_cli.outcome import Outcome
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
        _require_names(answer, form)
        with Writer(_view(answer, bytes_form), form, outcome.defect) as writer:
            for row in answer.rows:
                writer.write(row)
    return outcome.status


def _use_utc() -> None:
    """Set the zone to UTC: pyspark returns local times, some of which occur twice a year."""
    os.environ["TZ"] = "UTC"
    time.tzset()


def _view(answer: Answer, form: BytesFormat) -> View[Values]:
    """Return the view of an answer, with columns named as in the query."""

    def cell(number: int) -> Callable[[Values], object]:
        return lambda row: _cell(row[number], form)

    columns = [
        Column(name, cell(number), right=answer.numeric[number], fold=not answer.numeric[number])
        for number, name in enumerate(answer.names)
    ]
    return View(
        tuple(columns),
        lambda row: {
            name: _value(value, form) for name, value in zip(answer.names, row, strict=True)
        },
    )


def _require_names(answer: Answer, form: Format) -> None:
    """Raise `UsageError` if objects would have two fields with one name."""
    twice = {name for name in answer.names if answer.names.count(name) > 1}
    if twice and form != Format.TABLE:
        raise UsageError(
            f"Two columns have the name {min(twice)!r}.", hint="Name one of them: … AS other."
        )


def _cell(value: Any, form: BytesFormat) -> str:
    if value is None:
        return "-"
    if isinstance(value, bytes):
        return bytes_cell(value, form)
    plain = _value(value, form)
    return plain if isinstance(plain, str) else dumps(plain)


def _value(value: Any, form: BytesFormat) -> Any:
    """Convert a value for JSON; numbers that JSON does not have become text."""
    if isinstance(value, bytes):
        return bytes_value(value, form)
    if isinstance(value, datetime):
        return value.replace(tzinfo=value.tzinfo or UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal) or (isinstance(value, float) and not math.isfinite(value)):
        return str(value)
    if isinstance(value, list):
        return [_value(inner, form) for inner in value]
    if isinstance(value, dict):
        return {name: _value(inner, form) for name, inner in value.items()}
    return value if isinstance(value, bool | int | float | str | None) else str(value)
