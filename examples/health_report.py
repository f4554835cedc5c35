"""One line for each partition of a log directory: its size, its offsets, what is wrong with it.

Usage: python examples/health_report.py [LOG_DIR]
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import kafkalog


def main(path: str) -> int:
    log_dir = kafkalog.open_path(path)
    if not isinstance(log_dir, kafkalog.LogDir):
        sys.exit(f"{path} is not a log directory")
    status = 0
    for partition in log_dir.partitions:
        run = kafkalog.Verification()
        found = Counter(defect.reference for defect in run.verify(partition))
        log = kafkalog.UnifiedLog(partition)
        words = ", ".join(f"{count} {reference}" for reference, count in sorted(found.items()))
        print(
            f"{partition.topic}-{partition.partition}: {run.summary.records} records in "
            f"{len(partition.segments)} segments, offsets {log.log_start_offset} to "
            f"{log.log_end_offset}, {len(log.open_transactions())} open transactions, "
            f"{words or 'sound'}"
        )
        status = max(status, int(run.summary.defects[kafkalog.Severity.DAMAGE] > 0))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else str(Path(__file__).parent / "log-dir")))
