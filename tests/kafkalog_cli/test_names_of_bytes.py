"""Names that are not UTF-8: every command takes them, escapes them, and writes valid UTF-8."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.checkout import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Result

    Run = Callable[..., Result]

COMPACTED = ("--all", "--config", "cleanup.policy=compact", "--now", "2024-01-01T01:00:00Z")
LINES: tuple[tuple[str, ...], ...] = (
    *(("ls", "{dir}", "--format", form) for form in ("table", "ndjson", "json", "csv")),
    ("ls", "--files", "{dir}"), ("ls", "--segments", "{dir}", "--format", "ndjson"),
    *(("dump-segment", "{one}", "--limit", "2", "--format", form)
      for form in ("table", "ndjson", "json", "csv")),
    *(("verify", "{dir}", "--format", form)
      for form in ("table", "ndjson", "csv", "prometheus")),
    ("lookup-offset", "{one}", "17", "--steps"),
    ("lookup-offset", "{one}", "17", "--format", "ndjson"),
    ("profile", "{dir}", "--format", "ndjson"),
    ("retention", "{dir}", "--format", "ndjson"), ("simulate-roll", "{one}"),
    ("retention", "{one}", "--high-watermark", "end", "--format", "ndjson"),
    ("recover", "{dir}"),
    ("recover", "{dir}", "--format", "ndjson"), ("rebuild-index", "{dir}", "--format", "ndjson"),
    ("verify", "--compaction", "{one}", "--cleaner-offset", "20", "--format", "ndjson"),
    ("compact", "{dir}", *COMPACTED, "--format", "ndjson"),
    ("compact", "{dir}", *COMPACTED, "--to", "{to}-compacted"),
    ("salvage", "{dir}", "--to", "{to}-salvaged", "--format", "ndjson"),
    ("export", "{dir}", "--to", "{to}-exported", "--format", "ndjson"),
    ("export", "{dir}", "--to", "{to}-lines", "--file-format", "ndjson"),
    ("export", "{dir}", "--to", "{plain}", "--as", "delta"),
    ("rebuild-index", "{dir}", "--config", "index.interval.bytes=100", "--apply", "--yes"),
)  # fmt: skip


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """A log directory, a partition and a file with bytes in their names that are not UTF-8."""
    root = tmp_path / os.fsdecode(b"log\xffdir")
    partition = root / os.fsdecode(b"ord\xfders-0")
    shutil.copytree(ROOT / "examples" / "log-dir" / "orders-0", partition)
    shutil.copy(ROOT / "examples" / "log-dir" / "meta.properties", root)
    (root / ".kafka_cleanshutdown").write_text("{}")
    (partition / os.fsdecode(b"b\xfead")).touch()
    return root


def test_every_command_takes_and_shows_them(log_dir: Path, tmp_path: Path, kafkalog: Run):
    """File names keep their bytes, and no terminal receives them raw."""
    to = tmp_path / os.fsdecode(b"t\xfco")
    for line in LINES:
        words = [
            word.format(dir=log_dir, one=next(log_dir.glob("*-0")), to=to, plain=tmp_path / "delta")
            for word in line
        ]
        done = kafkalog(*words)
        assert done.status in (0, 1), (line, done)
        text = done.stdout.decode("utf-8", "strict")
        assert not any(0xD800 <= ord(letter) <= 0xDFFF for letter in text + done.stderr), line
        if "ndjson" in line[:-1] and "--file-format" not in line:
            rows = [json.loads(row) for row in text.splitlines()]
            assert rows
    done = kafkalog("export", log_dir, "--to", to, "--as", "delta")
    assert done.status == 5  # deltalake cannot name it
    names = {os.fsencode(path.name) for path in tmp_path.rglob("*")}
    assert {b"t\xfco-exported", b"topic=ord%FDers", b"t\xfco-compacted"} <= names
    manifest = next(tmp_path.glob("*-exported/_kafkalog/manifest.json")).read_bytes()
    assert b"topic=ord%FDers" in manifest
    json.loads(manifest.decode("utf-8", "strict"))
