"""Serializes values of several types for one topic, as Confluent's serializers do by record.

Run it with those serializers installed; the result is in the corpus, so the tests need none.

    python tests/serializers/make_types.py tests/corpus/record_types.json
"""

from __future__ import annotations

import json
import sys
from base64 import b64encode
from importlib.metadata import version
from pathlib import Path
from typing import Any

from confluent_kafka.schema_registry import (
    Schema,
    SchemaRegistryClient,
    header_schema_id_serializer,
    record_subject_name_strategy,
    topic_record_subject_name_strategy,
)
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import json_format

sys.path.insert(0, str(Path(__file__).parent))
from make import classes_of, registered
from values import record

TOPIC = "events"
STRATEGIES = {
    "record": ({}, record_subject_name_strategy),
    "topic-record": (
        {"schema.id.serializer": header_schema_id_serializer},
        topic_record_subject_name_strategy,
    ),
}
METHOD = {"type": "enum", "name": "Method", "symbols": ["CARD", "CASH"]}
TAGS = {"type": "array", "items": "string"}
NOTE = ["null", "string"]
# The second version of the first type comes after the other type.
AVRO = [
    (record("shop.Order", ("id", "int"), ("total", "double")), [{"id": 7, "total": 0.5}]),
    (
        record("pay.Payment", ("order", "long"), ("method", METHOD), ("tags", TAGS)),
        [
            {"order": 7, "method": "CARD", "tags": ["a", "b"]},
            {"order": 1 << 40, "method": "CASH", "tags": []},
        ],
    ),
    (
        record("shop.Order", ("id", "long"), ("total", "double"), ("note", NOTE, None)),
        [{"id": 1 << 40, "total": 2.5, "note": "ß€"}, {"id": 8, "total": 0.0, "note": None}],
    ),
]


def titled(title: str, **types: str) -> dict[str, Any]:
    properties = {name: {"type": kind} for name, kind in types.items()}
    return {"title": title, "type": "object", "properties": properties}


JSON = [
    (titled("Refund", id="integer", why="string"), [{"id": 3, "why": "broken"}, {"id": 4}]),
    (titled("Visit", page="string"), [{"page": "/"}]),
]
FILE = """
syntax = "proto3";
package ship;
message Parcel { int64 id = 1; string to = 2; }
message Return { int64 id = 1; Reason reason = 2; message Label { string code = 1; } }
enum Reason { OTHER = 0; LATE = 1; }
"""
PROTOBUF = [
    ("ship.Parcel", {"id": 1 << 40, "to": "Ulm"}),
    ("ship.Return", {"id": 2, "reason": "LATE"}),
    ("ship.Return.Label", {"code": "x"}),
    ("ship.Parcel", {"id": 3, "to": "Rom"}),
]


class Events:
    """A topic, and the registry of its schemas."""

    def __init__(self, name: str) -> None:
        more, strategy = STRATEGIES[name]
        self.client = SchemaRegistryClient.new_client({"url": f"mock://{name}"})
        self.conf = {"auto.register.schemas": True, "subject.name.strategy": strategy, **more}
        self._is_of_topic = name == "topic-record"
        self.records: list[dict[str, Any]] = []
        self.versions: dict[tuple[str, int], Any] = {}

    def add(
        self, form: str, serializer: Any, kind: str, value: Any, given: Any, text: str = ""
    ) -> None:
        context = SerializationContext(TOPIC, MessageField.VALUE, [])
        data = b64encode(serializer(given, context)).decode()
        headers = [[key, b64encode(one).decode()] for key, one in context.headers]
        self.records.append(
            {"form": form, "type": kind, "value": value, "data": data, "headers": headers}
        )
        subject = f"{TOPIC}-{kind}" if self._is_of_topic else kind
        latest = self.client.get_latest_version(subject)
        found = registered(self.client, subject, latest.version, latest.schema_id)
        self.versions[subject, latest.version] = found | ({"schema": text} if text else {})


def case(name: str) -> dict[str, Any]:
    """Serialize all values by a strategy."""
    events = Events(name)
    for tree, values in AVRO:
        made = AvroSerializer(events.client, Schema(json.dumps(tree), "AVRO"), conf=events.conf)
        for value in values:
            events.add("AVRO", made, tree["name"], value, value)
    for tree, values in JSON:
        made = JSONSerializer(Schema(json.dumps(tree), "JSON"), events.client, conf=events.conf)
        for value in values:
            events.add("JSON", made, tree["title"], value, value)
    find = classes_of({"ship.proto": FILE}, "ship.proto")
    for kind, value in PROTOBUF:
        conf = {"use.deprecated.format": False, **events.conf}
        made = ProtobufSerializer(find(kind), events.client, conf)
        message = json_format.ParseDict(value, find(kind)())
        events.add("PROTOBUF", made, kind, value, message, FILE)
    return {"name": name, "versions": [*events.versions.values()], "records": events.records}


def main(to: str) -> None:
    made_by = {name: version(name) for name in ("confluent-kafka", "fastavro", "protobuf")}
    cases = [case(name) for name in STRATEGIES]
    Path(to).write_text(json.dumps({"made_by": made_by, "cases": cases}, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
