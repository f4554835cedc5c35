"""Records that do not decode: in a table of their own, or the end of the run."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import duckdb
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from kafkalog.engine import LocalEngine
from kafkalog.errors import RefusedError
from kafkalog.lake import Export, ExportRequest, TableFormat, Writing
from kafkalog.tables import Request
from kafkalog.tables.model import Replicas
from kafkalog.typed import Framing, TypedColumn, TypedForm
from tests.builders import BASE_TIME, batch, record, write_log
from tests.kafkalog.lake import appending
from tests.kafkalog.lake.appending import DELTA, FILES, ICEBERG, iceberg
from tests.kafkalog.lake.exporting import HIVE, files_of, table_of
from tests.kafkalog.lake.test_stopped_appends import Killing, StoppedError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Result

SCHEMA = json.dumps({"type": "object", "properties": {"n": {"type": "integer"}}}).encode()
VALUE = TypedColumn("value", TypedForm.JSON, SCHEMA)
KEY = TypedColumn("key", TypedForm.JSON, SCHEMA, framing=Framing.CONFLUENT, schema_id=7)
SPLIT = 300


def value(n: int) -> bytes | None:
    """A third of the values are sound, a third are not, a third are tombstones."""
    return (b'{"n":%d}' % n, b"no JSON %d" % n, None)[n % 3]


def bad(end: int) -> list[tuple[int, bytes | None]]:
    return [(n, value(n)) for n in range(1, end, 3)]


def good(end: int) -> list[tuple[int, bytes | None]]:
    return [(n, value(n)) for n in range(end) if n % 3 != 1]


def grow(log: Path, first: int, end: int) -> None:
    """Add a segment, of batches of three records."""
    three = [[record(i, b"k", value(n + i)) for i in range(3)] for n in range(first, end, 3)]
    batches = [batch(n, one) for n, one in zip(range(first, end, 3), three, strict=True)]
    write_log(log, *batches, name=f"{first:020}")


def asked(log: Path, form: TableFormat = FILES, *, append: bool = False) -> ExportRequest:
    request = Request(replicas=Replicas.BEST, split_bytes=SPLIT)
    return ExportRequest((str(log),), request, typed=(VALUE,), table_format=form, append=append)


def add(log: Path, to: Path, form: TableFormat, most: int = 99) -> None:
    """Complete an interrupted run, then add what is new."""
    appending.add(asked(log, form, append=True), to, max_rejects=most)


def in_table(to: Path, form: TableFormat = FILES) -> list[tuple[int, bytes | None]]:
    table = DeltaTable(to).to_pyarrow_table() if form == DELTA else table_of(to)
    return sorted((row["offset"], row["value"]) for row in table.to_pylist())


def in_rejects(to: Path, form: TableFormat = FILES) -> list[tuple[int, bytes | None]]:
    if form == DELTA:
        table = DeltaTable(to / "_rejects").to_pyarrow_table()
    else:
        table = table_of(to / "_rejects")
    return sorted((row["offset"], row["value"]) for row in table.to_pylist())


def test_a_record_is_in_one_of_two_tables(tmp_path: Path, kafkalog: Callable[..., Result]) -> None:
    """That of the rejects has its place, its bytes, the id of its schema, and the reason."""
    framed = b"\0\0\0\0\7"
    keys = [framed + b'{"n":1}', None, framed + b"no JSON", b"\0\0\0\0\x08{}", b"short"]
    log, schema, to = tmp_path / "a-3", tmp_path / "s.json", tmp_path / "lake"
    write_log(log, batch(5, [record(i, key, b"%d" % i) for i, key in enumerate(keys)]))
    schema.write_bytes(SCHEMA)
    words = ("export", log, "--to", to, "--key", "json", "--key-schema", schema, "--key-framing",
             "confluent:7", "--columns", "offset", "--format", "ndjson")  # fmt: skip
    result = kafkalog(*words, "--max-rejects", 3)
    assert result.status == 0, result.stderr
    part, summary = map(json.loads, result.stdout.splitlines())
    assert (summary["rows"], summary["rejects"], summary["undecoded_keys"]) == (2, 3, 3)
    assert (part["rows"], part["rejects"]) == (2, 3)
    assert (part["first_offset"], part["last_offset"]) == (5, 6)
    assert table_of(to).select(["topic", "partition", "offset", "key_decoded"]).to_pylist() == [
        {"topic": "a", "partition": 3, "offset": 5, "key_decoded": {"n": 1}},
        {"topic": "a", "partition": 3, "offset": 6, "key_decoded": None},
    ]
    found = ds.dataset(to / "_rejects", format="parquet", partitioning=HIVE).to_table().to_pylist()
    assert [(row.pop("offset"), row.pop("key"), row.pop("value"), row.pop("schema_id"),
             row.pop("reason").split(":")[0]) for row in found] == [
        (7, keys[2], b"2", "7", "Expecting value"),
        (8, keys[3], b"3", "8", "the schema is 8, not 7"),
        (9, keys[4], b"4", None, "no schema id"),
    ]  # fmt: skip
    assert found == [{"topic": "a", "partition": 3, "source": "key", "timestamp_ms": BASE_TIME,
                      "leader_epoch": 0}] * 3  # fmt: skip
    assert part["rejects_file"] == next(str(path.relative_to(to)) for path in to.rglob("*.rejects"))
    query = f"SELECT count(*) FROM '{to}/**/*.parquet'"  # noqa: S608
    assert duckdb.sql(query).fetchall() == [(2,)]
    before = files_of(to)
    assert kafkalog(*words).status == 9, "complete, whatever is allowed now"
    assert files_of(to) == before


@pytest.mark.parametrize("form", [FILES, DELTA])
def test_too_many_end_the_run(tmp_path: Path, form: TableFormat) -> None:
    """Nothing stays of it, and the same directory takes another run: 10 of 30 do not decode."""
    log, to = tmp_path / "a-0", tmp_path / "lake"
    grow(log, 0, 30)
    for most, message in [
        (0, "^Records do not decode. The first: a-0: the value at 1: Expecting"),
        (9, "^More than 9 records do not decode. The first: a-0: the value at 1: Expecting"),
    ]:
        with (
            Export(asked(log, form), str(to), max_rejects=most) as run,
            pytest.raises(RefusedError, match=message),
        ):
            run.run(LocalEngine(1))
        assert not files_of(to)
    with Export(asked(log, form), str(to), max_rejects=10) as run:
        run.run(LocalEngine(2))
        assert run.summary().rejects == 10
    assert in_table(to, form) == good(30)
    assert in_rejects(to, form) == bad(30)


@pytest.mark.parametrize("form", [FILES, DELTA])
def test_too_many_end_a_commit(tmp_path: Path, form: TableFormat) -> None:
    """The commits before stay, and the limit is that of each."""
    log, to = tmp_path / "a-0", tmp_path / "lake"
    grow(log, 0, 9)
    add(log, to, form, 3)
    before = files_of(to)
    grow(log, 9, 30)
    with pytest.raises(RefusedError, match="a-0: the value at 10: "):
        add(log, to, form, 6)
    assert files_of(to) == before
    add(log, to, form, 7)
    assert (in_table(to, form), in_rejects(to, form)) == (good(30), bad(30))
    if form == DELTA:
        left = DeltaTable(to).vacuum(0, dry_run=True, enforce_retention_duration=False)
        assert not [path for path in left if "_rejects" in path]


def test_iceberg_has_them_in_the_table(tmp_path: Path) -> None:
    """Null, and counted against the same limit."""
    log, to = tmp_path / "a-0", tmp_path / "lake"
    grow(log, 0, 9)
    with pytest.raises(RefusedError, match="a-0: the value at 1: "):
        add(log, to, ICEBERG, 2)
    add(log, to, ICEBERG, 3)
    rows = iceberg(to).scan(selected_fields=("offset", "value", "value_decoded")).to_arrow()
    found = sorted((row["offset"], row["value"], row["value_decoded"]) for row in rows.to_pylist())
    assert found == [(n, value(n), None if n % 3 else {"n": n}) for n in range(9)]


@pytest.mark.parametrize("form", [FILES, DELTA])
def test_each_reject_once_wherever_a_run_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: TableFormat
) -> None:
    """Killed before or after any of its writes, and given again."""
    first, table = tmp_path / "a-0", tmp_path / "lake"
    grow(first, 0, 6)
    add(first, table, form)
    grow(first, 6, 12)
    killing = Killing(monkeypatch)
    at, is_stopped = 0, True
    while is_stopped:
        to = tmp_path / f"lake{at}"
        shutil.copytree(table, to)
        killing.calls = at
        try:
            add(first, to, form)
            is_stopped = False
        except StoppedError:
            at += 1
        killing.calls = None
        add(first, to, form, most=2 if is_stopped else 0)
        assert (in_table(to, form), in_rejects(to, form)) == (good(12), bad(12))
        assert in_rejects(to) == bad(12), "there are no other files"
        shutil.rmtree(to)
    assert at > 8, "it stopped at each write"


def test_a_run_that_was_stopped_is_counted_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it rejected before counts for the limit of the run that continues it."""
    log, to = tmp_path / "a-0", tmp_path / "lake"
    grow(log, 0, 30)
    killing = Killing(monkeypatch)
    killing.calls = 9
    with pytest.raises(StoppedError):
        add(log, to, FILES, 10)
    killing.calls = None
    assert list((to / "_rejects").rglob("*.rejects")), "some were written"
    with pytest.raises(RefusedError, match="More than 9 records"):
        add(log, to, FILES, 9)
    assert not files_of(to)
    add(log, to, FILES, 10)
    assert in_rejects(to) == bad(30)


@pytest.mark.parametrize("form", [FILES, DELTA])
def test_nothing_but_rejects(tmp_path: Path, form: TableFormat) -> None:
    """The table has no row, and no file."""
    write_log(tmp_path / "a-0", batch(0, [record(0, b"k", b"no JSON")]))
    with Export(asked(tmp_path / "a-0", form), str(tmp_path / "lake"), max_rejects=1) as run:
        run.run(LocalEngine(1))
        assert (run.summary().rows, run.summary().rejects) == (0, 1)
    assert not list((tmp_path / "lake").rglob("*.parquet"))
    assert in_rejects(tmp_path / "lake", form) == [(0, b"no JSON")]


def test_a_delta_table_that_is_there_keeps_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that stopped after the commit is completed, also if fewer rejects are allowed now."""
    log, to = tmp_path / "a-0", tmp_path / "lake"
    grow(log, 0, 9)
    with monkeypatch.context() as patched:
        patched.setattr("kafkalog.lake.run.commit_rejects", lambda *_: 1 // 0)
        with (
            Export(asked(log, DELTA), str(to), max_rejects=9) as run,
            pytest.raises(ZeroDivisionError),
        ):
            run.run(LocalEngine(1))
    with Export(asked(log, DELTA), str(to)) as run:
        run.run(LocalEngine(1))
    assert (in_table(to, DELTA), in_rejects(to, DELTA)) == (good(9), bad(9))


def test_rejects_in_row_groups(tmp_path: Path) -> None:
    """Of limited size, as the rows of the table."""
    grow(tmp_path / "a-0", 0, 60)
    request = replace(asked(tmp_path / "a-0"), writing=Writing(row_group_rows=3), request=Request())
    with Export(request, str(tmp_path / "lake"), max_rejects=99) as run:
        run.run(LocalEngine(1))
    [path] = tmp_path.rglob("*.rejects")
    metadata = pq.read_metadata(path)
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [3] * 6 + [2]


def test_usage(tmp_path: Path, kafkalog: Callable[..., Result]) -> None:
    grow(tmp_path / "a-0", 0, 3)
    result = kafkalog("export", tmp_path / "a-0", "--to", tmp_path / "to", "--max-rejects", 1)
    assert (result.status, "--max-rejects requires" in result.stderr) == (2, True)
