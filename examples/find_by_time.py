"""What was the first record at or after a time, and how much of the log has to be read for that?

Usage: python examples/find_by_time.py [PARTITION_DIR [ISO_TIME]]
"""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path

import kafkalog


def main(partition_dir: str, time: str) -> None:
    log = kafkalog.Log(partition_dir)
    found = log.lookup(timestamp=datetime.fromisoformat(time))
    if found.record is None:
        print(f"no record at or after {time}")
        return
    total = sum(segment.log.size_bytes for segment in log.segments)
    print(f"offset {found.offset}: {(found.record.value or b'').decode()}")
    print(f"{found.read_bytes} of {total} bytes read")
    for step in found.steps:
        print(f"  {step.action}: {step.detail}")


if __name__ == "__main__":
    main(
        sys.argv[1] if len(sys.argv) > 1 else str(Path(__file__).parent / "log-dir" / "orders-0"),
        sys.argv[2] if len(sys.argv) > 2 else "2024-01-01T00:10:00Z",
    )
