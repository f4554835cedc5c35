"""The bounds stated in `docs/design/memory.md`, checked with bombs: the peak of whole processes."""

from __future__ import annotations

import json
import os
import random
import re
import struct
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from kafkalog.io.codecs import compress, crc32c
from tests.builders import BASE_TIME, batch, message, record, write_log
from tests.checkout import ROOT
from tests.sampling import sampled, tries_everything

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
SIZE = 32 * MIB
BOMBS = 8
SEED = 43
DOCS = ROOT / "docs" / "design" / "memory.md"

# Runs one command line, its output thrown away, and tells its status and the peak of its memory.
RUN = r"""
import json, os, re, sys
from kafkalog_cli.main import run
from tests.checkout import ROOT
answer = os.dup(1)
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
status = run(sys.argv[1:])
sys.stdout.flush()
peak = int(re.search(r"VmHWM:\s+(\d+)", open("/proc/self/status").read())[1]) << 10
os.write(answer, json.dumps([status, peak]).encode())
"""


ROW_GROUPS = 3 * 32 * MIB * min(len(os.sched_getaffinity(0)), 8)
"""Of an export: three for each thread."""


def bound(command: str, largest: int) -> int:
    """Return the page's bound for a command, given the number of processors of this machine."""
    text = DOCS.read_text()
    fixed, thread = re.findall(r"^    (\d+) MiB \+ (\d+) MiB per thread", text, re.MULTILINE)[0]
    [factor] = [
        int(row.split("|")[2]) for row in text.splitlines()
        if row.startswith("|") and command.removesuffix(" in place") in row.split("|")[1]
    ]  # fmt: skip
    threads = min(len(os.sched_getaffinity(0)), 8)
    return (int(fixed) + threads * int(thread)) * MIB + factor * largest


def peak_of(*line: object) -> tuple[int, int]:
    """Run one command in a process of its own; return its status and peak memory."""
    done = subprocess.run(
        [sys.executable, "-B", "-c", RUN, *map(str, line)], capture_output=True, timeout=300,
        check=True,
    )  # fmt: skip
    status, peak = json.loads(done.stdout)
    return status, peak


def a_log(directory: Path, codec: int, magic: int = 2, pieces: int = 1) -> Path:
    """Write eight batches of 32 MiB, each in a few kilobytes, and an active segment."""
    value = bytes(SIZE // pieces)
    if magic == 2:
        body = b"".join(record(n, b"key %d" % n, value) for n in range(pieces))
        packed = compress(body, codec)
        one = [
            batch(n * pieces, payload=packed, count=pieces, last_delta=pieces - 1, attributes=codec)
            for n in range(BOMBS)
        ]
    else:
        packed = compress(message(0, b"key", value, magic=magic), codec, magic=magic)
        one = [message(n, None, packed, magic=magic, attributes=codec) for n in range(BOMBS)]
    end = BOMBS * (pieces if magic == 2 else 1)
    paths = [
        write_log(directory / "t-0", *one),
        write_log(directory / "t-0", batch(end, [record()]), name=f"{end:020d}"),
    ]
    for path in paths:  # indexes as a broker leaves them: nothing is to be rebuilt
        path.with_suffix(".index").touch()
        path.with_suffix(".timeindex").write_bytes(struct.pack(">qi", BASE_TIME, 0))
    (directory / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    (directory / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
    return directory / "t-0"


COMMANDS = {
    "`verify --level deep`": ("verify", "--level", "deep", "{partition}"),
    "`dump-segment` as Kafka's text": ("dump-segment", "--format", "kafka", "{partition}"),
    "`kafka-dump-log`": ("kafka-dump-log", "--print-data-log", "--files", "{log}"),
    "`dump-segment` as table": ("dump-segment", "--format", "ndjson", "{partition}"),
    "`dump-segment --to FILE.parquet`": (
        "dump-segment", "--to", "{to}.parquet", "{partition}",
    ),
    "`lookup-offset`": ("lookup-offset", "{partition}", "1", "--show"),
    "`export`": ("export", "--to", "{to}", "{partition}"),
    "`profile`": ("profile", "{partition}"),
    "`compact`": (
        "compact", "--config", "cleanup.policy=compact", "--high-watermark", "end", "--to", "{to}",
        "{partition}",
    ),
    "`retention`": ("retention", "--config", "retention.ms=1", "{partition}"),
    "`simulate-roll`": ("simulate-roll", "--config", "segment.bytes=1MiB", "{partition}"),
    "`rebuild-index`": ("rebuild-index", "--apply", "--yes", "{partition}"),
    "`retention` in place": (
        "retention", "--apply", "--yes", "--config", "retention.ms=1",
        "--high-watermark", "end", "{partition}",
    ),
    "`compact` in place": (
        "compact", "--apply", "--yes", "--config", "cleanup.policy=compact",
        "--high-watermark", "end", "{partition}",
    ),
    "`recover` in place": ("recover", "--apply", "--yes", "--scan", "start", "{partition}"),
    "`explain`": ("explain", "limit-exceeded"),
    "`verify --compaction`": (
        "verify", "--compaction", "--cleaner-offset", "1", "--original", "{partition}",
        "{partition}",
    ),
    "`salvage`": ("salvage", "--to", "{to}", "{partition}"),
    "`recover`": ("recover", "--scan", "start", "{partition}"),
}  # fmt: skip


STATUSES = {"`verify --level deep`": 1}
"""Those with findings: the batches are larger than a broker takes by default."""


def line_of(command: str, partition: Path, to: Path) -> list[str]:
    log = partition / f"{0:020d}.log"
    return [word.format(partition=partition, log=log, to=to) for word in COMMANDS[command]]


def pairs() -> list[tuple[str, int]]:
    """Return each command with one codec, drawn by a seed, or all pairs."""
    codecs = (GZIP, SNAPPY, LZ4, ZSTD)
    if tries_everything():
        return [(command, codec) for command in COMMANDS for codec in codecs]
    draw = random.Random(SEED)
    return [(command, draw.choice(codecs)) for command in COMMANDS]


@pytest.mark.sampled(7)
@pytest.mark.parametrize(("command", "codec"), pairs())
def test_a_command_keeps_its_bound(tmp_path: Path, command: str, codec: int) -> None:
    """The log has a quarter of a gigabyte in a few bytes; one batch at a time is in memory."""
    partition = a_log(tmp_path / "data", codec)
    status, peak = peak_of(*line_of(command, partition, tmp_path / "to"))
    assert status == STATUSES.get(command, 0)
    assert peak < bound(command, SIZE), peak >> 20


@pytest.mark.thorough("tests/kafkalog/test_memory_bounds.py::test_a_command_keeps_its_bound")
@pytest.mark.parametrize(
    ("codec", "magic", "pieces"),
    [(GZIP, 2, 1), (SNAPPY, 2, 40), (LZ4, 2, 1), (GZIP, 1, 1), (SNAPPY, 0, 1), (LZ4, 1, 1)],
)
def test_every_codec_keeps_the_bound(tmp_path: Path, codec: int, magic: int, pieces: int) -> None:
    """Batches and wrappers of old messages, in columns and in the reference decoder."""
    partition = a_log(tmp_path / "data", codec, magic, pieces)
    for command in ("`verify --level deep`", "`dump-segment --to FILE.parquet`"):
        status, peak = peak_of(*line_of(command, partition, tmp_path / "to"))
        assert status in {0, 1}
        assert peak < bound(command, SIZE), (command, peak >> 20)


def test_large_batches_of_a_large_log_come_one_after_another(tmp_path: Path) -> None:
    """Several threads decode logs from 128 KiB on, but large batches still come one at a time."""
    partition = a_log(tmp_path / "data", ZSTD, pieces=1)
    filler = batch(0, [record(0, b"k", os.urandom(1000))])
    log = partition / f"{0:020d}.log"
    log.write_bytes(filler * 300 + log.read_bytes())
    for command in sampled(("`verify --level deep`", "`profile`", "`export`"), 3):
        status, peak = peak_of(*line_of(command, partition, tmp_path / "to"))
        assert status in {0, 1, 8}
        assert peak < bound(command, SIZE), (command, peak >> 20)


def test_many_large_values_are_handed_on_by_bytes(tmp_path: Path) -> None:
    """A part of a profile or an export does not hold 65,536 values of a megabyte each."""
    values = [batch(n, [record(0, b"k%d" % n, bytes(MIB))]) for n in range(200)]
    partition = write_log(tmp_path / "t-0", *values).parent
    commands = ("`profile`", "`export`", "`dump-segment --to FILE.parquet`")
    for number, command in enumerate(sampled(commands, 3)):
        status, peak = peak_of(*line_of(command, partition, tmp_path / str(number)))
        assert status == 0
        counted = ROW_GROUPS if command == "`export`" else 0  # as the page says
        assert peak < bound(command, 16 * MIB) + counted, (command, peak >> 20)


HOLE_SIZE = 400 * MIB
IN_A_HOLE = (
    "`verify --level deep`", "`dump-segment` as Kafka's text", "`kafka-dump-log`",
    "`dump-segment` as table", "`dump-segment --to FILE.parquet`", "`lookup-offset`", "`profile`",
    "`export`",
)  # fmt: skip


def a_log_with_a_hole(directory: Path, codec: int = 0) -> Path:
    """Write an uncompressed batch of 400 MiB with a correct checksum, and one batch after it."""
    path = write_log(directory / "t-0", batch(0, [record(0, b"k", b"v")], attributes=codec))
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(8)
        file.write((HOLE_SIZE - 12).to_bytes(4, "big"))
        file.seek(21)
        checksum = crc32c(file.read()[: size - 21])
        left = HOLE_SIZE - size
        while left:
            checksum = crc32c(bytes(min(left, MIB)), checksum)
            left -= min(left, MIB)
        file.seek(17)
        file.write(checksum.to_bytes(4, "big"))
        file.seek(HOLE_SIZE)
        file.write(batch(1, [record(0, b"after")]))
    return path.parent


@pytest.mark.sampled(8)
@pytest.mark.parametrize("command", IN_A_HOLE)
def test_a_stored_batch_is_in_memory_record_by_record(tmp_path: Path, command: str) -> None:
    """Its 400 MiB are never in memory at once; bytes left over in it are a finding."""
    partition = a_log_with_a_hole(tmp_path / "data")
    status, peak = peak_of(*line_of(command, partition, tmp_path / "to"))
    assert status == {"`lookup-offset`": 0, "`verify --level deep`": 1}.get(command, 8)
    counted = ROW_GROUPS if command == "`export`" else 0
    assert peak < bound(command, MIB) + counted, peak >> 20


def test_a_record_of_a_stored_batch_has_no_limit(tmp_path: Path) -> None:
    """The whole record is in memory, but at most as many times as the page states."""
    size = 72 * MIB  # from 64 MiB on the reference decoder reads it
    partition = write_log(tmp_path / "t-0", batch(0, [record(0, b"k", b"\x01" * size)])).parent
    commands = ("`verify --level deep`", "`dump-segment` as table")
    for number, command in enumerate(sampled(commands, 2)):
        status, peak = peak_of(*line_of(command, partition, tmp_path / str(number)))
        assert status == STATUSES.get(command, 0)
        assert peak < bound(command, size), (command, peak >> 20)


def test_what_is_compressed_is_limited_as_it_is_stored(tmp_path: Path) -> None:
    """600 MiB of a hole claim to be zstd: they are not read, but the batch after them is."""
    path = write_log(tmp_path / "t-0", batch(0, [record(0, b"k", b"v")], attributes=ZSTD))
    size = 600 * MIB
    with path.open("r+b") as file:
        file.seek(8)
        file.write((size - 12).to_bytes(4, "big"))
        file.seek(size)
        file.write(batch(1, [record(0, b"after")]))
    status, peak = peak_of("dump-segment", path, "--format", "ndjson")
    assert status == 8
    assert peak < bound("`dump-segment` as table", 0), peak >> 20


def test_values_of_odd_characters_keep_the_bound(tmp_path: Path) -> None:
    """A control character becomes six bytes; one wide character makes each take four."""
    value = b"\x01" * (24 * MIB) + "\U0001f600".encode()
    partition = write_log(tmp_path / "t-0", batch(0, [record(0, b"k", value)])).parent
    for form in sampled(("ndjson", "csv", "json", "table"), 4):
        words = (
            "dump-segment",
            partition,
            "--format",
            form,
            "--key-format",
            "text",
            "--value-format",
            "text",
        )
        status, peak = peak_of(*words)
        assert status == 0
        row = "`--value-format text` in a table" if form == "table" else "`dump-segment` as table"
        assert peak < bound(row, 24 * MIB), (form, peak >> 20)
