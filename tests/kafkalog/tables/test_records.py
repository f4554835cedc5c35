"""The records table equals what real consumers received, for any split."""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from kafkalog.errors import Listener
from kafkalog.model import Isolation
from kafkalog.tables import Request, TableName, plan_splits, read_split
from kafkalog.tables.schemas import table_schema
from tests.builders import batch, record, write_log
from tests.conftest import state

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.conftest import State

SMALL = 4096


def rows_of(paths: Sequence[Path], request: Request, columns: Sequence[str] | None = None) -> Any:
    schema = table_schema(request.table, columns)
    batches = [
        batch
        for split in plan_splits([str(path) for path in paths], request, Listener())
        for batch in read_split(split, schema, Listener())
    ]
    return pa.Table.from_batches(batches, schema)


def data_of(value: bytes | None) -> object:
    """Return a value in the form that the corpus uses: a long one as its length and hash."""
    if value is None:
        return None
    if len(value) > 1024:
        return {"len": len(value), "sha256": hashlib.sha256(value).hexdigest()}
    return value.hex()


def short(noted: Any) -> Any:
    """Convert a value of the corpus that is given in full; a long one becomes a hash, too."""
    return data_of(bytes.fromhex(noted)) if isinstance(noted, str) else noted


def as_noted(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "offset": row["offset"],
        "timestamp": row["timestamp_ms"],
        "timestampType": {0: "CreateTime", 1: "LogAppendTime", -1: "NoTimestampType"}[
            row["timestampType"]
        ],
        "key": data_of(row["key"]),
        "value": data_of(row["value"]),
        "headers": [[pair["key"], data_of(pair["value"])] for pair in row["headers"]],
    }


def as_read(line: dict[str, Any]) -> dict[str, Any]:
    """Return what a consumer received, in the same form."""
    headers = [[key, short(value)] for key, value in line["headers"]]
    line = {**line, "key": short(line["key"]), "value": short(line["value"]), "headers": headers}
    line.pop("leaderEpoch", None)
    return line


COLUMNS = ("offset", "timestamp_ms", "timestampType", "key", "value", "headers")


def isolation_of(state: State) -> Isolation:
    """Return the isolation of what consumers read.

    The broker of this state was killed before it noted its high watermarks. Its consumer read after
    the next start, when the log end was the high watermark, as there was no other replica.
    """
    return Isolation.LOG if state.name == "crash" else Isolation.READ_UNCOMMITTED


@pytest.mark.sampled(18)
@pytest.mark.parametrize("split_bytes", [SMALL, 1 << 26])
def test_records_are_what_a_consumer_read(any_state: State, split_bytes: int) -> None:
    """Every field of every partition that a consumer read."""
    read = 0
    for partition in any_state.partitions():
        noted = any_state.expected / "records" / f"{partition.name}.ndjson"
        if not noted.exists():
            continue
        lines = [as_read(json.loads(line)) for line in noted.read_text().splitlines()]
        request = Request(split_bytes=split_bytes, isolation=isolation_of(any_state))
        found = rows_of([partition], request, COLUMNS).to_pylist()
        assert [as_noted(row) for row in found] == lines, noted
        read += 1
    assert read or not (any_state.expected / "records").exists()


def committed_offsets(state: State, partition: str) -> list[int] | None:
    """Return what a read_committed consumer received from a partition, or None without one."""
    offsets = state.expected / "records-committed" / f"{partition}.offsets.json"
    if offsets.exists():
        return list(json.loads(offsets.read_text()))
    rows = state.expected / "records" / f"{partition}.read_committed.ndjson"
    if rows.exists():
        return [json.loads(line)["offset"] for line in rows.read_text().splitlines()]
    return None


@pytest.mark.sampled(10)
def test_committed_records_are_what_a_consumer_read(any_state: State) -> None:
    """With isolation read_committed."""
    for partition in any_state.partitions():
        wanted = committed_offsets(any_state, partition.name)
        if wanted is not None:
            request = Request(isolation=Isolation.READ_COMMITTED, split_bytes=SMALL)
            found = rows_of([partition], request, ["offset"])
            assert found["offset"].to_pylist() == wanted, partition


DUMPED = re.compile(r"offset: (\d+) .* key: (\{.*\}) payload: (\{.*\}|<DELETE>)$")


@pytest.mark.parametrize("name", ["__consumer_offsets-0", "__consumer_offsets-1"])
def test_what_brokers_note_is_as_kafkas_tool_decodes_it(corpus_dir: Path, name: str) -> None:
    """The column `decoded`."""
    one = state(corpus_dir, "kafka-4.3", "internal-topics")
    dumped = (one.expected / "dump" / name).glob("*.log.decoded.txt")
    wanted = [
        (int(match[1]), json.loads(match[2]), match[3])
        for path in sorted(dumped)
        for line in path.read_text().splitlines()
        if (match := DUMPED.search(line))
    ]
    found = rows_of([one.root / name], Request(internal=True), ["offset", "decoded"]).to_pylist()
    assert wanted
    for row, (offset, key, payload) in zip(found, wanted, strict=True):
        decoded = json.loads(row["decoded"])
        value = None if payload == "<DELETE>" else json.loads(payload)
        assert (row["offset"], decoded["key"], decoded["value"]) == (offset, key, value)
        assert decoded["error"] is None


def test_data_as_text(tmp_path: Path) -> None:
    """Null stays null; what is no UTF-8 is hexadecimal, and there as bytes, too."""
    records = [record(0, "ä".encode(), b"\xff!"), record(1, None, b"")]
    write_log(tmp_path / "orders-0", batch(0, records))
    names = ["key", "value", "value_bytes", "offset"]
    schema = table_schema(TableName.RECORDS, names, text=True)
    (split,) = plan_splits([str(tmp_path / "orders-0")], Request())
    rows = [row for some in read_split(split, schema) for row in some.to_pylist()]
    assert rows == [
        {"key": "ä", "value": "0xff21", "value_bytes": b"\xff!", "offset": 0},
        {"key": None, "value": "", "value_bytes": b"", "offset": 1},
    ]
