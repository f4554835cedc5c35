"""How long a Parquet file of records takes: `python -m benchmarks.parquet PARTITION FILE.parquet`.

That is the whole process of `kafkalog dump-segment --to FILE.parquet`, from the segments to the
file. With `--from-memory` it is pyarrow alone, which writes the columns of that file out of memory,
in the same encodings. Prints JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path


def export(partition: str, to: Path) -> float:
    """Write the file by the command; return the seconds."""
    to.unlink(missing_ok=True)
    program = str(Path(sys.executable).with_name("kafkalog"))
    command = [program, "dump-segment", partition, "--to", str(to)]
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def write_from_memory(file: Path) -> float:
    """Read a file of records, write it again; return the seconds of writing."""
    import pyarrow.parquet as pq

    from kafkalog.tables.arrow_files import parquet_writer

    table = pq.read_table(file)
    started = time.perf_counter()
    with file.open("wb") as target, parquet_writer(target, table.schema) as writer:
        writer.write_table(table, row_group_size=1 << 16)
    return time.perf_counter() - started


def main(partition: str, file: str, *options: str) -> None:
    """Measure one of the two."""
    seconds = export(partition, Path(file))
    if "--from-memory" in options:
        seconds = write_from_memory(Path(file))
    print(json.dumps({"seconds": seconds}))


if __name__ == "__main__":
    main(*sys.argv[1:])
