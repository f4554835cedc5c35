"""How the readers read keys and values, and where their rows go."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.builders import batch, record, write_log

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Result

    Run = Callable[..., Result]

LOG_DIR = "examples/log-dir"
VALUES = (b'{"n":1,"s":"a"}', b"no json", None, b'["\xc3\xa9"]')


def rows(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    records = [record(i, b"k%d" % i, value) for i, value in enumerate(VALUES)]
    write_log(tmp_path / "t-0", batch(0, records))
    return tmp_path / "t-0"


@pytest.mark.parametrize("words", [("dump-segment",), ("find", "--key-regex", ".")])
def test_json_is_shown_beside_the_bytes(kafkalog: Run, log: Path, words: tuple[str, ...]) -> None:
    """What does not decode is null, and makes the answer incomplete."""
    result = kafkalog(*words, log, "--value-format", "json", "-o", "ndjson")
    assert [row["value_decoded"] for row in rows(result)] == [
        {"n": 1, "s": "a"}, None, None, ["é"],
    ]  # fmt: skip
    assert [row["value"] for row in rows(result)][:2] == [VALUES[0].decode(), "no json"]
    assert result.status == 8
    assert "1 value not decoded as json" in result.stderr
    sound = kafkalog(*words, log, "--value-format", "json", "-n", "1")
    assert (sound.status, sound.stderr) == (0, "")
    assert '{"n":1,"s":"a"}' in sound.stdout.decode()


def test_keys_and_values_have_forms_of_their_own(kafkalog: Run, log: Path) -> None:
    """In each format; the words are checked."""
    for form in ("ndjson", "csv", "table"):
        result = kafkalog("dump-segment", log, "--key-format", "hex", "-n", "1", "-o", form)
        assert b"6b30" in result.stdout
        assert b"6e" not in result.stdout
    for words in (
        ("--value-format", "xml"), ("--value-format", "text@confluent"),
        ("--value-format", "avro"), ("--key-schema", "x"), ("--registry", "x"),
        ("--value-format", "json@confluent:x"), ("--value-format", "json@confluent:²"),
        ("--value-format", f"json@confluent:{'9' * 5000}"),
    ):  # fmt: skip
        assert kafkalog("dump-segment", log, *words).status == 2, words


@pytest.mark.parametrize("form", ["csv", "ndjson", "json"])
def test_a_file_has_what_stdout_has(kafkalog: Run, tmp_path: Path, form: str) -> None:
    for words in (("dump-segment", LOG_DIR), ("find", LOG_DIR, "--key", "user-8")):
        to = tmp_path / f"{words[0]}.{form}"
        assert kafkalog(*words, "--to", to).status == 0
        assert to.read_bytes() == kafkalog(*words, "-o", form).stdout


def test_an_arrow_file_has_the_rows_that_are_found(kafkalog: Run, tmp_path: Path) -> None:
    to = tmp_path / "found.arrow"
    assert kafkalog("find", LOG_DIR, "-k", "user-8", "--to", to).status == 0
    found = rows(kafkalog("find", LOG_DIR, "-k", "user-8", "-o", "ndjson"))
    assert pa.ipc.open_file(to).read_all()["offset"].to_pylist() == [row["offset"] for row in found]


def test_a_limit_and_the_last_are_about_all_logs(kafkalog: Run, tmp_path: Path) -> None:
    every = rows(kafkalog("dump-segment", LOG_DIR, "-o", "ndjson"))
    first = rows(kafkalog("dump-segment", LOG_DIR, "-o", "ndjson", "-n", "70"))
    assert first == every[:70]
    last = rows(kafkalog("dump-segment", LOG_DIR, "-o", "ndjson", "--last", "7"))
    assert last == sorted(every, key=lambda row: row["timestamp"])[-7:]
    to = tmp_path / "some.parquet"
    sides = [f"{LOG_DIR}/{name}" for name in ("customers-0", "orders-0")]
    assert kafkalog("dump-segment", *sides, "-n", "70", "--to", to).status == 0
    assert len(pq.read_table(to)) == 70
    for words in (("--last", "1", "-n", "1"), ("--last", "1", "--batches"),
                  ("--last", "1", "--sort", "time"), ("--follow", "-o", "kafka")):  # fmt: skip
        assert kafkalog("dump-segment", LOG_DIR, *words).status == 2, words


def test_follow_shows_what_is_there_first(kafkalog: Run) -> None:
    """Up to the limit: without one it waits for more."""
    words = ("dump-segment", f"{LOG_DIR}/orders-0", "-n", "5", "-o", "ndjson")
    for row, wanted in zip(rows(kafkalog(*words, "--follow")), rows(kafkalog(*words)), strict=True):
        assert row | {"path": ""} == wanted | {"path": ""}


def test_a_plan_of_an_export_writes_nothing(kafkalog: Run, tmp_path: Path) -> None:
    """Without a destination, or with --dry-run: then it has what is new there."""
    to = tmp_path / "lake"
    plans = [kafkalog("export", LOG_DIR, *words) for words in ((), ("--to", to, "--dry-run"))]
    assert plans[0] == plans[1]
    assert "3 files" in plans[0].stdout.decode()
    assert not to.exists()
    words = ("export", LOG_DIR, "--to", to, "--append")
    assert kafkalog(*words).status == 0
    assert "0 files" in kafkalog(*words, "--dry-run").stdout.decode()
    assert rows(kafkalog("export", LOG_DIR, "-o", "ndjson"))[0]["type"] == "export_plan"


def test_globs_and_numbers_select_what_is_exported(kafkalog: Run, tmp_path: Path) -> None:
    """They are a part of what an export is: another selection is another export."""
    words = ("export", LOG_DIR, "--to", tmp_path / "lake", "-p", "0-3", "-t")
    assert kafkalog(*words, "!orders").status == 0
    found = {path.parts[-3] for path in (tmp_path / "lake").rglob("*.parquet")}
    assert found == {"topic=customers", "topic=payments"}
    assert kafkalog(*words, "!payments").status == 4


def test_a_condition_sees_what_a_schema_decodes(kafkalog: Run, tmp_path: Path) -> None:
    """Each expression against plain code over the same objects; what does not decode is counted."""
    fastavro = pytest.importorskip("fastavro")
    fields = [("n", "long"), ("s", ["null", "string"]), ("data", "bytes"),
              ("tags", {"type": "map", "values": "int"}),
              ("at", {"type": "long", "logicalType": "timestamp-millis"})]  # fmt: skip
    schema = {"type": "record", "name": "R",
              "fields": [{"name": name, "type": kind} for name, kind in fields]}  # fmt: skip
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "7.avsc").write_text(json.dumps(schema))
    made = [{"n": i, "s": None if i % 3 else f"s{i}", "data": bytes([i]), "tags": {"a": i % 4},
             "at": 1_700_000_000_000 + i} for i in range(40)]  # fmt: skip
    values: list[bytes | None] = []
    for one in made:
        file = io.BytesIO()
        fastavro.schemaless_writer(file, schema, one)
        values.append(b"\0\0\0\0\7" + file.getvalue())
    values += [None, b"", b'{"n":99}', b"\0\0\0\0\x08\x02", values[0] + b"x"]
    records = [record(i, b"k", value) for i, value in enumerate(values)]
    write_log(tmp_path / "t-0", batch(0, records))
    decode = ("--value-format", "avro", "--registry", tmp_path / "schemas",
              "--value-schema", tmp_path / "schemas" / "7.avsc")  # fmt: skip
    for where, wanted in (
        ("value.n > 30", [one["n"] for one in made if one["n"] > 30]),
        ('value.s == "s3" || value.n == 7', [3, 7]),
        ("value.s == null && value.n < 3", [1, 2]),
        ('value.data == b"\\x05"', [5]),
        ('value.tags["a"] == 2 && offset < 10', [2, 6]),
        ('value.at > timestamp("2023-11-14T22:13:20.037Z")', [38, 39]),
        ("value.missing == 1", []),
    ):
        for command in ("find", "dump-segment"):
            result = kafkalog(command, tmp_path / "t-0", *decode, "--where", where, "-o", "ndjson")
            assert [row["offset"] for row in rows(result)] == wanted, where
            assert "Traceback" not in result.stderr
            assert result.status == (0 if wanted else 8)  # it may be in what did not decode
            if "offset" not in where:
                assert "--where has no answer for 4 values that did not decode" in result.stderr
