"""Text from data and names from disk never reach a terminal raw, in any format.

The text of Kafka's own tool on a pipe is exempt: there its bytes are the contract.
"""

from __future__ import annotations

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

from kafkalog.io.wording import UNSAFE
from tests.builders import SEGMENT, batch, message, record, write_log
from tests.conftest import Result
from tests.waiting import HANG_S

Run = Callable[..., Result]

# Colours, titles, clearing, cursor, bells, 8-bit controls, carriage returns, bidi, invisible text.
EVIL = [
    b"\x1b[31mred\x1b[0m",
    b"\x1b]0;title\x07",
    b"\x1b[2J\x1b[1;1H",
    b"\x1bP+q544e\x1b\\",
    b"a\rb\x08c\x7fd\x00e",
    b"a\x0bb\x0cc\x1ad",
    "\u009b31m\u0085x".encode(),
    "\u202egpj.exe\u2066\u2069".encode(),
    "\u200b\ufeff\u2028\u2029\u00ad".encode(),
    "\U000e0041".encode(),
    b"\xff\x9b31m\x1b[1m",
    b"\xed\xa0\x80\x1b",
]
# C0 but newline and tab, DEL; C1, bidi, invisible and line separators once decoded.
RAW_BYTES = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]")
RAW_TEXT = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\U000e0000-\U000e007f]"
)


def test_nothing_unsafe_is_printable_for_python():
    """So a text that is printable for Python needs no further look."""
    unsafe = [code for code in range(sys.maxunicode + 1) if UNSAFE.match(chr(code))]
    assert len(unsafe) > 2000, "surrogates among them"
    assert not any(chr(code).isprintable() for code in unsafe)


def is_safe(data: bytes | str) -> bool:
    if isinstance(data, bytes):
        if RAW_BYTES.search(data):
            return False
        data = data.decode("utf-8")  # and valid UTF-8 at that
    return not RAW_TEXT.search(data)


def assert_safe(result: Result, line: object) -> None:
    assert is_safe(result.stdout), (line, result.stdout)
    assert is_safe(result.stderr), (line, result.stderr)


def unsafe_log(directory: Path) -> Path:
    """Write all hostile texts as keys, values and headers, in the old and the new format."""
    rows = [record(i, e, e, headers=[(e, e), (e, None)]) for i, e in enumerate(EVIL)]
    old = [message(len(EVIL) + i, e, e, magic=i & 1) for i, e in enumerate(EVIL)]
    return write_log(directory, batch(0, rows), *old)


@pytest.mark.parametrize("form", ["table", "ndjson", "json", "csv"])
@pytest.mark.parametrize("bytes_form", ["auto", "text", "hex", "base64"])
def test_keys_values_and_headers(tmp_path: Path, kafkalog: Run, form: str, bytes_form: str):
    """In each format, and for each form of bytes."""
    path = unsafe_log(tmp_path / "t-0")
    line = [
        "dump-segment",
        "--format",
        form,
        "--key-format",
        bytes_form,
        "--value-format",
        bytes_form,
        path,
    ]
    result = kafkalog(*line)
    assert result.status == 0
    assert result.stdout.count(b"\n") >= len(EVIL)
    assert_safe(result, line)


@pytest.mark.parametrize("form", ["table", "ndjson", "csv"])
def test_a_record_that_is_looked_up(tmp_path: Path, kafkalog: Run, form: str):
    """`--show` and `--explain`."""
    path = unsafe_log(tmp_path / "t-0")
    for offset in range(0, 2 * len(EVIL), 3 if form == "table" else 5):
        line = ["lookup-offset", path.parent, offset, "--show", "--steps", "--format", form]
        assert_safe(kafkalog(*line), line)


def test_what_is_escaped_can_be_read_back(tmp_path: Path, kafkalog: Run):
    """JSON escapes are standard: a program reads back the original text."""
    path = unsafe_log(tmp_path / "t-0")
    rows = [json.loads(row) for row in
            kafkalog("dump-segment", path, "--format", "ndjson").stdout.splitlines()]  # fmt: skip
    for row, evil in zip(rows, EVIL, strict=False):
        if isinstance(row["value"], str):
            assert row["value"].encode() == evil
        else:
            assert set(row["value"]) == {"base64"}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("number", range(len(EVIL)))
def test_names_of_topics_and_files(tmp_path: Path, kafkalog: Run, number: int):
    """In listings, findings, dumps and errors, also for missing files."""
    evil = EVIL[number].replace(b"\0", b"").replace(b"/", b"")
    base = os.path.join(os.fsencode(tmp_path), b"d" + evil)
    directory = Path(os.fsdecode(os.path.join(base, b"t" + evil + b"-0")))
    path = write_log(directory, batch(0, [record()]), b"torn")
    (directory / f"{SEGMENT}.index").write_bytes(b"\xff" * 9)
    (directory / f"{SEGMENT}.log.{os.fsdecode(evil)}").touch()
    (directory / "leader-epoch-checkpoint").write_bytes(b"0\n1\n" + evil + b" 5\n")
    top = directory.parent
    (top / os.fsdecode(b"other" + evil)).mkdir()
    (top / "replication-offset-checkpoint").write_bytes(b"0\n1\nt" + evil + b" 0 x" + evil)
    (top / "meta.properties").write_bytes(b"version=1\ncluster.id=" + evil + b"\nnode.id=1\n")
    missing = f"{directory}x"
    lines: list[list[object]] = [
        ["dump-segment", path, missing, directory / "none", "--format", "kafka"],
        ["kafka-dump-log", "--files", f"{missing}.txt"],
    ]
    for form in ("table", ("ndjson", "json", "csv")[number % 3]):
        tail = ["--format", form]
        lines += [
            ["ls", top, directory, missing, *tail],
            ["ls", "--files", top, *tail],
            ["ls", "--segments", top, *tail],
            ["verify", top, missing, *tail],
            ["lookup-offset", directory, 0, 99, "--steps", *tail],
            ["lookup-offset", missing, 0, *tail],
            ["dump-segment", path, directory, top, *tail],
            ["dump-segment", "--batches", path, *tail],
            ["dump-segment", top / "replication-offset-checkpoint", *tail],
            ["dump-segment", top / "meta.properties", *tail],
            ["dump-segment", directory / f"{SEGMENT}.index", *tail],
            ["dump-segment", directory / f"{SEGMENT}.log.{os.fsdecode(evil)}", *tail],
        ]
    for line in lines:
        result = kafkalog(*line)
        assert result.stdout or result.stderr
        if "kafka" in line or line[0] == "kafka-dump-log":
            assert is_safe(result.stderr), (line, result.stderr)
        else:
            assert_safe(result, line)


def test_reports_of_kafkas_tool_name_files_safely(tmp_path: Path, kafkalog: Run) -> None:
    """Gaps, mismatches, wrong times: the lists at the end, on stderr."""
    rows = [batch(3 * i, [record()]) for i in range(9)]
    path = write_log(tmp_path / "\x1b[31m\u202e\x9b-0", *rows)
    size = len(rows[0])
    path.with_suffix(".index").write_bytes(struct.pack(">iiii", 3, 2 * size, 5, 5 * size))
    path.with_suffix(".timeindex").write_bytes(struct.pack(">qiqi", 7, 6, 5, 9))
    for suffix in (".log", ".index", ".timeindex"):
        file = path.with_suffix(suffix)
        result = kafkalog("kafka-dump-log", "--deep-iteration", "--files", file)
        assert f"-0/{SEGMENT}{suffix}" in result.stderr
        assert is_safe(result.stderr), result.stderr


@pytest.mark.sampled(4, each_value=True)
@pytest.mark.parametrize("content", EVIL[::2])
@pytest.mark.parametrize(
    "name",
    ["meta.properties", "partition.metadata", "quorum-state", ".kafka_cleanshutdown",
     "leader-epoch-checkpoint", "cleaner-offset-checkpoint"],
)  # fmt: skip
def test_small_files_and_their_errors(tmp_path: Path, kafkalog: Run, name: str, content: bytes):
    """Malformed files, and files as valid as they can be with such a text in them."""
    escaped = json.dumps(content.decode("latin-1")).encode()
    sound = {
        "meta.properties": b"version=0\ncluster.id=" + content,
        "partition.metadata": b"version: 0\ntopic_id: " + content,
        "quorum-state": b'{"a":' + escaped + b"," + escaped + b":{}}",
        ".kafka_cleanshutdown": b'{"a":[' + escaped + b"]}",
        "leader-epoch-checkpoint": b"0\n1\n" + content + b" 0\n",
        "cleaner-offset-checkpoint": b"0\n1\n" + content.replace(b"\x0c", b"").replace(
            b"\x0b", b"").replace(b"\r", b"") + b" 0 5\n",
    }[name]  # fmt: skip
    path = tmp_path / name
    for data in (content, sound):
        path.write_bytes(data)
        for form in ("table", "csv"):
            line = ["dump-segment", path, "--format", form]
            assert_safe(kafkalog(*line), (line, data))
        assert_safe(kafkalog("verify", path), data)


@pytest.mark.parametrize("evil", [text for text in EVIL if b"\0" not in text])
def test_words_of_the_command_line(tmp_path: Path, kafkalog: Run, evil: bytes):
    """A shell may expand file names anywhere: as options, values or commands."""
    text = os.fsdecode(evil)
    path = unsafe_log(tmp_path / "t-0")
    for line in (
        [text],
        ["ls", f"--{text}"],
        ["ls", f"-{text}"],
        ["ls", "--sort", text, path],
        ["ls", "--tz", text, path],
        ["dump-segment", path, "--from-time", text],
        ["dump-segment", path, "--from-offset", text],
        ["dump-segment", path, "--key-regex", f"({text}"],
        ["dump-segment", path, "--key", f"0x{text}"],
        ["lookup-offset", path.parent, text],
        ["lookup-offset", path.parent, "1", "--high-watermark", text],
        ["kafka-dump-log", f"--{text}"],
        ["kafka-dump-log", "--max-bytes", text, "--files", path],
        ["kafka-dump-log", "--key-decoder-class", text, "--files", path],
    ):
        result = kafkalog(*line)
        assert result.status in {2, 3, 5}, (line, result)
        assert_safe(result, line)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "line",
    [
        ["dump-segment", "--format", "kafka"],
        ["dump-segment"],
        ["kafka-dump-log", "--print-data-log", "--files"],
        ["verify"],
        ["ls", "--files"],
        ["ls", "--\x1b[31m\u202e"],
        ["\x1b[31m\x9b"],
    ],
)
def test_a_terminal_gets_nothing_raw(tmp_path: Path, line: list[str]):
    """Kafka's text and rich's folded tables as well: the output of a real pseudo-terminal."""
    top = tmp_path / "\x1b[31mtop\u202e"
    path = unsafe_log(top / "t\x1b[1m-0")
    with path.open("ab") as out:
        out.write(b"torn")
    (path.parent / "\x1b[7m\x9b").touch()
    target = path.parent if line[0] in ("verify", "ls") else path
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "kafkalog_cli", *line, target],
        stdin=child, stdout=child, stderr=child,
        env={**os.environ, "TERM": "dumb", "COLUMNS": "60"},
    )  # fmt: skip
    os.close(child)
    shown = b""
    try:
        while chunk := os.read(parent, 65536):
            shown += chunk
    except OSError:
        pass  # EIO: the other side is closed
    os.close(parent)
    assert process.wait(timeout=HANG_S) in (0, 1, 2, 8)
    assert rb"\x1b[" in shown, "what is evil is shown, as text"
    assert is_safe(shown.replace(b"\r\n", b"\n")), shown
