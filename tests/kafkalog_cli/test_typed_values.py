"""What commands show of typed columns: their values, what has another type, and what was lost."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from kafkalog.change.lake.model import COMMITS, MANIFEST
from kafkalog.log.typed.remarks import LOST_DIGITS, UNKNOWN_FIELDS, Remark
from kafkalog_cli.main import run
from tests.kafkalog.change.lake.appending import iceberg
from tests.kafkalog.change.lake.lake_values import (
    LAKE_TYPE,
    ROWS,
    VALUES,
    ByName,
    decodes,
    log_of,
)

if TYPE_CHECKING:
    from pathlib import Path

REMARKS = [
    Remark("any", "json", "a union of several types"),
    Remark("points[].x", "json", "no type"),
    Remark("nothing", "omitted", "it is always null"),
]
LINES = [
    "value_decoded.any: json, because a union of several types",
    "value_decoded.points[].x: json, because no type",
    "value_decoded.nothing: omitted, because it is always null",
]
LOST = [
    "value_decoded: 3 values lost digits (nanoseconds, or more than a float or double has)",
    "value_decoded: 1 value had fields that the schema lacks",
]
TYPED = ["--value-format", "avro", "--value-schema"]


@pytest.fixture
def decoder(monkeypatch: pytest.MonkeyPatch) -> ByName:
    """Decode values, three of which lose digits; one has unknown fields."""
    made = ByName(LAKE_TYPE, VALUES, REMARKS)
    made.lost = {
        b"most": [LOST_DIGITS, UNKNOWN_FIELDS], b"least": [LOST_DIGITS], b"odd": [LOST_DIGITS],
    }  # fmt: skip
    decodes(monkeypatch, value=made)
    return made


@pytest.fixture
def schema(tmp_path: Path) -> str:
    """A file for the option; the decoder of this test does not look at it."""
    (tmp_path / "any.avsc").write_text('"string"')
    return str(tmp_path / "any.avsc")


def notes(text: str) -> list[str]:
    return [line.removeprefix("note: ") for line in text.splitlines() if line.startswith("note: ")]


@pytest.mark.usefixtures("decoder")
def test_find_shows_values_and_notes(
    tmp_path: Path, schema: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Extremes keep all their digits; remarks and losses are notes, once."""
    log = log_of(tmp_path, ROWS)
    assert run(["find", str(log), "--value-regex", ".", *TYPED, schema, "-o", "ndjson"]) == 0
    out, err = capfd.readouterr()
    assert notes(err) == [*LINES, *LOST]
    rows = [json.loads(line) for line in out.splitlines()]
    [most] = [one["value_decoded"] for one in rows if one.get("value") == "most"]
    assert most["whole"] == 2**63 - 1
    assert most["unsigned"] == str(2**64 - 1)
    assert most["at"] == "9999-12-31T23:59:59.999999Z"
    assert most["local"] == "9999-12-31T23:59:59.999999"
    assert most["duration"] == "315576000000.999999999"
    assert most["by_number"] == {str(2**64 - 1): "most", "0": None}
    [least] = [one["value_decoded"] for one in rows if one.get("value") == "least"]
    assert least["at"] == "0001-01-01T00:00:00.000Z"
    assert least["digits"] == "-0." + "9" * 38


@pytest.mark.usefixtures("decoder")
def test_sql_shows_them_once(
    tmp_path: Path, schema: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Remarks come with the first statement that reads the column, losses with each."""
    log = log_of(tmp_path, ROWS)
    query = "SELECT count(*) AS n FROM records; SELECT value FROM records ORDER BY offset; " * 2
    assert run(["sql", str(log), "-c", query, *TYPED, schema, "-o", "ndjson"]) == 0
    out, err = capfd.readouterr()
    assert notes(err) == [*LINES, *LOST, *LOST]
    most = json.loads(out.splitlines()[1])["value"]
    assert most["by_number"] == {str(2**64 - 1): "most", "0": None}
    assert most["by_flag"] == {"true": ["nan"], "false": []}
    assert most["local"] == "9999-12-31T23:59:59.999999"
    assert most["at"] == "9999-12-31T23:59:59.999999Z"


@pytest.mark.usefixtures("decoder")
def test_dump_segment_shows_them(
    tmp_path: Path, schema: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Also where a table has cells of the values; nothing is said where no value was decoded."""
    log = log_of(tmp_path, ROWS)
    assert run(["dump-segment", str(log), *TYPED, schema]) == 0
    assert notes(capfd.readouterr().err) == [*LINES, *LOST]
    empty = log_of(tmp_path / "nulls", [None])
    assert run(["dump-segment", str(empty), *TYPED, schema]) == 0
    assert notes(capfd.readouterr().err) == []


OF_COLUMN = {LOST_DIGITS: 3, UNKNOWN_FIELDS: 1}
SAID = [
    {"path": "value_decoded.any", "type": "json", "reason": "a union of several types"},
    {"path": "value_decoded.points[].x", "type": "json", "reason": "no type"},
    {"path": "value_decoded.nothing", "type": "omitted", "reason": "it is always null"},
]


@pytest.mark.usefixtures("decoder")
def test_export_says_it(tmp_path: Path, schema: str, capfd: pytest.CaptureFixture[str]) -> None:
    """The plan has the remarks; the summary and the manifest also what was lost."""
    export = ["export", str(log_of(tmp_path, ROWS)), *TYPED, schema]
    to = ["--to", str(tmp_path / "lake")]
    assert run([*export, *to, "--dry-run"]) == 0
    out = capfd.readouterr().out.splitlines()
    assert [one for one in out if one in LINES] == LINES
    assert not set(LOST) & set(out)
    assert run([*export, "-o", "ndjson"]) == 0
    assert json.loads(capfd.readouterr().out.splitlines()[-1])["remarks"] == SAID
    assert run([*export, *to]) == 0
    out = capfd.readouterr().out.splitlines()
    assert [one for one in out if one in (*LINES, *LOST)] == [*LINES, *LOST]
    manifest = json.loads((tmp_path / "lake" / MANIFEST).read_text())
    assert (manifest["remarks"], manifest["losses"]) == (SAID, {"value_decoded": OF_COLUMN})
    assert run([*export, *to, "-o", "ndjson"]) == 0
    part, summary = map(json.loads, capfd.readouterr().out.splitlines())
    assert part["losses"] == summary["losses"] == {"value_decoded": OF_COLUMN}
    assert summary["remarks"] == SAID


@pytest.mark.usefixtures("decoder")
@pytest.mark.parametrize("kind", ["files", "delta"])
def test_commits_say_it(tmp_path: Path, schema: str, kind: str) -> None:
    """Each commit of a table that grows, too."""
    log, to = log_of(tmp_path, ROWS), tmp_path / "lake"
    more = ["--append", "--as", kind, "--to", str(to)]
    assert run(["export", str(log), *TYPED, schema, *more]) == 0
    [commit] = (to / COMMITS).iterdir()
    found = json.loads(commit.read_text())
    assert (found["remarks"], found["losses"]) == (SAID, {"value_decoded": OF_COLUMN})


@pytest.mark.usefixtures("decoder")
def test_snapshots_say_it(tmp_path: Path, schema: str) -> None:
    """A snapshot of Iceberg has both among its properties."""
    log, to = log_of(tmp_path, ROWS), tmp_path / "lake"
    more = ["--append", "--as", "iceberg", "--to", "lake.kafka.records"]
    warehouse = ["--set", f"warehouse={to}"]
    assert run(["export", str(log), *TYPED, schema, *more, *warehouse]) == 0
    summary = iceberg(to).current_snapshot().summary.additional_properties
    assert json.loads(summary["kafkalog.remarks"]) == SAID
    assert json.loads(summary["kafkalog.losses"]) == {"value_decoded": OF_COLUMN}


def test_few_remarks_are_shown(
    tmp_path: Path, schema: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A schema may have thousands of such parts: the last line counts the others."""
    many = [Remark(f"f{number}", "json", "no type") for number in range(5000)]
    decodes(monkeypatch, value=ByName(LAKE_TYPE, VALUES, many))
    assert run(["dump-segment", str(log_of(tmp_path, ROWS)), *TYPED, schema]) == 0
    found = notes(capfd.readouterr().err)
    assert found[-1] == f"and {5001 - len(found)} more parts of the schema"
    assert 10 < len(found) < 40
