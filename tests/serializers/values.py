"""The values that `make.py` serializes, and the rows that a table of all of them has.

A version is a schema and its values, each with its row: the serialized value, with null for the
fields of other versions. If Avro has a default for a field that a version lacks, the row has it.
"""

from __future__ import annotations

from typing import Any


def record(name: str, *fields: tuple[Any, ...]) -> dict[str, Any]:
    """Return an Avro record schema; a field is a name, a type and, if it has one, a default."""
    return {
        "type": "record",
        "name": name,
        "fields": [
            dict(zip(("name", "type", "default", "aliases"), one, strict=False)) for one in fields
        ],
    }


MONEY = record("Money", ("cents", "long"), ("currency", "string"))
ADDRESS = record("Address", ("city", "string"), ("zip", ["null", "string"], None))
STATE = {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}
STATES = {**STATE, "symbols": ["NEW", "PAID", "SENT"]}

_USER_1 = {"id": 1, "name": "Ada", "score": 0.5, "state": "NEW", "tags": ["a", "b"],
           "marks": {"x": 1}, "address": {"city": "Ulm", "zip": None}, "is_old": True}  # fmt: skip
_USER_2 = {"id": 1 << 40, "title": "Bo", "score": 0.1, "state": "SENT", "tags": [],
           "marks": {"x": 1 << 40, "y": 2}, "address": {"city": "Rom", "zip": "00118"},
           "note": None, "level": 3}  # fmt: skip
AVRO = [
    {
        # Wider numbers, a renamed field, new ones with defaults, one that is gone, a new symbol.
        "name": "users",
        "versions": [
            (
                record("User", ("id", "int"), ("name", "string"), ("score", "float"),
                       ("state", STATE), ("tags", {"type": "array", "items": "string"}),
                       ("marks", {"type": "map", "values": "int"}), ("address", ADDRESS),
                       ("is_old", "boolean")),
                [
                    (_USER_1, {"id": 1, "title": "Ada", "score": 0.5, "state": "NEW",
                               "tags": ["a", "b"], "marks": [["x", 1]],
                               "address": {"city": "Ulm", "zip": None}, "note": None, "level": 7}),
                ],
            ),
            (
                record("User", ("id", "long"), ("title", "string", "", ["name"]),
                       ("score", "double"), ("state", STATES),
                       ("tags", {"type": "array", "items": "string"}),
                       ("marks", {"type": "map", "values": "long"}), ("address", ADDRESS),
                       ("note", ["null", "string"], None), ("level", "int", 7)),
                [
                    (_USER_2, {**_USER_2, "marks": [["x", 1 << 40], ["y", 2]]}),
                    ({**_USER_2, "note": "ß€"},
                     {**_USER_2, "marks": [["x", 1 << 40], ["y", 2]], "note": "ß€"}),
                ],
            ),
        ],
    },
    {
        "name": "sales",
        "references": [("Money", "money", MONEY)],
        "versions": [
            (record("Sale", ("id", "int"), ("price", "Money")),
             [({"id": 1, "price": {"cents": 250, "currency": "EUR"}},
               {"id": 1, "price": {"cents": 250, "currency": "EUR"}, "fee": None})]),
            (record("Sale", ("id", "int"), ("price", "Money"), ("fee", ["null", "Money"], None)),
             [({"id": 2, "price": {"cents": 1, "currency": "USD"},
                "fee": {"cents": -1, "currency": "USD"}},) * 2]),
        ],
    },
    {"name": "numbers", "versions": [({"type": "int"}, [(1, 1), (-(1 << 31), -(1 << 31))]),
                                     ({"type": "long"}, [(1 << 62, 1 << 62)])]},
]  # fmt: skip


def titled(name_: str, /, **properties: Any) -> dict[str, Any]:
    return {"$schema": "http://json-schema.org/draft-07/schema#", "title": name_,
            "type": "object", "properties": properties}  # fmt: skip


TEXT, INTEGER, NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "number"}
_OR_NULL = {"oneOf": [{"type": "null"}, TEXT]}
JSON = [
    {
        "name": "pages",
        "versions": [
            (titled("Page", url=TEXT, hits=INTEGER, tags={"type": "array", "items": TEXT},
                    by={"type": "object", "properties": {"name": TEXT}}),
             [({"url": "/a", "hits": 3, "tags": ["x"], "by": {"name": "Ada"}},
               {"url": "/a", "hits": 3.0, "tags": ["x"], "by": {"name": "Ada", "age": None},
                "title": None, "seen": None}),
              ({}, {"url": None, "hits": None, "tags": None, "by": None, "title": None,
                    "seen": None})]),
            (titled("Page", url=TEXT, hits=NUMBER, title=_OR_NULL,
                    by={"type": "object", "properties": {"name": TEXT, "age": INTEGER}},
                    seen={"type": "object", "additionalProperties": INTEGER}),
             [({"url": "/ü", "hits": 0.5, "title": "T", "by": {"age": 7}, "seen": {"k": 1 << 60}},
               {"url": "/ü", "hits": 0.5, "tags": None, "by": {"name": None, "age": 7},
                "title": "T", "seen": [["k", 1 << 60]]}),
              ({"title": None}, {"url": None, "hits": None, "tags": None, "by": None,
                                 "title": None, "seen": None})]),
        ],
    },
    {
        # A reference to another subject, and one inside the document.
        "name": "carts",
        "references": [("customer.json", "customer", titled("Customer", name=TEXT, vip={
            "type": "boolean"}))],
        "versions": [
            ({**titled("Cart", owner={"$ref": "customer.json"},
                       items={"type": "array", "items": {"$ref": "#/definitions/item"}}),
              "definitions": {"item": {"type": "object", "properties": {"sku": TEXT,
                                                                        "count": INTEGER}}}},
             [({"owner": {"name": "Ada", "vip": True}, "items": [{"sku": "s", "count": 2}]},
               {"owner": {"name": "Ada", "vip": True}, "items": [{"sku": "s", "count": 2}]})]),
        ],
    },
]  # fmt: skip

_SHIPMENT_1 = """syntax = "proto3";
package shop;
import "place.proto";
message Shipment {
  int32 id = 1;
  string receiver = 2;
  repeated string labels = 3;
  Place to = 4;
  State state = 5;
  enum State { OPEN = 0; SENT = 1; }
}
"""
_SHIPMENT_2 = """syntax = "proto3";
package shop;
import "place.proto";
import "google/protobuf/timestamp.proto";
message Shipment {
  int64 id = 1;
  string recipient = 2;
  Place to = 4;
  State state = 5;
  enum State { OPEN = 0; SENT = 1; LOST = 2; }
  map<string, double> weights = 6;
  optional uint32 priority = 7;
  google.protobuf.Timestamp at = 8;
  oneof by { string ship = 9; Truck truck = 10; }
  message Truck { fixed64 plate = 1; bytes key = 2; }
}
"""
_PLACE = """syntax = "proto3";
package shop;
message Place { string city = 1; sint64 floor = 2; }
"""
_EVENTS = """syntax = "proto3";
package events;
message Envelope {
  message Empty { bool is_empty = 1; }
  message Event { string name = 1; bool is_new = 2; float weight = 3; }
  Event event = 1;
}
message Other { int32 n = 1; }
"""
PROTOBUF = [
    {
        "name": "shipments",
        "references": {"place.proto": _PLACE},
        "versions": [
            (_SHIPMENT_1, [
                ("shop.Shipment", {"id": 7, "receiver": "Ada", "labels": ["a", "b"],
                                   "to": {"city": "Ulm", "floor": -3}, "state": "SENT"},
                 {"id": 7, "recipient": "Ada", "to": {"city": "Ulm", "floor": -3},
                  "state": "SENT", "weights": None, "priority": None, "at": None, "ship": None,
                  "truck": None, "labels": ["a", "b"]}),
                ("shop.Shipment", {}, {"id": 0, "recipient": "", "to": None, "state": "OPEN",
                                       "weights": None, "priority": None, "at": None,
                                       "ship": None, "truck": None, "labels": []}),
            ]),
            (_SHIPMENT_2, [
                ("shop.Shipment", {"id": str(1 << 40), "recipient": "Bo", "to": {"city": "Rom"},
                                   "state": "LOST", "weights": {"b": 0.5, "a": 2.0},
                                   "priority": 0, "at": "2026-01-02T03:04:05.000000006Z",
                                   "truck": {"plate": "18446744073709551615", "key": "AP8="}},
                 {"id": 1 << 40, "recipient": "Bo", "to": {"city": "Rom", "floor": 0},
                  "state": "LOST", "weights": [["a", 2.0], ["b", 0.5]], "priority": 0,
                  "at": {"seconds": 1767323045, "nanos": 6}, "ship": None,
                  "truck": {"plate": 18446744073709551615, "key": "00ff"}, "labels": None}),
            ]),
        ],
    },
    {
        # A message inside the first one, with another before it: its indexes are 0 and 1.
        "name": "events",
        "message": "events.Envelope.Event",
        "versions": [
            (_EVENTS, [
                ("events.Envelope.Event", {"name": "e", "isNew": True, "weight": 0.5},
                 {"name": "e", "is_new": True, "weight": 0.5}),
                ("events.Other", {"n": 1}, None),
            ]),
        ],
    },
]  # fmt: skip
