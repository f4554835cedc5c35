"""How long small questions about a 1 GiB segment take, as whole processes.

    python benchmarks/small_reads.py [--size-mib 1024] [--runs 5]

Makes a partition in a temporary directory from the batches of a real one (base offsets are outside
the checksum, so that the copies stay valid), asks each question several times and prints medians of
wall time and the largest memory.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kafkalog.framing import scan_batches
from kafkalog.model import Batch
from kafkalog.source import Source

SAMPLE = Path(__file__).parent.parent / "examples/log-dir/orders-0/00000000000000000000.log"
INDEX_INTERVAL = 4096


def make_partition(directory: Path, size: int) -> int:
    """Write one segment of about `size` bytes with its indexes; the next offset is returned."""
    with Source(str(SAMPLE)) as source:
        found = [batch for batch in scan_batches(source) if isinstance(batch, Batch)]
        blobs = [(batch, source.read(batch.position, batch.size_bytes)) for batch in found]
    offset = position = indexed = 0
    largest = -1
    directory.mkdir()
    base = directory / f"{0:020d}"
    with (
        base.with_suffix(".log").open("wb", 1 << 20) as log,
        base.with_suffix(".index").open("wb") as index,
        base.with_suffix(".timeindex").open("wb") as times,
    ):
        while position < size:
            for batch, blob in blobs:
                last = offset + batch.last_offset - batch.base_offset
                log.write(struct.pack(">q", offset) + blob[8:])
                if position - indexed > INDEX_INTERVAL:
                    index.write(struct.pack(">ii", last, position))
                    if batch.max_timestamp > largest:
                        largest = batch.max_timestamp
                        times.write(struct.pack(">qi", largest, last))
                    indexed = position
                offset = last + 1
                position += len(blob)
    return offset


def measure(command: list[str], runs: int) -> tuple[float, float]:
    """Median wall seconds and largest resident MB of a command."""
    walls, peaks = [], []
    for _ in range(runs + 1):
        started = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        walls.append(time.perf_counter() - started)
        peaks.append(usage.ru_maxrss / 1024)
        if process.returncode not in (0, 1):
            raise SystemExit(f"{command} ended with {process.returncode}")
    return statistics.median(walls[1:]), max(peaks)


def main() -> None:
    """Make the data, ask the questions, print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size-mib", type=int, default=1024)
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="kafkalog-bench-"))
    try:
        partition = directory / "orders-0"
        end = make_partition(partition, arguments.size_mib << 20)
        log = str(partition / f"{0:020d}.log")
        kafkalog = [sys.executable, "-m", "kafkalog_cli"]
        questions = {
            "--help": ["--help"],
            "ls": ["ls", str(partition)],
            "lookup by offset": ["lookup-offset", str(partition), str(end * 2 // 3)],
            "lookup by time": ["lookup-offset", str(partition), "--timestamp", "0"],
            "first 100 records": ["dump-segment", "--records", "--limit", "100", log],
            "100 records at two thirds": ["dump-segment", "--records", "--limit", "100",
                                          "--from-offset", str(end * 2 // 3), log],
            "first 10 batches": ["dump-segment", "--batches", "--limit", "10", log],
        }  # fmt: skip
        print(f"{os.path.getsize(log) / (1 << 20):.0f} MiB segment, offsets 0 to {end - 1}\n")
        print("| question | wall s | peak MB |\n|---|---:|---:|")
        for name, words in questions.items():
            wall, peak = measure([*kafkalog, *words], arguments.runs)
            print(f"| {name} | {wall:.2f} | {peak:.0f} |")
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
