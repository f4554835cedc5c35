"""A segment of values of ten fields with its offset index, framed as Confluent's serializers do.

`python -m benchmarks.typed_values LOG RECORDS SEED FORM` prints the end offset, and writes the
schema next to the partition, as `schemas/1.avsc`, `1.json` or `1.proto`. FORM is avro, json or
protobuf.
"""

from __future__ import annotations

import json
import random
import struct
import sys
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.builders import batch, record

if TYPE_CHECKING:
    from collections.abc import Callable

AVRO = {
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
JSON = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "customer": {"type": "string"},
        "at": {"type": "string", "format": "date-time"},
        "state": {"enum": ["NEW", "PAID", "SENT"]},
        "country": {"type": "string"},
        "amount": {"type": "number"},
        "quantity": {"type": "integer"},
        "weight": {"type": "number"},
        "is_gift": {"type": "boolean"},
        "note": {"type": ["string", "null"]},
    },
}
PROTOBUF = """\
syntax = "proto3";
import "google/protobuf/timestamp.proto";
enum State { NEW = 0; PAID = 1; SENT = 2; }
message Order {
  int64 id = 1; string customer = 2; google.protobuf.Timestamp at = 3; State state = 4;
  string country = 5; double amount = 6; int32 quantity = 7; float weight = 8; bool is_gift = 9;
  optional string note = 10;
}
"""
SCHEMAS = {
    "avro": ("1.avsc", json.dumps(AVRO)),
    "json": ("1.json", json.dumps(JSON)),
    "protobuf": ("1.proto", PROTOBUF),
}
ID = 1
PER_BATCH = 150
START_MS = 1_700_000_000_000


def time_of(millis: int) -> datetime:
    """The time in UTC."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=millis)


def message_class() -> Any:
    """Google's class of an order."""
    from tests.kafkalog.log.typed.protos import class_of, compiled

    return class_of(compiled(PROTOBUF), "Order")


def encoder(form: str) -> Callable[[dict[str, Any]], bytes]:
    """A function from an order to its bytes without a prefix."""
    if form == "json":
        return lambda order: json.dumps(
            order | {"at": time_of(order["at"]).isoformat(timespec="milliseconds")}
        ).encode()
    if form == "protobuf":
        order_class = message_class()

        def message(order: dict[str, Any]) -> bytes:
            made = order_class(**(order | {"at": time_of(order["at"])}))
            return b"\0" + bytes(made.SerializeToString())  # the first message of the file

        return message
    from fastavro import parse_schema, schemaless_writer

    schema = parse_schema(AVRO)

    def value(order: dict[str, Any]) -> bytes:
        file = BytesIO()
        schemaless_writer(file, schema, order)
        return file.getvalue()

    return value


def write(path: Path, records: int, seed: int, form: str) -> int:
    """Write a segment of at least this many records; return its end offset."""
    chance = random.Random(seed)
    encode = encoder(form)
    offset, index = 0, b""
    with path.open("wb") as file:
        while offset < records:
            rows = [_record(encode, chance, number, offset) for number in range(PER_BATCH)]
            # As LogSegment.append, of batches larger than index.interval.bytes.
            if offset:
                index += struct.pack(">ii", offset + PER_BATCH - 1, file.tell())
            file.write(batch(offset, rows, base_time=START_MS, max_time=START_MS))
            offset += PER_BATCH
    path.with_suffix(".index").write_bytes(index)
    schemas = path.parents[1] / "schemas"
    schemas.mkdir()
    name, text = SCHEMAS[form]
    (schemas / name).write_text(text)
    return offset


def _record(encode: Any, chance: random.Random, number: int, base_offset: int) -> bytes:
    place = base_offset + number
    customer = f"customer-{chance.randrange(100_000):06}"
    value = encode({
        "id": place, "customer": customer, "at": START_MS + place,
        "state": chance.choice(("NEW", "PAID", "SENT")),
        "country": chance.choice(("DE", "FR", "IT", "PL")), "amount": chance.random() * 1000,
        "quantity": chance.randrange(100), "weight": chance.random(),
        "is_gift": chance.random() < 0.1,
        "note": "leave it at the door, please" if chance.random() < 0.5 else None,
    })  # fmt: skip
    return record(number, customer.encode(), struct.pack(">bi", 0, ID) + value)


if __name__ == "__main__":
    _, log, count, seed, form = sys.argv
    print(write(Path(log), int(count), int(seed), form))
