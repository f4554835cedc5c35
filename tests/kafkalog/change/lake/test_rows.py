"""The rows of an export are what real consumers got, in every format."""

from __future__ import annotations

import base64
import csv
import gzip
import io
import json
import os
import shutil
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from kafkalog.change.lake import FileFormat, Writing
from kafkalog.change.lake.model import BytesForm, Codec
from kafkalog.io.jit import fast_path
from kafkalog.model import Isolation
from kafkalog.tables import Bounds, Request, TableName
from tests.builders import BASE_TIME, batch, record, write_log
from tests.kafkalog.change.lake.exporting import export, files_of, table_of
from tests.kafkalog.tables.test_records import (
    COLUMNS,
    as_noted,
    as_read,
    committed_offsets,
    isolation_of,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import State


@pytest.fixture(autouse=True)
def _unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip syncs: nothing here is about crashes, and they would take most of the time."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.mark.sampled(18)
def test_records_are_what_a_consumer_read(any_state: State, tmp_path: Path) -> None:
    """Every field of every partition that a consumer read, from directories read as one table."""
    noted = {}
    for partition in any_state.partitions():
        path = any_state.expected / "records" / f"{partition.name}.ndjson"
        if path.exists():
            lines = [as_read(json.loads(line)) for line in path.read_text().splitlines()]
            noted[partition] = lines
    request = Request(split_bytes=1 << 16, isolation=isolation_of(any_state))
    summary = export(noted, tmp_path, request, columns=COLUMNS)
    found: dict[str, list[Any]] = {partition.name: [] for partition in noted}
    rows = table_of(tmp_path).to_pylist() if summary.rows else []
    for row in sorted(rows, key=lambda row: row["offset"]):
        found[f"{row['topic']}-{row['partition']}"].append(as_noted(row))
    assert found == {partition.name: lines for partition, lines in noted.items()}


@pytest.mark.sampled(10)
def test_committed_records_are_what_a_consumer_read(any_state: State, tmp_path: Path) -> None:
    """The isolation level is read_committed."""
    for partition in any_state.partitions():
        wanted = committed_offsets(any_state, partition.name)
        if wanted is not None:
            request = Request(isolation=Isolation.READ_COMMITTED, split_bytes=1 << 16)
            to = tmp_path / partition.name
            summary = export([partition], to, request, columns=["offset"])
            found = table_of(to)["offset"].to_pylist() if summary.rows else []
            assert sorted(found) == wanted, partition


def test_manifest_says_which_offsets_are_in_which_file(corpus_dir: Path, tmp_path: Path):
    """It also has the numbers of rows and bytes; no other file exists."""
    export([corpus_dir / "kafka-4.3" / "codecs"], tmp_path, Request(split_bytes=1 << 14))
    manifest = json.loads((tmp_path / "_kafkalog" / "manifest.json").read_text())
    files = files_of(tmp_path)
    assert len(manifest["parts"]) > 10
    for part in manifest["parts"]:
        path = tmp_path / part["file"]
        table = pq.read_table(path, partitioning=None)
        offsets = table["offset"].to_pylist()
        told = part["rows"], part["first_offset"], part["last_offset"], part["size_bytes"]
        assert told == (len(offsets), min(offsets), max(offsets), path.stat().st_size)
        del files[part["file"]]
    assert sorted(files) == ["_SUCCESS", "_kafkalog/manifest.json"]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_text_has_the_same_rows(corpus_dir: Path, tmp_path: Path, codec: Codec):
    """NDJSON and CSV: bytes as base64, times as ISO 8601, null and empty told apart."""
    source = [corpus_dir / "kafka-4.3" / "codecs" / "codec-gzip-0"]
    export(source, tmp_path / "parquet")
    rows = table_of(tmp_path / "parquet").to_pylist()
    for form in (FileFormat.NDJSON, FileFormat.CSV):
        export(source, tmp_path / form, writing=Writing(form, codec))
        found = [row for path in sorted((tmp_path / form).rglob("topic=*/*/*"))
                 for row in text_rows(path)]  # fmt: skip
        assert found == [plain(row, is_csv=form == FileFormat.CSV) for row in rows]


def text_rows(path: Path) -> list[dict[str, Any]]:
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    if ".ndjson" in path.name:
        return [json.loads(line) for line in text.splitlines()]
    csv.field_size_limit(1 << 24)
    return list(csv.DictReader(io.StringIO(text, newline="")))


def plain(row: dict[str, Any], *, is_csv: bool) -> dict[str, Any]:
    """Return a row as text shows it."""

    def text(data: bytes | None) -> str | None:
        return None if data is None else base64.b64encode(data).decode()

    headers = [{"key": one["key"], "value": text(one["value"])} for one in row["headers"]]
    found = {
        "key": text(row["key"]),
        "value": text(row["value"]),
        "offset": row["offset"],
        "timestamp": row["timestamp"].isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "timestampType": row["timestampType"],
        "headers": json.dumps(headers, ensure_ascii=False) if is_csv else headers,
    }
    return {name: "" if value is None else str(value) for name, value in found.items()} \
        if is_csv else found  # fmt: skip


def test_null_and_empty_differ_in_csv(tmp_path: Path):
    """An empty cell is null, an empty text has quotes."""
    write_log(tmp_path / "a-0", batch(0, [record(0, None, b""), record(1, b"", None)]))
    writing = Writing(FileFormat.CSV, value_form=BytesForm.TEXT)
    export([tmp_path / "a-0"], tmp_path / "to", columns=["key", "value"], writing=writing)
    [path] = (tmp_path / "to").rglob("*.csv")
    assert path.read_text().splitlines() == ['"key","value"', ',""', '"",']


def test_arrow_has_the_same_rows(corpus_dir: Path, tmp_path: Path):
    """Arrow's IPC format, compressed and not."""
    source = [corpus_dir / "kafka-4.3" / "codecs" / "codec-gzip-0"]
    export(source, tmp_path / "parquet")
    for codec in (Codec.NONE, Codec.ZSTD, Codec.LZ4):
        export(source, tmp_path / codec, writing=Writing(FileFormat.ARROW, codec))
        assert table_of(tmp_path / codec, "arrow").equals(table_of(tmp_path / "parquet"))


@pytest.mark.sampled(7)
@pytest.mark.parametrize("table", [table for table in TableName if table != TableName.RECORDS])
@pytest.mark.parametrize("form", FileFormat)
def test_every_table_in_every_format(
    corpus_dir: Path, tmp_path: Path, table: TableName, form: FileFormat
):
    """All of them have as many rows as the Parquet files."""
    source = [tmp_path / "txn-v0", tmp_path / "crash-1-torn"]
    for one in source:  # of two clusters
        ids = shutil.ignore_patterns("meta.properties", "partition.metadata")
        shutil.copytree(corpus_dir / "kafka-4.3" / one.name, one, ignore=ids)
    summary = export(source, tmp_path / "p", Request(table, internal=True))
    other = export(source, tmp_path / "o", Request(table, internal=True), writing=Writing(form))
    assert summary.rows == other.rows > 0
    assert len(table_of(tmp_path / "p")) == summary.rows
    if form == FileFormat.NDJSON:
        files = (tmp_path / "o").rglob("topic=*/*/*")
        assert sum(len(text_rows(path)) for path in files) == summary.rows


def test_bounds_are_exact(tmp_path: Path):
    """Bounds of offsets and times may lie inside batches."""
    for partition in (0, 1):
        batches = [batch(n, [record(i, b"k", b"v", time_delta=i) for i in range(5)],
                         base_time=BASE_TIME + n, max_time=BASE_TIME + n + 4)
                   for n in range(0, 100, 5)]  # fmt: skip
        write_log(tmp_path / "logs" / f"a-{partition}", *batches)
    bounds = Bounds(partitions=frozenset({1}), from_offset=12, to_offset=33,
                    from_time=BASE_TIME + 14, to_time=BASE_TIME + 31)  # fmt: skip
    export([tmp_path / "logs" / f"a-{n}" for n in (0, 1)], tmp_path / "to", Request(bounds=bounds))
    found = table_of(tmp_path / "to")
    assert found["offset"].to_pylist() == list(range(14, 31))
    assert set(found["partition"].to_pylist()) == {1}


def test_both_decoders_write_the_same_bytes(
    corpus_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The decoders cut record batches at different rows, but row groups do not depend on that."""
    source = [corpus_dir / "kafka-4.3" / "codecs" / f"codec-{name}-0" for name in ("gzip", "zstd")]
    for form in FileFormat:
        writing = Writing(form, row_group_rows=97, row_group_size=5000)
        monkeypatch.setattr(fast_path, "FAST_SIZE_MIN", 0)
        export(source, tmp_path / form / "kernels", writing=writing)
        monkeypatch.setattr(fast_path, "FAST_SIZE_MIN", 1 << 60)
        export(source, tmp_path / form / "reference", writing=writing)
        found = files_of(tmp_path / form / "kernels")
        assert found == files_of(tmp_path / form / "reference")
        assert len(found) == 4
