"""A partition as a file of Parquet, and a question that any reader of Parquet can answer.

Usage: python examples/export_parquet.py [PARTITION_DIR]
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pyarrow.parquet as pq

from kafkalog_cli.main import run


def main(partition_dir: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        target = os.path.join(directory, "records.parquet")
        # The same as on the command line: kafkalog dump-segment ... --format parquet --to FILE
        status = run(["dump-segment", partition_dir, "--format", "parquet", "--to", target])
        table = pq.read_table(target, columns=["path", "offset"])
    print(f"{table.num_rows} records, exit status {status}")
    segments = table.group_by("path").aggregate([("offset", "count"), ("offset", "max")])
    for row in sorted(segments.to_pylist(), key=lambda row: str(row["path"])):
        name = os.path.basename(row["path"])
        print(f"{name}: {row['offset_count']} records up to offset {row['offset_max']}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else str(Path(__file__).parent / "log-dir" / "orders-0"))
