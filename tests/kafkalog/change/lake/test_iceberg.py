"""Iceberg tables that grow: each row once, rows and offsets in one commit, read by others."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import kafkalog.change.lake
from kafkalog.change.lake import (
    Accepted,
    ExportRequest,
    FileFormat,
    Writing,
    local_catalog,
    writing,
)
from kafkalog.errors import (
    CorruptDataError,
    DestinationExistsError,
    RefusedError,
    UnsupportedError,
    UsageError,
)
from kafkalog.model import Replicas
from kafkalog.tables import Request, TableName
from kafkalog_cli.output.exported import partition_totals
from tests.builders import BASE_TIME, batch, record, write_log
from tests.conftest import state
from tests.kafkalog.change.lake.appending import (
    FILES,
    ICEBERG,
    REQUEST,
    TABLE,
    Inline,
    add,
    append,
    asking,
    data_files,
    empty_catalog,
    grow,
    iceberg,
    noted,
    rows,
    rows_of,
)
from tests.kafkalog.change.lake.exporting import table_of
from tests.kafkalog.tables.test_other_disks import IDS, TOPIC_ID, batches, make_log

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Result

    Kafkalog = Callable[..., Result]

ORDER = [(name, "ascending") for name in ("topic", "partition", "offset")]
DAY_MS = 86_400_000


def test_each_run_adds_what_is_new(tmp_path: Path) -> None:
    """The partition may have moved; a run without news changes nothing."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "meta.properties").write_text(IDS)
    partition, lake = make_log(tmp_path / "a"), tmp_path / "lake"
    [first] = append(tmp_path / "a", to=lake, form=ICEBERG)
    assert (first.rows, first.gaps, first.was_complete) == (120, (), False)
    before = iceberg(lake).metadata
    assert append(tmp_path / "a", to=lake, form=ICEBERG)[0].was_complete
    assert iceberg(lake).metadata == before
    grow(partition, 120, 4)
    shutil.move(partition, tmp_path / "b")
    grow(tmp_path / "b" / "orders-0", 132, 1)
    write_log(tmp_path / "b" / "plain-0", *batches(0, 1))  # a topic without id, too
    [third] = append(tmp_path / "a", tmp_path / "b", to=lake, form=ICEBERG)
    assert third.rows == 18
    assert rows_of(lake, ICEBERG) == sorted([*rows(0, 135), *rows(0, 3)])
    table = iceberg(lake)
    assert len(table.snapshots()) == 2
    assert [str(field) for field in table.spec().fields] == [
        "1000: topic: identity(8)", "1001: timestamp_day: day(4)",
    ]  # fmt: skip
    assert set(table.schema().identifier_field_names()) == {
        "topic", "partition", "offset", "leader_epoch",
    }  # fmt: skip
    topic_id = TOPIC_ID.split()[-1]
    assert noted(table)["end"] == {f"orders-0@{topic_id}": [135, 0], "plain-0": [3, 0]}
    assert noted(table)["number"] == 1
    assert not list(lake.rglob("*.tmp"))


def test_other_programs_read_the_rows(
    tmp_path: Path, corpus_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pyiceberg, Polars and DuckDB find the rows that the same export has in plain files."""
    [source] = state(corpus_dir, "kafka-4.3", "codecs").log_dirs
    request = Request(replicas=Replicas.BEST, split_bytes=1 << 20)
    for to, form in (("lake", ICEBERG), ("plain", FILES)):
        asked = ExportRequest((str(source),), request, table_format=form, append=True)
        add(asked, tmp_path / to)
    names = [
        "topic", "partition", "offset", "key", "value", "timestamp", "timestampType",
        "leader_epoch",
    ]  # fmt: skip
    wanted = table_of(tmp_path / "plain").select([*names, "headers"]).sort_by(ORDER)
    assert len(wanted) > 1000
    table = iceberg(tmp_path / "lake")
    found = table.scan(selected_fields=(*names, "headers")).to_arrow()
    assert found.select([*names, "headers"]).sort_by(ORDER).to_pylist() == wanted.to_pylist()
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")  # another is a package of its own
    framed = pl.scan_iceberg(table).select(names).sort(names[:3]).collect()
    assert framed.equals(pl.from_arrow(wanted.select(names)).cast(framed.schema))
    # DuckDB's own extension comes from its servers: the rows through pyiceberg, then the files.
    connection = duckdb.connect()
    chosen = ", ".join(f'"{name}"' for name in names)
    connection.register("of_table", table.scan().to_arrow())
    paths = [one.file.file_path.removeprefix("file://") for one in table.scan().plan_files()]
    connection.read_parquet(paths, hive_partitioning=False).create_view("of_files")
    connection.register("wanted", wanted)
    for name in ("of_table", "of_files"):
        for one, other in ((name, "wanted"), ("wanted", name)):
            left = connection.sql(
                f"SELECT {chosen} FROM {one} EXCEPT ALL "  # noqa: S608 # our own names
                f"SELECT {chosen} FROM {other}"
            )
            assert left.fetchall() == []
    some = table.scan(row_filter="topic = 'codec-zstd' and offset < 10").to_arrow()
    assert sorted(some["offset"].to_pylist()) == list(range(10))


def test_days_and_times_without_end(tmp_path: Path) -> None:
    """Many days with a file each, times beyond Python's calendar, and no time at all."""
    log, lake = tmp_path / "log", tmp_path / "lake"
    (log / "days-0").mkdir(parents=True)
    times = [BASE_TIME - (n * 7 % 40) * DAY_MS for n in range(120)]
    times += [-1, 0, -DAY_MS - 1, 300_000_000_000_000, 9_000_000_000_000_000]
    write_log(
        log / "days-0",
        *(batch(n, [record(value=b"%d" % n)], base_time=time, max_time=time)
          for n, time in enumerate(times)),
    )  # fmt: skip
    asked = ExportRequest((str(log),), REQUEST, table_format=ICEBERG, append=True, columns=(
        "offset", "value", "timestamp", "timestamp_ms",
    ))  # fmt: skip
    [summary] = add(asked, lake)
    [total] = partition_totals(summary.parts)
    assert (total.first_offset, total.last_offset) == (0, len(times) - 1)
    table = iceberg(lake)
    found = table.scan().to_arrow().sort_by("offset")
    assert found["timestamp_ms"].to_pylist() == times
    assert found["value"].to_pylist() == [b"%d" % n for n in range(len(times))]
    micros = found["timestamp"].cast(pa.int64()).to_pylist()
    plain = tmp_path / "plain"
    add(replace(asked, table_format=FILES), plain)
    wanted = table_of(plain).sort_by("offset")["timestamp"].cast(pa.int64()).to_pylist()
    calendar = 253_402_300_800_000_000  # the year 10000
    wanted = [None if one is None or one >= calendar else one for one in wanted]
    assert micros == wanted
    days = {None if one is None else one // (DAY_MS * 1000) for one in wanted}
    in_files = {task.file.partition[1] for task in table.scan().plan_files()}
    assert in_files == days
    day = BASE_TIME // DAY_MS * DAY_MS
    of_day = table.scan(row_filter="timestamp >= '2023-11-14T00:00:00+00:00'").to_arrow()
    assert sorted(of_day["offset"].to_pylist()) == [
        n for n, time in enumerate(times) if time >= day and wanted[n] is not None
    ]


def test_batches(tmp_path: Path, corpus_dir: Path) -> None:
    """A table without record times is partitioned by topic."""
    [source] = state(corpus_dir, "kafka-4.3", "crash-1-torn").log_dirs
    request = Request(TableName.BATCHES, replicas=Replicas.BEST)
    asked = ExportRequest((str(source),), request, table_format=ICEBERG, append=True)
    count = add(asked, tmp_path / "lake")[-1].rows
    table = iceberg(tmp_path / "lake")
    assert [field.name for field in table.spec().fields] == ["topic"]
    assert len(table.scan().to_arrow()) == count


def test_gaps(tmp_path: Path) -> None:
    """Missing records end the run before it writes; once allowed, the commit names them."""
    partition, lake = make_log(tmp_path / "log"), tmp_path / "lake"
    append(tmp_path / "log", to=lake, form=ICEBERG)
    before = data_files(lake)
    for first in (120, 135, 150):
        grow(partition, first, 5)
    for base in (0, 60, 120):
        (partition / f"{base:020}.log").unlink()
    with pytest.raises(RefusedError, match="starts at offset 135, and 120 was to be read next"):
        append(tmp_path / "log", to=lake, form=ICEBERG)
    assert data_files(lake) == before
    [done] = append(tmp_path / "log", to=lake, form=ICEBERG, accepted=Accepted(gaps=True))
    assert [(one.first_offset, one.last_offset, one.reason) for one in done.gaps] == [
        (120, 134, "deleted")
    ]
    assert noted(iceberg(lake))["gaps"][0]["last_offset"] == 134
    shutil.rmtree(partition)
    (tmp_path / "log" / "other-0").mkdir()
    [gone] = append(tmp_path / "log", to=lake, form=ICEBERG, accepted=Accepted(gaps=True))
    assert (gone.rows, len(gone.gaps), gone.was_complete) == (0, 1, False)
    assert append(tmp_path / "log", to=lake, form=ICEBERG)[0].was_complete
    assert rows_of(lake, ICEBERG) == [*rows(0, 120), *rows(135, 165)]


def test_what_is_deleted_during_a_run_is_not_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files that were written are removed, too."""
    partition, lake = make_log(tmp_path / "log"), tmp_path / "lake"
    append(tmp_path / "log", to=lake, form=ICEBERG)
    before = data_files(lake)
    grow(partition, 120, 4)
    grow(partition, 132, 4)
    run = Inline.run

    def deleting(inline: Inline, *arguments: Any) -> Any:
        for base in (0, 60, 120):
            (partition / f"{base:020}.log").unlink(missing_ok=True)
        return run(inline, *arguments)

    monkeypatch.setattr(Inline, "run", deleting)
    with pytest.raises(RefusedError, match="Offsets 120 to 131 of orders-0 were deleted"):
        append(tmp_path / "log", to=lake, form=ICEBERG)
    assert data_files(lake) == before
    assert rows_of(lake, ICEBERG) == rows(0, 120)


def test_tables_of_others(tmp_path: Path) -> None:
    """Tables with other rows or columns, and exports with other options, are left alone."""
    make_log(tmp_path / "log")
    lake = tmp_path / "lake"
    catalog = empty_catalog(lake)
    rows = pa.table({"offset": [1]})
    table = catalog.create_table("kafka.records", rows.schema)
    wrong = catalog.create_table("kafka.wrong", pa.schema([("value", pa.string())]))
    with (
        pytest.raises(DestinationExistsError, match=r"value has the type string in"),
        writing(
            asking(tmp_path / "log", form=ICEBERG), "lake.kafka.wrong",
            catalog=local_catalog(str(lake)),
        ),
    ):  # fmt: skip
        pass
    assert wrong.refresh().current_snapshot() is None
    table.append(rows)
    with pytest.raises(DestinationExistsError, match="not an export of kafkalog"):
        append(tmp_path / "log", to=lake, form=ICEBERG)
    append(tmp_path / "log", to=tmp_path / "other", form=ICEBERG)
    asked = replace(asking(tmp_path / "log", form=ICEBERG), columns=("offset",))
    with (
        pytest.raises(DestinationExistsError, match=r"column leader_epoch identifies the rows"),
        writing(asked, TABLE, catalog=local_catalog(str(tmp_path / "other"))),
    ):
        pass


@pytest.mark.sampled(2)
@pytest.mark.parametrize("text", ["", "{}", '{"number": -1}', "[1", "null"])
def test_edited_notes(tmp_path: Path, text: str) -> None:
    """Nothing is guessed from them."""
    make_log(tmp_path / "log")
    lake = tmp_path / "lake"
    append(tmp_path / "log", to=lake, form=ICEBERG)
    table = iceberg(lake)
    with table.transaction() as change:
        change.set_properties({"kafkalog.increment": text})
    table.append(table.scan(limit=1).to_arrow(), snapshot_properties={"kafkalog.increment": text})
    with pytest.raises(CorruptDataError, match="not what a run of an export notes"):
        append(tmp_path / "log", to=lake, form=ICEBERG)


def test_what_does_not_apply(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal comes before anything is written."""
    make_log(tmp_path / "log")
    log, lake = str(tmp_path / "log"), tmp_path / "lake"
    catalog = local_catalog(str(lake))

    def refused(
        kind: type[Exception], words: str, to: str = TABLE, given: dict[str, str] | None = None,
        **options: Any,
    ) -> None:  # fmt: skip
        asked = ExportRequest(
            (log,), REQUEST, **{"table_format": ICEBERG, "append": True, **options}
        )
        given = catalog if given is None else given
        with pytest.raises(kind, match=words), writing(asked, to, catalog=given) as one:
            one.run(Inline())

    for name in ("records", "lake.records", "lake..records", "lake.kafka.", str(lake)):
        refused(UsageError, "no table of a catalog", name)
    refused(UsageError, "Parquet files, not csv", writing=Writing(FileFormat.CSV))
    with pytest.raises(UsageError, match="grow run by run"):
        kafkalog.change.lake.export(log, to=TABLE, table_format=ICEBERG, catalog=catalog)
    refused(UsageError, "catalog lake cannot be opened", given={})
    secret = {"type": "sql", "uri": "postgresql://me:hunter2@nowhere.invalid/x"}
    with pytest.raises(UsageError, match="cannot be opened") as raised:
        writing(asking(log, form=ICEBERG), TABLE, catalog=secret)
    assert "hunter2" not in str(raised.value)
    refused(UsageError, "inside the source", given=local_catalog(f"{log}/lake"))
    with pytest.raises(UsageError, match="cannot hold this name"):
        local_catalog(str(tmp_path / "a?b"))
    for name in ("kafkalog.change.lake.iceberg_append", "kafkalog.change.lake.iceberg"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "pyiceberg.catalog", None)
    refused(UnsupportedError, "not installed")


def test_the_command(tmp_path: Path, kafkalog: Kafkalog) -> None:
    """Status 0 with and without news, 4 for a gap, 1 once it is allowed; 2 for wrong usage."""
    partition, lake = make_log(tmp_path / "log"), tmp_path / "lake"
    words = (
        "export", tmp_path / "log", "--to", TABLE, "--append", "--as", "iceberg",
    )  # fmt: skip
    here = ("--as", "iceberg", "--set", f"warehouse={lake}")
    result = kafkalog(*words, *here, "--format", "ndjson")
    assert result.status == 0, result.stderr
    [*parts, summary] = [json.loads(line) for line in result.stdout.splitlines()]
    assert (summary["commit"], summary["rows"], summary["destination"]) == (0, 120, TABLE)
    assert sum(one["rows"] for one in parts) == 120
    named = {one.file.file_path for one in iceberg(lake).scan().plan_files()}
    assert {one["file"] for one in parts} == named
    again = kafkalog(*words, *here)
    assert again.status == 0
    assert "nothing is new" in f"{again.stdout}{again.stderr}"
    grow(partition, 150, 5)
    for path in partition.glob("*.log"):
        if path.name < f"{150:020}":
            path.unlink()
    assert kafkalog(*words, *here).status == 4
    assert kafkalog(*words, *here, "--accept", "gaps").status == 0
    assert rows_of(lake, ICEBERG) == [*rows(0, 120), *rows(150, 165)]
    conf = [f"--set=catalog.{key}={value}" for key, value in local_catalog(str(lake)).items()]
    assert kafkalog(*words, *conf).status == 0
    assert kafkalog(*words, "--set", "catalog.type").status == 2
    assert kafkalog(*words[:5], *here, "--as", "delta").status == 2
    assert kafkalog(*words[:5], *here).status == 0, "a warehouse is of an Iceberg table"
