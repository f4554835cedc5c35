"""A value of 512 MB and a log of more than 4 GB, in a session with the usual memory."""

from __future__ import annotations

import hashlib
import json
import os
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from tests.builders import SEGMENT, batch, record, write_log
from tests.sampling import tries_everything

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

VALUE_SIZE = 512 << 20
EMPTY_SIZE = 1 << 20
BATCHES = 4200 if tries_everything() else 2100
"""So that positions exceed 32 bits; a sample exceeds 31, as a signed one has."""
COMPACT = ("--apply", "--yes", "--config", "cleanup.policy=compact", "--high-watermark", "end")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A partition directory in a log directory."""
    directory = tmp_path / "logs" / "orders-0"
    directory.mkdir(parents=True)
    (directory.parent / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    return directory


@pytest.fixture
def master(spark: SparkSession) -> str:
    """The master of the open session."""
    return spark.sparkContext.master


@pytest.fixture
def run(kafkalog: Callable[..., Any], master: str) -> Callable[..., str]:
    """Return a function that runs a command in the open session and requires success."""

    def call(command: str, *words: object) -> str:
        result = kafkalog(command, *words, "--spark", master)
        assert result.status == 0, result.stderr
        return str(result.stdout.decode())

    return call


def rows_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.thorough("tests/spark/test_large.py::test_a_large_log")
@pytest.mark.parametrize("command", ["sql", "compact", "export"])
def test_a_large_value(
    run: Callable[..., str],
    kafkalog: Callable[..., Any],
    place: Path,
    tmp_path: Path,
    command: str,
) -> None:
    """Spark SQL returns it whole, a compaction keeps it, an export writes it."""
    value = hashlib.shake_128(b"orders").digest(1 << 20) * (VALUE_SIZE >> 20)
    write_log(place, batch(0, [record(0, b"a")]), batch(1, [record(0, b"large", value)]))
    write_log(place, batch(2, [record(0, b"a")]), name=f"{2:020}")
    write_log(place, batch(3, [record(0, b"b")]), name=f"{3:020}")
    log_dir = place.parent
    if command == "sql":
        query = "select offset, length(value) n, sha2(value, 256) digest from records"
        found = rows_of(run("sql", "--format", "ndjson", "-c", query, log_dir))
        rows = {row.pop("offset"): row for row in found}
        assert sorted(rows) == [0, 1, 2, 3]
        assert rows[1] == {"n": VALUE_SIZE, "digest": hashlib.sha256(value).hexdigest()}
        return
    assert kafkalog("rebuild-index", log_dir, "--apply", "--yes").status == 0
    spark, lake = ("--spark", "local[*]"), tmp_path / "lake"
    if command == "compact":
        run("compact", log_dir, *spark, *COMPACT)
        assert kafkalog("export", log_dir, "--to", lake).status == 0
    else:
        run("export", log_dir, *spark, "--to", lake)
    table = pq.read_table(lake)
    values = dict(zip(table["offset"].to_pylist(), table["value"].to_pylist(), strict=True))
    kept = [1, 2, 3] if command == "compact" else [0, 1, 2, 3]
    assert (sorted(values), values[1] == value) == (kept, True)


def test_a_large_log(
    run: Callable[..., str], kafkalog: Callable[..., Any], master: str, place: Path
) -> None:
    """Its positions exceed 32 bits; the records are zeros, stored as holes of the file.

    Spark gets each value, in a sample those at positions that exceed 31 bits: a verification
    reads the others.
    """
    one = batch(0, [record(0, b"key", bytes(EMPTY_SIZE))])
    with (place / f"{SEGMENT}.log").open("wb") as file:
        for number in range(BATCHES):
            file.write(number.to_bytes(8, "big") + one[8:200])
            file.seek(len(one) - 200, os.SEEK_CUR)
        file.truncate(BATCHES * len(one))
    first, last = 0 if tries_everything() else (1 << 31) // len(one) + 1, BATCHES - 1
    query = (
        "select count(*) n, count(distinct offset) d, max(batch_position) p, "  # noqa: S608 # our own number
        f"max(length(value)) v from records where offset >= {first}"
    )
    [row] = rows_of(run("sql", "--format", "ndjson", "-c", query, place))
    count = BATCHES - first
    assert row == {"n": count, "d": count, "p": last * len(one), "v": EMPTY_SIZE}
    words = ("verify", place, "--level", "deep", "--format", "ndjson")
    here, there = kafkalog(*words), kafkalog(*words, "--spark", master)
    assert (there.status, there.stdout) == (here.status, here.stdout)
    found = [row.get("reference") for row in rows_of(here.stdout.decode())]
    assert "segment-too-large" in found
    assert "batch-crc-mismatch" not in found
