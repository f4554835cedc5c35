"""Values that carry the id of their schema, and the places that provide those schemas.

The bytes come from fastavro's writer, after the prefix documented by Confluent's serializers.
"""

from __future__ import annotations

import io
import json
import threading
from base64 import b64encode
from contextlib import contextmanager
from hashlib import md5
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any
from uuid import UUID

import fastavro
import pyarrow.parquet as pq
import pytest

from kafkalog.errors import CorruptDataError, UnreadableError, UsageError
from kafkalog.tables.schema_registry import read_registry
from tests.builders import batch, record, write_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.conftest import Result

    Kafkalog = Callable[..., Result]


def order(*fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "Order", "fields": list(fields), **more}


ID = {"name": "id", "type": "int"}
FIRST = order(ID, {"name": "amount", "type": "float"})
SECOND = order(
    {"name": "id", "type": "long"},
    {"name": "total", "type": "double", "aliases": ["amount"]},
    {"name": "note", "type": ["null", "string"], "default": None},
)
MONEY = {"type": "record", "name": "Money", "fields": [{"name": "cents", "type": "long"}]}
REFERRING = order(
    ID, {"name": "amount", "type": "float"}, {"name": "fee", "type": "Money"},
    {"name": "tip", "type": "Money"},
)  # fmt: skip
ENDLESS = {"type": "array", "items": "null"}


def framed(schema_id: int, schema: Any, value: Any, *named: Any) -> bytes:
    """Encode a value as a serializer does."""
    known: dict[str, Any] = {}
    for one in named:
        fastavro.parse_schema(one, named_schemas=known)
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(schema, named_schemas=known), value)
    return b"\0" + schema_id.to_bytes(4, "big") + file.getvalue()


def guid_of(data: bytes) -> str:
    return str(UUID(bytes=md5(data, usedforsecurity=False).digest()))


def version(subject: str, number: int, schema_id: int, schema: Any, **more: Any) -> dict[str, Any]:
    return {"subject": subject, "version": number, "id": schema_id,
            "schema": json.dumps(schema), **more}  # fmt: skip


VERSIONS = [
    version("orders-value", 1, 1, FIRST),
    version("orders-value", 2, 2, SECOND),
    version("money", 1, 7, MONEY),
    version("old-value", 1, 8, REFERRING,
            references=[{"name": "Money", "subject": "money", "version": 1}]),
    version("json-value", 1, 9, {}, schemaType="JSON"),
    version("endless-value", 1, 10, ENDLESS, deleted=True),
]  # fmt: skip

VALUES = [
    framed(1, FIRST, {"id": 1, "amount": 1.5}),
    framed(2, SECOND, {"id": 1 << 40, "total": 2.5, "note": "x"}),
    framed(8, REFERRING, {"id": 3, "amount": 0.5, "fee": {"cents": 1}, "tip": {"cents": 2}}, MONEY),
    framed(99, FIRST, {"id": 4, "amount": 1.0}),  # unknown
    b"\0\0\0\0\x0a" + b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f",  # items without end, of no bytes
    b"plain",
]
DECODED = [
    {"id": 1, "total": 1.5, "note": None},
    {"id": 1 << 40, "total": 2.5, "note": "x"},
    {"id": 3, "total": 0.5, "note": None},
]
"""Of the first three; the others are rejects."""


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """A broker's log directory with orders and the registry's topic."""
    place = tmp_path / "log"
    write_log(place / "orders-0",
              batch(0, [record(n, b"k", value) for n, value in enumerate(VALUES)]))  # fmt: skip
    rows = [(b'{"keytype":"NOOP","magic":0}', None)]
    for one in VERSIONS:
        key = {"keytype": "SCHEMA", "subject": one["subject"], "version": one["version"],
               "magic": 1}  # fmt: skip
        rows.append((json.dumps(key).encode(), json.dumps({"deleted": False, **one}).encode()))
    rows.append(
        (b'{"keytype":"CONFIG","subject":null,"magic":0}', b'{"compatibilityLevel":"FULL"}')
    )
    rows.append((b"not JSON", b"neither"))
    write_log(place / "_schemas-0", batch(0, [record(n, *row) for n, row in enumerate(rows)]))
    return place


@contextmanager
def registry(answer: bytes, user: str | None = None) -> Iterator[str]:
    """Run a registry that answers a single request."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = None if user is None else "Basic " + b64encode(user.encode()).decode()
            if self.headers["Authorization"] != wanted:
                self.send_error(401)
            elif self.path != "/schemas?deleted=true":
                self.send_error(404)
            else:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=[0.01])
    thread.start()
    name = "" if user is None else f"{user}@"
    try:
        yield f"http://{name}127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def exported(kafkalog: Kafkalog, log_dir: Path, to: Path, *words: Any) -> tuple[list[Any], int]:
    """Export the topic; return the decoded column and the number of rejects."""
    result = kafkalog("export", log_dir, "--to", to, "--topic", "orders", "--value-format",
                      "avro", "--format", "ndjson", "--accept", f"rejects={len(VALUES)}",
                      *words)  # fmt: skip
    assert result.status == 0, result.stderr
    summary = json.loads(result.stdout.splitlines()[-1])
    [file] = to.rglob("*.parquet")
    found = pq.ParquetFile(file).read(["value_decoded"]).column(0).to_pylist()
    return found, summary["rejects"]


def test_values_of_many_schemas_in_one_column(
    tmp_path: Path, log_dir: Path, kafkalog: Kafkalog
) -> None:
    """The column has the latest schema of the topic's subject; undecodable values are rejected."""
    found = exported(kafkalog, log_dir, tmp_path / "lake", "--registry", log_dir)
    assert found == (DECODED, 3)


def test_all_places_have_the_same_schemas(
    tmp_path: Path, log_dir: Path, kafkalog: Kafkalog
) -> None:
    """The topic, its partition, a registry with a password, and files without references."""
    files, wanted = tmp_path / "files", tmp_path / "wanted.avsc"
    files.mkdir()
    for one in VERSIONS[:2]:
        (files / f"{one['id']}.avsc").write_text(str(one["schema"]))
    (files / "README").write_text("no schema")
    wanted.write_text(json.dumps(SECOND))
    with registry(json.dumps(VERSIONS).encode(), "me:secret") as url:
        for number, place in enumerate((log_dir / "_schemas-0", url, f"{url}/")):
            to = tmp_path / f"lake{number}"
            assert exported(kafkalog, log_dir, to, "--registry", place) == (DECODED, 3)
    words = ("--registry", files, "--value-schema", wanted)
    found = exported(kafkalog, log_dir, tmp_path / "of-files", *words)
    assert found == (DECODED[:2], 4)


def test_more_schemas_may_come(tmp_path: Path, log_dir: Path, kafkalog: Kafkalog) -> None:
    """A table that grows gets them later; its column has the schema of a file."""
    wanted, files, to = tmp_path / "wanted.avsc", tmp_path / "files", tmp_path / "lake"
    wanted.write_text(json.dumps(SECOND))
    files.mkdir()
    (files / "1.avsc").write_text(json.dumps(FIRST))
    words = ("export", log_dir, "--to", to, "--topic", "orders", "--value-format", "avro",
             "--append",
             "--registry", files, "--value-schema", wanted, "--format", "ndjson",
             "--accept", "rejects=5")  # fmt: skip
    assert kafkalog(*words).status == 0
    (files / "2.avsc").write_text(json.dumps(SECOND))
    value = framed(2, SECOND, {"id": 5, "total": 5.0, "note": None})
    write_log(log_dir / "orders-0", batch(6, [record(0, b"k", value)]), name=f"{6:020}")
    result = kafkalog(*words)
    assert result.status == 0, result.stderr
    summary = json.loads(result.stdout.splitlines()[-1])
    assert (summary["rows"], summary["undecoded_values"]) == (1, 0)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"{}", "not a list of schemas"),
        (b"[", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "There are no schemas"),
        (b"[1]", "not an entry of a registry"),
        (b'[{"id":-1,"schema":""}]', "not the id of a schema"),
        (b'[{"id":9223372036854775808,"schema":""}]', "not the id of a schema"),  # no Java long
        (b'[{"id":9223372036854775807,"schema":7}]', "is no text"),
        (b'[{"id":1,"schema":"","references":[{}]}]', "not an entry of a registry"),
    ],
)
def test_what_a_registry_says_is_not_trusted(answer: bytes, message: str) -> None:
    with registry(answer) as url, pytest.raises(CorruptDataError, match=message):
        read_registry(url)


def test_a_registry_that_does_not_answer() -> None:
    """The error does not show the password."""
    with registry(b"[]", "me:right") as url:
        pass
    with pytest.raises(UnreadableError, match="does not answer") as raised:
        read_registry(url)
    assert "right" not in f"{raised.value} {raised.value.path}"
    with registry(b"[]", "me:right") as url, pytest.raises(UnreadableError, match="Unauthorized"):
        read_registry(url.replace("right", "wrong"))


def test_schemas_that_refer_to_each_other() -> None:
    """A circle of references and a missing one are both errors."""
    circle = [version(name, 1, n, MONEY, references=[{"name": "x", "subject": other, "version": 1}])
              for n, (name, other) in enumerate([("a", "b"), ("b", "a"), ("c", "d")])]  # fmt: skip
    with registry(json.dumps(circle).encode()) as url:
        found = read_registry(url)
    with pytest.raises(UsageError, match="refers to itself"):
        found.with_references(found.by_id[0])
    with pytest.raises(UsageError, match="version 1 of the subject d, which is missing"):
        found.with_references(found.by_id[2])


def test_usage(tmp_path: Path, log_dir: Path, kafkalog: Kafkalog) -> None:
    words = ("export", log_dir, "--to", tmp_path / "lake")
    assert kafkalog(*words, "--registry", log_dir).status == 2
    several = kafkalog(*words, "--value-format", "avro", "--registry", log_dir)
    assert (several.status, "--value-schema FILE" in several.stderr) == (2, True)
    other = kafkalog(*words, "--topic", "_schemas", "--value-format", "avro", "--registry", log_dir)
    assert (other.status, "no subject _schemas-value" in other.stderr) == (2, True)
    nowhere = kafkalog(
        *words, "--value-format", "avro", "--topic", "orders", "--registry", tmp_path / "no"
    )
    assert nowhere.status == 2


def test_guids_of_schemas(tmp_path: Path, kafkalog: Kafkalog) -> None:
    """A registry says them; its topic has them as MD5s, or what they are computed from.

    The expected ones: MD5 over the text and what it refers to, as Confluent's `Schema.updateHash`.
    """
    said, kept = "74eed96a-49d1-4d39-9ffc-e4135bdd861c", "0b8e0fd1-6b84-4fb3-b4a1-3e2a5a2c7e10"
    refers = [{"name": "Money", "subject": "money", "version": 1}]
    versions = [
        version("orders-value", 1, 1, FIRST, guid=said),
        version("orders-value", 2, 2, FIRST, md5=b64encode(UUID(kept).bytes).decode()),
        version("orders-value", 3, 3, FIRST),
        version("money", 1, 7, MONEY),
        version("orders-value", 4, 4, REFERRING, references=refers),
        version("orders-value", 5, 5, FIRST, metadata={"tags": {}}),
        version("orders-value", 6, 6, SECOND),
    ]
    texts = [json.dumps(FIRST).encode(), json.dumps(MONEY).encode(),
             json.dumps(REFERRING).encode() + b"Moneymoney\0\0\0\1"]  # fmt: skip
    third, money, fourth = (guid_of(one) for one in texts)
    with registry(json.dumps(versions).encode()) as url:
        found = read_registry(url).guids()
    last = guid_of(json.dumps(SECOND).encode())
    assert found == {said: 1, kept: 2, third: 3, money: 7, fourth: 4, last: 6}
    value = {"id": 7, "amount": 1.5}
    rows = [b"\1" + UUID(one).bytes + framed(0, FIRST, value)[5:] for one in (said, kept, third)]
    other = b"\1" + UUID(last).bytes + framed(0, SECOND, {"id": 8, "total": 2.5, "note": "x"})[5:]
    unknown = b"\1" + bytes(16) + framed(0, FIRST, value)[5:]
    place = tmp_path / "log"
    batches = batch(0, [record(n, b"k", one) for n, one in enumerate(
        [*rows, other, framed(1, FIRST, value), unknown, rows[0][:16]])])  # fmt: skip
    write_log(place / "orders-0", batches)
    with registry(json.dumps(versions).encode()) as url:
        first = {"id": 7, "total": 1.5, "note": None}
        wanted = [first] * 3 + [{"id": 8, "total": 2.5, "note": "x"}, first]
        assert exported(kafkalog, place, tmp_path / "lake", "--registry", url) == (wanted, 2)
    wrong = json.dumps([version("a", 1, 1, FIRST, guid="x")]).encode()
    with registry(wrong) as url:
        assert read_registry(url).guids() == {}
