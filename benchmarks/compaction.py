"""How long a compaction takes in a process that is there: `python -m benchmarks.compaction DIR`.

Compacts the partition in place, as `kafkalog compact --in-place` does: the log is judged, the new
segments are written, synced, read back and swapped in. Imports are outside the time. Prints JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from typing import Final

from kafkalog.compaction import CompactionRequest, compact_partition, find_candidate
from kafkalog.configs import ConfigSources
from kafkalog.journal.run import Run
from kafkalog.log_dir import open_partition

_LAZY: Final = (
    "kafkalog.check.next_start",
    "kafkalog.check.registry",
    "kafkalog.columns.legacy_kernels",
    "kafkalog.compaction.columns",
    "kafkalog.compaction.kernels",
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


def main(path: str) -> None:
    """Compact once."""
    seconds, keys = compact(path)
    print(json.dumps({"seconds": seconds, "keys": keys}))


if __name__ == "__main__":
    main(sys.argv[1])
