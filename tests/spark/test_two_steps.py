"""Aggregates started in tasks give the same answers as all rows in one place."""

from __future__ import annotations

import json
import random
import shutil
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest

from kafkalog.errors import CorruptDataError
from kafkalog.spark import queries
from kafkalog.spark.aggregates import Aggregation
from kafkalog.spark.job import errors_as_ours
from kafkalog.spark.reading import joined_tasks
from kafkalog.spark.rewriting import two_steps
from tests.builders import flip
from tests.conftest import state
from tests.sampling import drawn_for, tries_everything

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

QUERIES = [
    "select count(*) from records",
    "select count(1) as n, max(offset), min(key) from records where offset >= 10",
    "select topic, partition, count(*) n from records group by topic, partition order by 1, 2",
    "select topic t, count(*) * 2 from records r where r.partition < 2 group by 1 order by t",
    "select compression, min(timestamp), max(value), count(key) from records group by 1 order by 1",
    "select magic, count(*) from records where not is_control group by 1 having count(*) > 1",
    "select magic, codec, n from (select 1 magic, 2 codec, 3 n)",
    "select count(*) from records where topic = 'nowhere'",
    "select topic, max(offset) from records where topic > 'b' or topic in ('a', 'b') group by 1",
    "select max(timestamp), count(*) from records where timestamp > '2024-01-01' and key is null",
    "select Topic, min(OFFSET) from RECORDS where partition between 0 and 1 group by topic",
    "select count(*), max(last_offset), min(base_offset) from batches where count > 3",
    "select partition, producer_id, count(*) from batches group by 1, 2 order by 1, 2",
    "select severity, count(*) from defects group by severity order by severity",
    "select count(distinct key), count(*) from records",
]


def answers(
    monkeypatch: pytest.MonkeyPatch, spark: SparkSession, query: str, path: Path, **options: str
) -> list[Any]:
    """Run a query in two steps if possible, then over all rows; return both answers."""
    found = []
    for in_steps in (True, False):
        with monkeypatch.context() as patched:
            if not in_steps:
                patched.setattr(queries, "_in_two_steps", lambda *_, **__: None)
            answer = queries.run_query(spark, query, [str(path)], options)
            found.append((answer.names, answer.numeric, list(answer.rows)))
    return found


@pytest.mark.parametrize(
    ("count", "at_once", "sizes"),
    [
        (1, 2, [1]),
        (6, 2, [1] * 6),
        (7, 2, [2, 2, 2, 1]),
        (17, 2, [3, 3, 3, 3, 3, 2]),
        (100, 2, [8] * 12 + [4]),  # no task becomes larger than that
        (100, 64, [1] * 100),
    ],
)
def test_tasks_of_aggregates_are_fewer(count: int, at_once: int, sizes: list[int]) -> None:
    """About three for each that runs at the same time, in order, and nothing is left out."""
    splits: list[Any] = [(str(number),) for number in range(count)]
    found = joined_tasks(splits, at_once)
    assert [len(one) for one in found] == sizes
    assert [name for task in found for name in task] == [str(number) for number in range(count)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("name", "decode"), [("txn", "text"), ("codecs", "bytes")])
def test_answers_are_those_of_all_rows(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, corpus_dir: Path, name: str, decode: str
) -> None:
    """Names, types and order too; `read_committed` hides records in both."""
    root = state(corpus_dir, "kafka-4.3", name).root
    count = len(QUERIES) - 1 if tries_everything() else 3
    drawn = drawn_for(f"{name} {decode}").sample(QUERIES[1:], count)
    for query in [QUERIES[0], *drawn]:
        short, whole = answers(
            monkeypatch, spark, query, root, decode=decode, isolation="read_committed"
        )
        if "order by" not in query:
            short, whole = ((*one[:2], sorted(map(repr, one[2]))) for one in (short, whole))
        assert short == whole, query


def test_counts_are_those_of_a_consumer(spark: SparkSession, corpus_dir: Path) -> None:
    """A read_committed consumer, where each row has the offset at which it was read."""
    one = state(corpus_dir, "kafka-4.3", "txn")
    query = "select topic, partition, count(*), max(offset) from records group by topic, partition"
    options = {"isolation": "read_committed", "subscribe": "txn"}
    answer = queries.run_query(spark, query, [str(one.root)], options)
    noted = sorted((one.expected / "records-committed").glob("txn-*.offsets.json"))
    expected = []
    for number, path in enumerate(noted):
        offsets = json.loads(path.read_text())
        expected.append(("txn", number, len(offsets), max(offsets)))
    assert sorted(answer.rows) == expected
    assert len(expected) == 3


def test_most_queries_are_taken() -> None:
    """Otherwise the test above would compare Spark with itself."""
    left = [query for query in QUERIES if two_steps(query, text=True, in_utc=True) is None]
    assert left == [QUERIES[6], QUERIES[-1]]


@pytest.mark.parametrize(
    "query",
    [
        "select count(distinct key) from records",
        "select count(*) filter (where offset > 3) from records",
        "select count(*) over () from records",
        "select sum(offset) from records",
        "select skewness(partition) from records group by partition",
        "select my_own(partition) from records group by partition",
        "select count(*) n, n + 1 from records",
        "select count(*) as offset from records order by offset",
        "select distinct count(*) from records",
        "select count(*) from records, batches",
        "select count(*) from records tablesample (10 percent)",
        "select count(*) from records where offset > 1.5",
        "select count(*) from records where partition = '0'",
        "select count(*) from records where topic = 'a\\'b'",
        "select count(*) from records where offset > (select 3)",
        "select count(*) from records where length(key) = 3",
        "select count(*) from records where offset <=> 3",
        "select count(*) from records where magic = 300",
        "select max(headers) from records",
        "select headers, count(*) from records group by headers",
        "select topic, count(*) from records group by all",
        "select topic, count(*) from records group by topic with rollup",
        "select offset from records",
        "select count(*) from elsewhere",
        "select count(*) from records union all select 1",
        "with records as (select 1) select count(*) from records",
        "select /*+ repartition(3) */ count(*) from records",
        "describe records",
        "select count(* from records",
    ],
)
def test_what_is_left_to_spark(query: str) -> None:
    assert two_steps(query, text=True, in_utc=True) is None


def test_times_without_a_zone_are_those_of_utc() -> None:
    """Only Spark knows their meaning in other zones."""
    for value in ("'2024-02-30'", "'2024-02-03 01:02'", "date '2024-02-03'", "3"):
        query = f"select count(*) from records where timestamp >= {value}"  # noqa: S608
        assert two_steps(query, text=True, in_utc=True) is None, value
    query = "select count(*) from records where timestamp >= timestamp '2024-02-03 00:00:00.25'"
    assert two_steps(query, text=True, in_utc=False) is None
    steps = two_steps(query, text=True, in_utc=True)
    assert steps is not None
    assert steps.first.condition == [">=", "timestamp", 1_706_918_400_250_000]


def drawn_condition(drawn: random.Random, depth: int = 2) -> Any:
    if depth and drawn.random() < 0.6:
        kind = drawn.choice(["and", "or", "not"])
        count = 1 if kind == "not" else 2
        return [kind, *(drawn_condition(drawn, depth - 1) for _ in range(count))]
    if drawn.random() < 0.2:
        return ["null", drawn.choice(["a", "b"])]
    name, values = drawn.choice([("a", [0, 1, 2, 5]), ("b", ["", "x", "yy"])])
    if drawn.random() < 0.2:
        return ["in", name, drawn.sample(values, 2)]
    return [drawn.choice(["=", "!=", "<", "<=", ">", ">="]), name, drawn.choice(values)]


def as_sql(condition: Any) -> str:
    kind, *rest = condition
    if kind == "not":
        return f"not ({as_sql(rest[0])})"
    if kind in ("and", "or"):
        return "(" + f" {kind} ".join(as_sql(one) for one in rest) + ")"
    if kind == "null":
        return f"{rest[0]} is null"
    if kind == "in":
        return f"{rest[0]} in ({', '.join(map(repr, rest[1]))})"
    return f"{rest[0]} {kind} {rest[1]!r}"


@pytest.mark.thorough("tests/spark/test_two_steps.py::test_answers_are_those_of_all_rows")
def test_parts_join_to_what_duckdb_finds() -> None:
    """Conditions with unknown values over any parts, compared with DuckDB's three-valued logic."""
    drawn = random.Random(20)
    kinds = {"a": pa.int64(), "b": pa.string()}
    some = 0
    for _ in range(100):
        rows = [
            {"a": drawn.choice([None, *range(6)]), "b": drawn.choice([None, "", "x", "yy", "z"])}
            for _ in range(drawn.randrange(30))
        ]
        table = pa.Table.from_pylist(rows, pa.schema(list(kinds.items())))
        groups = tuple(drawn.sample(["a", "b"], drawn.randrange(3)))
        condition = drawn_condition(drawn)
        measures = (("count", None), *drawn.sample(
            [(kind, name) for kind in ("count", "min", "max") for name in kinds], 3
        ))  # fmt: skip
        wanted = Aggregation.of_json(Aggregation(groups, measures, condition).as_json())
        schema = wanted.schema(table.schema)
        cut = drawn.randrange(len(rows) + 1)
        parts = [wanted.chosen(part) for part in (table[:cut], table[cut:])]
        made = [wanted.of_rows(part, schema) for part in parts if part.num_rows]
        some += len(made) > 1
        found = wanted.joined(pa.concat_tables(made), schema) if made else schema.empty_table()
        columns = [f"{kind}({name or '*'})" for kind, name in measures]
        query = f"select {', '.join([*groups, *columns])} from t where {as_sql(condition)}"  # noqa: S608
        query += f" group by {', '.join(groups)}" if groups else " having count(*) > 0"
        with duckdb.connect() as database:
            database.register("t", table)
            expected = database.execute(query).fetchall()
        assert sorted(map(repr, zip(*found.to_pydict().values(), strict=True))) == sorted(
            map(repr, expected)
        ), query
    assert some > 30


def test_damage_ends_a_query_that_shall_fail(
    spark: SparkSession, corpus_dir: Path, tmp_path: Path
) -> None:
    """A query over all rows ends in the same way."""
    root = state(corpus_dir, "kafka-4.3", "codecs").root
    partition = next(path for path in sorted(root.glob("codec-*")) if path.is_dir())
    copy = shutil.copytree(partition, tmp_path / partition.name)
    log = min(copy.glob("*.log"))
    log.write_bytes(flip(log.read_bytes(), 8 * 70))
    query, options = "select min(value) from records", {"mode": "failfast"}
    with pytest.raises(CorruptDataError, match="checksum"), errors_as_ours():
        list(queries.run_query(spark, query, [str(copy)], options).rows)
    assert list(queries.run_query(spark, query, [str(copy)], {}).rows), "it is skipped"
