"""How long a compaction takes in a process that is there: `python -m benchmarks.compaction DIR`.

Compacts the partition in place, as `kafkalog compact --apply` does: the log is judged, the new
segments are written, synced, read back and swapped in. Imports are outside the time. Prints JSON.
With `--cp` the time is that of `cp`, which copies what the compaction reads and what it writes.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from kafkalog.change.compaction import CompactionRequest, compact_partition, find_candidate
from kafkalog.change.journal.run import Run
from kafkalog.files.log_dir import open_partition
from kafkalog.node.configs import ConfigSources

_LAZY: Final = (
    "kafkalog.check.next_start",
    "kafkalog.check.registry",
    "kafkalog.log.columns.legacy_kernels",
    "kafkalog.change.compaction.columns",
    "kafkalog.change.compaction.kernels",
)
"""Modules that are loaded where they are needed."""


def compact(path: str) -> tuple[float, int]:
    """Compact a partition that can be compacted; return the seconds and the keys."""
    for name in _LAZY:
        importlib.import_module(name)
    request = CompactionRequest(now_ms=time.time_ns() // 1_000_000, high_watermark="end")
    configs = ConfigSources({"cleanup.policy": "compact"}).in_log_dir(os.path.dirname(path))
    partition = open_partition(path)
    candidate = find_candidate(partition, configs.of_topic(partition.topic), request)
    with Run(os.path.dirname(path)) as run:
        started = time.perf_counter()
        done = compact_partition(candidate, request, run)
        seconds = time.perf_counter() - started
    assert done.is_done, "it was compacted"
    return seconds, done.keys


def copy(path: str) -> float:
    """Copy a partition as `cp` does, without syncing; return the seconds."""
    with tempfile.TemporaryDirectory(dir=Path(path).parents[1]) as target:
        started = time.perf_counter()
        subprocess.run(["cp", "--recursive", path, target], check=True)
        return time.perf_counter() - started


def main(path: str, *options: str) -> None:
    """Compact once, or copy what that reads and writes."""
    copied = copy(path) if "--cp" in options else 0
    seconds, keys = compact(path)
    if "--cp" in options:
        seconds = copied + copy(path)
    print(json.dumps({"seconds": seconds, "keys": keys}))


if __name__ == "__main__":
    main(*sys.argv[1:])
