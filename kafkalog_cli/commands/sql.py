"""`kafkalog sql`: run SQL over the tables of log directories."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Annotated

from kafkalog.errors import UsageError
from kafkalog.log.typed import TypedForm
from kafkalog.model import Isolation, LogView, Replicas
from kafkalog.tables.model import TableName
from kafkalog_cli import options as opt
from kafkalog_cli.engines import EngineChoice, engine_choice
from kafkalog_cli.option_sets import RUN, WHAT
from kafkalog_cli.output.text import BytesFormat
from kafkalog_cli.values import parse_duration, parse_size

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkalog.log.typed import TypedColumn
    from kafkalog.spark.reading import Find
    from kafkalog.tables.datasets.model import Tables
    from kafkalog.tables.model import Answer
    from kafkalog_cli.outcome import Outcome
    from kafkalog_cli.payloads import Payload

_QUERY_SIZE_MAX = 1 << 20


def sql(
    paths: opt.PathsArgument,
    command: Annotated[str | None, opt.option(
        WHAT, "-c", "--command", metavar="QUERY",
        help="Statements to run, separated by semicolons; without it a prompt, or those on stdin.",
    )] = None,
    disorder: Annotated[str | None, opt.option(
        RUN, "--disorder", metavar="DURATION",
        help="Assume that no record is older than the newest before it by more than this, so that "
             "reading stops soon after a time range.",
    )] = None,
    memory_limit: Annotated[str, opt.option(
        RUN, "--memory-limit", metavar="SIZE",
        help="Memory that DuckDB may use before it spills to files.",
    )] = "1GiB",
    view: opt.ViewOption = LogView.RECOVERED,
    isolation: opt.IsolationOption = Isolation.READ_UNCOMMITTED,
    replicas: opt.AnyReplicasOption = None,
    *,
    partitions: opt.Partitions,
    decode: opt.Decode,
    show: opt.Show,
    reading: opt.Reading,
    spark: opt.Spark,
) -> int:  # fmt: skip
    """Query records, batches, indexes, transactions, groups and damage with SQL.

    The tables are records, batches, offset_index, time_index, transactions, segments, producers,
    defects, groups, commits, topics, configs; `describe batches` lists columns. key and value are
    text, 0x and hexadecimal digits if they are no UTF-8; key_bytes and value_bytes have them as
    they are. --value-format json, avro, protobuf or connect gives values types; so does --registry
    for one --topic, with value_type and value_schema_id. DuckDB runs the statements, or Spark SQL
    with --spark. A query reads PATH only, and nothing is written.

    \b
    kafkalog sql /var/lib/kafka -c "select count(*), max(offset) from records"
    kafkalog sql orders-0 -c "select value->>'item' from records where offset < 4"
    kafkalog sql /var/lib/kafka -o ndjson -c "select * from defects"
    kafkalog sql orders-0 --spark 'local[4]' -c "select max(offset) from records"
    """
    from kafkalog.tables.datasets.model import Tables
    from kafkalog_cli.outcome import Outcome

    tables = Tables(
        tuple(paths),
        topics=partitions.topics, partitions=partitions.numbers, internal=partitions.internal,
        isolation=isolation, replicas=replicas, view=view, text=True,
        disorder_ms=None if disorder is None else round(parse_duration(disorder) * 1000),
        threads=reading.threads,
    )  # fmt: skip
    choice = engine_choice(spark)
    if choice.is_spark:
        if command is None:
            raise UsageError(
                "--spark needs a query.", hint="kafkalog sql PATH --spark URL -c QUERY"
            )
        _refuse_in_spark(partitions, decode)
        return _run_in_spark(command, tables, choice, show)
    outcome = Outcome()
    _require_named(tables.paths, partitions, outcome)
    return _run_here(command, tables, parse_size(memory_limit), decode.payloads, show, outcome)


def _refuse_in_spark(partitions: opt.Partitions, decode: opt.Decode) -> None:
    """Raise `UsageError` for what only the query can say to Spark."""
    if partitions.topic or partitions.partition:
        raise UsageError(
            "--topic and --partition do not work with --spark.", hint="… WHERE topic = 'orders'"
        )
    if decode.registry or not all(one.is_auto for one in decode.payloads):
        raise UsageError(
            "--key-format, --value-format and --registry do not work with --spark.",
            hint="from_json(value, …) and from_avro(value_bytes, …) are functions of Spark.",
        )


def _run_here(
    query: str | None,
    tables: Tables,
    memory_size: int,
    payloads: Sequence[Payload],
    show: opt.Show,
    outcome: Outcome,
) -> int:
    from kafkalog.tables.datasets.sql import Database
    from kafkalog.tables.datasets.typed import with_data
    from kafkalog_cli.queries import Answers, Damage, ask, run_queries
    from kafkalog_cli.schemas import typed_columns

    damage = Damage(outcome)
    given, by_data = typed_columns(payloads, [*(tables.topics or ())], tables.paths)
    typed = with_data(tables, given, by_data)
    read = replace(tables, listener=damage, typed_listener=damage.typed, typed=typed)
    answers = Answers(show.format, show.limit)
    with Database(read, memory_size=memory_size, shown=_shown(payloads, typed)) as database:
        if query is None and sys.stdin.isatty():
            ask(database, damage, answers)
        else:
            run_queries(database, _from_stdin() if query is None else query, damage, answers)
    return outcome.status


def _shown(payloads: Sequence[Payload], typed: Sequence[TypedColumn]) -> dict[str, str]:
    """Return the SQL of keys and values that are no plain text."""
    found = {}
    for column in typed:
        is_text = column.form == TypedForm.JSON and not (column.schema or column.has_ids)
        found[column.source] = f'"{column.name}"' + ("::JSON" if is_text else "")
    for one in payloads:
        if one.form == BytesFormat.HEX:
            found[one.source] = f"'0x' || lower(hex({one.source}_bytes))"
        elif one.form == BytesFormat.BASE64:
            found[one.source] = f"to_base64({one.source}_bytes)"
    return found


def _require_named(paths: Sequence[str], partitions: opt.Partitions, outcome: Outcome) -> None:
    """Raise the error of a path, topic or partition that is not there, before a query is asked for.

    Tables that are not made of logs would have no rows of it, or those of other topics.
    """
    from kafkalog.errors import NotFoundError
    from kafkalog.node.targets import look_at_targets, open_targets, require_named

    for path in paths:
        try:
            look_at_targets([path], outcome.hear_note)
        except NotFoundError as error:
            if " " in path:
                error.hint = "-c gives a query: kafkalog sql PATH -c QUERY"
            raise
    if partitions.topic or partitions.partition:
        targets = open_targets(paths, hear=outcome.hear_note, topics=partitions.topics)
        require_named(targets, partitions.topics, partitions.numbers)


def _from_stdin() -> str:
    text = sys.stdin.read(_QUERY_SIZE_MAX + 1)
    if len(text) > _QUERY_SIZE_MAX:
        raise UsageError("The queries on stdin are longer than 1 MiB.")
    return text


def _run_in_spark(query: str, tables: Tables, choice: EngineChoice, show: opt.Show) -> int:
    _use_utc()
    from kafkalog.io.paths.file_system import listings_held
    from kafkalog.node.targets import look_at_targets
    from kafkalog_cli.outcome import Outcome
    from kafkalog_cli.queries import Answers

    outcome = Outcome()
    options = {
        "isolation": tables.isolation,
        "internal": str(tables.internal).lower(),
        "view": tables.view,
        "decode": "text",
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
            Answers(show.format, show.limit).write(answer)
        outcome.answers()
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
