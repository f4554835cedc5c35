"""Records are decoded by the schemas whose ids they have, without a word about formats.

The bytes are of Confluent's serializers, with ids in headers and before the data; what they hold is
read by fastavro and `json` here, and said by `tests/serializers/values.py` for Protobuf.
"""

from __future__ import annotations

import io
import json
from base64 import b64decode
from collections import Counter
from typing import TYPE_CHECKING, Any
from uuid import UUID

import duckdb
import fastavro
import pyarrow.parquet as pq
import pytest

import kafkalog as kafkalog_library
from kafkalog.errors import CorruptDataError, UsageError
from kafkalog.log.typed import remote_registry
from kafkalog.tables.model import Bounds, Request
from kafkalog.tables.schema_registry import read_registry
from tests.builders import batch, record, write_log
from tests.http_servers import registry
from tests.kafkalog.log.typed.test_serialized import CASES, as_topic, texts_of, without_nulls

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Result

    Kafkalog = Callable[..., Result]

NAMES = ("headers-users", "headers-pages", "headers-shipments", "users")
OF_PROTOBUF = ("id", "recipient", "state", "to")
UNKNOWN = [(b"__value_schema_id", b"\1" + bytes(16))]


def by_avro(text: str, data: bytes) -> Any:
    return fastavro.schemaless_reader(io.BytesIO(data), fastavro.parse_schema(json.loads(text)))


def registered() -> tuple[list[dict[str, Any]], list[tuple[Any, Any]]]:
    """Return the versions of all cases with ids of their own; value and headers, and the row."""
    versions: list[dict[str, Any]] = []
    rows: list[tuple[Any, Any]] = []
    for number, name in enumerate(NAMES):
        case = CASES[name]
        mine = [one | {"id": one["id"] + 100 * number} for one in texts_of(case["versions"])]
        for one in mine if name != "users" else ():  # it has the ids 1 and 2
            subject = one["subject"].removesuffix("-value")
            versions.append(one | {"subject": subject if "." in subject else f"{name}-value"})
        for data, row, *headers in case["records"]:
            pairs = [(name.encode(), b64decode(one)) for name, one in (headers or [[]])[0]]
            rows.append(((b64decode(data), pairs), row))
    return versions, rows


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """A log directory with a topic of values of all forms, and the topic of the registry."""
    versions, rows = registered()
    values = [pair for pair, _ in rows]
    values += [(b"plain", []), (b"\0\0\0\3\xe7no id", []), (b"\x02", UNKNOWN), (b"\0\0\0\0\1", [])]
    write_log(tmp_path / "mixed-0", batch(0, [
        record(n, b"k", value, headers=pairs) for n, (value, pairs) in enumerate(values)
    ]))  # fmt: skip
    write_log(tmp_path / "other-0", batch(0, [record(0, b"k", b"plain")]))
    as_topic(tmp_path, versions)
    return tmp_path


def expected() -> list[tuple[Any, str | None]]:
    """Return decoded value and id of each record, without what is null."""
    versions, rows = registered()
    ids = {one["guid"]: one for one in versions}
    found: list[tuple[Any, str | None]] = []
    for (value, pairs), row in rows:
        guid = str(UUID(bytes=pairs[0][1][1:17])) if pairs else None
        one = ids[guid] if guid else next(v for v in versions if v["id"] == value[4])
        text, data = one["schema"], value if pairs else value[5:]
        if one["schemaType"] == "PROTOBUF":
            decoded = {name: row[name] for name in OF_PROTOBUF}
        else:
            decoded = json.loads(data) if one["schemaType"] == "JSON" else by_avro(text, data)
        found.append((without_nulls(decoded), str(one["id"])))
    return found


def rows_of(result: Result) -> list[dict[str, Any]]:
    return [one for one in map(json.loads, result.stdout.splitlines()) if "offset" in one]


@pytest.mark.parametrize("kind", ["a directory", "a URL", "what is on the disk"])
def test_each_by_its_own_schema(disk: Path, kafkalog: Kafkalog, kind: str) -> None:
    """With `--registry`, or by the topic on the same disk; what has no id stays as it is."""
    is_named = kind != "what is on the disk"
    with registry(registered()[0]) as url:
        place = {"a URL": url, "a directory": disk}.get(kind, disk / "_schemas-0")
        words = ("--registry", place) if is_named else ()
        result = kafkalog("dump-segment", disk / "mixed-0", *words, "-o", "ndjson")
    rows = rows_of(result)
    for row, (value, schema_id) in zip(rows, expected(), strict=False):
        found = without_nulls(row["value_decoded"])
        if "receiver" in found:  # the first version of Protobuf; the row has the newest's names
            found["recipient"] = found.pop("receiver")
        if "recipient" in found:
            found = {name: found[name] for name in OF_PROTOBUF if name in found}
        assert (found, row["value_schema_id"]) == (value, schema_id)
    plain, zero, unknown, short = rows[-4:]
    assert [one["value_decoded"] for one in (plain, zero, unknown, short)] == [None] * 4
    assert [one["value_schema_id"] for one in (plain, zero)] == [None, None]
    assert unknown["value_schema_id"] == str(UUID(int=0))
    assert short["value_schema_id"] == "1"
    # The last two have an id, and do not decode: that lacks only if it was asked for.
    assert result.status == (8 if is_named else 0)
    assert "2 values not decoded as its schema says" in result.stderr
    assert f"of 1 value would be the id of a schema that {place} does not have" in result.stderr
    assert ("_schemas-0" in result.stderr) != is_named


def test_conditions_see_what_is_decoded(disk: Path, kafkalog: Kafkalog) -> None:
    found = kafkalog("find", disk, "-t", "mixed", "--where", "value.title == 'Bo'", "-o", "ndjson")
    assert [one["offset"] for one in rows_of(found)] == [
        n for n, (value, _) in enumerate(expected()) if value.get("title") == "Bo"
    ]


def test_a_topic_without_ids_stays_as_it_is(disk: Path, kafkalog: Kafkalog) -> None:
    """Nothing says that there are schemas; a damaged topic of them is a note, and no error."""
    result = kafkalog("dump-segment", disk / "other-0", "-o", "ndjson")
    assert (result.status, result.stderr) == (0, "")
    assert "value_decoded" not in rows_of(result)[0]
    log = disk / "_schemas-0" / f"{0:020}.log"
    log.write_bytes(log.read_bytes()[:-9])
    result = kafkalog("dump-segment", disk / "mixed-0", "-o", "ndjson", "-n", "1")
    assert result.status == 0
    assert "_schemas-0 decodes nothing" in result.stderr
    named = kafkalog("dump-segment", disk / "mixed-0", "-o", "ndjson", "-r", disk)
    assert named.status not in (0, 8)


def write_users(disk: Path) -> list[str]:
    """Write three values with ids in headers to a topic of their own; return a field of each."""
    _, rows = registered()
    users = [pair for pair, _ in rows][:3]
    write_log(disk / "headers-users-0", batch(0, [
        record(n, b"k", value, headers=pairs) for n, (value, pairs) in enumerate(users)
    ]))  # fmt: skip
    return [row["title"] for _, row in rows[:3]]


def test_the_subject_says_the_form(
    disk: Path, tmp_path_factory: pytest.TempPathFactory, kafkalog: Kafkalog
) -> None:
    """A column of a table has one schema: that of the topic's subject."""
    titles = write_users(disk)
    lake = tmp_path_factory.mktemp("lake")
    words = (disk, "-t", "headers-users", "-r", disk, "-o", "ndjson")
    result = kafkalog("export", *words, "--to", lake / "one")
    assert result.status == 0, result.stderr
    [file] = (lake / "one").rglob("*.parquet")
    found = pq.ParquetFile(file).read(["value_decoded"]).column(0).to_pylist()
    assert [one["title"] for one in found] == titles
    query = 'SELECT value.title FROM records ORDER BY "offset"'
    asked = kafkalog("sql", "-c", query, *words)
    assert asked.status == 0, asked.stderr
    assert [json.loads(line)["title"] for line in asked.stdout.splitlines()] == titles
    for words in (("export", "--to", lake / "other"), ("sql", "-c", "SELECT 1")):
        other = kafkalog(words[0], disk, "-t", "other", "-r", disk, *words[1:])
        assert (other.status, "no subject other-value" in other.stderr) == (2, True)
    several = kafkalog("export", disk, "-r", disk, "--to", lake / "all")
    assert several.status == 2


@pytest.mark.parametrize("by_url", [False, True])
def test_a_profile_counts_schemas(disk: Path, kafkalog: Kafkalog, by_url: bool) -> None:
    """Of ids in headers and before the data; what no schema has is not counted."""
    with registry(registered()[0]) as url:
        place = url if by_url else disk
        result = kafkalog("profile", disk, "-t", "mixed", "-r", place, "-o", "ndjson")
    [row] = [json.loads(line) for line in result.stdout.splitlines()]
    wanted = Counter(schema_id for _, schema_id in expected())
    wanted["1"] += 1  # of the value that is cut
    assert {one["schema_id"]: one["records"] for one in row["schemas"]} == wanted
    assert {one["source"] for one in row["schemas"]} == {"value"}
    assert result.status == 0
    plain = kafkalog("profile", disk, "-t", "other", "-r", disk)
    assert b"no schemas" in plain.stdout


def test_an_index_says_which_message_of_protobuf(tmp_path: Path, kafkalog: Kafkalog) -> None:
    """Not only the first of a file, nor only one in a topic; a wrong index is a reason."""
    text = (
        'syntax = "proto3"; message A { int64 a = 1; } '
        "message B { string b = 1; message C { bool c = 1; } }"
    )
    one = {"subject": "t-value", "version": 1, "id": 7, "schema": text, "schemaType": "PROTOBUF"}
    as_topic(tmp_path, [one])
    # Indexes are zigzag varints: their number, then each; a lone zero is [0].
    values = [b"\0\x08\5", b"\2\2\n\1x", b"\4\2\0\x08\1", b"\2\x08", b"\4\2\2"]
    write_log(tmp_path / "t-0", batch(0, [
        record(n, b"k", b"\0\0\0\0\7" + value) for n, value in enumerate(values)
    ]))  # fmt: skip
    result = kafkalog("dump-segment", tmp_path / "t-0", "-r", tmp_path, "-o", "ndjson")
    found = [one["value_decoded"] for one in rows_of(result)]
    assert found == [{"a": 5}, {"b": "x"}, {"c": True}, None, None]
    assert result.status == 8
    # A table has one message: that of the first records, if it is one; here of a partition's path.
    write_log(tmp_path / "t-1", batch(0, [record(0, b"k", b"\0\0\0\0\7" + values[1])]))
    query = "SELECT value.b AS b FROM records"
    asked = kafkalog("sql", "-c", query, tmp_path / "t-1", "-r", tmp_path, "-o", "ndjson")
    assert (asked.status, json.loads(asked.stdout)) == (0, {"b": "x"})


def test_a_dataset_has_the_types_of_a_registry(disk: Path) -> None:
    """A value that does not decode is an error, or heard by who listens."""
    titles = write_users(disk)
    of_users = {"topics": ["headers-users"], "registry": disk}
    found = kafkalog_library.dataset(disk, **of_users)
    columns = ["value_decoded", "value_schema_id"]
    table = found.to_table(columns)
    assert [one["title"] for one in table["value_decoded"].to_pylist()] == titles
    assert table["value_schema_id"].to_pylist() == ["1", "2", "2"]
    assert duckdb.sql("select max(value_decoded.id) from found").fetchall() == [(1 << 40,)]
    write_log(disk / "headers-users-0", batch(3, [record(0, b"k", b"plain")]), name=f"{3:020}")
    with pytest.raises(CorruptDataError, match="A value does not decode: no schema id"):
        kafkalog_library.dataset(disk, **of_users).to_table(columns)
    heard: list[Any] = []
    there = kafkalog_library.dataset(disk, **of_users, on_event=heard.append).to_table(columns)
    assert there["value_decoded"].to_pylist()[3] is None
    assert [type(one) for one in heard][-1:] == [CorruptDataError]
    with pytest.raises(UsageError, match="no subject"):
        kafkalog_library.dataset(disk, topics=["other"], registry=disk)
    with pytest.raises(UsageError, match="a column has one"):
        kafkalog_library.dataset(disk, registry=disk)


def test_what_does_not_decode_by_its_own_schema(disk: Path, kafkalog: Kafkalog) -> None:
    """Without a word about formats: no id, an unknown one, and a value that is cut."""
    words = ("find", disk, "-t", "mixed", "--undecodable", "-o", "ndjson")
    found = rows_of(kafkalog(*words, "-r", disk))
    count = len(expected())
    assert [one["offset"] for one in found] == [*range(count, count + 4)]
    assert [one["reason"] for one in found][:3] == [
        "no schema id", "no schema id", f"the schema {UUID(int=0)} is unknown"
    ]  # fmt: skip
    plain = kafkalog(*words, "-r", disk, "--value-format", "text")
    assert (plain.status, "--registry PLACE" in plain.stderr) == (2, True)


def test_an_export_and_a_profile_of_the_library_have_a_registry(
    disk: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    titles = write_users(disk)
    lake = tmp_path_factory.mktemp("lake") / "to"
    request = Request(bounds=Bounds(topics=["headers-users"]))
    with registry(registered()[0]) as url:
        plan = kafkalog_library.export(disk, to=lake, request=request, registry=url)
        assert plan.apply().rows == 3
        with pytest.raises(UsageError, match="a column has one"):
            kafkalog_library.export(disk, to=lake, registry=url)
    [file] = lake.rglob("*.parquet")
    found = pq.ParquetFile(file).read(["value_decoded"]).column(0).to_pylist()
    assert [one["title"] for one in found] == titles
    [profile] = kafkalog_library.profile(disk, request=request, registry=str(disk))
    assert [(one.schema_id, one.records) for one in profile.schemas] == [("2", 2), ("1", 1)]


def test_ids_that_a_registry_is_not_asked_for(
    disk: Path, kafkalog: Kafkalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer lacks something if it was wanted; what is known is there."""
    monkeypatch.setattr(remote_registry, "_UNKNOWN_MAX", 2)
    ids = (1, 90, 91, 92, 93, 90)
    values = [b"\0\0\0\0" + bytes([number]) + b"x" for number in ids]
    write_log(disk / "zeros-0", batch(0, [record(n, b"k", one) for n, one in enumerate(values)]))
    with registry(registered()[0]) as url:
        result = kafkalog("dump-segment", disk / "zeros-0", "-r", url, "-o", "ndjson")
        counted = kafkalog("profile", disk / "zeros-0", "-r", url, "-o", "ndjson")
    assert result.status == 8
    assert "lacks too many ids, and was asked for no others" in result.stderr
    assert "first bytes of 5 values would be the id of a schema" in result.stderr
    assert len(rows_of(result)) == 6
    assert counted.status == 8
    [line] = counted.stderr.splitlines()
    assert "was asked for no others: 2 keys and values with these are not" in line
    [row] = [json.loads(one) for one in counted.stdout.splitlines() if b'"topic"' in one]
    assert row["records"] == 6
    assert row["schemas"] == [{"source": "value", "schema_id": "1", "records": 1}]


@pytest.mark.parametrize("kind", ["a link to nothing", "a directory", "a log in circles"])
def test_schemas_that_nobody_asked_for_may_be_unreadable(
    disk: Path, kafkalog: Kafkalog, kind: str
) -> None:
    """It is a note: what was asked for lacks nothing."""
    log = disk / "_schemas-0" / f"{0:020}.log"
    log.unlink()
    if kind == "a directory":
        log.mkdir()
    else:
        log.symlink_to(log.name if "circles" in kind else "nothing")
    result = kafkalog("dump-segment", disk / "mixed-0", "-o", "ndjson", "-n", "1")
    assert (result.status, len(rows_of(result))) == (0, 1)
    assert result.stderr.startswith(f"note: {disk / '_schemas-0'} decodes nothing: ")
    assert kafkalog("dump-segment", disk / "mixed-0", "-n", "1", "-r", disk).status != 0


def avro(*names: str) -> str:
    fields = [{"name": name, "type": "int" if name == "n" else "string"} for name in names]
    return json.dumps({"type": "record", "name": "R", "fields": fields})


def said(text: str, number: int, subject: str, **more: Any) -> dict[str, Any]:
    return {"subject": subject, "version": 1, "id": number, "schema": text, **more}


def test_what_else_is_in_headers_and_registries(tmp_path: Path, kafkalog: Kafkalog) -> None:
    """Contexts have ids of their own; headers of others, and cut ones, give no bytes to a value."""
    plain = [(b"__value_schema_id", b"\0\0\0\0\1")]
    rows = [
        (b"\0\0\0\0\1\x02\x02x", []),
        (b"\x02\x02x", [*plain, (b"apicurio.protobuf.type", b"x")]),
        (b"\1\x02\x02x", [(b"__value_schema_id", b"\0\0\0\0")]),
        (b"\x02\x02x", [(b"__value_schema_id", b"\0\0\0\0\1\x02")]),
    ]
    write_log(tmp_path / "t-0", batch(0, [
        record(n, b"k", value, headers=pairs) for n, (value, pairs) in enumerate(rows)
    ]))  # fmt: skip
    as_topic(tmp_path, [
        said(avro("n", "s"), 1, "t-value"), said(avro("s", "n"), 1, ":.other:t-value"),
        said("[", 5, "x", md5="x"), said(avro("n"), 6, "y", references=[
            {"name": "z", "subject": "y", "version": 1}]), said(avro("n"), "7", "z"),
    ])  # fmt: skip
    result = kafkalog("dump-segment", tmp_path / "t-0", "-r", tmp_path, "-o", "ndjson")
    found = [one["value_decoded"] for one in rows_of(result)]
    assert found == [{"n": 1, "s": "x"}, {"n": 1, "s": "x"}, None, None]
    query = "SELECT value.n AS n FROM records"
    asked = kafkalog("sql", "-c", query, tmp_path, "-t", "t", "-r", tmp_path, "-o", "ndjson")
    assert [json.loads(one)["n"] for one in asked.stdout.splitlines()] == [1, 1, None, None]
    assert asked.status == 8


def test_references_that_branch_are_collected_once(tmp_path: Path) -> None:
    """Each level refers to the one below under two names: 2^40 ways, and 80 names."""
    versions = [said(avro("n"), 0, "s0")]
    for level in range(1, 41):
        names = [f"a{level}", f"b{level}"]
        below = {"subject": f"s{level - 1}", "version": 1}
        refers = [{"name": name, **below} for name in names]
        versions.append(said(avro("n"), level, f"s{level}", references=refers))
    as_topic(tmp_path, versions)
    found = read_registry(str(tmp_path))
    assert len(found.with_references(found.by_id[40])) == 81


def test_conditions_on_dates_and_fields_that_schemas_lack(
    tmp_path: Path, kafkalog: Kafkalog
) -> None:
    """Dates are text in conditions; what a JSON Schema does not have is counted."""
    schema = tmp_path / "day.json"
    schema.write_text(json.dumps({
        "type": "object", "properties": {"d": {"type": "string", "format": "date"}}
    }))  # fmt: skip
    values = [b'{"d":"2024-02-29"}', b'{"d":"1999-12-31","more":1}']
    write_log(tmp_path / "t-0", batch(0, [record(n, b"k", one) for n, one in enumerate(values)]))
    words = ("--value-format", "json", "--value-schema", schema, "-o", "ndjson")
    found = kafkalog("find", tmp_path / "t-0", "--where", "value.d < '2000-01-01'", *words)
    assert [one["offset"] for one in rows_of(found)] == [1]
    assert "value_decoded: 1 value had fields that the schema lacks" in found.stderr
