"""`kafkalog export`: write records, or any other table, to files for other programs."""

from __future__ import annotations

import re
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias, cast

import typer

from kafkalog.change.lake.model import (
    Accepted,
    BytesForm,
    Codec,
    FileFormat,
    TableFormat,
    local_catalog,
)
from kafkalog.errors import KafkaLogError, UsageError
from kafkalog.log.typed import TypedForm
from kafkalog.model import Isolation, LogView
from kafkalog.tables.model import TableName
from kafkalog_cli import options as opt
from kafkalog_cli.completion import one_of
from kafkalog_cli.engines import EngineChoice, engine_choice
from kafkalog_cli.option_sets import CHANGE, RUN, SHOW
from kafkalog_cli.output.text import BytesFormat
from kafkalog_cli.output.writer import Format
from kafkalog_cli.values import is_number, parse_duration, parse_settings, parse_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kafkalog.change.lake import (
        Append,
        Export,
        ExportRequest,
        ExportSummary,
        IcebergAppend,
        SplitExport,
    )
    from kafkalog.change.lake.model import Writing
    from kafkalog.io.engine import Engine
    from kafkalog_cli.outcome import Outcome
    from kafkalog_cli.output.export_metrics import ExportMetrics
    from kafkalog_cli.output.exported import ExportWriter
    from kafkalog_cli.payloads import Payload

    Run: TypeAlias = Append | Export | IcebergAppend | SplitExport

_EXTRAS: Final = {
    TableFormat.DELTA: "lake", TableFormat.ICEBERG: "lake",
    TypedForm.AVRO: "schemas", TypedForm.PROTOBUF: "schemas",
}  # fmt: skip
"""What each needs, besides `data`."""
_SETTINGS: Final = ("compression", "row-group-rows", "row-group-size", "split-size", "warehouse")
_OF_CATALOG: Final = "catalog."
_ACCEPTED: Final = re.compile(r"(damage|gaps|rejects)(?:=([0-9]{1,18}))?")
_REJECTS_MAX: Final = 10**18


def export(
    paths: opt.PathsArgument,
    to: Annotated[str | None, opt.option(
        CHANGE, "--to", metavar="NEW", help="Directory or URI; for iceberg NAMESPACE.TABLE after "
        "the CATALOG.",
    )] = None,
    kind: Annotated[TableFormat, typer.Option(
        "--as", help="Files; also a Delta table; or a table of an Iceberg catalog.",
    )] = TableFormat.FILES,
    file_format: Annotated[FileFormat, typer.Option(
        "--file-format", help="Format of the files.",
    )] = FileFormat.PARQUET,
    table: Annotated[TableName, typer.Option(
        "--table", help="What is exported.",
    )] = TableName.RECORDS,
    columns: opt.ColumnsOption = None,
    flatten: Annotated[bool, opt.option(
        SHOW, "--flatten", help="Fields of decoded values become columns.",
    )] = False,
    split_by_type: Annotated[bool, opt.option(
        CHANGE, "--split-by-type", help="A table TOPIC.TYPE for each type of values.",
    )] = False,
    append: Annotated[bool, opt.option(
        CHANGE, "--append", help="Add what is new since the last run, as one commit.",
    )] = False,
    every: Annotated[str | None, opt.option(
        RUN, "--every", metavar="DURATION", help="Keep appending, at this interval.",
    )] = None,
    accept: Annotated[list[str] | None, opt.option(
        CHANGE, "--accept", metavar="damage|gaps|rejects[=N]",
        help="Agree to leave out damaged batches; records that are gone; or up to N that do not "
             "decode; repeatable.",
        autocompletion=one_of("damage", "gaps", "rejects"),
    )] = None,
    fail_fast: Annotated[bool, opt.option(RUN, "--fail-fast", help="Stop at damage.")] = False,
    metrics_file: Annotated[str | None, opt.option(
        RUN, "--metrics-file", metavar="FILE", help="Write metrics of each run for Prometheus.",
    )] = None,
    settings: Annotated[list[str] | None, opt.option(
        SHOW, "--set", metavar="NAME=VALUE",
        help="compression, row-group-rows, row-group-size, split-size, warehouse or catalog.*; "
             "repeatable.",
        autocompletion=one_of(*_SETTINGS, _OF_CATALOG),
    )] = None,
    dry_run: opt.DryRunOption = False,
    from_offset: opt.FromOffsetOption = None,
    to_offset: opt.ToOffsetOption = None,
    from_time: opt.FromTimeOption = None,
    to_time: opt.ToTimeOption = None,
    view: opt.ViewOption = LogView.RECOVERED,
    isolation: opt.IsolationOption = Isolation.READ_UNCOMMITTED,
    replicas: opt.AnyReplicasOption = None,
    *,
    partitions: opt.Partitions,
    contents: opt.Contents,
    decode: opt.Decode,
    reading: opt.Reading,
    spark: opt.Spark,
    shown: opt.Form,
) -> int:  # fmt: skip
    """Write records, or another table, as files that Spark, DuckDB, pyarrow and others can read.

    Without --to it shows what would be read. Repeat an interrupted command to continue it. --append
    makes a table that grows: each run commits what is new. Formats of keys and values add columns
    with the types of a schema; so does --registry for one --topic: a topic whose values have
    several types gets a field for each, or a table. What does not decode ends the run, unless
    rejects are accepted.
    Damage is left out and listed: status 8, or 0 where it is accepted; --append refuses it.

    \b
    kafkalog export /var/lib/kafka -t orders --to lake
    kafkalog export orders-0 --to lake --isolation read_committed --from-time -2h
    kafkalog export /var/lib/kafka --to lake --append --as delta
    kafkalog export orders-0 --to c.db.t --append --as iceberg --set warehouse=w
    kafkalog export orders-0 --to lake --value-format json --where 'value.cents > 900'
    kafkalog export events-0 --to lake --registry /srv/registry --split-by-type
    """
    form = shown.format
    payloads = decode.payloads
    _require_libraries(kind, payloads)
    from kafkalog.change.lake import ExportRequest
    from kafkalog.tables import Bounds, Request
    from kafkalog_cli.schemas import typed_columns
    from kafkalog_cli.session import times_of

    given = _settings(settings)
    topics = partitions.topics
    bounds = Bounds(
        topics, partitions.numbers, from_offset, to_offset,
        *times_of(from_offset, to_offset, from_time, to_time),
    )  # fmt: skip
    request = Request(
        table,
        bounds,
        isolation,
        replicas,
        partitions.internal,
        parse_size(given.pop("split-size", "64MiB")),
        named=bounds,
        view=view,
        **contents.matched(),
    )  # fmt: skip
    typed, by_data = typed_columns(payloads, [*(topics or ())], paths, are_split=split_by_type)
    asked = ExportRequest(
        tuple(paths),
        request,
        None if columns is None else tuple(name.strip() for name in columns.split(",")),
        _writing(file_format, given, payloads),
        typed,
        kind,
        append,
        by_data,
        flatten,
        split_by_type,
    )
    accepted = _accepted(accept, asked)
    catalog = _catalog(kind, given)
    if not append and every is not None:
        raise UsageError("--every requires --append.", hint="Add it, or leave out --every.")
    choice = engine_choice(spark, reading.threads)
    if to is None or dry_run:
        return _plan(asked, to, form, catalog)
    return _run(
        asked, to, form, choice, accepted, fail_fast=fail_fast, every=every, catalog=catalog,
        metrics=metrics_file,
    )  # fmt: skip


def _run(
    asked: ExportRequest,
    to: str,
    form: Format,
    choice: EngineChoice,
    accepted: Accepted,
    *,
    fail_fast: bool,
    every: str | None,
    catalog: dict[str, str],
    metrics: str | None,
) -> int:
    from kafkalog.change.lake import writing
    from kafkalog_cli.outcome import Outcome
    from kafkalog_cli.output.export_metrics import ExportMetrics
    from kafkalog_cli.output.exported import ExportWriter
    from kafkalog_cli.output.objects import Style
    from kafkalog_cli.session import session
    from kafkalog_cli.standard_streams import put_work_first

    outcome = Outcome()
    interval_s = None if every is None else parse_duration(every)
    put_work_first()
    with ExportWriter(form, Style(exact=session().exact)) as writer:
        watch = ExportMetrics(metrics)
        run = partial(
            writing, asked, to, fail_fast=fail_fast, accepted=accepted, catalog=catalog,
            listener=outcome,
        )  # fmt: skip
        if asked.append:
            for summary in _commits(run, choice, outcome, interval_s, watch):
                _show(summary, writer, outcome, accepted, has_changed=True)
            return outcome.status
        one = cast("Export | SplitExport", run())  # others append
        summary = _exported(one, choice, outcome, watch)
        _show(summary, writer, outcome, accepted, has_changed=not summary.was_complete)
    return outcome.status


def _plan(asked: ExportRequest, to: str | None, form: Format, catalog: dict[str, str]) -> int:
    """Show what would be read: what is new at a destination, or everything without one."""
    from kafkalog.change.lake import writing
    from kafkalog.change.lake.plan import make_plan
    from kafkalog.change.lake.run_types import with_types
    from kafkalog.change.lake.split import plan_anywhere
    from kafkalog_cli.outcome import Outcome
    from kafkalog_cli.output.exported import EXPORT_PLAN_SUMMARY, Planned, plan_lines, plan_view
    from kafkalog_cli.output.objects import Style
    from kafkalog_cli.output.writer import Writer
    from kafkalog_cli.session import session

    outcome, style = Outcome(), Style(exact=session().exact)
    if to is not None:
        plan = writing(asked, to, catalog=catalog, listener=outcome).planned()
    elif asked.split_by_type:
        plan = plan_anywhere(asked, outcome)
    else:
        asked = replace(asked, append=False)
        _, plan = with_types(asked, make_plan(asked, outcome), (), "")
    outcome.report_logs()
    outcome.lacks(plan.left_out.is_lacking)
    if plan.parts:
        outcome.answers()
    with Writer(plan_view(style), form) as writer:
        for part in plan.parts:
            writer.write(part)
        writer.write_object(EXPORT_PLAN_SUMMARY.row(Planned(plan, outcome.status)))
        writer.write_lines(plan_lines(plan, style))
    return outcome.status


def _require_libraries(kind: TableFormat, payloads: Iterable[Payload]) -> None:
    """Raise `UnsupportedError`, before anything else, without what each export needs."""
    from kafkalog.io.jit.fast_path import require_arrow

    forms = (one.typed or (TypedForm.AVRO if one.registry else None) for one in payloads)
    chosen = (kind, *forms)
    wanted = dict.fromkeys(_EXTRAS[one] for one in chosen if one in _EXTRAS)
    require_arrow(
        ",".join(wanted) or "data",
        "`kafkalog dump-segment PATH -o ndjson` (or csv) does without.",
    )


def _settings(texts: list[str] | None) -> dict[str, str]:
    """Return the values of `--set`. Raises `UsageError`."""
    found = parse_settings(texts, "--set", "a setting")
    for name in found:
        if name not in _SETTINGS and not name.startswith(_OF_CATALOG):
            raise UsageError(
                f"There is no setting {name!r}.", hint=f"{', '.join(_SETTINGS)} or catalog.NAME"
            )
    return found


def _writing(form: FileFormat, given: dict[str, str], payloads: Iterable[Payload]) -> Writing:
    """Return how files are written. Raises `UsageError`."""
    from kafkalog.change.lake.model import CODECS, GROUP_ROWS, GROUP_SIZE, Writing

    codec, rows, size = (given.get(name) for name in _SETTINGS[:3])
    if codec is not None and codec not in tuple(Codec):
        raise UsageError(f"{codec!r} is no compression.", hint=f"{', '.join(CODECS[form])}")
    if rows is not None and not is_number(rows):
        raise UsageError(f"{rows!r} is not a number of rows.", hint=f"row-group-rows={GROUP_ROWS}")
    key, value = (
        BytesForm.BASE64 if one.form == BytesFormat.AUTO else BytesForm(one.form)
        for one in payloads
    )
    return Writing(
        form,
        None if codec is None else Codec(codec),
        GROUP_ROWS if rows is None else int(rows),
        GROUP_SIZE if size is None else parse_size(size),
        key,
        value,
    )


def _accepted(texts: list[str] | None, asked: ExportRequest) -> Accepted:
    """Return what may be left out. Raises `UsageError`."""
    found = Accepted()
    for text in texts or ():
        match = _ACCEPTED.fullmatch(text)
        if match is None or (match[2] is not None and match[1] != "rejects"):
            raise UsageError(f"{text!r} is nothing to accept.", hint="damage, gaps or rejects=N")
        if match[1] == "gaps" and not asked.append:
            raise UsageError("--accept gaps requires --append.", hint="Leave it out, or add it.")
        if match[1] == "rejects" and not asked.sources:
            raise UsageError(
                "--accept rejects requires --value-format or --key-format.",
                hint="Only decoded values and keys can be rejected.",
            )
        if match[1] == "rejects":
            most = _REJECTS_MAX if match[2] is None else int(match[2])
            found = replace(found, rejects=most)
        else:
            found = replace(found, **{match[1]: True})
    return found


def _catalog(kind: TableFormat, given: dict[str, str]) -> dict[str, str]:
    """Return the properties of a catalog that are given. Raises `UsageError`."""
    of_catalog = {
        name.removeprefix(_OF_CATALOG): value
        for name, value in given.items()
        if name.startswith(_OF_CATALOG)
    }
    warehouse = given.get("warehouse")
    if (of_catalog or warehouse is not None) and kind != TableFormat.ICEBERG:
        name = "warehouse" if warehouse is not None else f"{_OF_CATALOG}{next(iter(of_catalog))}"
        raise UsageError(f"--set {name} requires --as iceberg.", hint=f"Leave out {name}.")
    return {**({} if warehouse is None else local_catalog(warehouse)), **of_catalog}


def _exported(
    run: Export | SplitExport, choice: EngineChoice, outcome: Outcome, metrics: ExportMetrics
) -> ExportSummary:
    with metrics.run(), ExitStack() as opened:
        # While the plan is made the engine starts; a repetition has nothing to do, and needs none.
        started = None if run.has_ended else opened.enter_context(choice.start())
        opened.enter_context(run)
        outcome.report_logs()
        if run.missing:
            engine = opened.enter_context(choice.open()) if started is None else started()
            run.run(engine)
        else:
            run.run(None)
        summary = run.summary()
        metrics.done(summary)
        return summary


def _commits(
    run: Callable[[], Run],
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
    run: Callable[[], Run],
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


def _show(
    summary: ExportSummary,
    writer: ExportWriter,
    outcome: Outcome,
    accepted: Accepted,
    *,
    has_changed: bool,
) -> None:
    from kafkalog.log.batches.condition import note_of
    from kafkalog_cli.outcome import show_note

    outcome.lacks(summary.left_out.is_lacking)
    outcome.lacks(any(not accepted.has(one) for one in summary.gaps))
    for part in () if accepted.damage else summary.parts:
        outcome.lacks(part.defect_count > 0)
        for defect in part.defects:
            outcome.count(defect)
    if (note := note_of(summary.without_answer)) is not None:
        show_note(note)
    writer.write_summary(summary, outcome.of_work(has_changed=has_changed))
    sys.stdout.flush()  # it may be long until the next one
