"""`kafkalog export`: write records, or any other table, to files for other programs."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from kafkalog.change.lake.model import BytesForm, Codec, FileFormat, TableFormat, local_catalog
from kafkalog.errors import KafkaLogError, UsageError
from kafkalog.log.typed import TypedForm
from kafkalog.model import Isolation, LogView
from kafkalog.tables.model import TableName, usual_replicas
from kafkalog_cli import options as opt
from kafkalog_cli.output.writer import Format
from kafkalog_cli.schemas import (
    SchemasOption,
    ValueFramingOption,
    ValueMessageOption,
    ValueSchemaOption,
    typed_columns,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kafkalog.change.lake import Append, Export, ExportSummary, IcebergAppend
    from kafkalog.io.engine import Engine
    from kafkalog_cli.engines import EngineChoice
    from kafkalog_cli.outcome import Outcome
    from kafkalog_cli.output.export_metrics import ExportMetrics
    from kafkalog_cli.output.exported import ExportWriter

_EXTRAS = (TableFormat.DELTA, TableFormat.ICEBERG, TypedForm.AVRO, TypedForm.PROTOBUF)
"""Each has the name of the extra that it needs."""


def export(
    paths: opt.PathsArgument,
    to: Annotated[str, typer.Option(
        "--to", metavar="DIR", help="Directory or URI (s3, gs, abfs). For iceberg: "
        "CATALOG.NAMESPACE.TABLE.",
    )],
    table: Annotated[TableName, typer.Option(
        metavar="TABLE", help="records, batches, offset_index, time_index, transactions, segments, "
        "producers or defects.",
    )] = TableName.RECORDS,
    columns: Annotated[str | None, typer.Option(
        metavar="NAME,…", help="Columns to write; default: the usual ones.",
    )] = None,
    topic: opt.TopicsOption = None,
    partition: Annotated[list[int] | None, typer.Option(
        metavar="N", help="Only partitions with this number; repeatable.",
    )] = None,
    from_offset: opt.FromOffsetOption = None,
    to_offset: opt.ToOffsetOption = None,
    from_time: opt.FromTimeOption = None,
    to_time: opt.ToTimeOption = None,
    isolation: opt.IsolationOption = Isolation.READ_UNCOMMITTED,
    replicas: opt.AnyReplicasOption = None,
    internal: opt.InternalOption = False,
    view: opt.ViewOption = LogView.RECOVERED,
    file_format: Annotated[FileFormat, typer.Option(
        "--file-format", help="Format of the files.",
    )] = FileFormat.PARQUET,
    table_format: Annotated[TableFormat | None, typer.Option(
        "--table-format", help="files (default): a directory of files; delta: also a Delta table; "
        "iceberg: a table of a catalog.",
    )] = None,
    warehouse: Annotated[str | None, typer.Option(
        metavar="DIR",
        help="Iceberg: directory of the tables and of their catalog, an SQLite file.",
    )] = None,
    catalog_conf: Annotated[list[str] | None, typer.Option(
        "--catalog-conf", metavar="NAME=VALUE", help="Iceberg: a catalog property; repeatable.",
    )] = None,
    codec: Annotated[Codec | None, typer.Option(
        help="Compression of the files; default: snappy for Parquet, none for the others.",
    )] = None,
    row_group_rows: Annotated[int | None, typer.Option(
        min=1, metavar="N", help="Most rows in a row group (131072).",
    )] = None,
    row_group_size: Annotated[str | None, typer.Option(
        metavar="SIZE", help="Most bytes in a row group (32MiB).",
    )] = None,
    bytes_form: Annotated[BytesForm, typer.Option(
        "--bytes", help="How to write keys and values in NDJSON and CSV.",
    )] = BytesForm.BASE64,
    key: Annotated[TypedForm | None, typer.Option(
        "--key", help="Decode keys with --key-schema or --schemas.",
    )] = None,
    key_schema: Annotated[str | None, typer.Option(
        metavar="FILE", help="Like --value-schema, for keys.",
    )] = None,
    key_message: Annotated[str | None, typer.Option(
        metavar="NAME", help="Like --value-message, for keys.",
    )] = None,
    key_framing: Annotated[str | None, typer.Option(
        metavar="FRAMING", help="Like --value-framing, for keys.",
    )] = None,
    value: Annotated[TypedForm | None, typer.Option(
        "--value", help="Decode values with --value-schema or --schemas.",
    )] = None,
    value_schema: ValueSchemaOption = None,
    value_message: ValueMessageOption = None,
    value_framing: ValueFramingOption = None,
    schemas: SchemasOption = None,
    max_rejects: Annotated[int | None, typer.Option(
        "--max-rejects", min=0, metavar="N",
        help="Accept up to N records that do not decode (default 0); they go to DIR/_rejects, or "
             "TABLE_rejects.",
    )] = None,
    split_size: Annotated[str, typer.Option(
        metavar="SIZE", help="About how many bytes of log go into one file.",
    )] = "64MiB",
    append: Annotated[bool, typer.Option(
        "--append", help="Add what is new since the last run, as one commit.",
    )] = False,
    allow_gaps: Annotated[bool, typer.Option(
        "--allow-gaps", help="Commit even if records are gone, and list them.",
    )] = False,
    every: Annotated[str | None, typer.Option(
        metavar="DURATION", help="Keep appending, at this interval.",
    )] = None,
    metrics: Annotated[str | None, typer.Option(
        metavar="FILE", help="Write metrics of each run for Prometheus to FILE.prom.",
    )] = None,
    fail_fast: Annotated[bool, typer.Option("--fail-fast", help="Stop at damage.")] = False,
    threads: opt.ThreadsOption = None,
    form: opt.FormatOption = Format.TABLE,
    now: opt.NowOption = None,
    exact: opt.ExactOption = False,
    *,
    spark: opt.Spark,
) -> int:  # fmt: skip
    """Write records, or another table, as files that Spark, DuckDB, pyarrow and others can read.

    Files go to DIR/topic=NAME/partition=N/; topic and partition are only in these names.
    DIR/_kafkalog/manifest.json lists the files with rows, offsets and CRC-32C. A file appears when
    it is complete. Repeat an interrupted command to continue it, even if the logs have grown since;
    no row is written twice. After _SUCCESS the same command does nothing, and refuses logs that
    have changed.

    --table-format delta also commits the files to a Delta table. DIR must then be local.

    --append makes a table that grows: each run commits what is new as a whole in
    DIR/_kafkalog/commits (with delta also in the Delta log), with the next offset of each partition
    by topic id, so nothing is exported twice. Records that were deleted before they could be
    exported end the run with status 4; --allow-gaps commits the rest and lists what is missing,
    with status 1. Columns may be added from run to run.

    --table-format iceberg, with --append, adds to a table in a catalog: one that ~/.pyiceberg.yaml,
    the environment or --catalog-conf describe to pyiceberg (REST, Hive, Glue, SQL), or an SQLite
    file in --warehouse. A missing table is created, partitioned by topic and day. Data and next
    offsets are committed together, and there is no DIR.

    --value and --key add columns value_decoded and key_decoded with the types of a schema. A record
    that does not decode is a reject. It ends the run with status 4, and nothing is exported, unless
    --max-rejects allows it: then it goes to the table DIR/_rejects (TABLE_rejects in a catalog),
    with its bytes, the id of its schema and the reason.

    Damaged batches, and records deleted before they are read, are left out and listed, and make the
    exit status 1. With --fail-fast they end the run with status 6 or 4.

    \b
    kafkalog export /var/lib/kafka --to lake
    kafkalog export orders-0 --to lake --isolation read_committed --from-time -2h
    kafkalog export /var/lib/kafka --to s3://bucket/lake --topic orders
    kafkalog export /var/lib/kafka --to lake --append --table-format delta
    kafkalog export /var/lib/kafka --to lake --append --metrics lake.prom
    kafkalog export /var/lib/kafka --to a.kafka.log --append --warehouse /srv/lake
    kafkalog export orders-0 --to lake --table batches --file-format csv
    kafkalog export orders-0 --to lake --value json --value-schema order.json
    """
    table_format, catalog = _catalog(table_format, warehouse, catalog_conf or [])
    _require_libraries(table_format, (key, value))
    from kafkalog.change.lake import Export, ExportRequest, appending
    from kafkalog.change.lake.model import GROUP_ROWS, GROUP_SIZE, Writing
    from kafkalog.tables import Bounds, Request
    from kafkalog_cli.standard_streams import put_work_first

    bounds = Bounds(
        None if not topic else frozenset(topic),
        None if not partition else frozenset(partition),
        from_offset,
        to_offset,
        None if from_time is None else opt.parse_time(from_time, now),
        None if to_time is None else opt.parse_time(to_time, now),
    )
    writing = Writing(
        file_format,
        codec,
        row_group_rows or GROUP_ROWS,
        GROUP_SIZE if row_group_size is None else opt.parse_size(row_group_size),
        bytes_form,
    )
    decoded = partial(typed_columns, schemas=schemas, topics=topic or ())
    asked = ExportRequest(
        tuple(paths),
        Request(
            table,
            bounds,
            isolation,
            replicas or usual_replicas(table),
            internal,
            opt.parse_size(split_size),
            frozenset(topic or ()),
            view,
        ),
        None if columns is None else tuple(name.strip() for name in columns.split(",")),
        writing,
        decoded("key", key, key_schema, key_message, key_framing)
        + decoded("value", value, value_schema, value_message, value_framing),
        table_format,
        append,
    )
    if schemas is not None and key is None and value is None:
        raise UsageError("--schemas requires --value or --key.", hint="For example --value avro.")
    if not append and (allow_gaps or every is not None):
        name = "--allow-gaps" if allow_gaps else "--every"
        raise UsageError(f"{name} requires --append.", hint=f"Add it, or leave out {name}.")
    if max_rejects is not None and not asked.typed:
        raise UsageError(
            "--max-rejects requires --value or --key.",
            hint="Only decoded values and keys can be rejected.",
        )
    most = max_rejects or 0
    choice = spark.choice(threads)
    put_work_first()
    from kafkalog_cli.outcome import Outcome

    outcome = Outcome()
    from kafkalog_cli.output.export_metrics import ExportMetrics
    from kafkalog_cli.output.exported import ExportWriter
    from kafkalog_cli.output.objects import Style

    with ExportWriter(form, Style(exact)) as writer:
        watch = ExportMetrics(metrics)
        if append:
            interval_s = None if every is None else opt.parse_duration(every)
            run = partial(
                appending, asked, to, fail_fast=fail_fast, allow_gaps=allow_gaps, catalog=catalog,
                max_rejects=most, listener=outcome,
            )  # fmt: skip
            for summary in _commits(run, choice, outcome, interval_s, watch):
                _show(summary, writer, outcome)
            return outcome.of_work(has_changed=True, is_concerned=True)
        one = Export(asked, to, fail_fast=fail_fast, max_rejects=most, listener=outcome)
        summary = _exported(one, choice, outcome, watch)
        _show(summary, writer, outcome)
    is_new = not summary.was_complete
    return outcome.of_work(has_changed=is_new, is_concerned=is_new)


def _require_libraries(form: TableFormat, decoded: Iterable[TypedForm | None]) -> None:
    """Raise `UnsupportedError`, before anything else, without what each export needs."""
    from kafkalog.io.jit.fast_path import require_arrow

    wanted = [one for one in (form, *decoded) if one in _EXTRAS]
    require_arrow(
        ",".join(dict.fromkeys(wanted)) or "arrow",
        "`kafkalog dump-segment PATH --format ndjson` (or csv) does without.",
    )


def _catalog(
    form: TableFormat | None, warehouse: str | None, conf: list[str]
) -> tuple[TableFormat, dict[str, str]]:
    """Return the format of the table, and the properties of a catalog that are given."""
    is_given = warehouse is not None or bool(conf)
    form = form or (TableFormat.ICEBERG if is_given else TableFormat.FILES)
    if is_given and form != TableFormat.ICEBERG:
        name = "--catalog-conf" if conf else "--warehouse"
        raise UsageError(
            f"{name} requires --table-format iceberg.", hint=f"Leave out {name}, or the format."
        )
    found = {} if warehouse is None else local_catalog(warehouse)
    return form, {**found, **opt.parse_settings(conf, "--catalog-conf", "a property of a catalog")}


def _exported(
    run: Export, choice: EngineChoice, outcome: Outcome, metrics: ExportMetrics
) -> ExportSummary:
    with metrics.run(), ExitStack() as opened:
        # While the plan is made the engine starts; a repetition has nothing to do, and needs none.
        started = None if run.has_ended else opened.enter_context(choice.start())
        export = opened.enter_context(run)
        outcome.report_logs()
        if export.missing:
            engine = opened.enter_context(choice.open()) if started is None else started()
            export.run(engine)
        else:
            export.run(None)
        summary = export.summary()
        metrics.done(summary)
        return summary


def _commits(
    run: Callable[[], Append | IcebergAppend],
    choice: EngineChoice,
    outcome: Outcome,
    interval_s: float | None,
    metrics: ExportMetrics,
) -> Iterator[ExportSummary]:
    """Yield the result of each commit: once all that is new, or repeatedly at an interval.

    After the first time, a table or a catalog that is busy is waited for; Ctrl-C while nothing is
    going on is the end.
    """
    from kafkalog_cli.outcome import show_note

    with choice.start() as engine:
        is_first = True
        while True:
            began = time.monotonic()
            try:
                yield from _round(run, engine, outcome, metrics)
            except KafkaLogError as error:
                # The first failure may be the fault of the command line; once a round has worked,
                # what fails may work again.
                if is_first or not error.is_temporary:
                    raise
                show_note(f"{error.message} The next round tries again.")
            if interval_s is None:
                return
            is_first = False
            try:
                # From beginning to beginning, so that rounds do not drift; one that takes longer is
                # followed at once.
                time.sleep(max(0.0, began + interval_s - time.monotonic()))
            except KeyboardInterrupt:
                return


def _round(
    run: Callable[[], Append | IcebergAppend],
    engine: Callable[[], Engine],
    outcome: Outcome,
    metrics: ExportMetrics,
) -> Iterator[ExportSummary]:
    """Complete an interrupted run, then add what is new."""
    is_continued = True
    while is_continued:
        with metrics.run(), run() as one:
            outcome.report_logs()
            one.run(engine())
            summary = one.summary()
            metrics.done(summary)
            yield summary
            is_continued = one.is_continued


def _show(summary: ExportSummary, writer: ExportWriter, outcome: Outcome) -> None:
    writer.write_summary(summary)
    sys.stdout.flush()  # it may be long until the next one
    outcome.fail_if(bool(summary.gaps))
    for part in summary.parts:
        outcome.fail_if(part.defect_count > 0)
        for defect in part.defects:
            outcome.count(defect)
