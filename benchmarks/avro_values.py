"""A segment of Avro values with its offset index, framed as Confluent's serializer does.

`python -m benchmarks.avro_values LOG RECORDS SEED` prints the end offset, and writes the schema
next to the partition, as `schemas/1.avsc`.
"""

from __future__ import annotations

import json
import random
import struct
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

from fastavro import parse_schema, schemaless_writer

from tests.builders import batch, record

SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {
            "name": "state",
            "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID", "SENT"]},
        },
        {"name": "country", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "quantity", "type": "int"},
        {"name": "weight", "type": "float"},
        {"name": "is_gift", "type": "boolean"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
ID = 1
PER_BATCH = 150
START_MS = 1_700_000_000_000


def write(path: Path, records: int, seed: int) -> int:
    """Write a segment of at least this many records; return its end offset."""
    chance = random.Random(seed)
    schema = parse_schema(SCHEMA)
    offset, index = 0, b""
    with path.open("wb") as file:
        while offset < records:
            rows = [_record(schema, chance, number, offset) for number in range(PER_BATCH)]
            # As LogSegment.append, of batches larger than index.interval.bytes.
            if offset:
                index += struct.pack(">ii", offset + PER_BATCH - 1, file.tell())
            file.write(batch(offset, rows, base_time=START_MS, max_time=START_MS))
            offset += PER_BATCH
    path.with_suffix(".index").write_bytes(index)
    schemas = path.parents[1] / "schemas"
    schemas.mkdir()
    (schemas / f"{ID}.avsc").write_text(json.dumps(SCHEMA))
    return offset


def _record(schema: Any, chance: random.Random, number: int, base_offset: int) -> bytes:
    place = base_offset + number
    customer = f"customer-{chance.randrange(100_000):06}"
    value = BytesIO(struct.pack(">bi", 0, ID))
    value.seek(5)
    schemaless_writer(value, schema, {
        "id": place, "customer": customer, "at": START_MS + place,
        "state": chance.choice(("NEW", "PAID", "SENT")),
        "country": chance.choice(("DE", "FR", "IT", "PL")), "amount": chance.random() * 1000,
        "quantity": chance.randrange(100), "weight": chance.random(),
        "is_gift": chance.random() < 0.1,
        "note": "leave it at the door, please" if chance.random() < 0.5 else None,
    })  # fmt: skip
    return record(number, customer.encode(), value.getvalue())


if __name__ == "__main__":
    print(write(Path(sys.argv[1]), *map(int, sys.argv[2:])))
