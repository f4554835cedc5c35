"""Which types does a topic have? Each becomes a table of its own.

Usage: python examples/types_to_tables.py [LOG_DIR]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import duckdb

import kafkalog
from kafkalog.tables import Bounds, Request

LOG_DIR = sys.argv[1] if len(sys.argv) > 1 else str(Path(__file__).parent / "typed")

with tempfile.TemporaryDirectory() as lake:
    done = kafkalog.export(
        LOG_DIR, to=lake, registry=LOG_DIR, split_by_type=True, columns=("offset",),
        request=Request(bounds=Bounds(topics=("events",))),
    ).apply()  # fmt: skip
    print(f"{done.rows} records in {len(done.tables)} tables")
    for name, rows in done.tables.items():
        print(f"{name}: {rows}")
        topic, _, kind = name.rpartition(".")
        files = f"{lake}/topic={topic}/type={kind}/**/*.parquet"
        found = duckdb.read_parquet(files, hive_partitioning=False).order('"offset"')
        for row in found.to_arrow_table().to_pylist():
            print("  ", {column: value for column, value in row.items() if column[:6] != "value_"})
