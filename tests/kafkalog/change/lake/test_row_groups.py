"""Row groups are bounded by rows and by bytes, and do not depend on how record batches were cut."""

from __future__ import annotations

import io
import random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kafkalog.change.lake.files import CountedFile, row_groups, table_writer
from kafkalog.change.lake.model import Writing
from kafkalog.tables.schemas import SCHEMAS, TableName
from tests.sampling import new_seed, tries_everything

SEED = new_seed()
HEADERS = SCHEMAS[TableName.RECORDS].field("headers").type
DECODED = pa.struct([("n", pa.int32()), ("text", pa.string()), ("is", pa.bool_())])


def table_with(chance: random.Random, rows: int) -> Any:
    values = [None if chance.random() < 0.1 else b"v" * chance.randrange(300) for _ in range(rows)]
    headers = [
        [{"key": "h" * chance.randrange(9), "value": b"x" * chance.randrange(40)}
         for _ in range(chance.randrange(4))]
        for _ in range(rows)
    ]  # fmt: skip
    decoded = [
        None if chance.random() < 0.1 else {"n": 7, "text": "t" * chance.randrange(9), "is": True}
        for _ in range(rows)
    ]
    offsets = pa.array(range(rows), pa.int64())
    return pa.table(
        [offsets, pa.array(values, pa.binary()), pa.array(headers, HEADERS),
         pa.array(decoded, DECODED)],
        names=["offset", "value", "headers", "value_decoded"],
    )  # fmt: skip


def size_of(row: dict[str, Any]) -> int:
    """Compute the size by hand: 8 bytes per offset, 5 of number and flag, and those of texts.

    Each text or list has 4 bytes more.
    """
    headers = 4 + sum(8 + len(one["key"]) + len(one["value"]) for one in row["headers"])
    text = (row["value_decoded"] or {"text": ""})["text"]
    return 8 + 5 + 4 + len(row["value"] or b"") + headers + 4 + len(text)


def test_groups_end_where_their_rows_say() -> None:
    """The test counts by hand, row by row, however the record batches were cut."""
    print("seed", SEED)
    chance = random.Random(SEED)
    for _ in range(20 if tries_everything() else 4):
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


def test_columns_whose_values_hardly_repeat_have_no_dictionary() -> None:
    """A dictionary of them would be as large as they are, and cost a hash table meanwhile."""
    count = 1000
    kind = pa.struct([("id", pa.int64()), ("name", pa.string()), ("state", pa.string()),
                      ("amount", pa.float64()), ("note", pa.string())])  # fmt: skip
    rows = [
        {"id": i, "name": f"n{i}", "state": "new", "amount": i % 9.0, "note": None}
        for i in range(count)
    ]
    table = pa.table({"offset": range(count), "value_decoded": pa.array(rows, kind)})
    file = io.BytesIO()
    counted = CountedFile(file)
    with table_writer(counted, table.schema, Writing(), table) as write:
        write(table)
    metadata = pq.read_metadata(file)
    group = metadata.row_group(0)
    has_dictionary = {
        one.path_in_schema: one.has_dictionary_page
        for one in (group.column(i) for i in range(group.num_columns))
    }
    assert has_dictionary == {
        "offset": False, "value_decoded.id": False, "value_decoded.name": False,
        "value_decoded.state": True, "value_decoded.amount": True, "value_decoded.note": True,
    }  # fmt: skip
    assert pq.read_table(file) == table
