"""Schema, struct and dtype of a layout read the same fields from real files."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from construct import GreedyRange, Struct

from formats import constants, decoder
from formats.constants import Layout
from formats.record_batch import Attributes, RecordBatchHeader
from formats.side_files import (
    AbortedTransaction,
    OffsetIndexEntry,
    ProducerSnapshotEntry,
    TimeIndexEntry,
)

if TYPE_CHECKING:
    from pathlib import Path

PARTS = [
    (constants.OFFSET_INDEX_ENTRY, OffsetIndexEntry, "*.index", 0),
    (constants.TIME_INDEX_ENTRY, TimeIndexEntry, "*.timeindex", 0),
    (constants.ABORTED_TRANSACTION, AbortedTransaction, "*.txnindex", 0),
    (constants.PRODUCER_SNAPSHOT_ENTRY, ProducerSnapshotEntry, "*.snapshot", 10),
    (constants.RECORD_BATCH_HEADER, RecordBatchHeader, "*.log", 0),
]


@pytest.mark.parametrize(("layout", "schema", "names", "start"), PARTS)
def test_schema_struct_and_dtype_agree_on_real_files(
    layout: Layout, schema: Struct, names: str, start: int, corpus_dir: Path
) -> None:
    """The first entries of every file of the kind in the corpus; for logs, the first batch.

    States of a broker share most of their files: equal bytes are parsed only once.
    """
    seen, size = 0, layout.size if names == "*.log" else 1 << 12
    for data in {first_bytes(path, start + size) for path in corpus_dir.rglob(names)}:
        entries = data[start:]
        whole = entries[: len(entries) - len(entries) % layout.size]
        parsed = [plain(one) for one in GreedyRange(schema).parse(whole)]
        assert parsed == [
            dict(zip(layout.fields, values, strict=True))
            for values in layout.struct.iter_unpack(whole)
        ]
        rows = np.frombuffer(whole, np.dtype(layout.dtype())).tolist()
        assert [tuple(one.values()) for one in parsed] == rows
        seen += len(parsed)
    assert seen > 20


def first_bytes(path: Path, size: int) -> bytes:
    with path.open("rb") as file:
        return file.read(size)


def plain(entry: Any) -> dict[str, int]:
    """Return an entry as numbers: its attributes are a schema of bits."""
    fields = {name: value for name, value in entry.items() if name != "_io"}
    if "attributes" in fields:
        bits = Attributes.build(fields["attributes"])
        fields["attributes"] = int.from_bytes(bits, "big", signed=True)
    return fields


LAYOUTS = {name: one for name, one in vars(constants).items() if isinstance(one, Layout)}


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_part_of_a_layout_reads_what_the_whole_reads(name: str) -> None:
    """A part is any first and last field, with those in between skipped."""
    layout = LAYOUTS[name]
    data = bytes(range(1, layout.size + 1))
    values = dict(zip(layout.fields, layout.struct.unpack(data), strict=True))
    names = list(layout.fields)
    for first in range(len(names)):
        for last in range(first, len(names)):
            chosen = dict.fromkeys((names[first], names[last]))
            found = layout.part(*chosen).unpack_from(data, layout.positions[names[first]])
            assert found == tuple(values[one] for one in chosen)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_schema_unpacks_what_a_struct_unpacks(name: str) -> None:
    """Any part of a layout, but a message's time without its magic; wrong sizes are refused."""
    layout = LAYOUTS[name]
    data = bytes(range(250, 256)) + bytes(range(1, layout.size))
    names = list(layout.fields)
    for first, start in enumerate(names):
        for last in range(first, len(names)):
            parsed = names[first : last + 1]
            if "timestamp" in parsed and layout is constants.MESSAGE_HEADER and first > 3:
                continue
            wanted = tuple(dict.fromkeys((start, names[last])))
            plain = layout.part(*wanted)
            by_schema = decoder.SchemaStruct(layout.schema, parsed, wanted, plain)
            place = layout.positions[start]
            assert by_schema.unpack_from(data, place) == plain.unpack_from(data, place)
            numbers = plain.unpack_from(data)
            assert by_schema.pack(*numbers) == plain.pack(*numbers)
            twice = data[: plain.size] * 2
            assert list(by_schema.iter_unpack(twice)) == list(plain.iter_unpack(twice))
            for one in (by_schema, plain):
                with pytest.raises(struct.error):
                    one.unpack(twice)
                with pytest.raises(struct.error):
                    one.unpack_from(twice, plain.size + 1)
                if plain.size > 1:
                    with pytest.raises(struct.error):
                        list(one.iter_unpack(data[: plain.size] + b"\0"))
