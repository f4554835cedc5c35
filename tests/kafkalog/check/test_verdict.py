"""What a run says of a log depends on how deep it looked, in every command."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import kafkalog
import kafkalog_cli
from kafkalog.check.verdict import Looked, verdict
from kafkalog.model import Level, Severity
from tests.builders import batch, record
from tests.checkout import ROOT
from tests.kafkalog.change.compaction.test_edges import write

if TYPE_CHECKING:
    from collections.abc import Callable

UNREAD = {
    "quick": ("headers", "nothing wrong in headers (checksums not read)"),
    "standard": ("checksums", "nothing wrong in headers and checksums (records not decoded)"),
    "deep": ("records", "nothing wrong"),
}


@pytest.fixture(scope="module")
def partition(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A partition that a cleaner has written once, and on which it will fail from now on."""
    found = tmp_path_factory.mktemp("dir") / "cleaned-0"
    records = [record(0, b"a"), record(2, b"b", time_delta=-(1 << 42))]
    write(found, 0, batch(0, records, last_delta=2))
    write(found, 3, batch(3, [record(0, b"c")]))
    return found


@pytest.mark.sampled(3, each_value=True)
@pytest.mark.parametrize("level", UNREAD)
@pytest.mark.parametrize("command", ["verify", "report"])
def test_it_says_what_was_not_read(
    kafkalog: Callable[..., Any], tmp_path: Path, command: str, level: str
) -> None:
    depth, words = UNREAD[level]
    page = tmp_path / "page.html"
    options = ("--to", page) if command == "report" else ()
    result = kafkalog(command, ROOT / "examples/log-dir", "--level", level, *options)
    if not options:
        assert result.stdout.startswith(f"{words}: ".encode())
    else:
        said = page.read_text(encoding="utf-8")
        assert f"findings: {words}<" in said
        assert ("<li>checksums not read</li>" in said) == (level == "quick")
        assert ("<li>records not decoded</li>" in said) == (level == "standard")
    rows = kafkalog(
        command, ROOT / "examples/log-dir", "--level", level, "--format", "ndjson",
        *options, *(("--replace",) if options else ()),
    )  # fmt: skip
    assert json.loads(rows.stdout.splitlines()[-1])["depth"] == depth


def test_the_default_does_not_vouch_for_records(
    kafkalog: Callable[..., Any], partition: Path
) -> None:
    """The time stands below the header: only the deepest level finds what stops the cleaner."""
    assert UNREAD["standard"][1].encode() in kafkalog("verify", partition).stdout
    deep = kafkalog("verify", partition, "--level", "deep", "--format", "ndjson")
    assert b"cleaner-stuck" in deep.stdout
    assert b"the record at offset 2 has a negative timestamp" in deep.stdout


def test_a_report_finds_what_verify_finds(tmp_path: Path) -> None:
    """A flipped bit, by default: the same findings, and the same next start."""
    partition = tmp_path / "orders-0"
    write(partition, 0, *(batch(i, [record(0, b"a")]) for i in range(3)))
    log = partition / f"{0:020}.log"
    data = bytearray(log.read_bytes())
    data[-2] ^= 1
    log.write_bytes(data)
    (tmp_path / ".kafka_cleanshutdown").unlink()
    run = kafkalog.verify(str(tmp_path / "orders-0"))
    found = list(run)
    report = kafkalog.report(str(tmp_path / "orders-0"))
    assert [one.defect for one in report.findings] == found
    assert "batch-crc-mismatch" in {one.reference for one in found}
    assert report.verdict == "1 damage finding"
    assert report.next_starts == tuple(run.next_starts)
    assert sum(one.lost_records for one in report.next_starts) == 1


def test_findings_are_counted_by_severity() -> None:
    """Less than everything was read: nothing wrong is nothing wrong so far."""
    assert verdict(Looked.NAMES, {Severity.DAMAGE: 2, Severity.NOTE: 1}) == (
        "2 damage findings, 1 note"
    )
    assert verdict(Looked.NAMES, {}) == "nothing wrong in names (files not read)"
    assert verdict(Looked.RECORDS, {}, is_whole=False) == ("nothing wrong; not everything was read")


def test_nothing_else_says_that_nothing_is_wrong() -> None:
    """Whoever says it has to say how deep it looked: one function does."""
    packages = (Path(str(one.__file__)).parent for one in (kafkalog, kafkalog_cli))
    saying = {
        path.name
        for package in packages
        for path in package.rglob("*.py")
        if "wrong" in (text := path.read_text(encoding="utf-8"))
        for part in ast.walk(ast.parse(text))
        if isinstance(part, ast.Constant) and "nothing wrong" in str(part.value)
        if "\n" not in str(part.value) and not str(part.value).endswith(".")  # no docstring
    }
    assert saying == {"verdict.py"}
    assert set(Level) == set(UNREAD)
