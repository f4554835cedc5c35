"""Every command on a real pseudo-terminal, with names and data that try to take it over."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.builders import SEGMENT, batch, record, write_log
from tests.conftest import Result
from tests.kafkalog_cli.test_terminal_safety import EVIL, is_safe, unsafe_log
from tests.waiting import HANG_S

Run = Callable[..., Result]
# What rich itself sends where a progress bar is shown: colours, lines cleared, the cursor hidden,
# moved up, back at the beginning of its line.
OF_RICH = re.compile(rb"\x1b\[[0-9;]*m|\x1b\[2K|\x1b\[\?25[lh]|\x1b\[1A|\r")

# Runs command lines in one process, its standard streams being the terminal. The progress bar comes
# at once, not after a second.
SCRIPT = """
import json, os, sys
from kafkalog_cli.main import run
from kafkalog_cli.output import progress
progress._DELAY_S = -1.0
with open(sys.argv[1]) as file:
    lines = json.load(file)
for line in lines:
    run(line)
    sys.stdout.flush()
"""


def on_terminal(lines: list[list[object]], place: Path, term: str) -> bytes:
    """Run the lines on a pseudo-terminal; return all the bytes that it receives."""
    asked = place / "lines.json"
    asked.write_text(json.dumps([[os.fspath(w) if isinstance(w, Path) else str(w) for w in line]
                                 for line in lines]))  # fmt: skip
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, asked], stdin=child, stdout=child, stderr=child,
        env={**os.environ, "TERM": term, "COLUMNS": "70"},
    )  # fmt: skip
    os.close(child)
    shown = b""
    try:
        while chunk := os.read(parent, 65536):
            shown += chunk
    except OSError:
        pass  # EIO: the other side is closed
    os.close(parent)
    assert process.wait(timeout=HANG_S) == 0, shown[-2000:]
    assert b"Traceback" not in shown, shown[-2000:]
    return shown


def hostile_log_dir(top: Path, evil: bytes) -> Path:
    """Make a log directory whose names and texts are all hostile; return its partition."""
    name = evil.replace(b"\0", b"").replace(b"/", b"")
    directory = Path(os.fsdecode(os.path.join(os.fsencode(top), b"d" + name, b"t" + name + b"-0")))
    path = unsafe_log(directory)
    path.write_bytes(path.read_bytes() + b"torn")
    size = len(batch(0, [record()]))
    (directory / f"{SEGMENT}.index").write_bytes(struct.pack(">iiii", 3, 2 * size, 2, 5))
    (directory / f"{SEGMENT}.timeindex").write_bytes(struct.pack(">qiqi", 7, 6, 5, 9) + b"x")
    (directory / f"{SEGMENT}.txnindex").write_bytes(b"\xff" * 35)
    (directory / f"{SEGMENT}.snapshot").write_bytes(b"\0\1" + evil * 4)
    (directory / f"{SEGMENT}.log.{os.fsdecode(name)}").touch()
    (directory / os.fsdecode(name or b"x")).mkdir(exist_ok=True)
    (directory / "leader-epoch-checkpoint").write_bytes(b"0\n1\n" + evil + b" 5\n")
    (directory / "partition.metadata").write_bytes(b"version: 0\ntopic_id: " + evil)
    log_dir = directory.parent
    (log_dir / os.fsdecode(b"other" + name)).mkdir()
    (log_dir / os.fsdecode(b"file" + name)).touch()
    (log_dir / "replication-offset-checkpoint").write_bytes(b"0\n1\nt" + evil + b" 0 x" + evil)
    (log_dir / "cleaner-offset-checkpoint").write_bytes(b"0\n1\nt" + evil + b" 0 5\n")
    (log_dir / "meta.properties").write_bytes(b"version=1\ncluster.id=" + evil + b"\nnode.id=1\n")
    (log_dir / "quorum-state").write_bytes(json.dumps({"a": evil.decode("latin-1")}).encode())
    return directory


def lines_over(directory: Path) -> list[list[object]]:
    """Return every command in every format, over paths that exist and paths that do not."""
    log_dir, path = directory.parent, directory / f"{SEGMENT}.log"
    files = [*sorted(directory.iterdir()), *sorted(log_dir.iterdir())]
    missing = f"{directory}x"
    lines: list[list[object]] = [
        ["dump-segment", path, missing, "--format", "kafka"],
        ["kafka-dump-log", "--print-data-log", "--files", path],
        ["kafka-dump-log", "--files", f"{missing}.txt"],
        ["kafka-dump-log", f"--{directory.name}"],
        [directory.name], ["ls", f"--{directory.name}"], ["ls", "--sort", directory.name, log_dir],
        ["dump-segment", path, "--from-time", directory.name],
        ["dump-segment", path, "--key-regex", f"({directory.name}"],
        ["dump-segment", path, "--to", f"{missing}/{directory.name}/x.parquet"],
        ["dump-segment", path, "--to", f"{path}.parquet"],
    ]  # fmt: skip
    for form in ("table", "ndjson", "json", "csv"):
        tail = ["--format", form]
        lines += [
            ["ls", log_dir, directory, missing, *tail],
            ["ls", "--files", log_dir, *tail],
            ["ls", "--segments", log_dir, *tail],
            ["verify", log_dir, missing, *tail],
            ["verify", "--level", "deep", directory, *tail],
            ["lookup-offset", directory, 0, 9, 99, "--show", "--steps", *tail],
            ["lookup-offset", missing, 0, *tail],
            ["dump-segment", path, *tail],
            ["dump-segment", "--batches", path, directory, log_dir, *tail],
            *(["dump-segment", file, *tail] for file in files),
        ]
    for file in files:
        lines += [["verify", file], ["kafka-dump-log", "--files", file]]
    return lines


@pytest.mark.sampled(4)
@pytest.mark.parametrize("number", range(4))
def test_every_command_on_a_dumb_terminal(tmp_path: Path, number: int):
    """No byte of words, tables, errors or Kafka's own text can act on the terminal."""
    lines = lines_over(hostile_log_dir(tmp_path, b"".join(EVIL[number::4])))
    shown = on_terminal(lines, tmp_path, "dumb")
    assert len(shown) > 20_000
    assert is_safe(shown.replace(b"\r\n", b"\n")), shown


def test_every_command_on_a_terminal_with_colours_and_progress(tmp_path: Path):
    """All escape sequences come from rich, none from the data."""
    directory = hostile_log_dir(tmp_path, b"".join(EVIL))
    lines = lines_over(directory)
    shown = on_terminal(lines, tmp_path, "xterm-256color")
    assert b"\x1b[2K" in shown, "a progress bar was shown"
    assert is_safe(OF_RICH.sub(b"", shown)), shown
    for own in (b"\x1b[31mred", b"\x1b[7m", b"\x1b[2J", b"\x1b]0;", b"\x1bP"):
        assert own not in shown


FORMULAS = (b"=1+1", b"+1", b"-1", b"@SUM(A1)", b'=HYPERLINK("x")', b"=cmd|' /C calc'!A0")


def test_csv_holds_the_text_as_it_is(tmp_path: Path, kafkalog: Run):
    """A cell that a spreadsheet would compute is data: changed, it could not be read back."""
    path = write_log(tmp_path / "t-0", batch(0, [record(i, f) for i, f in enumerate(FORMULAS)]))
    text = kafkalog("dump-segment", "--format", "csv", path).stdout.decode()
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["key"].encode() for row in rows] == list(FORMULAS)
