"""`kafkalog sql`: run SQL over the tables of log directories."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Annotated

import typer

from kafkalog.errors import UsageError
from kafkalog.model import Isolation, LogView, Replicas
from kafkalog.tables.model import TableName
from kafkalog_cli import options as opt
from kafkalog_cli.output.text import BytesFormat
from kafkalog_cli.output.writer import Format

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkalog.spark.reading import Find
    from kafkalog.tables.datasets.model import Tables
    from kafkalog.tables.model import Answer
    from kafkalog_cli.engines import EngineChoice
    from kafkalog_cli.outcome import Outcome

_QUERY_SIZE_MAX = 1 << 20


def sql(
    words: Annotated[list[str], typer.Argument(
        metavar="[QUERY] PATH...", show_default=False,
        help="A query, unless it is a path or the only argument; then log directories, "
             "partition directories or files, also in s3://, gs:// or abfs://.",
    )],
    isolation: opt.IsolationOption = Isolation.READ_UNCOMMITTED,
    replicas: opt.AnyReplicasOption = None,
    internal: opt.InternalOption = False,
    view: opt.ViewOption = LogView.RECOVERED,
    text: Annotated[bool, typer.Option(
        "--text", help="Return keys and values as text (UTF-8) instead of bytes.",
    )] = False,
    disorder: Annotated[str | None, typer.Option(
        "--disorder", metavar="DURATION",
        help="Assume that no record is older than the newest before it by more than this, so "
             "that reading stops soon after a time range.",
    )] = None,
    memory_limit: Annotated[str, typer.Option(
        "--memory-limit", metavar="SIZE",
        help="Memory that DuckDB may use before it spills to files.",
    )] = "1GiB",
    form: Annotated[Format, typer.Option("--format", help="Output format.")] = Format.TABLE,
    bytes_form: opt.BytesOption = BytesFormat.AUTO,
    quiet: opt.QuietOption = False,
    *,
    spark: opt.Spark,
) -> int:  # fmt: skip
    """Query records, batches, indexes, transactions, groups and damage with SQL.

    Each table is a view: records, batches, offset_index, time_index, transactions, segments,
    producers, defects, groups, commits, topics, configs; `describe batches` lists its columns.
    Records have key, value, topic, partition, offset, timestamp, timestampType and headers, and if
    the query names them timestamp_ms, sequence, producer_id, producer_epoch, leader_epoch,
    is_transactional, compression, magic, batch_base_offset, batch_position, decoded, path, log_dir
    and state.

    Without a query, a terminal gets a prompt; otherwise the queries are read from stdin. DuckDB
    runs them in this process; --engine spark runs one in Spark SQL, which has no table of state and
    needs Java 17. A query reads PATH only, and nothing is written.

    Filters on topic, partition, offset and timestamp skip what indexes show to be irrelevant.
    Damaged batches are skipped and reported, and make the exit status 1; the view defects lists
    them.

    \b
    kafkalog sql "select topic, count(*) from records group by 1" /var/lib/kafka
    kafkalog sql --text "select key, value from records where offset = 4" orders-0
    kafkalog sql --format ndjson "select * from defects" /var/lib/kafka
    kafkalog sql "select topic, sum(lag) from commits group by 1" /var/lib/kafka
    kafkalog sql --engine spark "select count(*) from records" /var/lib/kafka
    """
    from kafkalog.tables.datasets.model import Tables

    query, paths = _query_and_paths(words)
    tables = Tables(
        tuple(paths),
        isolation=isolation,
        replicas=replicas, internal=internal, view=view, text=text,
        disorder_ms=None if disorder is None else round(opt.parse_duration(disorder) * 1000),
    )  # fmt: skip
    choice = spark.choice()
    if not choice.is_spark:
        return _run_here(query, tables, opt.parse_size(memory_limit), form, bytes_form, quiet)
    if query is None:
        raise UsageError("--spark needs a query.", hint="kafkalog sql QUERY PATH")
    return _run_in_spark(query, tables, choice, form, bytes_form)


def _query_and_paths(words: list[str]) -> tuple[str | None, list[str]]:
    """Return the query, None if it is to be asked for, and the paths."""
    from kafkalog.io.paths import file_system

    if len(words) == 1 or file_system.exists(words[0]):
        return None, words
    return words[0], words[1:]


def _run_here(
    query: str | None,
    tables: Tables,
    memory_size: int,
    form: Format,
    bytes_form: BytesFormat,
    quiet: bool,
) -> int:
    from kafkalog.tables.datasets.sql import Database
    from kafkalog_cli.outcome import Outcome
    from kafkalog_cli.queries import Damage, run_queries

    outcome = Outcome()
    _require_paths(tables.paths, outcome)
    damage = Damage(outcome)
    with Database(replace(tables, listener=damage), memory_size=memory_size) as database:
        if query is None and sys.stdin.isatty():
            from kafkalog_cli.queries import ask

            ask(database, damage, form, bytes_form)
        else:
            text = _from_stdin() if query is None else query
            run_queries(database, text, damage, form, bytes_form, quiet=quiet)
    return outcome.status


def _require_paths(paths: Sequence[str], outcome: Outcome) -> None:
    """Raise the error of a path that cannot be opened, before a query is asked for."""
    from kafkalog.errors import NotFoundError
    from kafkalog.node.targets import look_at_targets

    for path in paths:
        try:
            look_at_targets([path], outcome.hear_note)
        except NotFoundError as error:
            if " " in path:
                error.hint = "A query comes before the path: kafkalog sql QUERY PATH"
            raise


def _from_stdin() -> str:
    text = sys.stdin.read(_QUERY_SIZE_MAX + 1)
    if len(text) > _QUERY_SIZE_MAX:
        raise UsageError("The queries on stdin are longer than 1 MiB.")
    return text


def _run_in_spark(
    query: str, tables: Tables, choice: EngineChoice, form: Format, bytes_form: BytesFormat
) -> int:
    _use_utc()
    from kafkalog.io.paths.file_system import listings_held
    from kafkalog.node.targets import look_at_targets
    from kafkalog_cli.outcome import Outcome
    from kafkalog_cli.queries import write_answer

    outcome = Outcome()
    options = {
        "isolation": tables.isolation,
        "internal": str(tables.internal).lower(),
        "view": tables.view,
        "decode": "text" if tables.text else "bytes",
    }
    if tables.replicas is not None:
        options["replicas"] = tables.replicas
    if tables.disorder_ms is not None:
        options["maxTimestampDisorderMs"] = str(tables.disorder_ms)
    look_at_targets(tables.paths)  # report a wrong path before Spark starts
    with choice.start_spark() as session, listings_held(tables.paths):
        from kafkalog.spark.session import scratch_directory

        find = _look_at(query, tables, outcome)
        outcome.report_logs()
        opened = session()
        from kafkalog.spark.queries import run_query

        run = partial(run_query, opened, query, tables.paths)
        with scratch_directory() as scratch:
            answer = _answer_of(run, options, outcome, scratch, find)
            write_answer(answer, form, bytes_form)
    return outcome.status


def _look_at(query: str, tables: Tables, outcome: Outcome) -> Find:
    """Look at all logs, tell the outcome of views and ends, and return how they are found again."""
    from kafkalog.errors import Listener
    from kafkalog.tables.model import is_named, partition_ends
    from kafkalog.tables.planning import find_targets, targets_among, tell_differences

    every = replace(tables, replicas=tables.replicas or Replicas.ALL)
    request = every.request(TableName.RECORDS)
    targets = find_targets(tables.paths, request)
    tell_differences(targets, outcome)
    if is_named(query, TableName.RECORDS):
        for end in partition_ends(targets, request, Listener()):
            outcome.hear(end)
    return partial(targets_among, targets, request)


def _answer_of(
    run: Callable[..., Answer],
    options: dict[str, str],
    outcome: Outcome,
    *here: str | Find,
) -> Answer:
    """Run a query, and again without what is lost, which is reported; see `run_query`."""
    from kafkalog.errors import OffsetsMissingError
    from kafkalog.log.defects import make_defect
    from kafkalog.spark.job import errors_as_ours

    try:
        with errors_as_ours():
            answer = run(options, *here)
            first = list(islice(answer.rows, 1))  # all logs are planned before the first row
    except OffsetsMissingError as error:
        place = error.path or ""
        lost = make_defect(error.reference, place, error.message, position=error.position)
        outcome.hear(lost)
        # No row is written yet: the error came before the first.
        return run({**options, "failOnDataLoss": "false"})
    return replace(answer, rows=chain(first, answer.rows))


def _use_utc() -> None:
    """Set the zone to UTC: pyspark returns local times, some of which occur twice a year."""
    os.environ["TZ"] = "UTC"
    time.tzset()
