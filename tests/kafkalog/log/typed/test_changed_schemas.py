"""Each line of `docs/design/schemas.md` about values of older schemas is tried.

Values are encoded by fastavro, by `json` and by Google's Protobuf, with the schema that the line
has for them, and decoded into the column of the other one.
"""

from __future__ import annotations

import io
import json
from base64 import b64encode
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from grpc_tools import protoc

from kafkalog.log.typed import TypedForm
from kafkalog_cli.output.text import BytesFormat
from kafkalog_cli.payloads import Payload, Place
from tests.checkout import ROOT
from tests.kafkalog.log.typed.test_serialized import CASES, as_topic, decoded, ways_to

PAGE = ROOT / "docs" / "schemas.md"
CHANGES_PAGE = ROOT / "docs" / "design" / "schemas.md"
FORMS = {"Avro": TypedForm.AVRO, "JSON Schema": TypedForm.JSON, "Protobuf": TypedForm.PROTOBUF}
NOTHING = "-"


@dataclass(frozen=True)
class Change:
    """A line of the tables: fields of two versions of a record, and a value of the older one."""

    form: str
    name: str
    before: str
    after: str
    value: str
    shown: str


def lines_of(title: str, page: Path = CHANGES_PAGE) -> list[list[str]]:
    """Return the cells of the table below a heading."""
    section = page.read_text(encoding="utf-8").partition(f"\n## {title}\n")[2]
    rows = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("| ")]
    return [[cell.strip("` ") for cell in row.strip("|").split(" | ")] for row in rows[2:]]


CHANGES = [Change(form, *line) for form in FORMS for line in lines_of(form)]


class AvroSide:
    """Encodes by fastavro."""

    def __init__(self, fields: str) -> None:
        more = [] if fields == NOTHING else json.loads(f"[{fields}]")
        tree = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}, *more]}
        self.text = json.dumps(tree)

    def encoded(self, value: dict[str, Any]) -> bytes:
        file = io.BytesIO()
        fastavro.schemaless_writer(file, fastavro.parse_schema(json.loads(self.text)), value)
        return file.getvalue()


class JsonSide:
    """Encodes by `json`."""

    def __init__(self, properties: str) -> None:
        more = {} if properties == NOTHING else json.loads(f"{{{properties}}}")
        tree = {"type": "object", "properties": {"id": {"type": "integer"}, **more}}
        self.text = json.dumps(tree)

    def encoded(self, value: dict[str, Any]) -> bytes:
        return json.dumps(value).encode()


class ProtobufSide:
    """Encodes by Google's Protobuf; the schema is its descriptor, as some clients register it."""

    def __init__(self, fields: str) -> None:
        more = "" if fields == NOTHING else fields
        text = f'syntax = "proto3"; message R {{ int64 id = 1; {more} }}'
        with TemporaryDirectory() as home:
            (Path(home) / "r.proto").write_text(text)
            words = ("protoc", f"-I{home}", f"-o{home}/r.set", "r.proto")
            assert protoc.main(words) == 0, text
            found = descriptor_pb2.FileDescriptorSet.FromString((Path(home) / "r.set").read_bytes())
        [self._file] = found.file
        self.text = b64encode(self._file.SerializeToString()).decode()

    def encoded(self, value: dict[str, Any]) -> bytes:
        pool = descriptor_pool.DescriptorPool()
        pool.Add(self._file)
        made = message_factory.GetMessageClass(pool.FindMessageTypeByName("R"))
        message: bytes = json_format.ParseDict(value, made()).SerializeToString()
        return b"\0" + message


SIDES: dict[str, type[AvroSide | JsonSide | ProtobufSide]] = {
    "Avro": AvroSide, "JSON Schema": JsonSide, "Protobuf": ProtobufSide,
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda one: f"{one.form}: {one.name}")
def test_what_becomes_of_a_value(tmp_path: Path, change: Change) -> None:
    """It is shown as the page says, or is a reject for the reason there."""
    sides = [SIDES[change.form](fields) for fields in (change.before, change.after)]
    form = FORMS[change.form]
    versions = [
        {"subject": "t-value", "version": number, "id": number, "schema": one.text,
         "schemaType": form.upper()}
        for number, one in enumerate(sides, 1)
    ]  # fmt: skip
    place = as_topic(tmp_path / "disk", versions)
    [column] = Payload(
        "value", BytesFormat.AUTO, form, None, None, None, Place(str(place))
    ).columns(["t"])
    more = {} if change.value == NOTHING else json.loads(f"{{{change.value}}}")
    data = sides[0].encoded({"id": 7, **more})
    [row], reasons = decoded(column, [b"\0\0\0\0\1" + data])
    if row is None:
        assert [change.shown] == [f"reject: {reason}" for reason in reasons]
    else:
        assert row.pop("id") == 7
        assert change.shown == (json.dumps(row)[1:-1] or NOTHING)


def test_serializers_of_the_page() -> None:
    """A place is said to have the schemas if values of a serializer are decoded with them."""
    found = {(form, framing): cells for form, framing, _, *cells in lines_of("Serializers", PAGE)}
    ways: dict[tuple[str, str], set[str]] = {}
    names = {str(form): name for name, form in FORMS.items()}
    for case in CASES.values():
        place = " in a header" if "headers-" in case["name"] else ""
        key = names[case["form"]], case["framing"] + place
        ways.setdefault(key, set()).update(ways_to(case))
    assert {
        key: ["yes" if way in have else NOTHING for way in ("registry", "topic", "files")]
        for key, have in ways.items()
    } == found
