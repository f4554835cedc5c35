"""Absurd numbers, holes, bombs and endless lists take bounded time and memory."""

from __future__ import annotations

import faulthandler
import resource
import struct
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import crc32c as wheel
import pytest

from kafkalog.io.codecs import compress
from kafkalog.io.paths.source import Source
from kafkalog.log.batches.framing import scan_batches
from kafkalog.model import Batch, Defect
from kafkalog.node.reader import read_records
from tests.builders import batch, flip, message, record, write_log
from tests.conftest import Result
from tests.counted_work import counted_work
from tests.sweeps import (
    covers,
    run_some,
    sweep,
)
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from pathlib import Path

SEED = 20261121
Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def _never_hangs() -> Iterator[None]:
    """End the run with all stacks shown if it opens a FIFO or loops forever."""
    faulthandler.dump_traceback_later(HANG_S, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


ABSURD = {
    "length": struct.pack(">qii", 0, 2**31 - 1, 0) + b"\2" + bytes(60),
    "count": batch(0, [record()], count=2**31 - 1),
    "count and delta": batch(0, [record()], count=2**31 - 1, last_delta=2**31 - 1),
    "record length": batch(0, payload=b"\xfe\xff\xff\xff\x0f" + bytes(20), count=1),
    "key length": batch(0, payload=b"\x28\0\0\0\xfe\xff\xff\xff\x0f" + bytes(20), count=1),
    "header count": batch(0, payload=b"\x14\0\0\0\1\1\xfe\xff\xff\xff\x0f", count=1),
    "offset": batch(2**63 - 1, [record(2**31 - 1)], last_delta=2**31 - 1),
    "negative offset": batch(-(2**63), [record(-(2**31))], last_delta=-(2**31)),
    "timestamp": batch(0, [record(time_delta=2**63 - 1)], base_time=2**63 - 1, max_time=2**63 - 1),
    "negative timestamp": batch(0, [record()], base_time=-(2**63), max_time=-(2**63)),
    "producer": batch(0, [record()], producer=(2**63 - 1, 2**15 - 1, 2**31 - 1)),
    "negative producer": batch(0, [record()], producer=(-(2**63), -(2**15), -(2**31))),
    "epoch": batch(0, [record()], epoch=2**31 - 1),
    "attributes": batch(0, [record()], attributes=-1),
    "delete horizon": batch(0, [record()], attributes=0x40, base_time=2**63 - 1),
    "message key": message(0)[:26] + struct.pack(">i", 2**31 - 1),
    "snappy length": batch(0, payload=b"\xff\xff\xff\xff\x0f" + bytes(9), count=1, attributes=2),
    "zstd window": batch(0, payload=b"\x28\xb5\x2f\xfd\0\xff" + bytes(9), count=1, attributes=4),
}  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ABSURD)
def test_absurd_numbers_take_no_memory(tmp_path: Path, kafkalog: Run, name: str):
    """Tiny files that claim gigabytes."""
    path = write_log(tmp_path / "t-0", ABSURD[name])
    run_some(kafkalog, path)
    tracemalloc.start()
    sweep(path.parent)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 << 20


@pytest.mark.parametrize("kind", ["index", "timeindex", "txnindex", "snapshot"])
def test_absurd_side_files_take_no_memory(tmp_path: Path, kafkalog: Run, kind: str):
    """Bytes of all ones: negative offsets and positions, counts of -1, absurd times."""
    path = write_log(tmp_path / "t-0", batch(0, [record()]) * 3)
    for content in (b"\xff" * 340, b"\x7f" * 340, b"\x80" + bytes(339),
                    struct.pack(">hIi", 1, wheel.crc32c(b"\x7f\xff\xff\xff"),
                                2**31 - 1)):  # fmt: skip
        side = path.with_suffix(f".{kind}")
        side.write_bytes(content)
        for line in (["dump-segment", side], ["kafka-dump-log", "--files", side]):
            assert kafkalog(*line).status in {0, 3, 6, 8}, line
        tracemalloc.start()
        sweep(path.parent)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 32 << 20


def test_holes_of_a_gibibyte_are_not_read(tmp_path: Path, kafkalog: Run):
    """Holes of preallocated logs and indexes are neither read nor held in memory."""
    path = write_log(tmp_path / "t-0", batch(0, [record()]))
    for suffix in (".log", ".index", ".timeindex"):
        with path.with_suffix(suffix).open("ab") as out:
            out.truncate(1 << 30)
    tracemalloc.start()
    for line in (["ls", path.parent], ["ls", "--segments", path.parent],
                 ["lookup-offset", path.parent, 0], ["dump-segment", path],
                 ["dump-segment", path.with_suffix(".index")],
                 ["kafka-dump-log", "--files", path], ["verify", path.parent]):  # fmt: skip
        with counted_work() as work:
            assert kafkalog(*line).status in {0, 1}, line
        assert work.read_bytes < 1 << 20, line
        assert work.calls < 1_000_000, line
    assert tracemalloc.get_traced_memory()[1] < 64 << 20
    tracemalloc.stop()


def test_a_sparse_file_with_a_batch_at_its_end(tmp_path: Path):
    """The hole is skipped, and the batch after it is found."""
    path = write_log(tmp_path / "t-0", batch(0, [record()]))
    with path.open("r+b") as out:
        out.seek(1 << 28)
        out.write(batch(1, [record()]))
    with Source(str(path)) as source:
        found = list(scan_batches(source, check_crc=True))
        assert covers(found, source.size_bytes)
    assert [item.position for item in found if isinstance(item, Batch)] == [0, 1 << 28]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_bomb_is_left_out(tmp_path: Path, codec: int):
    """Two gibibytes of zeros in one batch, in a process limited to 1.5."""
    unit = compress(bytes(64 << 20), codec)
    payload = unit
    if codec in (1, 4):
        payload = unit * 32  # members and frames may follow each other
    elif codec == 2:
        payload = unit[:16] + unit[16:] * 32
    else:
        payload = unit[:7] + unit[7:-4] * 32 + bytes(4)
    path = write_log(tmp_path / "t-0", batch(0, payload=payload, count=1, attributes=codec),
                     batch(1, [record(0, b"after")]))  # fmt: skip

    def confine() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (3 << 29, 3 << 29))

    done = subprocess.run(
        [sys.executable, "-m", "kafkalog_cli", "dump-segment", path],
        capture_output=True, preexec_fn=confine, timeout=HANG_S, check=False,
    )  # fmt: skip
    assert done.returncode == 8, done
    assert b"limit-exceeded" in done.stdout
    assert b"after" in done.stdout
    assert b"Traceback" not in done.stderr


def test_a_record_of_headers_only(tmp_path: Path):
    """As many headers as fit: linear time, not quadratic."""
    path = write_log(tmp_path, batch(0, [record(0, headers=[(b"", None)] * 30_000)]))
    with counted_work() as work:
        [found] = read_records(path)
    assert not isinstance(found, Defect)
    assert len(found.headers) == 30_000
    assert work.calls < 20 * 30_000


def test_many_tiny_batches_and_defects(tmp_path: Path):
    """Every other batch is damaged: each is reported, in one pass."""
    good = batch(0, [record()])
    data = b"".join(batch(i, [record()]) if i % 2 else flip(good, 8 * 65) for i in range(2000))
    rows = list(read_records(write_log(tmp_path, data)))
    assert sum(isinstance(row, Defect) for row in rows) == 1000
