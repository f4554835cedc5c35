"""How fast one decoder goes through a segment: `python -m benchmarks.decoders NAME REHEARSAL FILE`.

A process of its own for each decoder. Imports, the reading of the file and a rehearsal on another
segment are outside the time; offset, key and value of each record are asked for. Prints JSON.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

MEANINGS = {
    "Log.scan": "our kernels, into Arrow columns, all processors",
    "Log.scan, 1 thread": "the same on one thread",
    "aiokafka": "its C extension, a Python object per record",
    "kafka-python": "pure Python",
    "Log.records": "our reference decoder: the schemas of `formats`, by construct",
}

PASSES_MAX = 5


def scan_decoder(**options: Any) -> Callable[[str], int]:
    """Our kernels."""
    import kafkalog

    def decode(path: str) -> int:
        columns = ["offset", "key", "value"]
        rows = kafkalog.Log(path).scan(columns, **options)
        return sum(batch.num_rows for batch in rows.to_batches())

    return decode


def reference_decoder() -> Callable[[str], int]:
    """The schemas."""
    import kafkalog

    return lambda path: sum(1 for _ in kafkalog.Log(path).records())


def client_decoder(records_class: Any) -> Callable[[str], int]:
    """The classes of a Python client; both have the same shape."""

    def decode(path: str) -> int:
        count = 0
        records = records_class(CONTENT[path])
        while records.has_next():
            for record in records.next_batch():
                if record.offset >= 0 and record.key and record.value:
                    count += 1
        return count

    return decode


CONTENT: dict[str, bytes] = {}


def decoder(name: str) -> Callable[[str], int]:
    """A function from a path to the number of records in it."""
    if name == "Log.scan":
        return scan_decoder()
    if name == "Log.scan, 1 thread":
        return scan_decoder(threads=1)
    if name == "Log.records":
        return reference_decoder()
    if name == "aiokafka":
        from aiokafka.record._crecords import MemoryRecords

        return client_decoder(MemoryRecords)
    from kafka.record.memory_records import MemoryRecords as PlainRecords

    return client_decoder(PlainRecords)


def main(name: str, rehearsal: str, path: str) -> None:
    """Decode one segment after the other; the second counts."""
    decode = decoder(name)
    for each in (rehearsal, path):
        CONTENT[each] = Path(each).read_bytes()
    decode(rehearsal)
    seconds: list[float] = []
    while len(seconds) < PASSES_MAX and sum(seconds) < 1:
        started = time.perf_counter()
        records = decode(path)
        seconds.append(time.perf_counter() - started)
    print(json.dumps({"records": records, "seconds": statistics.median(seconds)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
