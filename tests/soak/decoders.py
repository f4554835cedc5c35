"""Targets that need no file: schemas, messages, payloads, codecs, names, Java texts."""

from __future__ import annotations

import base64
import json
import string
import struct
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from construct import ConstructError

from formats.file_names import parse_directory_name, parse_file_name
from formats.internal_topics import (
    ControlRecordKey,
    CoordinatorKey,
    CoordinatorValue,
    EndTxnMarker,
    MetadataFrame,
    kraft_value,
)
from formats.message_schema import AS_KAFKA, UNKNOWN_TAGS, schema, schema_with_rest
from formats.message_table import messages
from formats.primitives import UnsignedVarint, Uuid, Varint, Varlong
from formats.record_batch import Message as OldMessage
from formats.record_batch import Record as RecordSchema
from formats.record_batch import RecordBatch
from formats.side_files import (
    OffsetIndex,
    ProducerSnapshot,
    RemoteLogSnapshot,
    TimeIndex,
    TransactionIndex,
)
from formats.text_files import (
    Checkpoint,
    CleanShutdown,
    MetaProperties,
    PartitionMetadata,
    QuorumState,
)
from kafkalog.errors import KafkaLogError
from kafkalog.files.payloads.control_records import control_record, control_text
from kafkalog.files.payloads.internal_topics import decode, kafka_text
from kafkalog.files.payloads.java_text import java_double, java_json, java_text
from kafkalog.files.payloads.kinds import PayloadKind
from kafkalog.io.codecs import compress, decompress, zstd
from kafkalog.model import Batch, Record, TimestampType
from tests.soak import generated, real
from tests.soak.mutations import mutated, number
from tests.soak.target import Place, Target, only

if TYPE_CHECKING:
    from random import Random

    from formats.message_table import Field, Struct
    from tests.soak.real import Files

PAYLOAD_LINES = Path(__file__).parents[1] / "kafkalog" / "payload_lines.tsv"

# Each schema, the real files it is for, and whether it gives back what it took, byte for byte.
SCHEMAS: dict[str, tuple[Any, str, bool]] = {
    "record batch": (RecordBatch, ".log", True),
    "record": (RecordSchema, ".log", False),
    "message": (OldMessage, ".log", False),
    "offset index": (OffsetIndex, ".index", True),
    "time index": (TimeIndex, ".timeindex", True),
    "transaction index": (TransactionIndex, ".txnindex", True),
    "producer snapshot": (ProducerSnapshot, ".snapshot", True),
    "checkpoint": (Checkpoint, "checkpoint", True),
    "partition.metadata": (PartitionMetadata, "partition.metadata", True),
    "meta.properties": (MetaProperties, "meta.properties", True),
    "quorum-state": (QuorumState, "quorum-state", False),
    "clean shutdown": (CleanShutdown, "quorum-state", False),
    "remote log snapshot": (RemoteLogSnapshot, ".index", True),
    "control record key": (ControlRecordKey, ".log", True),
    "end of transaction": (EndTxnMarker, ".log", True),
    "coordinator key": (CoordinatorKey, ".log", True),
    "coordinator value": (CoordinatorValue, ".log", True),
    "metadata frame": (MetadataFrame, ".log", False),
    "varint": (Varint, ".log", False),
    "varlong": (Varlong, ".log", False),
    "unsigned varint": (UnsignedVarint, ".log", False),
    "uuid": (Uuid, ".log", False),
}


def schema_input(rng: Random) -> Files:
    """Return the name of a schema and bytes for it: mutated ones, or any text."""
    name = rng.choice(sorted(SCHEMAS))
    suffix = SCHEMAS[name][1]
    if rng.random() < 0.1:
        data = rng.randbytes(rng.randrange(80))
    elif suffix == ".log":
        data = generated.made(rng) if rng.random() < 0.5 else rng.choice(rng.choice(real.batches()))
        data = data[rng.choice((0, 0, 12, 61, rng.randrange(len(data)))) :]
    else:
        data = text(rng) if rng.random() < 0.2 else rng.choice(real.files(suffix))[:2000]
    return {name: mutated(data, rng) if rng.random() < 0.9 else data}


def check_schema(files: Files, _rng: Random, _place: Place) -> None:
    """Expect a value that can be built and parsed again, or a `ConstructError`."""
    [(name, data)] = files.items()
    codec, _, is_exact = SCHEMAS[name]
    try:
        parsed = codec.parse(data)
    except ConstructError:
        return
    built = codec.build(parsed)
    if is_exact:
        assert data.startswith(built), name
    else:
        again = codec.parse(built)
        assert codec.build(again) == built, name
        for one in (parsed, again):  # a varint can be longer than it has to be
            if isinstance(one, dict):
                one.pop("length", None)
        assert again == parsed, name


TEXT = string.ascii_letters + string.digits + '  \n\n\r\t{}[]":,=\\#!.-_+eE\x0b\x0c\0\u00e9\u4e2d'


def text(rng: Random) -> bytes:
    """Return lines as in checkpoints, properties and JSON, also nested, rarely invalid UTF-8."""
    kind = rng.randrange(12)
    if kind == 0:
        return rng.choice((b"[", b'{"a":', b'{"":[', b"9", b"-", b"\\u")) * rng.choice((3, 5000))
    if kind == 1:
        return f"0\n{rng.choice((2, number(rng)))}\n{number(rng)} {number(rng)}\n0 0\n".encode()
    if kind == 2:
        return json.dumps({"data_version": number(rng), "clusterId": None, "a": [text(rng).decode(
            "latin-1"), number(rng) / 3]}).encode()  # fmt: skip
    found = "".join(rng.choices(TEXT, k=rng.randrange(80))).encode()
    return found + rng.randbytes(1) if rng.random() < 0.1 else found


VERSIONS = [(found.name, version) for found in messages().values() for version in found.versions]


def message_input(rng: Random) -> Files:
    """Return a mutated message of any kind and version."""
    name, version = rng.choice(VERSIONS)
    data = message_bytes(name, version, rng)
    return {f"{name} {version}": mutated(data, rng, data) if rng.random() < 0.9 else data}


def message_bytes(name: str, version: int, rng: Random) -> bytes:
    """Return a message as Kafka would write it, with extreme values and rarely unknown tags."""
    found = messages()[name]
    fields = _struct(found.struct, version, rng)
    if version in found.flexible_versions and rng.random() < 0.05:
        fields[UNKNOWN_TAGS] = [(rng.randrange(100, 200), rng.randbytes(3))]
    return schema(name, version).build(fields)


def check_message(files: Files, _rng: Random, _place: Place) -> None:
    """Expect a value that can be built and parsed again, or a `ConstructError`."""
    [(name, data)] = files.items()
    words = name.split()
    codec = schema(words[0], int(words[1]))
    with suppress(ConstructError):
        schema_with_rest(words[0], int(words[1])).parse(data, **AS_KAFKA)
    try:
        parsed = codec.parse(data)
    except ConstructError:
        return
    built = codec.build(parsed)
    again = codec.build(codec.parse(built))
    assert again == built, name  # floats that are no numbers are not equal to themselves


def _struct(struct_: Struct, version: int, rng: Random) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for field in struct_.fields_of(version):
        if field.tag is None or rng.random() < 0.5:
            fields[field.name] = _value(field, version, rng)
    return fields


def _value(field: Field, version: int, rng: Random) -> Any:
    if field.nullable and rng.random() < 0.2:
        return None
    if field.array:
        return [_item(field, version, rng) for _ in range(rng.randrange(3))]
    return _item(field, version, rng)


def _item(field: Field, version: int, rng: Random) -> Any:
    if field.struct is not None:
        return _struct(field.struct, version, rng)
    kind = field.type
    if kind == "str":
        return rng.choice(("", "topic", "\u00e9\u4e2d", "a" * 130))
    if kind == "bytes":
        return rng.randbytes(rng.choice((0, 1, 20)))
    if kind == "bool":
        return rng.random() < 0.5
    if kind == "f64":
        return struct.unpack(">d", rng.randbytes(8))[0]
    if kind == "uuid":
        return base64.urlsafe_b64encode(rng.randbytes(16)).decode().rstrip("=")
    bits = int(kind.lstrip("iu"))
    if kind.startswith("u"):
        return number(rng, bits) % (1 << bits)
    return number(rng, bits)


@cache
def payload_lines() -> list[tuple[str, bytes | None, bytes | None]]:
    """Return kinds, keys and values of the records that were given to Kafka's tool."""
    found = []
    for line in PAYLOAD_LINES.read_text("utf-8").splitlines():
        if not line.startswith("#"):
            kind, _, key, value, _ = line.split("\t")
            found.append((kind, _unhex(key), _unhex(value)))
    return found


def _unhex(data: str) -> bytes | None:
    return None if data == "null" else bytes.fromhex(data)


def payload_input(rng: Random) -> Files:
    """Return a record of an internal topic with key or value changed, perhaps for another topic."""
    kind, key, value = rng.choice(payload_lines())
    if rng.random() < 0.3:
        name, version = rng.choice(VERSIONS)
        found = messages()[name]
        data = message_bytes(name, version, rng)
        kind = found.family
        api = found.api_key or 0
        prefix = struct.pack(">h", api if found.part == "key" else version)
        if kind in ("cluster-metadata", "remote-log-metadata"):
            key, value = None, b"\x01" + UnsignedVarint.build(api) + bytes((version,)) + data
        elif found.part == "key":
            key = prefix + data
        else:
            value = prefix + data
    files = {f"{kind} key": key, f"{kind} value": value}
    return {
        name: mutated(data, rng, data, 2) if rng.random() < 0.6 else data
        for name, data in files.items()
        if data is not None and rng.random() < 0.97
    }


def check_payload(files: Files, rng: Random, _place: Place) -> None:
    """Expect a value or a reason, and always JSON and a line; control records or damage."""
    kinds = {name.rpartition(" ")[0]: None for name in files}
    kind = next(iter(kinds), "control")
    parts = {name.rpartition(" ")[2]: data for name, data in files.items()}
    if kind == "control" and rng.random() < 0.3:
        parts["key"] = struct.pack(">hh", 0, rng.randrange(9)) + parts.get("key", b"")[4:]
    batch = Batch("a.log", 77, 99, 5, 5, 2, 0x20, 0, 0, 0, 0, -1, -1, -1, 1)
    one = Record(batch, 5, 0, TimestampType.CREATE_TIME, parts.get("key"), parts.get("value"))
    with suppress(KafkaLogError):
        control_record(one)
    with suppress(KafkaLogError):
        assert control_text(one).startswith(" ")
    for each in PayloadKind if rng.random() < 0.1 else [k for k in PayloadKind if k == kind]:
        decoded = decode(each, one.key, one.value)
        assert decoded.error is None or decoded.value is None
        json.dumps([decoded.key, decoded.value], allow_nan=False).encode()
        java_json(decoded.value).encode()
        with suppress(KafkaLogError):
            kafka_text(each, one).encode()
    for type_id in range(8):
        codec = kraft_value(type_id)
        if codec is not None:
            with suppress(ConstructError):
                codec.parse(parts.get("value", b""))


def codec_input(rng: Random) -> Files:
    """Return compressed data of any codec with changed headers, sizes, blocks or members."""
    codec, magic = rng.randrange(1, 5), rng.choice((2, 2, 1, 0))
    data = rng.choice((b"", b"a", bytes(3000), rng.randbytes(50) * 9, rng.randbytes(700)))
    packed = compress(data, codec, magic=2 if codec == 4 else magic)
    if codec == 2 and rng.random() < 0.4:  # without the frames of snappy-java
        packed = packed[20:]
    if rng.random() < 0.2:
        packed += compress(data[:100], codec)
    if rng.random() < 0.9:
        packed = mutated(packed, rng, packed, 3)
    return {f"{codec} {magic}": packed}


def check_codec(files: Files, rng: Random, _place: Place) -> None:
    """Expect bytes within the limit, or one of our errors; the limit has no other effect."""
    [(name, data)] = files.items()
    codec, magic = (int(word) for word in name.split())
    limit = rng.choice((0, 10, 5000, 1 << 20))
    wide = _decompressed(data, codec, magic)
    zstd._kept.zstd = None
    assert _decompressed(data, codec, magic) == wide, "it depends on what was decompressed before"
    found = _decompressed(data, codec, magic, limit)
    if isinstance(found, bytes):
        assert len(found) <= limit
        assert found == wide
    elif "limit" in found:
        assert not isinstance(wide, bytes) or len(wide) > limit
    else:
        assert found == wide


def _decompressed(data: bytes, codec: int, magic: int, limit: int = 1 << 26) -> bytes | str:
    try:
        return decompress(data, codec, magic=magic, limit=limit)
    except KafkaLogError as error:
        return str(error)


def name_input(rng: Random) -> Files:
    """Return names of files and directories, some of them Kafka's."""
    pieces = ("00000000000000000000", "9" * 20, "9" * 19, "-", ".", ".log", ".index", ".timeindex",
              ".txnindex", ".snapshot", ".checkpoint", ".part", ".tmp", ".deleted", ".swap", "_",
              ".cleaned", "t", "orders", "-0", "-99999999999", "-delete", "-future", "-stray",
              "leader-epoch-checkpoint", "meta.properties", "quorum-state", "\u0665", "\n", "\x1b",
              "\udcff", " ", "+1", "A" * 22, "a" * 40, "0" * 300)  # fmt: skip
    name = "".join(rng.choices(pieces, k=rng.randrange(6)))
    return {"name": name.encode("utf-8", "surrogateescape")}


def check_name(files: Files, _rng: Random, _place: Place) -> None:
    """Expect that any text is parsed, with numbers that fit their types."""
    name = only(files).decode("utf-8", "surrogateescape")
    found = parse_file_name(name)
    assert found.name == name
    assert found.offset is None or 0 <= found.offset < 1 << 63
    directory = parse_directory_name(name)
    assert directory is None or abs(directory.partition) < 1 << 31


def java_input(rng: Random) -> Files:
    """Return bytes that are text, or nearly."""
    pieces = (
        *(b"a", "é".encode(), "中".encode(), "😀".encode(), b"\xed\xa0\x80", b"\xed\xbf\xbf"),
        *(b"\xc0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\xff", b"\0", b'"', b"\\"),
    )
    return {"bytes": b"".join(rng.choices(pieces, k=rng.randrange(12))) + rng.randbytes(8)}


def check_java(files: Files, _rng: Random, _place: Place) -> None:
    """Expect text that can be encoded, a number that reads back, JSON that parses."""
    data = only(files)
    shown = java_text(data)
    shown.encode()
    [double] = struct.unpack(">d", data[-8:])
    written = java_double(double)
    assert written in ("NaN", "Infinity", "-Infinity") or float(written) == double
    assert json.loads(java_json([shown, {shown: [True, None, int(data[-1])]}]))[0] == shown


TARGETS = (
    Target("schemas", 13_000, schema_input, check_schema),
    Target("messages", 16_000, message_input, check_message),
    Target("payloads", 14_000, payload_input, check_payload),
    Target("codecs", 12_000, codec_input, check_codec),
    Target("names", 4_000, name_input, check_name),
    Target("java-text", 3_000, java_input, check_java),
)
