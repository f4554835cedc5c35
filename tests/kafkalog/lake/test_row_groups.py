"""Row groups are bounded by rows and by bytes, and do not depend on how record batches were cut."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa

from kafkalog.lake.files import row_groups
from kafkalog.tables.schemas import SCHEMAS, TableName
from tests.sampling import new_seed

SEED = new_seed()
HEADERS = SCHEMAS[TableName.RECORDS].field("headers").type


def table_with(chance: random.Random, rows: int) -> Any:
    values = [None if chance.random() < 0.1 else b"v" * chance.randrange(300) for _ in range(rows)]
    headers = [
        [{"key": "h" * chance.randrange(9), "value": b"x" * chance.randrange(40)}
         for _ in range(chance.randrange(4))]
        for _ in range(rows)
    ]  # fmt: skip
    offsets = pa.array(range(rows), pa.int64())
    return pa.table([offsets, pa.array(values, pa.binary()), pa.array(headers, HEADERS)],
                    names=["offset", "value", "headers"])  # fmt: skip


def size_of(row: dict[str, Any]) -> int:
    """Compute the size by hand: 8 bytes per offset, and the bytes of value and headers."""
    headers = sum(len(one["key"]) + len(one["value"]) for one in row["headers"])
    return 8 + len(row["value"] or b"") + headers


def test_groups_end_where_their_rows_say() -> None:
    """The test counts by hand, row by row, however the record batches were cut."""
    print("seed", SEED)
    chance = random.Random(SEED)
    for _ in range(20):
        table = table_with(chance, chance.randrange(1, 700))
        rows_max, size_max = chance.randrange(1, 200), chance.randrange(1, 20_000)
        expected, rows, size = [], 0, 0
        for row in table.to_pylist():
            rows, size = rows + 1, size + size_of(row)
            if rows >= rows_max or size >= size_max:
                expected.append(rows)
                rows = size = 0
        expected += [rows] if rows else []
        for cut in (1, 7, 64, 10_000):
            groups = list(row_groups(table.to_batches(cut), rows_max, size_max))
            assert [len(group) for group in groups] == expected
            assert pa.concat_tables(groups).equals(table)


def test_a_value_larger_than_a_group_is_a_group() -> None:
    """Its group also has the rows before it."""
    values = [b"a", b"b" * 1000, b"c"]
    batch = pa.record_batch([pa.array(values, pa.binary())], names=["value"])
    assert [len(group) for group in row_groups([batch], 100, 500)] == [2, 1]
