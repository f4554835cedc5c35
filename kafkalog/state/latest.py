"""The latest record per key of a coordinator's log, as the coordinator has it in memory.

Follows `CoordinatorLoaderImpl` and the `replay` methods of `OffsetMetadataManager` of Kafka 4.3:
what a transaction wrote counts from its COMMIT marker on, unless a record with a larger offset has
come meanwhile; a record without a value removes the key, also from transactions that are open. So
the record of a key that counts is always the one with the largest offset of those without a
transaction and those of committed ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

COLUMNS: Final = ("offset", "timestamp", "key", "value", "producer_id", "is_control")
"""The columns of a scan that `LatestRecords` takes."""
_NO_PRODUCER: Final = -1
_COMMIT: Final = b"\0\1"
_ROWS_AT_ONCE: Final = 1 << 19
_SIZE_AT_ONCE: Final = 1 << 26


class Latest(NamedTuple):
    """A record that counts; without a value the key is removed."""

    offset: int
    timestamp: int
    value: bytes | None


class LatestRecords:
    """Takes the rows of a log in order; call `finish` after the last ones.

    Attributes:
        applied: key to its latest record, tombstones included.
        pending: producer id to what it wrote in a transaction that is open.
    """

    def __init__(self) -> None:
        self.applied: dict[bytes, Latest] = {}
        self.pending: dict[int, dict[bytes, Latest]] = {}
        self._waiting: list[Any] = []
        self._rows = 0
        self._size_bytes = 0

    def take(self, rows: Any) -> None:
        """Take the next rows, a `pyarrow.RecordBatch` of `COLUMNS`."""
        self._waiting.append(rows)
        self._rows += rows.num_rows
        self._size_bytes += rows.nbytes
        if self._rows >= _ROWS_AT_ONCE or self._size_bytes >= _SIZE_AT_ONCE:
            self.finish()

    def finish(self) -> None:
        """Let all rows count that were taken. The more at once, the fewer for each key."""
        if not self._waiting:
            return
        import pyarrow as pa
        import pyarrow.compute as pc

        rows = pa.Table.from_batches(self._waiting)
        self._waiting, self._rows, self._size_bytes = [], 0, 0
        is_plain = pc.and_(
            pc.equal(rows["producer_id"], _NO_PRODUCER),
            pc.and_(pc.invert(rows["is_control"]), pc.is_valid(rows["key"])),
        )
        is_all = pc.all(is_plain).as_py()
        plain = rows if is_all else rows.filter(is_plain)
        self.applied.update(_latest_of(plain))
        if not is_all:
            self._take_transactions(rows.filter(pc.invert(is_plain)))
        if self.pending:
            self._drop_pending(plain.filter(pc.is_null(plain["value"])))

    def _take_transactions(self, rows: Any) -> None:
        """Take the records and the markers of transactions, one at a time."""
        for row in rows.to_pylist():
            producer, key = row["producer_id"], row["key"]
            if row["is_control"]:
                ended = self.pending.pop(producer, {})
                if key is not None and key[2:4] == _COMMIT:
                    for one, record in ended.items():
                        self._apply(one, record)
            elif key is not None:
                record = Latest(row["offset"], row["timestamp"], row["value"])
                if record.value is None:
                    self._apply(key, record)
                    self._drop(key, record.offset)
                else:
                    self.pending.setdefault(producer, {})[key] = record

    def _apply(self, key: bytes, record: Latest) -> None:
        latest = self.applied.get(key)
        if latest is None or latest.offset < record.offset:
            self.applied[key] = record

    def _drop_pending(self, tombstones: Any) -> None:
        """Drop what open transactions wrote before a tombstone of the same key."""
        for row in tombstones.to_pylist():
            self._drop(row["key"], row["offset"])

    def _drop(self, key: bytes, offset: int) -> None:
        for written in self.pending.values():
            if key in written and written[key].offset < offset:
                del written[key]


def _latest_of(rows: Any) -> Iterator[tuple[bytes, Latest]]:
    """Return the last row of each key."""
    import pyarrow as pa

    numbered = pa.table({"key": rows["key"], "row": pa.array(range(rows.num_rows))})
    last = numbered.group_by("key", use_threads=False).aggregate([("row", "max")])
    found = rows.take(last["row_max"])
    records = map(Latest, *(found[name].to_pylist() for name in ("offset", "timestamp", "value")))
    return zip(found["key"].to_pylist(), records, strict=True)
