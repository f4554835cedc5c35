"""Which keys of a partition have the most records?

Usage: python examples/count_by_key.py [PARTITION_DIR]
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import kafkalog


def show(defect: kafkalog.Defect) -> None:
    print(f"{defect.path}, position {defect.position}: {defect.detail}", file=sys.stderr)


def main(partition_dir: str) -> None:
    counts: Counter[bytes | None] = Counter()
    log = kafkalog.Log(partition_dir)
    for record in log.records(data=True, on_event=show):  # no transaction markers
        counts[record.key] += 1
    print(f"{counts.total()} records, {len(counts)} keys")
    for key, count in sorted(counts.items(), key=lambda item: (-item[1], item[0] or b""))[:5]:
        print(f"{count:5}  {'null' if key is None else key.decode('utf-8', 'backslashreplace')}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else str(Path(__file__).parent / "log-dir" / "orders-0"))
