"""Values that carry the id of their schema, and the places that provide those schemas.

The bytes come from fastavro's writer, after the prefix documented by Confluent's serializers.
"""

from __future__ import annotations

import io
import json
from hashlib import md5
from itertools import count, islice
from typing import TYPE_CHECKING, Any
from uuid import UUID

import fastavro
import pyarrow.parquet as pq
import pytest

from kafkalog.errors import CorruptDataError, UnreadableError, UsageError
from kafkalog.log.typed import registered, remote_registry
from kafkalog.tables.schema_registry import read_registry
from tests.builders import batch, record, write_log
from tests.http_servers import Answering, registry, registry_of, says, server
from tests.kafkalog.log.typed.test_serialized import as_topic

if TYPE_CHECKING:
    from collections.abc import Callable
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
    with registry(VERSIONS, "me:secret") as url:
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
    ("path", "answer", "message"),
    [
        ("/schemas/types", b"{}", "no list of forms"),
        ("/schemas/types", b"[", "no JSON"),
        ("/schemas/types", b"[" * 100_000, "no JSON"),
        ("/schemas/types", b"<html>", "no JSON"),
        ("/schemas/ids/1", b"[]", "no schema"),
        ("/schemas/ids/1", b"7", "no schema"),
        ("/schemas/ids/1", b"{}", "not an entry of a registry: 'schema'"),
        ("/schemas/ids/1", b'{"schema":7}', "is no text"),
        ("/schemas/ids/1", b'{"schema":"","references":[{}]}', "not an entry of a registry"),
        ("/schemas/ids/1", b'{"schema":"","references":7}', "not an entry of a registry"),
        ("/schemas/ids/1", b'{"schema":[' + b"{}," * 500_000 + b"{}]}", "500000 objects"),
        ("/schemas/ids/1", b'{"schema":[' + b"[]," * 500_000 + b"1]}", "500000 objects or lists"),
        ("/subjects/s/versions", b'{"a":1}', "no list of at most 10000 versions"),
        ("/subjects/s/versions", b'["1"]', "no list of at most 10000 versions"),
        ("/subjects/s/versions", b"[true]", "no list of at most 10000 versions"),
        ("/subjects/s/versions", b"[" + b"1," * 10_000 + b"1]", "no list of at most"),
        ("/subjects/s/versions/1?deleted=true", b'{"id":-1,"schema":""}', "not the id of"),
        ("/subjects/s/versions/1?deleted=true", b'{"schema":""}', "not an entry of a registry"),
    ],
)
def test_what_a_registry_says_is_not_trusted(path: str, answer: bytes, message: str) -> None:
    usual = registry_of([version("s", 1, 1, FIRST)])
    with server(lambda to: (says(answer) if to.path == path else usual)(to)) as one:
        url = f"http://{one.origin}"
        if path == "/schemas/types":
            with pytest.raises(CorruptDataError, match=message):
                read_registry(url)
            return
        found = read_registry(url)
        with pytest.raises(CorruptDataError, match=message):
            found.versions("s") if "subjects" in path else found.by_id.get(1)


def test_a_registry_that_does_not_answer() -> None:
    """The error does not show the password."""
    with registry([], "me:right") as url:
        pass
    with pytest.raises(UnreadableError, match="does not answer") as raised:
        read_registry(url)
    assert "right" not in f"{raised.value} {raised.value.path}"
    with registry([], "me:right") as url, pytest.raises(UnreadableError, match="Unauthorized"):
        read_registry(url.replace("right", "wrong"))


def test_a_path_without_a_registry_is_an_error() -> None:
    """Not the answer that it has no such schema, whatever else answers with 404."""
    with registry([]) as url:
        assert read_registry(url).by_id.get(7) is None
        found = read_registry(f"{url}/elsewhere")
        with pytest.raises(UnreadableError, match="404"):
            found.by_id.get(7)
        with pytest.raises(UnreadableError, match="404"):
            found.all_versions("s")


def test_only_what_is_needed_is_asked_once() -> None:
    """The versions of a subject, ids as they occur, and versions that these refer to."""
    with server(registry_of(VERSIONS)) as one:
        found = read_registry(f"http://{one.origin}")
        assert [each.id for each in found.versions("orders-value")] == [2, 1]
        for _ in range(2):
            refers = found.by_id.get(8)
            assert refers is not None
            assert len(found.with_references(refers)) == 2
            assert found.by_id.get(99) is None
            assert [each.id for each in found.versions("orders-value")] == [2, 1]
        assert [each.id for each in found.versions("endless-value")] == [10]  # all are deleted
        assert found.all_versions("none") == []
    assert sorted(path for path, _ in one.asked) == sorted([
        "/schemas/types", "/subjects/orders-value/versions",
        "/subjects/orders-value/versions/1?deleted=true",
        "/subjects/orders-value/versions/2?deleted=true",
        "/schemas/ids/8", "/subjects/money/versions/1?deleted=true", "/schemas/ids/99",
        "/subjects/endless-value/versions", "/subjects/endless-value/versions?deleted=true",
        "/subjects/endless-value/versions/1?deleted=true",
        "/subjects/none/versions", "/subjects/none/versions?deleted=true",
    ])  # fmt: skip


def test_ids_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any value can begin with zero bytes: a registry is not asked forever."""
    monkeypatch.setattr(remote_registry, "_UNKNOWN_MAX", 3)
    with server(registry_of(VERSIONS)) as one:
        found = read_registry(f"http://{one.origin}")
        assert [found.by_id.get(number) for number in (90, 91, 1 << 31, 92, 90, 93)] == [None] * 6
        assert found.refused == 1
        assert found.asked(90) is None, "it was asked"
        with pytest.raises(UnreadableError, match="more than 3 ids"):
            found.asked(93)
    assert [path for path, _ in one.asked[1:]] == [f"/schemas/ids/{n}" for n in (90, 91, 92)]


def test_schemas_that_are_too_large_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_registry, "_SIZE_MAX", 4000)
    with registry([version("s", n, n, MONEY) for n in range(9)]) as url:
        found = read_registry(url)
        with pytest.raises(UnreadableError, match="more than 0 MiB"):
            found.versions("s")


def test_schemas_that_refer_to_each_other() -> None:
    """A circle of references, a missing one, and no end of them are errors."""
    circle = [version(name, 1, n, MONEY, references=[{"name": "x", "subject": other, "version": 1}])
              for n, (name, other) in enumerate([("a", "b"), ("b", "a"), ("c", "d")])]  # fmt: skip
    with registry(circle) as url:
        found = read_registry(url)
        for one in (found.by_id.get(0), found.version("a", 1)):
            assert one is not None
            with pytest.raises(UsageError, match="refers to itself"):
                found.with_references(one)
        with pytest.raises(UsageError, match="version 1 of the subject d, which is missing"):
            found.with_references(found.latest("c"))


@pytest.mark.parametrize("width", [1, 2000])
def test_references_without_end(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each answer refers to others that were never heard of."""
    monkeypatch.setattr(registered, "_REFERENCES_MAX", 50)
    made = count()

    def answer(to: Answering) -> None:
        refers = [{"name": f"x{n}", "subject": f"x{n}", "version": 1}
                  for n in islice(made, width)]  # fmt: skip
        of_subject = refers if width == 1 or to.path == "/schemas/ids/1" else []
        row = {"id": 1, "schema": to.path, "references": of_subject}
        says(b"[]" if "types" in to.path else json.dumps(row).encode())(to)

    with server(answer) as one:
        found = read_registry(f"http://{one.origin}")
        first = found.by_id.get(1)
        assert first is not None
        with pytest.raises(UsageError, match="refers to too many others"):
            found.with_references(first)
    assert len(one.asked) < 110


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
    """The topic has them as MD5s, or what they are computed from; a registry is asked for them.

    The expected ones: MD5 over the text and what it refers to, as Confluent's `Schema.updateHash`.
    """
    said, kept = "74eed96a-49d1-4d39-9ffc-e4135bdd861c", "0b8e0fd1-6b84-4fb3-b4a1-3e2a5a2c7e10"
    refers = [{"name": "Money", "subject": "money", "version": 1}]
    versions = [
        version("orders-value", 1, 1, FIRST, guid=said),
        version("orders-value", 2, 2, FIRST, guid=kept),
        version("orders-value", 3, 3, FIRST),
        version("money", 1, 7, MONEY),
        version("orders-value", 4, 4, REFERRING, references=refers),
        version("orders-value", 5, 5, FIRST, metadata={"tags": {}}),
        version("orders-value", 6, 6, SECOND),
    ]
    texts = [json.dumps(FIRST).encode(), json.dumps(MONEY).encode(),
             json.dumps(REFERRING).encode() + b"Moneymoney\0\0\0\1"]  # fmt: skip
    third, money, fourth = (guid_of(one) for one in texts)
    disk = as_topic(tmp_path / "disk", versions)
    found = read_registry(str(disk)).guids()
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
    first = {"id": 7, "total": 1.5, "note": None}
    wanted = [first] * 3 + [{"id": 8, "total": 2.5, "note": "x"}, first]
    assert exported(kafkalog, place, tmp_path / "lake", "--registry", disk) == (wanted, 2)
    guids = {number: guid for guid, number in found.items()}
    with registry([one | {"guid": guids.get(one["id"])} for one in versions]) as url:
        assert exported(kafkalog, place, tmp_path / "other", "--registry", url) == (wanted, 2)
        # Only that of its subject is known before: the others are asked for.
        of_money = read_registry(url).by_id.get(money)
        assert of_money is not None
        assert json.loads(of_money.text) == MONEY
    wrong = tmp_path / "wrong"
    write_log(wrong / "_schemas-0", batch(0, [record(0, b'{"keytype":"SCHEMA"}', json.dumps(
        version("a", 1, 1, FIRST, md5="x")).encode())]))  # fmt: skip
    assert read_registry(str(wrong)).guids() == {}
