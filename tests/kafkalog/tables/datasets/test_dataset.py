"""`kafkalog.dataset`: filters and columns only skip what a plain filter would drop."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kafkalog
from kafkalog.errors import CorruptDataError, Listener, UsageError
from kafkalog.log.defects import Events
from kafkalog.tables import Request, TableName, plan_splits, read_split
from kafkalog.tables.datasets import scanner
from kafkalog.tables.schemas import SCHEMAS
from tests.builders import BASE_TIME, batch, flip, record, write_log
from tests.conftest import state
from tests.sampling import sampled, tries_everything

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


HOUR_MS = 3_600_000
US = pa.timestamp("us", tz="UTC")
PAST_ALL_TIMES = (1 << 63) - 1


def ignore(_: object) -> None:
    """Ignore a defect: this test is not about damage."""


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Partitions of several segments with indexes, in disorder, with a time that overflows."""
    place = tmp_path_factory.mktemp("logs")
    for topic, partition in (("a", 0), ("a", 1), ("b", 0)):
        directory = place / f"{topic}-{partition}"
        for segment in range(3):
            batches = []
            for number in range(20):
                base = segment * 100 + number * 5
                time = BASE_TIME + base * 60_000 - (number % 3) * HOUR_MS
                if (topic, base) == ("b", 250):
                    time = PAST_ALL_TIMES
                rows = [record(i, b"k%d" % (i % 3), b"v" * 30) for i in range(4)]
                batches.append(batch(base, rows, base_time=time, max_time=time))
            write_log(directory, *batches, name=f"{segment * 100:020}")
    (place / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    kafkalog.rebuild_index(place).apply()
    return place


@pytest.fixture(scope="module")
def plain(log_dir: Path) -> dict[str, Any]:
    """Return all rows of the tables as Arrow's own datasets."""
    return {
        name: ds.InMemoryDataset(kafkalog.dataset(log_dir, table=name).to_table())
        for name in ("records", "batches")
    }


def _compared(column: str, values: st.SearchStrategy[Any], kind: Any = None) -> Any:
    field = ds.field(column)
    makes: list[Callable[[Any], Any]] = [
        lambda v: field == v, lambda v: field != v, lambda v: field < v, lambda v: field <= v,
        lambda v: field > v, lambda v: field >= v, lambda v: pc.if_else(field > v, True, None),
        lambda v: field.isin(pa.array([v.as_py()], v.type)), lambda _: field.is_null(),
        lambda _: field.is_valid(),
    ]  # fmt: skip
    return st.builds(lambda make, v: make(pa.scalar(v, kind)), st.sampled_from(makes), values)


OFFSETS = st.integers(-2, 310) | st.sampled_from([0, 100, 200, (1 << 63) - 1])
TIMES = st.integers(-3, 320).map(lambda n: BASE_TIME + n * 60_000 - HOUR_MS)
RECORDS = st.recursive(
    st.one_of(
        _compared("topic", st.sampled_from(["a", "b", "", "c"])),
        _compared("partition", st.integers(-1, 2), pa.int32()),
        _compared("offset", OFFSETS, pa.int64()),
        _compared("timestamp_ms", TIMES, pa.int64()),
        _compared("timestamp", TIMES.map(lambda ms: ms * 1000 + ms % 3), US),
        _compared("key", st.sampled_from([b"k1", b"", b"k"])),
        st.builds(lambda n: pc.bit_wise_and(ds.field("offset"), 1) == n, st.integers(0, 1)),
    ),
    lambda inner: st.one_of(
        st.builds(lambda one, other: one & other, inner, inner),
        st.builds(lambda one, other: one | other, inner, inner),
        st.builds(lambda one: ~one, inner),
    ),
    max_leaves=5,
)
BATCHES = st.recursive(
    st.one_of(
        _compared("base_offset", OFFSETS, pa.int64()),
        _compared("last_offset", OFFSETS, pa.int64()),
        _compared("max_timestamp", TIMES, pa.int64()),
        _compared("topic", st.sampled_from(["a", "b"])),
    ),
    lambda inner: st.builds(lambda one, other: one & other, inner, inner) | st.builds(
        lambda one: ~one, inner
    ),
    max_leaves=4,
)  # fmt: skip
TRIALS = settings(max_examples=500 if tries_everything() else 8)


@TRIALS
@given(condition=RECORDS, columns=st.sampled_from([["offset"], [], ["topic"], ["value", "path"]]))
def test_no_filter_of_records_drops_what_a_plain_one_keeps(
    log_dir: Path, plain: dict[str, Any], condition: Any, columns: list[str]
) -> None:
    """It keeps nothing that a plain one drops: the same rows in the same order."""
    found = kafkalog.dataset(log_dir)
    wanted = plain["records"].to_table(filter=condition)
    assert found.to_table(columns=columns, filter=condition).num_rows == wanted.num_rows
    assert found.count_rows(filter=condition) == wanted.num_rows
    if columns:
        assert found.to_table(columns=columns, filter=condition).equals(wanted.select(columns))


@TRIALS
@given(condition=BATCHES)
def test_no_filter_of_batches_drops_what_a_plain_one_keeps(
    log_dir: Path, plain: dict[str, Any], condition: Any
) -> None:
    found = kafkalog.dataset(log_dir, table="batches").to_table(filter=condition)
    assert found.equals(plain["batches"].to_table(filter=condition))


def test_bounds_skip_directories_segments_and_stretches(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An hour of one partition needs only a part of one segment."""
    seen: list[Any] = []
    planned = scanner.plan_splits
    monkeypatch.setattr(
        scanner, "plan_splits", lambda *args, **named: seen.extend(planned(*args, **named)) or seen
    )
    wanted = (ds.field("topic") == "a") & (ds.field("partition") == 1)
    wanted &= (ds.field("offset") >= 120) & (ds.field("offset") < 160)
    assert kafkalog.dataset(log_dir).count_rows(filter=wanted) == 32
    assert [one.path.split("/")[-2:] for one in seen] == [["a-1", f"{100:020}.log"]]


@pytest.mark.sampled(4)
@pytest.mark.filterwarnings("ignore:.*start would:UserWarning")
@pytest.mark.parametrize("name", ["crash-1-torn", "interrupted-1-swap", "jbod-live", "txn"])
def test_all_tables_are_those_of_the_splits(corpus_dir: Path, name: str) -> None:
    """`read_split` gives the same rows to Spark and to an export."""
    paths = [str(path) for path in state(corpus_dir, "kafka-4.3", name).log_dirs]
    for table in TableName:
        request = Request(table, internal=True)
        schema = SCHEMAS[request.table]
        splits = plan_splits(paths, request, Listener())
        rows = [one for split in splits for one in read_split(split, schema, Listener())]
        found = kafkalog.dataset(
            *paths, table=table, internal=True, replicas="all", on_event=Listener().hear
        )
        wanted = pa.Table.from_batches(rows, schema)
        assert found.to_table().select(schema.names).equals(wanted), table


@pytest.mark.sampled(2)
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed", "log"])
def test_counts_by_headers_are_those_of_the_reference_reader(
    corpus_dir: Path, isolation: str
) -> None:
    """The logs are compressed, transactional, with control batches, and cut anywhere."""
    for name in ("codecs", "txn"):
        one = state(corpus_dir, "kafka-4.3", name)
        for path in sampled(one.partitions(), 4):
            if path.name.startswith("__"):
                continue
            log = kafkalog.Log(path)
            wanted = [
                r.offset for r in log.records(isolation=isolation, data=True, on_event=ignore)
            ]
            found = kafkalog.dataset(path, isolation=isolation)
            assert found.count_rows() == len(wanted)
            for first, last in ((3, 50), (100, 1999), (0, 1)):
                bounds = (ds.field("offset") >= first) & (ds.field("offset") < last)
                in_them = [offset for offset in wanted if first <= offset < last]
                assert found.count_rows(filter=bounds) == len(in_them)
                offsets = found.to_table(["offset"], filter=bounds)["offset"].to_pylist()
                assert offsets == in_them


def test_a_large_log_is_counted_by_headers_as_it_is_read(tmp_path: Path) -> None:
    """The records of a damaged batch are no rows, and it is reported once."""
    rows = [record(i, b"k", b"v" * 100) for i in range(100)]
    data = b"".join(batch(number * 100, rows) for number in range(100))
    hurt = flip(data, 8 * (len(data) // 2 + 500))  # in the records of the batch in the middle
    write_log(tmp_path / "a-0", hurt)
    heard = Events()
    whole = kafkalog.dataset(tmp_path / "a-0", view="as-is", on_event=heard.hear)
    assert whole.count_rows() == 9900
    assert [one.reference for one in heard.defects] == ["batch-crc-mismatch"]
    assert whole.count_rows(filter=(ds.field("offset") > 55) & (ds.field("offset") < 777)) == 721
    assert whole.to_table(["offset"]).num_rows == 9900
    with pytest.raises(CorruptDataError):
        kafkalog.dataset(tmp_path / "a-0", view="as-is").count_rows()


def test_keys_and_values_are_decoded_only_where_asked_for(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []
    read = scanner.read_split

    def noted(split: Any, schema: Any, *more: Any, **named: Any) -> Any:
        seen.append(schema.names)
        return read(split, schema, *more, **named)

    monkeypatch.setattr(scanner, "read_split", noted)
    found = kafkalog.dataset(log_dir, topics=["b"])
    found.to_table(["offset"], filter=ds.field("key") == b"k1")
    found.to_table(["timestamp_ms"], filter=ds.field("topic") == "b")
    assert {tuple(names) for names in seen} == {("offset", "key"), ("timestamp_ms",)}


def test_engines_ask_for_what_they_need(log_dir: Path) -> None:
    """DuckDB, Polars and pandas give the same answer."""
    found = kafkalog.dataset(log_dir)
    with duckdb.connect() as connection:
        connection.register("records", found)
        query = (
            "select topic, count(*), count(distinct key) from records "
            'where partition = 1 and "offset" >= 100 and "offset" < 150 group by 1'
        )
        assert connection.execute(query).fetchall() == [("a", 40, 3)]
    rows = pl.scan_pyarrow_dataset(found).filter(
        (pl.col("topic") == "a") & (pl.col("partition") == 1) & (pl.col("offset") // 50 == 2)
    )
    assert rows.select(pl.len()).collect().item() == 40
    assert rows.select("key").collect()["key"].n_unique() == 3
    frame = found.to_table(["topic", "offset"], filter=ds.field("offset") < 5).to_pandas()
    assert frame.groupby("topic").size().to_dict() == {"a": 8, "b": 4}


def test_nothing_of_arrows_own_dataset_is_left(log_dir: Path) -> None:
    """No dataset of Arrow exists underneath: an inherited method would end the process."""
    found = kafkalog.dataset(log_dir)
    fragment = next(found.get_fragments())
    for ours, theirs in ((found, ds.Dataset), (fragment, ds.Fragment)):
        names = {name for name in vars(theirs) if not name.startswith("__")}
        assert names <= vars(type(ours)).keys()
    for method in ("join", "join_asof", "sort_by", "replace_schema"):
        with pytest.raises(UsageError, match=method):
            getattr(found, method)("x")


def test_the_methods_of_a_dataset(log_dir: Path) -> None:
    found = kafkalog.dataset(log_dir, text=True)
    assert found.schema.field("key").type == pa.string()
    assert found.head(3, columns=["offset"])["offset"].to_pylist() == [0, 1, 2]
    assert found.take([5, 0], columns=["offset"])["offset"].to_pylist() == [6, 0]
    late = found.filter(ds.field("offset") >= 290)
    assert late.count_rows() == 3 * 8
    assert sum(one.count_rows() for one in late.get_fragments()) == 3 * 8
    assert pickle.loads(pickle.dumps(late)).count_rows() == 3 * 8  # noqa: S301 # our own
    computed = {"next": ds.field("offset") + 1}
    assert late.to_table(columns=computed).column_names == ["next"]
    assert pa.table(late.scanner(["offset"])).num_rows == 3 * 8
    by_number = found.to_table(["offset"], filter=pc.field(1) == "b")
    assert by_number.num_rows == found.count_rows(filter=ds.field("topic") == "b") == 240


@pytest.mark.parametrize(
    ("named", "words"),
    [({"table": "elsewhere"}, "elsewhere"), ({"view": "x"}, "'x'"), ({"isolation": "x"}, "'x'")],
)
def test_wrong_arguments_are_named(log_dir: Path, named: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        kafkalog.dataset(log_dir, **named)
    with pytest.raises(UsageError, match="nothing"):
        kafkalog.dataset(log_dir).to_table(["nothing"])
    with pytest.raises(UsageError, match="nothing"):
        kafkalog.dataset(log_dir).to_table(filter=ds.field("nothing") > 1)


def test_hostile_names_are_data(tmp_path: Path) -> None:
    """Some names look like SQL, patterns or columns, and one is not text."""
    names = [b"a'b\"c-0", b"%_*-0", b"offset-0", b"x;drop table-0", b"bad\xff-0"]
    for name in names:
        path = tmp_path / name.decode(errors="surrogateescape")
        write_log(path, batch(0, [record(0, b"k")]))
    found = kafkalog.dataset(tmp_path)
    topics = found.to_table(["topic"])["topic"].to_pylist()
    assert sorted(topics) == sorted(
        name[:-2].decode(errors="surrogateescape").encode(errors="replace").decode()
        for name in names
    )
    for topic in topics:
        assert found.to_table(["offset"], filter=ds.field("topic") == topic).num_rows == 1


def test_the_tables_of_state_are_those_of_the_commands(corpus_dir: Path) -> None:
    one = state(corpus_dir, "kafka-4.3", "internal-topics")
    groups = kafkalog.groups(*one.log_dirs).groups
    rows = kafkalog.dataset(*one.log_dirs, table="commits").to_table().to_pylist()
    assert {(row["group_id"], row["topic"], row["partition"], row["offset"]) for row in rows} == {
        (o.group, o.topic, o.partition, o.offset) for g in groups.values() for o in g.offsets
    }
    found = kafkalog.dataset(*one.log_dirs, table="groups")
    assert found.to_table(["group_id"])["group_id"].to_pylist() == list(groups)
    assert found.count_rows() == len(groups) > 0
    topics = kafkalog.dataset(*one.log_dirs, table="topics").to_table()
    assert "__consumer_offsets" in topics["topic"].to_pylist()
    assert kafkalog.dataset(*one.log_dirs, table="configs").count_rows() >= 0
