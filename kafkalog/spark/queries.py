"""Queries of Spark SQL over the tables of logs."""

from __future__ import annotations

import json
import os
import tempfile
import warnings
from dataclasses import replace
from datetime import UTC
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkalog.io.paths import file_system
from kafkalog.io.paths.tier_keys import keys_in_use
from kafkalog.spark.frames import read_frame
from kafkalog.spark.job import is_remote
from kafkalog.spark.options import parse_options
from kafkalog.spark.plans import PLANS, hand_over, noted_requests
from kafkalog.spark.settings import PUSHES_FILTERS, has_data_sources
from kafkalog.tables import TableName
from kafkalog.tables.model import Answer, columns_for, is_named
from kafkalog.tables.planning import find_targets
from kafkalog.tables.schemas import SCHEMAS, table_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from kafkalog.spark.reading import Find
    from kafkalog.spark.source import KafkaLogDataSource


def run_query(
    session: SparkSession,
    query: str,
    paths: Sequence[str],
    options: Mapping[str, str],
    scratch: str | None = None,
    find: Find = find_targets,
) -> Answer:
    """Run a query over the tables of some logs.

    Those tables that it names become temporary views. `records` has the columns of Spark's own
    Kafka source, and any others that the query names. Columns that the query does not use are not
    read, except over Spark Connect, which does not report them. Rows that its filters leave out
    are not, where the session pushes filters down.

    Args:
        session: the Spark session.
        query: one statement.
        paths: log directories, partition directories or logs.
        options: options of the data source.
        scratch: a directory that stays while rows are fetched, for what is planned in this process,
            which may know the logs already; if None, or over Spark Connect, Spark's own plans.
        find: how logs are found here.

    Raises:
        UsageError: an option is wrong. Errors of Spark are raised as they are.

    Cost:
        The rows of one task at a time are in memory here.
    """
    sources = json.dumps([file_system.portable(path) for path in paths])
    given = {**options, "paths": sources}
    if files := [os.path.abspath(path) for _, path, _ in keys_in_use().keys]:
        given["tierKey"] = json.dumps(files)
    looks = has_data_sources() and not is_remote(session)
    plans = tempfile.mkdtemp(dir=scratch) if looks and scratch is not None else None
    if plans is not None:
        given[PLANS] = plans
    load = _loads(session, given) if has_data_sources() else partial(_framed, session, given)
    first = _unplanned(session, given) if looks else load
    tables = {
        table: columns_for(query, table_schema(table).names, SCHEMAS[table].names)
        for table in tables_of(query)
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the program has told what it leaves out
        for table, columns in tables.items():
            first(table, columns).createOrReplaceTempView(table)
        frame = session.sql(query)
        if looks:
            used = _used_columns(frame)
            if plans is not None:
                for table in used:
                    _plan(given, table, plans, find)
            for table, columns in (tables | used).items():
                load(table, columns).createOrReplaceTempView(table)
            frame = session.sql(query)
    numbers = [_is_number(field.dataType.typeName()) for field in frame.schema.fields]
    return Answer(tuple(frame.columns), tuple(numbers), _rows(frame))


def _loads(
    session: SparkSession, options: Mapping[str, str]
) -> Callable[[TableName, Sequence[str]], DataFrame]:
    """Return what loads columns of a table from the data source."""
    from kafkalog.spark.source import KafkaLogDataSource, PlannedDataSource

    return _loader(session, options, PlannedDataSource if PLANS in options else KafkaLogDataSource)


def _unplanned(
    session: SparkSession, options: Mapping[str, str]
) -> Callable[[TableName, Sequence[str]], DataFrame]:
    """Return what loads columns of a table for Spark's optimizer, which would plan real ones."""
    from kafkalog.spark.source import UnplannedDataSource

    return _loader(session, options, UnplannedDataSource)


def _loader(
    session: SparkSession, options: Mapping[str, str], source: type[KafkaLogDataSource]
) -> Callable[[TableName, Sequence[str]], DataFrame]:
    session.dataSource.register(source)
    pushes = session.conf.get(PUSHES_FILTERS) or "false"  # off in sessions of others
    reader = session.read.format(source.name()).options(**options).option("filterPushdown", pushes)

    def load(table: TableName, columns: Sequence[str]) -> DataFrame:
        return reader.option("table", table).option("columns", ",".join(columns)).load()

    return load


def _plan(options: Mapping[str, str], table: TableName, plans: str, find: Find) -> None:
    """Plan the scans of a table here, each with the filters that the optimizer has pushed down."""
    own = {name: value for name, value in options.items() if name != PLANS}
    asked = parse_options({**own, "table": table})
    noted = [one for one in noted_requests(plans) if one.table == table]
    for request in dict.fromkeys(noted or [asked.request]):
        hand_over(plans, replace(asked, request=request), find)


def _framed(
    session: SparkSession, options: Mapping[str, str], table: TableName, columns: Sequence[str]
) -> DataFrame:
    """Return columns of a table where there is no data source: filters leave nothing unread."""
    return read_frame(session, **{**options, "table": table, "columns": ",".join(columns)})


def tables_of(query: str) -> list[TableName]:
    """Return the tables that a query may use."""
    return [table for table in TableName if is_named(query, table)]


def _used_columns(frame: Any) -> dict[TableName, list[str]]:
    """Return per table the columns that Spark's optimized plan uses; at least one."""
    used: dict[TableName, list[str]] = {}
    # Nothing public tells: EXPLAIN gives a text, in which long lists of columns are cut short.
    plan = frame._jdf.queryExecution().optimizedPlan()  # noqa: SLF001
    plans = [plan, *_each(plan.subqueriesAll())]
    nodes = [node for one in plans for node in _nodes(one)]
    wanted = {column.exprId().id() for one in plans for column in _each(one.output())}
    wanted |= {column.exprId().id() for node in nodes for column in _each(node.references())}
    for leaf in nodes:
        if leaf.getClass().getSimpleName() != "DataSourceV2ScanRelation":
            continue
        name = leaf.relation().options().get("table")
        if name in list(TableName):
            columns = used.setdefault(TableName(name), [])
            found = [one.name() for one in _each(leaf.output()) if one.exprId().id() in wanted]
            columns += [one for one in found or ["partition"] if one not in columns]
    return used


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for child in _each(plan.children()):
        yield from _nodes(child)


def _each(of_scala: Any) -> Iterator[Any]:
    iterator = of_scala.iterator()
    while iterator.hasNext():
        yield iterator.next()


def _is_number(kind: str) -> bool:
    return kind.startswith("decimal") or kind in {
        "byte", "short", "integer", "long", "float", "double",
    }  # fmt: skip


def _rows(frame: DataFrame) -> Iterator[tuple[Any, ...]]:
    kinds = [field.dataType for field in frame.schema.fields]
    for row in frame.toLocalIterator(prefetchPartitions=True):
        yield tuple(map(_plain, row, kinds))


def _plain(value: Any, kind: Any) -> Any:
    """Convert a value of a type of Spark to plain ones; times with a zone are in UTC there."""
    name = kind.typeName()
    if value is None:
        return None
    if name == "struct":
        inner = zip(value, kind.fields, strict=True)
        return {field.name: _plain(one, field.dataType) for one, field in inner}
    if name == "array":
        return [_plain(one, kind.elementType) for one in value]
    if name == "map":
        return {str(key): _plain(one, kind.valueType) for key, one in value.items()}
    if name == "timestamp":
        return value.replace(tzinfo=UTC)
    return bytes(value) if isinstance(value, bytearray) else value
