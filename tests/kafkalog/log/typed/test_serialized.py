"""Values of other serializers, decoded by the ids in them: formats, versions, framings.

`tests/corpus/serialized.json` has the bytes of Confluent's, Apicurio's and Glue's serializers, and
the values that went into them (`tests/serializers/values.py`).
"""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from contextlib import ExitStack
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kafkalog.errors import UsageError
from kafkalog.log.typed import TypedColumn, TypedForm
from kafkalog.log.typed.columns import one_value, typed_column
from kafkalog.model import Header
from kafkalog_cli.output.text import BytesFormat
from kafkalog_cli.payloads import Payload, Place
from tests.builders import batch, record, write_log
from tests.http_servers import registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.conftest import Result

CASES = {
    one["name"]: one
    for one in json.loads(Path("tests/corpus/serialized.json").read_text())["cases"]
}
HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
SUFFIXES = {"AVRO": ".avsc", "JSON": ".json", "PROTOBUF": ".proto"}


def texts_of(versions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the versions as a registry stores Protobuf given as descriptors: as text."""
    return [{**one, "schema": one.get("text", one["schema"])} for one in versions]


def as_topic(place: Path, versions: list[dict[str, Any]]) -> Path:
    """Write the topic of a registry, which has a GUID as an MD5."""
    rows = []
    for one in versions:
        guid = one.get("guid")
        kept = {**one, "md5": b64encode(UUID(guid).bytes).decode() if guid else None, "guid": None}
        key = {"keytype": "SCHEMA", "subject": one["subject"], "version": one["version"]}
        rows.append((json.dumps(key).encode(), json.dumps(kept).encode()))
    write_log(place / "_schemas-0", batch(0, [record(n, *row) for n, row in enumerate(rows)]))
    return place


def headers_of(made: list[Any]) -> list[dict[str, Any]]:
    """Return the headers of a record, after one that is not its last of that name."""
    pairs = [{"key": key, "value": b64decode(value)} for key, value in (made[2:] or [[]])[0]]
    return [{**one, "value": b"\0\0\0\0\x63"} for one in pairs[:1]] + pairs


def as_files(place: Path, versions: list[dict[str, Any]]) -> Path:
    place.mkdir()
    for one in texts_of(versions):
        is_referred = not one["subject"].endswith("-value")
        stem = Path(one["subject"]).stem if is_referred else one["id"]
        (place / f"{stem}{SUFFIXES[one['schemaType']]}").write_text(one["schema"])
    return place


def decoded(
    column: TypedColumn,
    values: Sequence[bytes | None],
    headers: Sequence[list[dict[str, Any]]] = (),
) -> tuple[list[Any], list[str]]:
    """Decode with a column that passed through JSON, as for workers; return rows and failures.

    One by one, too, as for tables of records.
    """
    there = TypedColumn.from_json(json.loads(json.dumps(column.as_json())))
    decoder, lists = there.decoder(), [*headers] or [[] for _ in values]
    array, failures, _ = typed_column(
        there, decoder, pa.array(values, pa.binary()), pa.array(lists, HEADERS)
    )
    for row, (value, pairs) in enumerate(zip(values, lists, strict=True)):
        given = [Header(one["key"].encode(), one["value"]) for one in pairs]
        one, reason = one_value(there, decoder, value, given)
        assert one.equals(array.slice(row, 1)), reason
        assert [reason] == ([one.reason for one in failures if one.row == row] or [None])
    assert all(not array[one.row].is_valid for one in failures)
    return [plain(row) for row in array.to_pylist()], [one.reason for one in failures]


def without_nulls(value: Any) -> Any:
    """Leave out fields that are null, at any depth."""
    if isinstance(value, list):
        return [without_nulls(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {name: without_nulls(one) for name, one in value.items() if one is not None}


def plain(value: Any) -> Any:
    """Convert a value to the types of JSON."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, Decimal):
        assert value == int(value)
        return int(value)
    if isinstance(value, datetime):
        return value.isoformat()
    return value.hex() if isinstance(value, bytes) else value


def shown(value: Any) -> Any:
    """Convert a value that went into a serializer to what `plain` returns for the column."""
    if isinstance(value, dict) and value.keys() == {"seconds", "nanos"}:
        at = datetime.fromtimestamp(value["seconds"], UTC)
        return at.replace(microsecond=value["nanos"] // 1000).isoformat()
    if isinstance(value, dict):
        return {name: shown(one) for name, one in value.items()}
    return [shown(one) for one in value] if isinstance(value, list) else value


@pytest.fixture
def places() -> Iterator[ExitStack]:
    with ExitStack() as held:
        yield held


def ways_to(case: dict[str, Any]) -> list[str]:
    """Return the places that can provide the schemas of a case."""
    if case["framing"] != "confluent":
        return ["files"]
    if case["name"].startswith("headers-"):
        return ["registry", "topic"]
    ways = ["registry", "topic"] + ["files"] * (case["name"] != "sales")
    return ways + ["descriptors"] * (case["form"] == "protobuf")


@pytest.mark.sampled(3, each_value=True)
@pytest.mark.parametrize(
    ("name", "kind"), [(name, kind) for name, case in CASES.items() for kind in ways_to(case)]
)
def test_rows_are_what_was_serialized(
    tmp_path: Path, places: ExitStack, name: str, kind: str
) -> None:
    """For each place of the schemas; the column has the fields of all versions."""
    case = CASES[name]
    versions, newest = case["versions"], case["versions"][-1]
    is_avro = case["form"] == "avro"
    schema = None
    if kind == "files":
        place = str(as_files(tmp_path / "files", versions))
        schema = str(tmp_path / "files" / f"{newest['id']}.avsc") if is_avro else None
    elif kind == "topic":
        place = str(as_topic(tmp_path / "disk", texts_of(versions)))
    else:
        told = versions if kind == "descriptors" else texts_of(versions)
        place = places.enter_context(registry(told))
    topic = name.rpartition("-")[2]
    framing = None if case["framing"] == "confluent" else case["framing"]
    [column] = Payload("value", BytesFormat.AUTO, TypedForm(case["form"]), framing, schema,
                       case.get("message"), Place(place)).columns([topic])  # fmt: skip
    values = [b64decode(one[0]) for one in case["records"]]
    headers = [headers_of(one) for one in case["records"]]
    rows, reasons = decoded(column, [*values, None, b"plain"], [*headers, headers[0], []])
    assert rows == [*(shown(one[1]) for one in case["records"]), None, None]
    wanted = ["no schema id"] if topic != "events" else [
        "not events.Envelope.Event, but the message events.Other", "no schema id"
    ]  # fmt: skip
    assert sorted(reasons) == sorted(wanted)


@pytest.mark.parametrize("framing", ["apicurio", "apicurio4"])
def test_another_message_of_apicurio(tmp_path: Path, framing: str) -> None:
    """The name before the data is that of another message, is cut, or is no name."""
    case = CASES[f"{framing}-shipments"]
    place = as_files(tmp_path / "files", case["versions"])
    [column] = Payload(
        "value", BytesFormat.AUTO, TypedForm.PROTOBUF, framing, None, None, Place(str(place))
    ).columns()
    ref, value = b"\x0a\x0a\x08Shipment", b64decode(case["records"][0][0])
    assert value.count(ref) == 1
    for wrong, reason in [
        (b"\x07\x0a\x05Other", "the file has no message Other"),
        (b"\x7f\x0a\x08Shipment", "no name of a message"),
        (b"\x0a\x0a\x09Shipment", "no name of a message"),
        (b"", "no name of a message"),
    ]:
        assert decoded(column, [value.replace(ref, wrong)]) == ([None], [reason])


def test_framing_of_glue(tmp_path: Path) -> None:
    """A message's number is the place of its name among all of its file; `events.Other` is 3."""
    number = "12345678-1234-1234-1234-123456789ABC"
    place = tmp_path / "files"
    place.mkdir()
    (place / f"{number}.proto").write_text(CASES["events"]["versions"][0]["text"])
    message = b64decode(CASES["events"]["records"][0][0])[8:]
    row = CASES["events"]["records"][0][1]
    head = bytes.fromhex(number.replace("-", ""))
    packed = zlib.compress(b"\2" + message)
    [column] = Payload("value", BytesFormat.AUTO, TypedForm.PROTOBUF, "glue", None,
                       "events.Envelope.Event", Place(str(place))).columns()  # fmt: skip
    found, reasons = decoded(column, [
        b"\3\0" + head + b"\2" + message,
        b"\3\5" + head + packed,
        b"\3\5" + head + packed[:-1],
        b"\3\5" + head + packed + b"\0",
        b"\3\5" + head + zlib.compress(bytes((16 << 20) + 1)),
        b"\3\7" + head + b"\2" + message,
        b"\3\0" + head + b"\3" + message,
        b"\2\0" + head + b"\2" + message,
        b"\3\0" + head[::-1] + b"\2" + message,
    ])  # fmt: skip
    assert found == [row, row, *[None] * 7]
    assert reasons == [
        "the compressed data is damaged",
        "the compressed data is damaged",
        "larger than 16777216 bytes",
        "7 is no compression of Glue",
        "not events.Envelope.Event, but the message events.Other",
        "no schema id",
        "the schema bc9a7856-3412-3412-3412-341278563412 is unknown",
    ]


def test_glue_is_known_by_its_schemas_alone(
    tmp_path: Path, kafkalog: Callable[..., Result]
) -> None:
    """Of each form: a directory of files named by UUID is enough where one looks."""
    case = next(one for one in CASES.values() if one["framing"] == "glue")
    place = as_files(tmp_path / "files", case["versions"])
    values = [b64decode(data) for data, _ in case["records"]]
    write_log(tmp_path / "t-0", batch(0, [record(n, b"k", v) for n, v in enumerate(values)]))
    result = kafkalog("dump-segment", tmp_path / "t-0", "-r", place, "-o", "ndjson")
    found = [json.loads(line)["value_decoded"] for line in result.stdout.splitlines()]
    assert result.status == 0, result.stderr
    assert len(found) == len(values)
    assert None not in found


def test_versions_that_do_not_fit(tmp_path: Path) -> None:
    """A field with another type than in a newer version gets a column; another message does not."""
    place = tmp_path / "files"
    place.mkdir()
    head = 'syntax = "proto3"; message M {'
    for number, text in enumerate([
        head + "int32 n = 1; }",
        head + "string n = 1; }",
        head + "repeated int64 n = 1; }",
        head + "int64 n = 1; M more = 2; }",
        'syntax = "proto3"; import "missing.proto"; message M { int64 n = 1; }',
        'syntax = "proto3"; message Other { int64 n = 1; }',
        head + "int64 n = 1; M.In in = 2; message In { bool b = 1; } }",
    ]):  # fmt: skip
        (place / f"{number}.proto").write_text(text)
    [column] = Payload(
        "value", BytesFormat.AUTO, TypedForm.PROTOBUF, None, None, None, Place(str(place))
    ).columns()
    values = [b"\0\0\0\0" + bytes([n]) + b"\0\x08\1" for n in range(8)]
    rows, reasons = decoded(column, values)
    nothing = dict.fromkeys(["n", "in", "n__string", "n__list", "in__json"])
    here = {**nothing, "n": 1}
    assert rows[:1] + rows[2:] == [
        here, {**nothing, "n__list": [1]}, here, None, None, here, None,
    ]  # fmt: skip
    # A string whose wire has a number instead: a field that the schema lacks.
    assert rows[1] == {**nothing, "n__string": ""}
    assert [reason.split(":")[0] for reason in reasons] == [
        *(f"the schema {n} does not fit" for n in (4, 5)), "the schema 7 is unknown"
    ]  # fmt: skip
    assert "missing.proto" in reasons[0]
    assert "has no message 'M'" in reasons[1]
    (place / "8.proto").write_text("nothing")
    [column] = Payload(
        "value", BytesFormat.AUTO, TypedForm.PROTOBUF, None, None, None, Place(str(place))
    ).columns()
    with pytest.raises(
        UsageError, match=r"schema, 8, decodes nothing: line 1:1: Expected top-level"
    ):
        column.decoder()


def test_json_schemas_that_refer_endlessly(tmp_path: Path) -> None:
    """References to itself, to each other, or to nothing are JSON text."""
    for number, (tree, data, row) in enumerate([
        ({"$ref": "#"}, b"[1]", "[1]"),
        ({"type": "object", "properties": {"x": {"$ref": "#"}}}, b'{"x":{"x":{}}}',
         {"x": '{"x":{}}'}),
        ({"$ref": "#/definitions/x"}, b"[2]", "[2]"),
        ({"$ref": "other.json#/x"}, b"[3]", "[3]"),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, b'"x"', '"x"'),
    ]):  # fmt: skip
        place = tmp_path / str(number)
        place.mkdir()
        (place / "1.json").write_text(json.dumps(tree))
        [column] = Payload(
            "value", BytesFormat.AUTO, TypedForm.JSON, None, None, None, Place(str(place))
        ).columns()
        assert decoded(column, [b"\0\0\0\0\1" + data]) == ([row], [])


def test_plain_keys_beside_values_with_ids(tmp_path: Path, kafkalog: Callable[..., Result]) -> None:
    """`@none` keeps --registry from applying to keys."""
    case = CASES["pages"]
    disk, schema = as_topic(tmp_path / "disk", case["versions"]), tmp_path / "key.json"
    values = [b64decode(data) for data, _ in case["records"]]
    write_log(disk / "pages-0", batch(0, [record(n, b"%d" % n, v) for n, v in enumerate(values)]))
    schema.write_text('{"type": "integer"}')
    words = ("export", disk, "--to", tmp_path / "lake", "--topic", "pages", "--value-format",
             "json", "--registry", disk, "--key-schema", schema, "--key-format")  # fmt: skip
    refused = kafkalog(*words, "json")
    assert (refused.status, "the key at 0: no schema id" in refused.stderr) == (4, True)
    assert kafkalog(*words, "json@none").status == 0
    [file] = (tmp_path / "lake").rglob("*.parquet")
    assert pq.ParquetFile(file).read(["key_decoded"]).column(0).to_pylist() == [0, 1, 2, 3]


@pytest.mark.parametrize("name", ["pages", "shipments"])
def test_export(tmp_path: Path, kafkalog: Callable[..., Result], name: str) -> None:
    """The command with schemas on disk: the records that fit, and one reject."""
    case = CASES[name]
    disk = as_topic(tmp_path / "disk", texts_of(case["versions"]))
    values = [*(b64decode(data) for data, _ in case["records"]), b"\0\0\0\0\x63{}"]
    write_log(disk / f"{name}-0", batch(0, [record(n, b"k", v) for n, v in enumerate(values)]))
    words = ("export", disk, "--to", tmp_path / "lake", "--topic", name, "--value-format",
             case["form"],
             "--registry", disk)  # fmt: skip
    refused = kafkalog(*words)
    assert refused.status == 4
    assert f"the value at {len(values) - 1}: the schema 99 is unknown" in refused.stderr
    assert kafkalog(*words, "--accept", "rejects=1").status == 0
    [file] = (tmp_path / "lake").rglob("*.parquet")
    found = pq.ParquetFile(file).read(["value_decoded"]).column(0).to_pylist()
    assert [plain(row) for row in found] == [shown(row) for _, row in case["records"]]
    [file] = (tmp_path / "lake").rglob("*.rejects")
    assert pq.ParquetFile(file).read(["offset", "schema_id"]).to_pylist() == [
        {"offset": len(values) - 1, "schema_id": "99"}
    ]
