"""What a consumer's script does with typed values: decodes each, and writes them to Parquet.

`python -m benchmarks.consumer FORM LOG FILE`: aiokafka's decoder of records, then fastavro, `json`
or Google's Protobuf for each value, and pyarrow. FORM is avro, json or protobuf.
"""

from __future__ import annotations

import json
import sys
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from aiokafka.record._crecords import MemoryRecords

from benchmarks.typed_values import AVRO, message_class

if TYPE_CHECKING:
    from collections.abc import Callable

PREFIX_SIZE = 5
ROWS_AT_ONCE = 50_000
FIELDS = [
    ("id", pa.int64()), ("customer", pa.string()), ("at", pa.timestamp("us", "UTC")),
    ("state", pa.string()), ("country", pa.string()), ("amount", pa.float64()),
    ("quantity", pa.int64()), ("weight", pa.float64()), ("is_gift", pa.bool_()),
    ("note", pa.string()),
]  # fmt: skip
SCHEMA = pa.schema([("offset", pa.int64()), *FIELDS])


def decoder(form: str) -> Callable[[bytes], dict[str, Any]]:
    """A function from bytes with their prefix to an order."""
    if form == "json":
        from datetime import datetime

        def order(data: bytes) -> dict[str, Any]:
            found: dict[str, Any] = json.loads(data[PREFIX_SIZE:])
            found["at"] = datetime.fromisoformat(found["at"])
            return found

        return order
    if form == "protobuf":
        parse = message_class().FromString
        names = [name for name, _ in FIELDS if name not in ("at", "state", "note")]
        states = ("NEW", "PAID", "SENT")

        def message(data: bytes) -> dict[str, Any]:
            made = parse(data[PREFIX_SIZE + 1 :])
            found: dict[str, Any] = {name: getattr(made, name) for name in names}
            found["at"] = made.at.ToMicroseconds()
            found["state"] = states[made.state]
            found["note"] = made.note if made.HasField("note") else None
            return found

        return message
    from fastavro import parse_schema, schemaless_reader

    schema = parse_schema(AVRO)

    def value(data: bytes) -> dict[str, Any]:
        found: Any = schemaless_reader(BytesIO(data[PREFIX_SIZE:]), schema)
        return dict(found)

    return value


def main(form: str, log: str, target: str) -> None:
    """Decode all values of a segment; write them."""
    decode = decoder(form)
    rows: list[dict[str, Any]] = []
    with pq.ParquetWriter(target, SCHEMA, compression="zstd") as file:
        records = MemoryRecords(Path(log).read_bytes())
        while records.has_next():
            batch = records.next_batch()
            rows += [{"offset": one.offset, **decode(one.value)} for one in batch]
            if len(rows) >= ROWS_AT_ONCE:
                file.write_table(pa.Table.from_pylist(rows, SCHEMA))
                rows.clear()
        file.write_table(pa.Table.from_pylist(rows, SCHEMA))


if __name__ == "__main__":
    main(*sys.argv[1:])
