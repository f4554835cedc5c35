"""A progress bar leaves no trace: any other line on the terminal erases it first."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys

import pytest

from tests.waiting import HANG_S

SCRIPT = """
import sys
from contextlib import closing
from kafkalog_cli.standard_streams import close_streams, open_streams
open_streams()
from kafkalog.errors import UsageError
from kafkalog_cli.outcome import show_error, show_note, show_warning
from kafkalog_cli.output import progress
from kafkalog_cli.output.layout import Format
from kafkalog_cli.output.objects import Column, View
from kafkalog_cli.output.writer import Writer
progress._DELAY_S = progress._PAUSE_S = -1.0

def work(bar):
    for _ in range(3):
        bar(100)

view = View((Column("NAME", str),), lambda one: {"name": one})
with closing(progress.ByteProgress(2000)) as bar, Writer(view, Format.TABLE) as writer:
    work(bar)
    show_note("a note")
    work(bar)
    show_warning("a warning")
    writer.write("a row")
    writer.flush()
    work(bar)
    show_error(UsageError("an error"))
    work(bar)
    writer.write("another row")
    writer.flush()
    sys.stdout.flush()
    work(bar)
with progress.waiting_for("waiting", enabled=True):
    import time; time.sleep(0.2)
    show_note("the last note")
close_streams(0)
"""
LINES = [
    "note: a note", "warning: a warning", "NAME", "a row", "error: usage", "× an error",
    "another row", "note: the last note",
]  # fmt: skip


def screen(written: bytes) -> list[str]:
    """Return the lines of a terminal that got these bytes: what rich sends, and text."""
    lines, at, column = [""], 0, 0
    for part in re.split(r"(\x1b\[[0-9;?]*[A-Za-z]|\r|\n)", written.decode()):
        if part == "\r":
            column = 0
        elif part == "\n":
            at, column = at + 1, 0
            lines += [""] * (at + 1 - len(lines))
        elif part == "\x1b[2K":
            lines[at] = ""
        elif part == "\x1b[1A":
            at -= 1
        elif not part.startswith("\x1b"):
            lines[at] = lines[at][:column].ljust(column) + part + lines[at][column + len(part) :]
            column += len(part)
    return [line.rstrip() for line in lines if line.strip()]


@pytest.mark.parametrize("is_piped", [False, True])
def test_no_line_is_shared_with_a_bar(is_piped: bool) -> None:
    """Notes, warnings, errors and rows stand alone, whether rows go to the terminal or a pipe."""
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        stdin=child,
        stdout=subprocess.PIPE if is_piped else child,
        stderr=child,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "80"},
    )
    os.close(child)
    written = b""
    try:
        while chunk := os.read(parent, 65536):
            written += chunk
    except OSError:
        pass  # EIO: the other side is closed
    os.close(parent)
    rows, _ = process.communicate(timeout=HANG_S)
    assert process.returncode == 0, written
    assert written.count("━".encode()) > 100, "a bar was shown"
    assert b"bytes" in written or b"kB" in written or b"KiB" in written, "it counts bytes"
    plain = screen(written)
    if is_piped:
        assert rows.split(b"\n") == [b"NAME", b"a row", b"another row", b""]
        assert plain == [line for line in LINES if "row" not in line and line != "NAME"]
    else:
        assert plain == LINES
