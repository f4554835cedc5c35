"""Fixed binary layouts, each stated once: the names and types of the fields, in file order.

The construct schemas, `struct` formats, numpy dtypes and field positions all derive from these.
Numbers are big-endian. Follows `DefaultRecordBatch`, `LegacyRecord`, `OffsetIndex`, `TimeIndex`,
`AbortedTxn` and `ProducerSnapshot.json` of Kafka 4.3.
"""

from __future__ import annotations

import struct
from typing import Final

_WIDTHS: Final = {"b": "i1", "h": "i2", "i": "i4", "I": "u4", "q": "i8"}


class Layout:
    """Fields of fixed size, one after another.

    Attributes:
        fields: name to type, as a format character of the module `struct`.
        positions: name to the position of the field's first byte.
        struct: packs and unpacks all fields.
        size: total length of the fields.
    """

    def __init__(self, **fields: str) -> None:
        self.fields = fields
        self.struct = struct.Struct(">" + "".join(fields.values()))
        self.size = self.struct.size
        self.positions = {}
        position = 0
        for name, kind in fields.items():
            self.positions[name] = position
            position += struct.calcsize(f">{kind}")

    def part(self, *names: str) -> struct.Struct:
        """Return a struct of the named fields only; bytes of fields between them are skipped."""
        chosen = list(self.fields)
        first, last = chosen.index(names[0]), chosen.index(names[-1])
        kinds = (
            kind if name in names else f"{struct.calcsize(f'>{kind}')}x"
            for name, kind in list(self.fields.items())[first : last + 1]
        )
        return struct.Struct(">" + "".join(kinds))

    def dtype(self) -> list[tuple[str, str]]:
        """Return the fields as a `numpy.dtype` description."""
        return [(name, f">{_WIDTHS[kind]}") for name, kind in self.fields.items()]


# The header of a batch of magic 2.
RECORD_BATCH_HEADER: Final = Layout(
    base_offset="q",
    batch_length="i",
    partition_leader_epoch="i",
    magic="b",
    crc="I",
    attributes="h",
    last_offset_delta="i",
    base_timestamp="q",
    max_timestamp="q",
    producer_id="q",
    producer_epoch="h",
    base_sequence="i",
    records_count="i",
)
# The start of a message of magic 1; magic 0 lacks the timestamp.
MESSAGE_HEADER: Final = Layout(
    offset="q", size="i", crc="I", magic="b", attributes="b", timestamp="q"
)
OFFSET_INDEX_ENTRY: Final = Layout(relative_offset="i", position="i")
TIME_INDEX_ENTRY: Final = Layout(timestamp="q", relative_offset="i")
ABORTED_TRANSACTION: Final = Layout(
    version="h", producer_id="q", first_offset="q", last_offset="q", last_stable_offset="q"
)
# The start of a producer snapshot; the number of entries (int32) and the entries follow.
PRODUCER_SNAPSHOT_HEADER: Final = Layout(version="h", crc="I")
PRODUCER_SNAPSHOT_ENTRY: Final = Layout(
    producer_id="q",
    producer_epoch="h",
    last_sequence="i",
    last_offset="q",
    offset_delta="i",
    timestamp="q",
    coordinator_epoch="i",
    current_txn_first_offset="q",
)
