"""The public face of the columnar core: columns, tables, limits, refusals, and what it loads."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from kafkalog.errors import NotFoundError, UnreadableError, UnsupportedError, UsageError
from kafkalog.io.jit import fast_path
from kafkalog.io.paths.source import Source
from kafkalog.log.batches.selection import Selection
from kafkalog.log.columns.arrow import SCHEMA
from kafkalog.node.scan import Scan, scan
from tests.builders import batch, flip, record, write_log
from tests.kafkalog.log.columns.twins import assert_twins, by_kernels, by_reference

if TYPE_CHECKING:
    from pathlib import Path

    from kafkalog.model import Defect


def ignored(_: Defect) -> None:
    """Ignore a defect: only the rows are compared."""


HEADERS = [(b"h", b"x"), (b"h", None), (b"", b"")]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Three batches of ten records, the second with a wrong checksum."""
    made = [
        batch(first, [record(i, b"k%d" % i, None if i % 3 else b"v", headers=HEADERS[: i % 4])
                      for i in range(10)], attributes=16, producer=(5, 1, first))
        for first in (0, 10, 20)
    ]  # fmt: skip
    return write_log(tmp_path, made[0], flip(made[1], 8 * 17), made[2])


@pytest.mark.parametrize("size_min", [0, 1 << 30])
def test_columns_are_those_asked_for(log: Path, size_min: int, monkeypatch: pytest.MonkeyPatch):
    """The order and types are as requested, from both decoders."""
    monkeypatch.setattr(fast_path, "FAST_SIZE_MIN", size_min)
    for columns in (["value", "offset"], ["headers"], list(reversed(SCHEMA.names))):
        table = Scan(log, columns=columns, on_event=ignored).to_table()
        assert table.schema == pa.schema([SCHEMA.field(name) for name in columns])
        assert table.num_rows == 30
        assert table.to_pylist() == [
            {name: row[name] for name in columns} for row in by_reference(log)[0]
        ]
    with pytest.raises(UsageError, match="no column 'ofset'"):
        scan(log, columns=["ofset"])


def test_both_ways_have_one_schema(log: Path, monkeypatch: pytest.MonkeyPatch):
    """One table can then combine small and large logs."""
    small = Scan(log, on_event=ignored).to_table()
    monkeypatch.setattr(fast_path, "FAST_SIZE_MIN", 0)
    large = Scan(log, on_event=ignored).to_table()
    assert small.schema == large.schema == SCHEMA
    assert small.to_pylist() == large.to_pylist()


@pytest.mark.parametrize("limit", [0, 1, 9, 10, 11, 20, 29, 30, 31])
@pytest.mark.parametrize("size_min", [0, 1 << 30])
def test_a_limit_ends_the_defects_too(
    log: Path, limit: int, size_min: int, monkeypatch: pytest.MonkeyPatch
):
    """As in `read_records`, nothing after the last row is read."""
    monkeypatch.setattr(fast_path, "FAST_SIZE_MIN", size_min)
    told: list[Defect] = []
    selection = Selection(limit=limit)
    tables = list(scan(log, selection=selection, defects=told.append, batch_rows=4))
    rows, defects = by_reference(log, selection)
    assert [row for table in tables for row in table.to_pylist()] == rows
    assert told == defects
    assert all(0 < table.num_rows <= 4 for table in tables)


@pytest.mark.parametrize(
    "selection",
    [
        Selection(key=b"k3"), Selection(key_regex=re.compile(b"[3-5]$")),
        Selection(value_regex=re.compile(b"^v")), Selection(header=(b"h", None)),
        Selection(header=(b"h", b"x")), Selection(header=(b"", b"")),
        Selection(header=(b"q", None)),
        Selection(key=b""), Selection(from_offset=7, to_offset=23), Selection(to_offset=10),
        Selection(producer_id=5, leader_epoch=0), Selection(control=True),
        Selection(from_position=1), Selection(max_bytes=300),
        Selection(key_regex=re.compile(b"[3-5]$"), limit=4),
    ],
    ids=repr,
)  # fmt: skip
def test_selections_are_those_of_the_reader(log: Path, selection: Selection):
    """Keys, values, headers, positions."""
    assert_twins(log, selection, batch_rows=7)


def test_polars_takes_it_through_arrow(log: Path):
    """By the PyCapsule protocol, without a copy in Python."""
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(Scan(log, on_event=ignored).to_table())
    assert frame["key"].n_unique() == 10
    assert frame.filter(polars.col("value").is_null()).height == 18


def test_progress_covers_the_file(log: Path, monkeypatch: pytest.MonkeyPatch):
    """Every byte once."""
    for size_min in (0, 1 << 30):
        monkeypatch.setattr(fast_path, "FAST_SIZE_MIN", size_min)
        seen: list[int] = []
        list(scan(log, progress=seen.append))
        assert sum(seen) == log.stat().st_size


def test_a_scan_that_is_left_early_closes_its_file(tmp_path: Path):
    """It joins its threads and leaves nothing open (warnings are errors here)."""
    made = [batch(i * 100, [record(n, None, bytes(3000)) for n in range(100)]) for i in range(20)]
    path = write_log(tmp_path, *made)
    tables = scan(path, threads=2)
    assert next(tables).num_rows
    tables.close()


def test_refusals_come_at_once(log: Path, monkeypatch: pytest.MonkeyPatch):
    """They do not wait for the first record batch."""
    with pytest.raises(NotFoundError):
        scan(log.parent / "nothing")
    for options in ({"threads": 0}, {"batch_rows": 0}):
        with pytest.raises(UsageError):
            scan(log, **options)
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "pyarrow" else name
    )
    with pytest.raises(UnsupportedError, match="pyarrow") as caught:
        scan(log)
    assert caught.value.hint == "pip install 'kafkalog[data]'"


def test_a_small_log_does_not_load_the_kernels(log: Path):
    """`kafkalog.io.jit.fast_path` decides this."""
    code = "import sys, json; from kafkalog.node.scan import scan; "
    code += "assert sum(table.num_rows for table in scan(sys.argv[1])) == 30; "
    code += "print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code, log], capture_output=True, check=True)
    assert not {"numba", "llvmlite"} & set(json.loads(done.stdout))


def test_a_batch_too_large_for_a_chunk_is_read_all_the_same(
    log: Path, monkeypatch: pytest.MonkeyPatch
):
    """The reference decoder reads it."""
    from kafkalog.log.columns import chunks

    monkeypatch.setattr(chunks, "CHUNK_SIZE_MIN", 100)
    monkeypatch.setattr(chunks, "BATCH_SIZE_MAX", 100)
    wanted: Any = by_reference(log)
    assert by_kernels(log) == wanted


def test_a_reader_streams_what_a_scan_gives(log: Path, monkeypatch: pytest.MonkeyPatch):
    """Through Arrow's C stream protocol, which DuckDB and Polars speak."""
    polars = pytest.importorskip("polars")
    for size_min in (0, 1 << 30):
        monkeypatch.setattr(fast_path, "FAST_SIZE_MIN", size_min)
        rows = Scan(log, columns=["offset", "key"], batch_rows=7, on_event=ignored)
        reader = rows.to_reader()
        assert hasattr(reader, "__arrow_c_stream__")
        frame = polars.DataFrame(reader)
        assert frame["offset"].to_list() == [row["offset"] for row in by_reference(log)[0]]


def test_paths_tell_the_segments_of_a_partition_apart(
    corpus_dir: Path, monkeypatch: pytest.MonkeyPatch
):
    """All record batches share one dictionary; a position needs its file."""
    partition = corpus_dir / "kafka-4.3" / "codecs" / "codec-none-0"
    for size_min in (0, 1 << 30):
        monkeypatch.setattr(fast_path, "FAST_SIZE_MIN", size_min)
        tables = list(scan(partition, columns=["path", "batch_position"], batch_rows=100))
        names = {tuple(table.column("path").dictionary.to_pylist()) for table in tables}
        assert names == {tuple(str(path) for path in sorted(partition.glob("*.log")))}
        rows = [row for table in tables for row in table.to_pylist()]
        assert rows == [
            {name: row[name] for name in ("path", "batch_position")}
            for row in by_reference(partition)[0]
        ]


def test_an_error_comes_after_what_was_read_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Chunks are read ahead; a failing disk only costs what follows that place."""
    made = [batch(i * 100, [record(n, None, bytes(3000)) for n in range(100)]) for i in range(20)]
    path = write_log(tmp_path, *made)
    read_into = Source.read_into

    def failing(source: Source, position: int, buffer: memoryview) -> None:
        if position > 1 << 20:
            raise UnreadableError("The disk is broken.", path=source.path, position=position)
        read_into(source, position, buffer)

    monkeypatch.setattr(fast_path, "FAST_SIZE_MIN", 0)
    monkeypatch.setattr(Source, "read_into", failing)
    tables = scan(path, columns=["offset"], threads=2)
    offsets: list[int] = []
    with pytest.raises(UnreadableError) as caught:
        offsets.extend(n for table in tables for n in table.column("offset").to_pylist())
    assert offsets == list(range(len(offsets)))
    assert caught.value.position == len(offsets) // 100 * len(made[0])
