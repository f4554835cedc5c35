"""Records that do not decode go to a separate table, or end the run."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError

from kafkalog.change.lake import (
    Accepted,
    Export,
    ExportRequest,
    TableFormat,
    Writing,
    local_catalog,
)
from kafkalog.change.lake.iceberg_rejects import RejectsTable
from kafkalog.errors import CorruptDataError, DestinationExistsError, RefusedError
from kafkalog.io.engine import LocalEngine
from kafkalog.log.typed import Framing, TypedColumn, TypedForm
from kafkalog.model import Replicas
from kafkalog.tables import Request
from tests.builders import BASE_TIME, batch, record, write_log
from tests.kafkalog.change.lake import appending
from tests.kafkalog.change.lake.appending import DELTA, FILES, ICEBERG, iceberg, merge_files
from tests.kafkalog.change.lake.exporting import HIVE, files_of, table_of
from tests.kafkalog.change.lake.test_stopped_appends import Killing
from tests.sampling import drawn_for, tries_everything

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kafkalog.io.engine import Engine
    from tests.conftest import Result

SCHEMA = json.dumps({"type": "object", "properties": {"n": {"type": "integer"}}}).encode()
VALUE = TypedColumn("value", TypedForm.JSON, SCHEMA)
KEY = TypedColumn("key", TypedForm.JSON, SCHEMA, framing=Framing.CONFLUENT, schema_id=7)
SPLIT = 300


def value(n: int) -> bytes | None:
    """Return a value: a third of them are sound, a third invalid, a third tombstones."""
    return (b'{"n":%d}' % n, b"no JSON %d" % n, None)[n % 3]


def bad(end: int) -> list[tuple[int, bytes | None]]:
    return [(n, value(n)) for n in range(1, end, 3)]


def good(end: int) -> list[tuple[int, bytes | None]]:
    return [(n, value(n)) for n in range(end) if n % 3 != 1]


def grow(log: Path, first: int, end: int) -> None:
    """Add a segment with batches of three records."""
    three = [[record(i, b"k", value(n + i)) for i in range(3)] for n in range(first, end, 3)]
    batches = [batch(n, one) for n, one in zip(range(first, end, 3), three, strict=True)]
    write_log(log, *batches, name=f"{first:020}")


def asked(log: Path, form: TableFormat = FILES, *, append: bool = False) -> ExportRequest:
    request = Request(replicas=Replicas.BEST, split_bytes=SPLIT)
    return ExportRequest((str(log),), request, typed=(VALUE,), table_format=form, append=append)


def add(
    log: Path, to: Path, form: TableFormat, most: int = 99, engine: Engine | None = None
) -> None:
    """Complete an interrupted run, then add what is new."""
    appending.add(asked(log, form, append=True), to, engine, accepted=Accepted(rejects=most))


def in_table(to: Path, form: TableFormat = FILES) -> list[tuple[int, bytes | None]]:
    if form == ICEBERG:
        table = iceberg(to).scan(selected_fields=("offset", "value")).to_arrow()
    else:
        table = DeltaTable(to).to_pyarrow_table() if form == DELTA else table_of(to)
    return sorted((row["offset"], row["value"]) for row in table.to_pylist())


def rejects_of(to: Path) -> Any:
    return iceberg(to, "kafka.records_rejects")


def in_rejects(to: Path, form: TableFormat = FILES) -> list[tuple[int, bytes | None]]:
    if form == DELTA:
        table = DeltaTable(to / "_rejects").to_pyarrow_table()
    elif form == ICEBERG:
        table = rejects_of(to).scan().to_arrow()
    else:
        table = table_of(to / "_rejects")
    return sorted((row["offset"], row["value"]) for row in table.to_pylist())


def test_a_record_is_in_one_of_two_tables(tmp_path: Path, kafkalog: Callable[..., Result]) -> None:
    """The rejects have the record's place, bytes, schema id, and the reason."""
    framed = b"\0\0\0\0\7"
    keys = [framed + b'{"n":1}', None, framed + b"no JSON", b"\0\0\0\0\x08{}", b"short"]
    log, schema, to = tmp_path / "a-3", tmp_path / "s.json", tmp_path / "lake"
    write_log(log, batch(5, [record(i, key, b"%d" % i) for i, key in enumerate(keys)]))
    schema.write_bytes(SCHEMA)
    words = ("export", log, "--to", to, "--key-format", "json@confluent:7", "--key-schema", schema,
             "--columns", "offset", "--format", "ndjson")  # fmt: skip
    result = kafkalog(*words, "--accept", "rejects=3")
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
                      "leader_epoch": 0, "headers": []}] * 3  # fmt: skip
    assert part["rejects_file"] == next(str(path.relative_to(to)) for path in to.rglob("*.rejects"))
    query = f"SELECT count(*) FROM '{to}/**/*.parquet'"  # noqa: S608
    assert duckdb.sql(query).fetchall() == [(2,)]
    before = files_of(to)
    assert kafkalog(*words).status == 0, "complete, whatever is allowed now"
    assert files_of(to) == before


@pytest.mark.parametrize("form", [FILES, DELTA])
def test_too_many_end_the_run(tmp_path: Path, form: TableFormat) -> None:
    """Nothing of the run remains, and the directory accepts another run: 10 of 30 are rejects."""
    log, to = tmp_path / "a-0", tmp_path / "lake"
    grow(log, 0, 30)
    for most, message in [
        (0, "^Records do not decode. The first: a-0: the value at 1: Expecting"),
        (9, "^More than 9 records do not decode. The first: a-0: the value at 1: Expecting"),
    ]:
        with (
            Export(asked(log, form), str(to), accepted=Accepted(rejects=most)) as run,
            pytest.raises(RefusedError, match=message),
        ):
            run.run(LocalEngine(1))
        assert not to.exists()
    with Export(asked(log, form), str(to), accepted=Accepted(rejects=10)) as run:
        run.run(LocalEngine(2))
        assert run.summary().rejects == 10
    assert in_table(to, form) == good(30)
    assert in_rejects(to, form) == bad(30)


@pytest.mark.parametrize("form", [FILES, DELTA, ICEBERG])
def test_too_many_end_a_commit(tmp_path: Path, form: TableFormat) -> None:
    """Earlier commits stay, and the limit applies to each commit."""
    log, to = tmp_path / "a-0", tmp_path / "lake"
    grow(log, 0, 9)
    add(log, to, form, 3)
    before = files_of(to)
    grow(log, 9, 30)
    with pytest.raises(RefusedError, match="a-0: the value at 10: "):
        add(log, to, form, 6)
    if form == ICEBERG:  # the catalog may write its file without a change
        before, found = ({k for k in one if k != "catalog.db"} for one in (before, files_of(to)))
        assert found == before
    else:
        assert files_of(to) == before
    add(log, to, form, 7)
    assert (in_table(to, form), in_rejects(to, form)) == (good(30), bad(30))
    if form == DELTA:
        left = DeltaTable(to).vacuum(0, dry_run=True, enforce_retention_duration=False)
        assert not [path for path in left if "_rejects" in path]


def test_an_iceberg_table_has_a_table_of_rejects(
    tmp_path: Path, kafkalog: Callable[..., Result]
) -> None:
    """It is next to the table, with the usual columns; a run without rejects does not touch it."""
    log, to, schema = tmp_path / "a-0", tmp_path / "lake", tmp_path / "s.json"
    schema.write_bytes(SCHEMA)
    grow(log, 0, 9)
    words = ("export", log, "--to", appending.TABLE, "--append", "--as", "iceberg", "--set",
             f"warehouse={to}", "--value-format", "json", "--value-schema", schema)  # fmt: skip
    assert kafkalog(*words).status == 4
    with pytest.raises(NoSuchTableError):
        rejects_of(to)
    result = kafkalog(*words, "--accept", "rejects=3")
    assert result.status == 0, result.stderr
    assert (
        f"3 records not decoded: in {appending.TABLE}_rejects" in f"{result.stdout}{result.stderr}"
    )
    assert (in_table(to, ICEBERG), in_rejects(to, ICEBERG)) == (good(9), bad(9))
    rows = rejects_of(to).scan().to_arrow().sort_by("offset").to_pylist()
    assert [row.pop("reason").split(":")[0] for row in rows] == ["Expecting value"] * 3
    assert rows == [
        {"topic": "a", "partition": 0, "offset": n, "timestamp_ms": BASE_TIME,
         "leader_epoch": 0, "headers": [], "key": b"k", "value": value(n), "source": "value",
         "schema_id": None}
        for n in (1, 4, 7)
    ]  # fmt: skip
    paths = [
        one.file.file_path.removeprefix("file://") for one in rejects_of(to).scan().plan_files()
    ]
    found = duckdb.read_parquet(paths, hive_partitioning=False).project('"offset"').fetchall()
    assert sorted(found) == [(1,), (4,), (7,)]
    write_log(log, batch(9, [record(0, b"k", b'{"n":9}')]), name=f"{9:020}")
    before = rejects_of(to).metadata
    result = kafkalog(*words, "--accept", "rejects=3", "--format", "ndjson")
    [part, summary] = map(json.loads, result.stdout.splitlines())
    assert (result.status, part["rejects_file"], summary["rejects"]) == (0, None, 0)
    assert rejects_of(to).metadata == before


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # of what was stopped
def test_rejects_of_an_iceberg_table_once_wherever_a_run_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are never ahead of the table, and the next run adds them, even without --value."""
    killing = Killing(monkeypatch)
    step = 1 if tries_everything() else 41
    at = drawn_for("rejects of Iceberg").randrange(step)
    is_stopped = True
    while is_stopped:
        log, to = tmp_path / f"{at}" / "a-0", tmp_path / f"lake{at}"
        log.parent.mkdir()
        grow(log, 0, 6)
        add(log, to, ICEBERG)
        grow(log, 6, 12)
        is_stopped = killing.stops(at, add, log, to, ICEBERG)
        found = in_table(to, ICEBERG), in_rejects(to, ICEBERG)
        assert found in [
            (good(6), bad(6)), (good(12), bad(6)), (good(12), bad(12))
        ]  # fmt: skip
        if found[0] == good(12):
            request = replace(asked(log, ICEBERG, append=True), typed=())
            assert appending.add(request, to)[-1].was_complete
            assert in_rejects(to, ICEBERG) == bad(12)
        add(log, to, ICEBERG)
        assert (in_table(to, ICEBERG), in_rejects(to, ICEBERG)) == (good(12), bad(12))
        at += step


def test_rejects_of_an_iceberg_table_that_is_set_back(tmp_path: Path) -> None:
    """They are set back, too, even after a compaction: the next run adds what is missing."""
    log, to = tmp_path / "a-0", tmp_path / "lake"
    for end in (6, 12, 18):
        grow(log, end - 6, end)
        add(log, to, ICEBERG)
    for table in (iceberg(to), rejects_of(to)):
        merge_files(table)
    assert in_rejects(to, ICEBERG) == bad(18)
    runs = [one for one in iceberg(to).snapshots() if noted_run(one)]
    iceberg(to).manage_snapshots().rollback_to_snapshot(runs[0].snapshot_id).commit()
    add(log, to, ICEBERG)
    assert (in_table(to, ICEBERG), in_rejects(to, ICEBERG)) == (good(18), bad(18))
    grow(log, 18, 24)
    add(log, to, ICEBERG)
    assert (in_table(to, ICEBERG), in_rejects(to, ICEBERG)) == (good(24), bad(24))
    runs = [one for one in iceberg(to).snapshots() if noted_run(one)]
    iceberg(to).manage_snapshots().rollback_to_snapshot(runs[0].snapshot_id).commit()
    now = rejects_of(to).current_snapshot().snapshot_id
    others = [one.snapshot_id for one in rejects_of(to).snapshots() if one.snapshot_id != now]
    rejects_of(to).maintenance.expire_snapshots().by_ids(others).commit()
    with pytest.raises(CorruptDataError, match="snapshot before its last rejects has expired"):
        add(log, to, ICEBERG)


def noted_run(snapshot: Any) -> str | None:
    found: str | None = snapshot.summary.additional_properties.get("kafkalog.run")
    return found


def test_snapshots_of_rejects_that_have_expired(tmp_path: Path) -> None:
    """No reject is added again."""
    log, to = tmp_path / "a-0", tmp_path / "lake"
    grow(log, 0, 6)
    add(log, to, ICEBERG)
    rejects_of(to).overwrite(rejects_of(to).scan().to_arrow())
    now = rejects_of(to).current_snapshot().snapshot_id
    others = [one.snapshot_id for one in rejects_of(to).snapshots() if one.snapshot_id != now]
    rejects_of(to).maintenance.expire_snapshots().by_ids(others).commit()
    add(log, to, ICEBERG)
    grow(log, 6, 12)
    add(log, to, ICEBERG)
    assert (in_table(to, ICEBERG), in_rejects(to, ICEBERG)) == (good(12), bad(12))


def test_another_run_between_the_commits_of_an_iceberg_table_and_of_its_rejects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It adds the rejects of the first run before its own."""
    log, to = tmp_path / "a-0", tmp_path / "lake"
    grow(log, 0, 6)
    settle = RejectsTable.settle
    calls = []

    def settling(table: RejectsTable) -> None:
        calls.append(table)
        if len(calls) == 2:
            grow(log, 6, 12)
            add(log, to, ICEBERG)
            assert (in_table(to, ICEBERG), in_rejects(to, ICEBERG)) == (good(12), bad(12))
        settle(table)

    monkeypatch.setattr(RejectsTable, "settle", settling)
    add(log, to, ICEBERG)
    assert len(calls) == 4, "each run settles twice"
    assert (in_table(to, ICEBERG), in_rejects(to, ICEBERG)) == (good(12), bad(12))


def test_another_table_with_the_name_of_the_rejects(tmp_path: Path) -> None:
    """It stays unchanged."""
    log, to = tmp_path / "a-0", tmp_path / "lake"
    grow(log, 0, 6)
    to.mkdir()
    catalog = load_catalog("lake", **local_catalog(str(to)))
    catalog.create_namespace("kafka")
    catalog.create_table("kafka.records_rejects", pa.schema([("n", pa.int64())]))
    with pytest.raises(DestinationExistsError, match="not a table of rejects: it lacks offset, "):
        add(log, to, ICEBERG)
    assert rejects_of(to).schema().column_names == ["n"]
    assert not appending.data_files(to)


def test_rejects_of_a_delta_table_that_others_compact(tmp_path: Path) -> None:
    """The next run continues after the same rows."""
    log, to = tmp_path / "a-0", tmp_path / "lake"
    for end in (6, 12, 18):
        grow(log, end - 6, end)
        add(log, to, DELTA)
    for place in (to, to / "_rejects"):
        DeltaTable(place).optimize.compact()
        assert len(DeltaTable(place).file_uris()) == 1
    assert (in_table(to, DELTA), in_rejects(to, DELTA)) == (good(18), bad(18))
    grow(log, 18, 24)
    add(log, to, DELTA)
    assert (in_table(to, DELTA), in_rejects(to, DELTA)) == (good(24), bad(24))
    for place in (to, to / "_rejects"):
        DeltaTable(place).vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert (in_table(to, DELTA), in_rejects(to, DELTA)) == (good(24), bad(24))


@pytest.mark.parametrize("form", [FILES, DELTA])
def test_each_reject_once_wherever_a_run_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: TableFormat
) -> None:
    """The run is killed before or after any of its writes, and repeated."""
    first, table = tmp_path / "a-0", tmp_path / "lake"
    grow(first, 0, 6)
    add(first, table, form)
    grow(first, 6, 12)
    killing = Killing(monkeypatch)
    step = 1 if tries_everything() else 3
    at = drawn_for(f"rejects in {form}").randrange(step)
    is_stopped = True
    while is_stopped:
        to = tmp_path / f"lake{at}"
        shutil.copytree(table, to)
        is_stopped = killing.stops(at, add, first, to, form)
        add(first, to, form, most=2 if is_stopped else 0)
        assert (in_table(to, form), in_rejects(to, form)) == (good(12), bad(12))
        assert in_rejects(to) == bad(12), "there are no other files"
        shutil.rmtree(to)
        at += step
    assert killing.calls > 8, "it could be stopped at each write"


def test_a_run_that_was_stopped_is_counted_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its earlier rejects count towards the limit of the run that continues it."""
    log, to = tmp_path / "a-0", tmp_path / "lake"
    grow(log, 0, 30)
    killing = Killing(monkeypatch)
    assert killing.stops(9, add, log, to, FILES, 10)
    assert list((to / "_rejects").rglob("*.rejects")), "some were written"
    with pytest.raises(RefusedError, match="More than 9 records"):
        add(log, to, FILES, 9)
    assert not files_of(to)
    add(log, to, FILES, 10)
    assert in_rejects(to) == bad(30)


@pytest.mark.parametrize("form", [FILES, DELTA])
def test_nothing_but_rejects(tmp_path: Path, form: TableFormat) -> None:
    """The table has no rows and no files."""
    write_log(tmp_path / "a-0", batch(0, [record(0, b"k", b"no JSON")]))
    request = asked(tmp_path / "a-0", form)
    with Export(request, str(tmp_path / "lake"), accepted=Accepted(rejects=1)) as run:
        run.run(LocalEngine(1))
        assert (run.summary().rows, run.summary().rejects) == (0, 1)
    assert not list((tmp_path / "lake").rglob("*.parquet"))
    assert in_rejects(tmp_path / "lake", form) == [(0, b"no JSON")]


def test_a_delta_table_that_is_there_keeps_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that stopped after the commit is completed, even if fewer rejects are allowed now."""
    log, to = tmp_path / "a-0", tmp_path / "lake"
    grow(log, 0, 9)
    with monkeypatch.context() as patched:
        patched.setattr("kafkalog.change.lake.run.commit_rejects", lambda *_: 1 // 0)
        with (
            Export(asked(log, DELTA), str(to), accepted=Accepted(rejects=9)) as run,
            pytest.raises(ZeroDivisionError),
        ):
            run.run(LocalEngine(1))
    with Export(asked(log, DELTA), str(to)) as run:
        run.run(LocalEngine(1))
    assert (in_table(to, DELTA), in_rejects(to, DELTA)) == (good(9), bad(9))


def test_rejects_in_row_groups(tmp_path: Path) -> None:
    """Their size is limited, like those of the table."""
    grow(tmp_path / "a-0", 0, 60)
    request = replace(asked(tmp_path / "a-0"), writing=Writing(row_group_rows=3), request=Request())
    with Export(request, str(tmp_path / "lake"), accepted=Accepted(rejects=99)) as run:
        run.run(LocalEngine(1))
    [path] = tmp_path.rglob("*.rejects")
    metadata = pq.read_metadata(path)
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [3] * 6 + [2]


def test_usage(tmp_path: Path, kafkalog: Callable[..., Result]) -> None:
    grow(tmp_path / "a-0", 0, 3)
    result = kafkalog("export", tmp_path / "a-0", "--to", tmp_path / "to", "--accept", "rejects=1")
    assert (result.status, "--accept rejects requires" in result.stderr) == (2, True)
