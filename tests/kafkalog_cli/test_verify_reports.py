"""The reports of `verify` agree in every format, read back by third-party parsers."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from datetime import datetime
from itertools import count, pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote
from xml.etree import ElementTree as ET

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kafkalog.defects.table import REFERENCES
from kafkalog.model import Severity
from kafkalog_cli.commands import verify
from kafkalog_cli.output import finding_table
from tests.builders import copy_tree, flip, frames

if TYPE_CHECKING:
    from pathlib import Path

LOG = "txn-0/00000000000000000000.log"
EVIL = 'a\x1b[31m"\\<&\ufffe\u202eb.txt'


@pytest.fixture
def hurt(corpus_dir: Path, tmp_path: Path) -> Path:
    """A log directory with findings of each severity, more of one kind than a report shows."""
    root = copy_tree(corpus_dir / "kafka-4.3" / "txn", tmp_path / "log")
    data = (root / LOG).read_bytes()
    for position, size in frames(data)[:30]:
        data = flip(data, 8 * (position + size) - 3)
    (root / LOG).write_bytes(data)
    index = root / "txn-0" / "00000000000000000119.index"
    index.write_bytes(index.read_bytes()[:-3])
    (root / "lost+found").mkdir()
    (root / "txn-0" / EVIL).touch()
    return root


def defects(kafkalog: Any, *line: object) -> list[dict[str, Any]]:
    lines = kafkalog("verify", *line, "--format", "ndjson").stdout.splitlines()
    rows = [json.loads(row) for row in lines]
    return [row for row in rows if row["type"] == "defect"]


def junit(kafkalog: Any, *line: object) -> ET.Element:
    return ET.fromstring(kafkalog("verify", *line, "--format", "junit").stdout)  # noqa: S314


def sarif(kafkalog: Any, *line: object) -> dict[str, Any]:
    value = json.loads(kafkalog("verify", *line, "--format", "sarif").stdout)
    assert value["version"] == "2.1.0"
    [run] = value["runs"]
    assert isinstance(run, dict)
    return run


def prometheus(kafkalog: Any, *line: object) -> dict[str, list[Any]]:
    text = kafkalog("verify", *line, "--format", "prometheus").stdout.decode()
    families = list(text_string_to_metric_families(text))
    assert {family.type for family in families} == {"gauge"}
    assert all(family.documentation for family in families)
    names = [family.name for family in families]
    assert len(set(names)) == len(names)
    return {family.name.removeprefix("kafkalog_verify_"): family.samples for family in families}


def test_junit_has_a_case_a_place(hurt: Path, kafkalog: Any):
    """Cases are log directory files and partitions; those with grave findings fail."""
    [suite] = junit(kafkalog, hurt)
    cases = {case.attrib["name"]: case for case in suite.iter("testcase")}
    files = {str(path) for path in hurt.iterdir() if path.name != "lost+found"}
    assert set(cases) == {*files, str(hurt / "lost+found")}
    failed = {name for name, case in cases.items() if case.find("failure") is not None}
    assert failed == {str(hurt / "txn-0"), str(hurt / "lost+found")}
    counts = {name: suite.attrib[name] for name in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": str(len(cases)), "failures": "2", "errors": "0", "skipped": "0"}


def test_junit_is_what_the_schema_of_ant_asks_for(hurt: Path, kafkalog: Any):
    """The required attributes, the order of elements, one outcome per case."""
    root = junit(kafkalog, hurt, hurt / "txn-0", hurt / "nowhere")
    assert (root.tag, root.attrib) == ("testsuites", {})
    assert [suite.attrib["id"] for suite in root] == ["0", "1", "2"]
    for suite in root:
        assert {"name", "timestamp", "hostname", "tests", "failures", "errors", "time", "package",
                "id"} <= set(suite.attrib)  # fmt: skip
        assert datetime.fromisoformat(suite.attrib["timestamp"]).tzinfo is None
        assert float(suite.attrib["time"]) >= 0
        tags = [element.tag for element in suite]
        assert tags[0] == "properties"
        assert tags[-2:] == ["system-out", "system-err"]
        assert set(tags[1:-2]) <= {"testcase"}
        for case in suite.iter("testcase"):
            assert {"name", "classname", "time"} <= set(case.attrib)
            assert len(case) <= 1
            for outcome in case:
                assert outcome.tag in ("failure", "error", "skipped")
                assert outcome.tag == "skipped" or outcome.attrib["type"]


def test_junit_tells_findings_up_to_a_limit(hurt: Path, kafkalog: Any):
    """Twenty of a kind and the number of the others; the message counts all."""
    [suite] = junit(kafkalog, hurt)
    texts = {case.attrib["name"]: case.find("failure") for case in suite.iter("testcase")}
    failure = texts[str(hurt / "txn-0")]
    assert failure is not None
    assert failure.text is not None
    assert "30 batch-crc-mismatch" in failure.attrib["message"]
    assert failure.text.count("damage batch-crc-mismatch: " + str(hurt)) == 20
    assert "damage batch-crc-mismatch: 10 more" in failure.text
    assert "file-unknown" in failure.text


def test_junit_fails_from_the_severity_that_was_asked_for(hurt: Path, kafkalog: Any):
    """Findings below that severity are reported without a failure."""
    rows = defects(kafkalog, hurt)
    counts = []
    for number, severity in enumerate(Severity):
        [suite] = junit(kafkalog, hurt, "--fail-on", severity)
        told = [row["path"] for row in rows if row["severity"] in list(Severity)[: number + 1]]
        places = {os.path.relpath(path, hurt).split(os.sep)[0] for path in told}
        assert int(suite.attrib["failures"]) == len(places)
        counts.append(len(places))
    assert counts[:3] == [1, 1, 2]
    [suite] = junit(kafkalog, hurt, "--fail-on", "damage")
    assert "directory-unknown" in (suite.findtext("system-out") or "")


def test_a_path_that_cannot_be_read_is_an_error_of_every_report(hurt: Path, kafkalog: Any):
    """The other paths are still checked."""
    line = (hurt / "nowhere", hurt / "txn-0")
    assert kafkalog("verify", *line).status == 3
    suites = list(junit(kafkalog, *line))
    [error] = [found for suite in suites for found in suite.iter("error")]
    assert error.attrib["type"] == "path-not-found"
    run = sarif(kafkalog, *line)
    [invocation] = run["invocations"]
    assert (invocation["executionSuccessful"], invocation["exitCode"]) == (False, 3)
    [told] = invocation["toolExecutionNotifications"]
    assert told["descriptor"]["id"] == "path-not-found"
    metrics = prometheus(kafkalog, *line)
    assert metrics["errors"][0].value == 1
    assert metrics["exit_status"][0].value == 3
    assert len(run["results"]) == len(defects(kafkalog, hurt / "txn-0")) > 30


def test_sarif_has_every_finding_where_it_is(hurt: Path, kafkalog: Any):
    """The same as NDJSON: kind, level, file, byte region, message."""
    levels = {"damage": "error", "index": "warning", "warning": "warning", "note": "note"}
    run = sarif(kafkalog, hurt)
    told = []
    for result in run["results"]:
        [location] = result["locations"]
        place = location["physicalLocation"]
        region = place.get("region", {})
        uri = place["artifactLocation"]["uri"]
        assert uri.startswith("file:///")
        assert re.fullmatch(r"[!-~]*", uri)
        path = os.fsdecode(unquote(uri.removeprefix("file://"), errors="surrogateescape"))
        rule = run["tool"]["driver"]["rules"][result["ruleIndex"]]
        assert rule["id"] == result["ruleId"]
        assert rule["defaultConfiguration"]["level"] == result["level"]
        told.append((result["ruleId"], result["level"], path, region.get("byteOffset"),
                     region.get("byteLength"), result["message"]["text"]))  # fmt: skip
    expected = []
    for row in defects(kafkalog, hurt):
        size = row["size"] if row["position"] is not None else None
        expected.append((row["reference"], levels[row["severity"]], row["path"], row["position"],
                         size, row["detail"]))  # fmt: skip
    assert told == expected
    assert len(told) > 30


def test_sarif_has_a_rule_for_every_reference(kafkalog: Any):
    """Each rule has its meaning, even without any finding."""
    run = sarif(kafkalog, "examples/log-dir")
    assert run["results"] == []
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == list(REFERENCES)
    for rule in rules:
        assert rule["shortDescription"]["text"] == REFERENCES[rule["id"]].meaning
        assert rule["help"]["text"]
    for name in ("startTimeUtc", "endTimeUtc"):
        assert datetime.fromisoformat(run["invocations"][0][name]).tzinfo is not None


def test_relative_paths_are_relative_references(
    hurt: Path, kafkalog: Any, monkeypatch: pytest.MonkeyPatch
):
    """A viewer finds the file relative to the report."""
    monkeypatch.chdir(hurt)
    uris = {
        result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        for result in sarif(kafkalog, "txn-0")["results"]
    }
    assert LOG in uris
    assert not [uri for uri in uris if ":" in uri or uri.startswith("/")]


def test_prometheus_counts_what_was_found(
    hurt: Path, kafkalog: Any, monkeypatch: pytest.MonkeyPatch
):
    """In total and by partition, as in NDJSON."""
    rows = defects(kafkalog, hurt)
    clock = SimpleNamespace(time_ns=count(1_700_000_000 * 10**9, 7_500 * 10**6).__next__)
    with monkeypatch.context() as patched:
        patched.setattr(verify, "time", clock)
        metrics = prometheus(kafkalog, hurt)
    counts = {sample.labels["severity"]: sample.value for sample in metrics["defects"]}
    assert counts == {s.value: sum(row["severity"] == s for row in rows) for s in Severity}
    inside = Counter(
        (str(hurt / f"txn-{number}"), "txn", str(number), row["severity"])
        for row in rows
        for number in range(10)
        if f"/txn-{number}/" in row["path"]
    )
    names = ("directory", "topic", "partition", "severity")
    by_partition = {
        tuple(sample.labels[name] for name in names): sample.value
        for sample in metrics["partition_defects"]
    }
    assert by_partition == inside
    summary = json.loads(kafkalog("verify", hurt, "--format", "ndjson").stdout.splitlines()[-1])
    for name in ("files", "batches", "records", "bytes_expected", "bytes_checked"):
        assert metrics[name][0].value == summary[name]
    assert metrics["last_run_timestamp_seconds"][0].value == 1_700_000_007.5
    assert metrics["duration_seconds"][0].value == 7.5


def test_labels_and_names_are_escaped(tmp_path: Path, corpus_dir: Path, kafkalog: Any):
    """A directory name with characters that XML, JSON, URIs and labels must escape."""
    place = copy_tree(corpus_dir / "kafka-4.3" / "txn" / "txn-0", tmp_path / f"{EVIL}-0")
    log = place / "00000000000000000000.log"
    log.write_bytes(flip(log.read_bytes(), 8 * 100))
    [suite] = junit(kafkalog, place)
    assert suite.attrib["failures"] == "1"
    assert len(sarif(kafkalog, place)["results"]) >= 1
    [sample] = prometheus(kafkalog, place)["partition_defects"]
    assert sample.labels["directory"].startswith(str(tmp_path))
    assert '"' in sample.labels["directory"]
    for form in ("junit", "sarif", "prometheus", "table"):
        text = kafkalog("verify", place, "--format", form).stdout.decode()
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e]", text), form


@pytest.mark.parametrize("form", ["table", "ndjson", "json", "csv", "junit", "sarif", "prometheus"])
def test_the_exit_status_goes_by_severity_alone(hurt: Path, form: str, kafkalog: Any):
    """In every format, 1 for findings of at least the severity of `--fail-on`."""
    quiet = hurt / "__cluster_metadata-0"
    (hurt / "lost+found").rmdir()
    cases = [
        (quiet, "note", 0),
        (hurt / "txn-0" / "00000000000000000119.index", "damage", 0),
        (hurt / "txn-0" / "00000000000000000119.index", "index", 1),
        (hurt / "txn-0" / "00000000000000000119.index", "warning", 1),
        (hurt / LOG, "damage", 1),
    ]
    for path, severity, status in cases:
        result = kafkalog("verify", path, "--fail-on", severity, "--format", form)
        assert result.status == status, (path, severity)
        assert result.stderr == ""


def test_a_note_fails_only_when_asked(tmp_path: Path, corpus_dir: Path, kafkalog: Any):
    """A file unknown to Kafka is only worth a note."""
    root = copy_tree(corpus_dir / "kafka-4.3" / "txn" / "txn-0", tmp_path / "txn-0")
    (root / "notes.txt").touch()
    statuses = {s: kafkalog("verify", root, "--fail-on", s).status for s in Severity}
    assert statuses == {"damage": 0, "index": 0, "warning": 0, "note": 1}


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_the_table_stays_within_the_terminal(
    columns: int, hurt: Path, kafkalog: Any, monkeypatch: pytest.MonkeyPatch
):
    """Findings wrap in their column, and only blanks change.

    Each file is named above its findings, and again only after those of another file.
    """
    wide = kafkalog("verify", hurt).stdout.decode()
    monkeypatch.setattr(finding_table, "terminal_width", lambda: columns)
    narrow = kafkalog("verify", hurt).stdout.decode()
    assert max(map(len, narrow.splitlines())) <= columns
    assert "".join(narrow.split()) == "".join(wide.split())
    lines = wide.splitlines()
    assert lines[0].split() == ["SEVERITY", "POSITION", "FINDING"]
    headings = [line for line in lines if line.startswith("/")]
    assert str(hurt / LOG) in headings
    assert all(one != other for one, other in pairwise(headings))
    assert sum(line.startswith("  damage") for line in lines) == 20
    assert [line.strip() for line in lines if " more " in line] == [
        "10 more batch-crc-mismatch: --format ndjson lists them all"
    ]
    assert "30 damage findings" in wide


def test_what_is_put_off_is_told_everywhere(
    hurt: Path, kafkalog: Any, monkeypatch: pytest.MonkeyPatch
):
    """A deferred check is neither a finding nor a success of the partition."""
    line = (hurt / "__cluster_metadata-0", hurt / "txn-0", "--max-duration", "0s")
    result = kafkalog("verify", *line)
    assert result.status == 0
    assert b"deferred when time ran out: " in result.stdout
    assert b"nothing wrong" in result.stdout
    suites = list(junit(kafkalog, *line))
    assert [suite.attrib["skipped"] for suite in suites] == ["0", "1"]
    log = hurt / "txn-0" / "00000000000000000119.log"
    monkeypatch.chdir(log.parent)
    [_, last] = junit(kafkalog, hurt / "__cluster_metadata-0", log.name, "--max-duration", "0s")
    assert last.attrib["skipped"] == "1"
    metrics = prometheus(kafkalog, *line)
    segments = len(list((hurt / "txn-0").glob("*.log")))
    assert metrics["segments_deferred"][0].value == segments
    assert metrics["bytes_deferred"][0].value > 10_000
