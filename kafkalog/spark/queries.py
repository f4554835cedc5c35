"""Queries of Spark SQL over the tables of logs."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final

from kafkalog.paths import file_system
from kafkalog.paths.tier_keys import keys_in_use
from kafkalog.spark.aggregates import OPTION, AggregatingDataSource
from kafkalog.spark.job import is_remote
from kafkalog.spark.rewriting import VIEW, two_steps
from kafkalog.spark.source import KafkaLogDataSource
from kafkalog.tables import TableName
from kafkalog.tables.model import Answer, columns_for, is_named
from kafkalog.tables.schemas import SCHEMAS, table_schema
from kafkalog.targets import open_targets

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

_UTC: Final = ("UTC", "Etc/UTC", "GMT", "Z", "+00:00")


def run_query(
    session: SparkSession, query: str, paths: Sequence[str], options: Mapping[str, str]
) -> Answer:
    """Run a query over the tables of some logs.

    Those tables that it names become temporary views. `records` has the columns of Spark's own
    Kafka source, and any others that the query names. What the query does not use is not read,
    except over Spark Connect, which does not report it.

    Args:
        session: the Spark session.
        query: one statement.
        paths: log directories, partition directories or logs.
        options: options of the data source.

    Raises:
        NotFoundError, UnreadableError, NotAKafkaFileError: as `open_path`.
        UsageError: an option is wrong. Errors of Spark are raised as they are.

    Cost:
        The rows of one task at a time are in memory here.
    """
    open_targets(paths)
    session.dataSource.register(KafkaLogDataSource)
    reader = session.read.format("kafkalog").options(**options)
    sources = json.dumps([file_system.portable(path) for path in paths])
    reader = reader.option("paths", sources).option("filterPushdown", "true")
    if files := [os.path.abspath(path) for _, path, _ in keys_in_use().keys]:
        reader = reader.option("tierKey", json.dumps(files))
    for table in tables_of(query):
        usual = table_schema(table).names
        _make_view(reader, table, columns_for(query, usual, SCHEMAS[table].names))
    frame = session.sql(query)
    shorter = _in_two_steps(session, query, reader, frame, as_text=options.get("decode") == "text")
    if shorter is not None:
        frame = shorter
    elif not is_remote(session):
        for table, columns in _used_columns(frame).items():
            _make_view(reader, table, columns)
        frame = session.sql(query)
    numbers = [_is_number(field.dataType.typeName()) for field in frame.schema.fields]
    return Answer(tuple(frame.columns), tuple(numbers), _rows(frame))


def _in_two_steps(
    session: SparkSession, query: str, reader: DataFrameReader, frame: DataFrame, *, as_text: bool
) -> DataFrame | None:
    """Return the same answer, joined from what tasks return of each group, if they can do so."""
    in_utc = session.conf.get("spark.sql.session.timeZone") in _UTC
    steps = two_steps(query, text=as_text, in_utc=in_utc)
    if steps is None:
        return None
    session.dataSource.register(AggregatingDataSource)
    first = reader.format(AggregatingDataSource.name()).option("table", steps.table)
    first.option(OPTION, steps.first.as_json()).load().createOrReplaceTempView(VIEW)
    found = session.sql(steps.query).toDF(*frame.columns)
    types = [[field.dataType for field in one.schema.fields] for one in (frame, found)]
    return found if types[0] == types[1] else None


def tables_of(query: str) -> list[TableName]:
    """Return the tables that a query may use."""
    return [table for table in TableName if is_named(query, table)]


def _make_view(reader: DataFrameReader, table: TableName, columns: Sequence[str]) -> None:
    reader = reader.option("table", table).option("columns", ",".join(columns))
    reader.load().createOrReplaceTempView(table)


def _used_columns(frame: Any) -> dict[TableName, list[str]]:
    """Return per table the columns that Spark's optimized plan uses; at least one."""
    used: dict[TableName, list[str]] = {}
    plan = frame._jdf.queryExecution().optimizedPlan()  # noqa: SLF001 # nothing public tells
    wanted = {one.exprId().id() for one in _each(plan.output())}
    leaves = []
    for node in _nodes(plan):
        wanted |= {one.exprId().id() for one in _each(node.references())}
        if node.getClass().getSimpleName() == "DataSourceV2ScanRelation":
            leaves.append(node)
    for leaf in leaves:
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
    for row in frame.toLocalIterator(prefetchPartitions=True):
        yield tuple(_plain(value) for value in row)


def _plain(value: Any) -> Any:
    """Convert Spark's own types to plain ones."""
    if hasattr(value, "asDict"):
        return {name: _plain(inner) for name, inner in value.asDict().items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    return bytes(value) if isinstance(value, bytearray) else value
