"""How does a partition become a file of Parquet, and what does any reader of Parquet see in it?

Usage: python examples/export_parquet.py [PARTITION_DIR]
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pyarrow.parquet as pq

import kafkalog


def main(partition_dir: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        target = os.path.join(directory, "records.parquet")
        scan = kafkalog.Log(partition_dir).scan()
        with pq.ParquetWriter(target, scan.schema) as writer:
            for rows in scan.to_batches():  # in bounded memory, however large the log is
                writer.write_batch(rows)
        table = pq.read_table(target, columns=["path", "offset"])
    print(f"{table.num_rows} records")
    segments = table.group_by("path").aggregate([("offset", "count"), ("offset", "max")])
    for row in sorted(segments.to_pylist(), key=lambda row: str(row["path"])):
        name = os.path.basename(row["path"])
        print(f"{name}: {row['offset_count']} records up to offset {row['offset_max']}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else str(Path(__file__).parent / "log-dir" / "orders-0"))
