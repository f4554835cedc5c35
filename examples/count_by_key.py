"""How many records each key of a topic has, most frequent first.

Usage: python examples/count_by_key.py [PARTITION_DIR]
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import kafkalog


def main(partition_dir: str) -> None:
    counts: Counter[bytes | None] = Counter()
    for record in kafkalog.read_records(partition_dir):
        if isinstance(record, kafkalog.Defect):
            print(f"{record.path}, position {record.position}: {record.detail}", file=sys.stderr)
        elif not record.batch.is_control:
            counts[record.key] += 1
    print(f"{counts.total()} records, {len(counts)} keys")
    for key, count in sorted(counts.items(), key=lambda item: (-item[1], item[0] or b""))[:5]:
        print(f"{count:5}  {'null' if key is None else key.decode('utf-8', 'backslashreplace')}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else str(Path(__file__).parent / "log-dir" / "orders-0"))
