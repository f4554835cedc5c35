"""The reports of `verify` agree in every format, read back by third-party parsers."""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import count, pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest
from prometheus_client.parser import text_string_to_metric_families

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


def prometheus(kafkalog: Any, *line: object) -> dict[str, list[Any]]:
    text = kafkalog("verify", *line, "--format", "prometheus").stdout.decode()
    families = list(text_string_to_metric_families(text))
    assert {family.type for family in families} == {"gauge"}
    assert all(family.documentation for family in families)
    names = [family.name for family in families]
    assert len(set(names)) == len(names)
    return {family.name.removeprefix("kafkalog_verify_"): family.samples for family in families}


def test_a_path_that_cannot_be_read_is_an_error_of_every_report(hurt: Path, kafkalog: Any):
    """The other paths are still checked."""
    line = (hurt / "nowhere", hurt / "txn-0")
    assert kafkalog("verify", *line).status == 8
    metrics = prometheus(kafkalog, *line)
    assert metrics["errors"][0].value == 1
    assert metrics["exit_status"][0].value == 8
    assert defects(kafkalog, *line) == defects(kafkalog, hurt / "txn-0") != []


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
    names = ("path", "topic", "partition", "severity")
    by_partition = {
        tuple(sample.labels[name] for name in names): sample.value
        for sample in metrics["partition_defects"]
    }
    assert by_partition == inside
    summary = json.loads(kafkalog("verify", hurt, "--format", "ndjson").stdout.splitlines()[-1])
    for name in ("files", "batches", "records", "expected_bytes", "checked_bytes"):
        assert metrics[name][0].value == summary[name]
    assert metrics["last_run_timestamp_seconds"][0].value == 1_700_000_007.5
    assert metrics["duration_seconds"][0].value == 7.5


def junit(kafkalog: Any, *line: object) -> ET.Element:
    """Return a report for CI; its totals are those of its cases, and no case comes twice."""
    suite = ET.fromstring(kafkalog("verify", *line, "--format", "junit").stdout)  # noqa: S314
    for name, path in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        assert int(suite.attrib[name]) == len(suite.findall(f"testcase/{path}"))
    cases = [(one.attrib["classname"], one.attrib["name"]) for one in suite]
    assert int(suite.attrib["tests"]) == len(cases) == len({*cases})
    return suite


def cases(suite: ET.Element, tag: str) -> dict[str, str]:
    """Return the texts of what cases have."""
    return {
        one.attrib["name"]: one.find(tag).text or "" for one in suite if one.find(tag) is not None
    }


def test_junit_has_a_case_for_each_partition(hurt: Path, kafkalog: Any):
    """It fails as the exit status says; what cannot be read is an error."""
    suite = junit(kafkalog, hurt, hurt.parent / "nowhere", "--fail-on", "damage", "-n", "1")
    names = {one.name for one in hurt.iterdir() if re.search("-[0-9]+$", one.name)}
    assert {one.attrib["name"] for one in suite} == {*names, "nowhere", hurt.name}
    assert {*cases(suite, "failure")} == {"txn-0"}
    assert {*cases(suite, "error")} == {"nowhere"}
    rows = defects(kafkalog, hurt)
    damages = sum(row["severity"] == "damage" for row in rows)
    assert suite.find("*/failure").attrib["message"] == f"{damages} findings"
    lines = [*cases(suite, "failure").values(), *cases(suite, "system-out").values()]
    assert sum(len(text.splitlines()) for text in lines) == len(rows)
    put_off = junit(kafkalog, hurt, "--max-duration", "0s")
    assert int(put_off.attrib["skipped"]) > 0
    assert kafkalog("verify", hurt, "--compaction", "-o", "junit").status == 2


def test_labels_and_names_are_escaped(tmp_path: Path, corpus_dir: Path, kafkalog: Any):
    """A directory name with characters that terminals and labels must escape."""
    place = copy_tree(corpus_dir / "kafka-4.3" / "txn" / "txn-0", tmp_path / f"{EVIL}-0")
    log = place / "00000000000000000000.log"
    log.write_bytes(flip(log.read_bytes(), 8 * 100))
    [sample] = prometheus(kafkalog, place)["partition_defects"]
    assert sample.labels["path"].startswith(str(tmp_path))
    assert '"' in sample.labels["path"]
    for form in ("prometheus", "junit", "table"):
        text = kafkalog("verify", place, "--format", form).stdout.decode()
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e]", text), form


@pytest.mark.parametrize("form", ["table", "ndjson", "json", "csv", "prometheus", "junit"])
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


@pytest.mark.sampled(2)
@pytest.mark.parametrize("columns", [60, 80, 120])
def test_the_table_stays_within_the_terminal(
    columns: int, hurt: Path, kafkalog: Any, monkeypatch: pytest.MonkeyPatch
):
    """Findings wrap in their column, and only blanks change; commands to copy never wrap.

    Each file is named above its findings, and again only after those of another file.
    """
    wide = kafkalog("verify", hurt).stdout.decode()
    monkeypatch.setattr(finding_table, "terminal_width", lambda: columns)
    narrow = kafkalog("verify", hurt).stdout.decode()
    texts = [line for line in narrow.splitlines() if not line.startswith(("next  ", "why   "))]
    assert max(map(len, texts)) <= columns
    assert "".join(narrow.split()) == "".join(wide.split())
    lines = wide.splitlines()
    assert lines[-2:] == [
        f"next  kafkalog salvage {hurt} --to NEW", "why   kafkalog explain batch-crc-mismatch"
    ]  # fmt: skip
    headings = [line for line in lines if line.startswith("/")]
    assert str(hurt / LOG) in headings
    assert all(one != other for one, other in pairwise(headings))
    assert sum(line.startswith("  damage") for line in lines) == 20
    assert [line.strip() for line in lines if " more " in line] == [
        "10 more batch-crc-mismatch: -o ndjson lists them all"
    ]
    assert "30 damage findings" in wide


def test_what_is_put_off_is_told_everywhere(hurt: Path, kafkalog: Any):
    """A deferred check is neither a finding nor a success of the partition."""
    line = (hurt / "__cluster_metadata-0", hurt / "txn-0", "--max-duration", "0s")
    result = kafkalog("verify", *line)
    assert result.status == 0
    assert b"deferred when time ran out: " in result.stdout
    assert b"nothing wrong" in result.stdout
    metrics = prometheus(kafkalog, *line)
    segments = len(list((hurt / "txn-0").glob("*.log")))
    assert metrics["deferred_segments"][0].value == segments
    assert metrics["deferred_bytes"][0].value > 10_000
