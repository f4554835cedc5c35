"""Decompression bombs of every codec, in every command that decompresses.

Each ends at the limit of 512 MiB per batch: a defect in its place, exit status 7, and reading goes
on. Memory is measured in a separate process.
"""

from __future__ import annotations

import json
import subprocess
import sys
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from kafkalog.io.codecs import DECOMPRESSED_SIZE_MAX, compress
from kafkalog.log.batches.records import HEADERS_MAX
from tests.builders import batch, message, record, varint, write_log
from tests.sampling import sampled
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MIB = 1 << 20
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
RSS_MAX = 1000 * MIB
"""The limit of a batch, the file, and what the process has anyway."""

# Runs command lines given on stdin, each with its output in a file of the directory given; prints
# statuses, the work done and the peak of the process's memory.
RUN = r"""
import json, os, re, sys
from kafkalog_cli.main import run
from tests.counted_work import counted_work
directory, lines = sys.argv[1], json.load(sys.stdin)
answer = os.dup(1)
found = []
for number, line in enumerate(lines):
    for descriptor in (1, 2):
        path = os.path.join(directory, f"{number}.{descriptor}")
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), descriptor)
    with counted_work() as work:
        status = run(line)
    sys.stdout.flush()
    sys.stderr.flush()
    found.append([status, work.calls, work.unpacked_bytes])
peak = int(re.search(r"VmHWM:\s+(\d+)", open("/proc/self/status").read())[1]) << 10
os.write(answer, json.dumps([found, peak]).encode())
"""


def gzip_in_one_member() -> bytes:
    """Return 640 MiB in one deflate stream."""
    maker = zlib.compressobj(9, zlib.DEFLATED, 31)
    start = maker.compress(bytes(64 * MIB)) + maker.flush(zlib.Z_FULL_FLUSH)
    piece = maker.compress(bytes(64 * MIB)) + maker.flush(zlib.Z_FULL_FLUSH)
    return start + 9 * piece + maker.flush()


def snappy_in_one_block() -> bytes:
    """Return 640 MiB as copies of 64 bytes from one byte before."""
    return varint(320 * MIB)[:5] + b"\x00\x00" + b"\xfe\x01\x00" * (10 * MIB)


def zstd_of_equal_bytes() -> bytes:
    """Return 1 GiB in 32 KiB: blocks that repeat one byte 128 Ki times."""
    block = (128 << 10 << 3 | 1 << 1).to_bytes(3, "little") + b"\0"
    return b"\x28\xb5\x2f\xfd\x00\x58" + block * 8192 + b"\1\0\0"


def repeated(codec: int) -> bytes:
    """Return 1 GiB as consecutive members, blocks or frames."""
    unit = compress(bytes(64 * MIB), codec)
    if codec == SNAPPY:
        return unit[:16] + unit[16:] * 16
    if codec == LZ4:
        return unit[:7] + unit[7:-4] * 16 + bytes(4)
    return unit * 16


def in_a_batch(payload: bytes, codec: int, attributes: int = 0) -> bytes:
    return batch(0, payload=payload, count=1, attributes=codec | attributes)


BOMBS: dict[str, Callable[[], bytes]] = {
    "gzip": lambda: in_a_batch(gzip_in_one_member(), GZIP),
    "gzip members": lambda: in_a_batch(repeated(GZIP), GZIP),
    "snappy": lambda: in_a_batch(snappy_in_one_block(), SNAPPY),
    "snappy blocks": lambda: in_a_batch(repeated(SNAPPY), SNAPPY),
    "lz4 blocks": lambda: in_a_batch(repeated(LZ4), LZ4),
    "zstd": lambda: in_a_batch(zstd_of_equal_bytes(), ZSTD),
    "zstd frames": lambda: in_a_batch(repeated(ZSTD), ZSTD),
    "control batch": lambda: in_a_batch(zstd_of_equal_bytes(), ZSTD, 0x30),
    "ten of them": lambda: 10 * in_a_batch(zstd_of_equal_bytes(), ZSTD),
    "magic 1 gzip": lambda: message(0, None, repeated(GZIP), magic=1, attributes=GZIP),
    "magic 0 snappy": lambda: message(0, None, repeated(SNAPPY), magic=0, attributes=SNAPPY),
    "magic 1 lz4": lambda: message(0, None, repeated(LZ4), magic=1, attributes=LZ4),
}
EVERYWHERE = {"gzip", "zstd", "control batch"}


@dataclass
class Done:
    """What a line came to."""

    status: int
    calls: int
    unpacked_bytes: int
    shown: bytes


def run_all(directory: Path, lines: list[list[str]]) -> tuple[list[Done], int]:
    """Run the lines; return what each came to, and the peak memory of all."""
    out = directory / "out"
    out.mkdir()
    done = subprocess.run(
        [sys.executable, "-B", "-c", RUN, out], input=json.dumps(lines), capture_output=True,
        text=True, timeout=HANG_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found, peak = json.loads(done.stdout)
    shown = [
        b"".join((out / f"{number}.{descriptor}").read_bytes() for descriptor in (1, 2))
        for number in range(len(lines))
    ]
    return [Done(*one, text) for one, text in zip(found, shown, strict=True)], peak


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_ends_at_the_limit(tmp_path: Path, name: str):
    """Every command reports a defect with status 8, and the batch after the bomb is read."""
    path = str(write_log(tmp_path / "t-0", BOMBS[name](), batch(1, [record(0, b"after")])))
    lines = [
        ["dump-segment", path],
        ["dump-segment", path, "--format", "ndjson"],
        ["dump-segment", path, "--format", "kafka"],
        ["dump-segment", path, "--to", str(tmp_path / "x.parquet")],
        ["kafka-dump-log", "--print-data-log", "--files", path],
        ["verify", "--level", "deep", path],
    ]
    if name not in EVERYWHERE:
        lines = lines[1:5:3]  # as columns and by the reference decoder
    found, peak = run_all(tmp_path, lines)
    bombs = 10 if name == "ten of them" else 1
    for line, done in zip(lines, found, strict=True):
        assert done.status == (7 if line[0] == "kafka-dump-log" else 8), (line, done.shown[-500:])
        assert b"limit-exceeded" in done.shown, line
        assert b"Traceback" not in done.shown, line
        assert done.unpacked_bytes < (2 * bombs + 1) * DECOMPRESSED_SIZE_MAX, line
        if line[0] != "verify" and "--to" not in line:
            assert b"after" in done.shown, line
    assert peak < RSS_MAX, peak >> 20


def test_what_seeks_meets_no_bomb_it_need_not_open(tmp_path: Path):
    """Listings, checks of headers and checksums, and lookups after the bomb need headers only."""
    path = write_log(tmp_path / "t-0", BOMBS["zstd frames"](), batch(1, [record(0, b"after")]))
    path.with_suffix(".index").touch()
    path.with_suffix(".timeindex").touch()
    lines = [
        ["ls", "--segments", path.parent], ["verify", path.parent],
        ["verify", "--level", "quick", path.parent], ["lookup-offset", path.parent, "1"],
        ["dump-segment", "--batches", path],
    ]  # fmt: skip
    found, peak = run_all(tmp_path, [[str(word) for word in line] for line in lines])
    assert [one.status for one in found] == [0] * len(lines)
    assert max(one.unpacked_bytes for one in found) < 4 * MIB
    assert peak < 300 * MIB


LIES = {
    "snappy claims 4 GiB": in_a_batch(b"\xff\xff\xff\xff\x0f" + bytes(900), SNAPPY),
    "snappy block claims 2 GiB": in_a_batch(
        compress(b"", SNAPPY)[:16] + (2**31 - 1).to_bytes(4, "big") + bytes(900), SNAPPY
    ),
    "zstd asks for a window of 3.75 TiB": in_a_batch(
        b"\x28\xb5\x2f\xfd\0\xff" + bytes(900), ZSTD
    ),
    "zstd asks for a window of 2 GiB": in_a_batch(
        b"\x28\xb5\x2f\xfd\0\xa8" + bytes(900), ZSTD
    ),
    "zstd claims 2^62 bytes": in_a_batch(
        b"\x28\xb5\x2f\xfd\xe0" + (1 << 62).to_bytes(8, "little") + bytes(900), ZSTD
    ),
    "lz4 claims 2^63 bytes": in_a_batch(
        b"\x04\x22\x4d\x18\x6c\x70" + b"\xff" * 7 + b"\x7f" + bytes(900), LZ4
    ),
    "lz4 block of 2 GiB": in_a_batch(
        compress(b"abc", LZ4)[:7] + b"\xff\xff\xff\x7f" + bytes(900), LZ4
    ),
    "gzip name without end": in_a_batch(b"\x1f\x8b\x08\x08" + b"a" * 100_000, GZIP),
    "gzip members without content": in_a_batch(compress(b"", GZIP) * 5_000, GZIP),
    "zstd frames without content": in_a_batch(compress(b"", ZSTD) * 10_000, ZSTD),
    "zstd skippable frames": in_a_batch(b"\x50\x2a\x4d\x18\0\0\0\0" * 10_000, ZSTD),
    "snappy blocks without content": in_a_batch(
        compress(b"", SNAPPY)[:16] + (b"\0\0\0\1\0") * 20_000, SNAPPY
    ),
    "magic 1 in magic 1": message(0, None, compress(message(
        0, None, compress(message(0) * 9, GZIP), attributes=GZIP), GZIP), attributes=GZIP),
}  # fmt: skip


def test_lies_about_sizes_take_no_memory(tmp_path: Path):
    """A size in a header is never allocated unchecked, and many empty pieces cause no hang."""
    lines = []
    for number, name in enumerate(sampled(list(LIES), 4)):
        path = str(write_log(tmp_path / f"t-{number}", LIES[name], batch(1, [record(0, b"after")])))
        lines += [["dump-segment", path, "--format", "ndjson"],
                  ["kafka-dump-log", "--print-data-log", "--files", path],
                  ["verify", "--level", "deep", path]]  # fmt: skip
    found, peak = run_all(tmp_path, lines)
    for line, done in zip(lines, found, strict=True):
        assert done.status in (0, 1, 8), (line, done.shown[-300:])
        assert done.calls < 3_000_000, line
        assert b"Traceback" not in done.shown, line
    assert peak < 300 * MIB, peak >> 20


@pytest.mark.sampled(2)
@pytest.mark.parametrize("magic", [1, 2])
def test_a_few_bytes_with_many_records_are_decoded_fast(tmp_path: Path, magic: int):
    """File size says nothing about decoding time: the reference decoder would take minutes."""
    count = 300_000
    if magic == 2:
        packed = compress(record() * count, ZSTD)
        one = batch(0, payload=packed, count=count, last_delta=count - 1, attributes=ZSTD)
    else:
        packed = compress(message(0, None, b"", magic=1) * count, GZIP, magic=1)
        one = message(count - 1, None, packed, magic=1, attributes=GZIP)
    log = write_log(tmp_path / "t-0", one)
    assert log.stat().st_size < 1 << 16
    lines = [["dump-segment", "--format", "ndjson", str(log.parent)]]
    if magic == 2:
        lines.append(["verify", "--level", "deep", str(log.parent)])
    found, _ = run_all(tmp_path, lines)
    for line, done in zip(lines, found, strict=True):
        assert done.status in {0, 1}, (line, done.shown[-500:])
        assert done.calls < 4 * count, (line, done.calls)
    assert found[0].shown.count(b"\n") >= count


@pytest.mark.sampled(2)
@pytest.mark.parametrize("codec", [GZIP, ZSTD])
def test_a_few_bytes_with_many_headers(tmp_path: Path, codec: int):
    """A record has 24 million headers, one as many as are read: none costs a call.

    The records before the first of them are read, and the batch after it.
    """
    many = headers_only(24_000_000)
    packed = compress(record(0, b"before") + many + record(2, b"behind"), codec)
    first = batch(0, payload=packed, count=3, attributes=codec)
    packed = compress(headers_only(HEADERS_MAX) + record(1, b"after"), codec)
    log = write_log(tmp_path / "t-0", first, batch(3, payload=packed, count=2, attributes=codec))
    assert log.stat().st_size < 1 << 17
    to = str(tmp_path / "to")
    lines = [
        ["dump-segment", "--format", "ndjson", str(log.parent)],
        ["verify", "--level", "deep", str(log.parent)],
        ["export", str(log.parent), "--to", to],
    ]
    found, peak = run_all(tmp_path, lines)
    for line, done in zip(lines, found, strict=True):
        assert done.status == 8, (line, done.shown[-500:])
        assert done.calls < 24_000_000 / 10, (line, done.calls)
    assert b"A record has 24000000 headers" in found[0].shown
    rows = [json.loads(row) for row in found[0].shown.splitlines()]
    assert [row["key"] for row in rows if row["type"] == "record"] == ["before", None, "after"]
    assert [len(row["headers"]) for row in rows if row["type"] == "record"] == [0, HEADERS_MAX, 0]
    assert peak < RSS_MAX


def headers_only(count: int) -> bytes:
    """Return a record with so many empty headers."""
    body = b"\0" + varint(0) + varint(0) + varint(-1) + varint(-1) + varint(count)
    body += b"\0\1" * count
    return varint(len(body)) + body
