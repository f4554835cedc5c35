"""The latest record per key of a coordinator's log, as the coordinator has it in memory.

Follows `CoordinatorLoaderImpl` and the `replay` methods of `OffsetMetadataManager` of Kafka:
what a transaction wrote counts from its COMMIT marker on, unless a record with a larger offset has
come meanwhile; a record without a value removes the key, also from transactions that are open. So
the record of a key that counts is always the one with the largest offset of those without a
transaction and those of committed ones.
"""

from __future__ import annotations

from importlib.util import find_spec
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeVar

from formats import file_names
from kafkalog.errors import DataError, KafkaLogError, UnsupportedDataError
from kafkalog.log.batches.selection import Selection
from kafkalog.model import Batch, Defect, Isolation, Severity
from kafkalog.node.reader import read_batches, read_records
from kafkalog.node.scan import scan
from kafkalog.node.targets import best_replica
from kafkalog.node.unified_log import UnifiedLog
from kafkalog.node.view import show_now

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kafkalog.files.log_dir import PartitionDir
    from kafkalog.node.state.coordinators import InternalTopic
    from kafkalog.node.state.model import Moment

COLUMNS: Final = ("offset", "timestamp", "key", "value", "producer_id", "is_control")
"""The columns of a scan that `LatestRecords` takes."""
_NO_PRODUCER: Final = -1
_COMMIT: Final = b"\0\1"  # the type in a marker's key, after its version
_KEPT: Final = ["key", "offset", "timestamp", "value"]
_ROWS_AT_ONCE: Final = 1 << 17
_ROWS_DECODED: Final = 1 << 14
_BUCKETS: Final = 16
_SIZE_AT_ONCE: Final = 1 << 25


class Latest(NamedTuple):
    """A record that counts; without a value the key is removed."""

    offset: int
    timestamp: int
    value: bytes | None


class LatestRecords:
    """Takes the rows of a log in order; call `finish` after the last ones.

    What it holds is in Arrow's arrays, because a log may have millions of keys. They are spread
    over buckets, so that merging needs little room: one and a half times the bytes of the live keys
    and values while rows are taken, and those once at the end.

    Attributes:
        pending: producer id to what it wrote in a transaction that is open.
    """

    def __init__(self) -> None:
        self.pending: dict[int, dict[bytes, Latest]] = {}
        self._waiting: list[Any] = []
        self._rows = 0
        self._size_bytes = 0
        self._kept: list[list[Any]] = [[] for _ in range(_BUCKETS)]  # in the order of the log
        self._kept_rows = 0
        self._distinct_rows = 0

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
        self._keep(last_of_keys(plain.select(_KEPT)))
        if not is_all:
            self._take_transactions(rows.filter(pc.invert(is_plain)))
        if self.pending:
            self._drop_pending(plain.filter(pc.is_null(plain["value"])))

    def rows(self) -> Any:
        """Return the latest record of each key, tombstones included, as a `pyarrow.Table`."""
        import pyarrow as pa

        self._merge()
        return pa.concat_tables([_schema().empty_table(), *chain.from_iterable(self._kept)])

    def latest(self) -> Iterator[tuple[bytes, Latest]]:
        """Yield each key with its latest record, tombstones included."""
        for rows in self.rows().to_batches(_ROWS_DECODED):
            columns = (rows[name].to_pylist() for name in ("offset", "timestamp", "value"))
            yield from zip(rows["key"].to_pylist(), map(Latest, *columns), strict=True)

    def _take_transactions(self, rows: Any) -> None:
        """Take the records and the markers of transactions, one at a time."""
        applied: dict[bytes, Latest] = {}

        def apply(key: bytes, record: Latest) -> None:
            latest = applied.get(key)
            if latest is None or latest.offset < record.offset:
                applied[key] = record

        for row in rows.to_pylist():
            producer, key = row["producer_id"], row["key"]
            if row["is_control"]:
                ended = self.pending.pop(producer, {})
                if key is not None and key[2:4] == _COMMIT:
                    for one, record in ended.items():
                        apply(one, record)
            elif key is not None:
                record = Latest(row["offset"], row["timestamp"], row["value"])
                if record.value is None:
                    apply(key, record)
                    self._drop(key, record.offset)
                else:
                    self.pending.setdefault(producer, {})[key] = record
        self._apply(applied)

    def _apply(self, applied: dict[bytes, Latest]) -> None:
        """Let records count that are not older than what the log has had of their keys."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if not applied:
            return
        keys = pa.array(list(applied), pa.binary())
        for kept in chain.from_iterable(self._kept):
            found = kept.filter(pc.is_in(kept["key"], value_set=keys))
            pairs = (found[name].to_pylist() for name in ("key", "offset"))
            for key, offset in zip(*pairs, strict=True):
                if key in applied and applied[key].offset < offset:
                    del applied[key]
        columns = [list(applied), *map(list, zip(*applied.values(), strict=True))]
        if applied:
            self._keep(pa.Table.from_arrays(
                [pa.array(one, kind.type) for one, kind in zip(columns, _schema(), strict=True)],
                schema=_schema(),
            ))  # fmt: skip

    def _keep(self, rows: Any) -> None:
        """Keep rows that are later than all others of their keys; merge when many are not."""
        import pyarrow as pa

        buckets = _buckets_of(rows["key"])
        for number, kept in enumerate(self._kept):
            kept.append(rows.filter(pa.array(buckets == number)))
        self._kept_rows += rows.num_rows
        if self._kept_rows > 1.5 * self._distinct_rows + _ROWS_AT_ONCE:
            self._merge()

    def _merge(self) -> None:
        """Keep only the last row of each key."""
        import pyarrow as pa

        for number, kept in enumerate(self._kept):
            if len(kept) > 1:
                self._kept[number] = [last_of_keys(pa.concat_tables(kept))]
                kept.clear()
        rows = sum(one.num_rows for one in chain.from_iterable(self._kept))
        self._kept_rows = self._distinct_rows = rows

    def _drop_pending(self, tombstones: Any) -> None:
        """Drop what open transactions wrote before a tombstone of the same key."""
        for row in tombstones.to_pylist():
            self._drop(row["key"], row["offset"])

    def _drop(self, key: bytes, offset: int) -> None:
        for written in self.pending.values():
            if key in written and written[key].offset < offset:
                del written[key]


class PlainRecords:
    """Does what `LatestRecords` does where pyarrow is missing, with objects for each key."""

    def __init__(self) -> None:
        self.pending: dict[int, dict[bytes, Latest]] = {}
        self._latest: dict[bytes, Latest] = {}

    def take(self, rows: Any) -> None:
        for row in rows.to_pylist():
            key, producer = row["key"], row["producer_id"]
            if row["is_control"]:
                ended = self.pending.pop(producer, {})
                if key is not None and key[2:4] == _COMMIT:
                    for one, record in ended.items():
                        self._apply(one, record)
            elif key is not None:
                record = Latest(row["offset"], row["timestamp"], row["value"])
                if producer == _NO_PRODUCER or record.value is None:
                    self._apply(key, record)
                else:
                    self.pending.setdefault(producer, {})[key] = record

    def finish(self) -> None:
        """All rows count at once."""

    def latest(self) -> Iterator[tuple[bytes, Latest]]:
        """Yield each key with its latest record, tombstones included."""
        return iter(self._latest.items())

    def _apply(self, key: bytes, record: Latest) -> None:
        before = self._latest.get(key)
        if before is None or before.offset < record.offset:
            self._latest[key] = record
        if record.value is None:
            for written in self.pending.values():
                written.pop(key, None)


def latest_records() -> LatestRecords | PlainRecords:
    """Return what keeps the records that count: columns if pyarrow is there."""
    return PlainRecords() if find_spec("pyarrow") is None else LatestRecords()


class _Rows(list[dict[str, Any]]):
    """Rows without pyarrow."""

    def to_pylist(self) -> list[dict[str, Any]]:
        return self


class TakesRows(Protocol):
    """Takes the rows of a coordinator's log in order."""

    def take(self, rows: Any) -> None:
        """Take the next rows, a `pyarrow.RecordBatch` of `COLUMNS`."""

    def finish(self) -> None:
        """Let all rows count that were taken."""


R = TypeVar("R", bound=TakesRows)


class LatestLog(Generic[R]):
    """The records of one partition of a coordinator's topic that count as of a moment.

    Args:
        number: of the partition.
        replica: its directory.
        at: the moment; None for the high watermark.
        defects: called with each defect; reading goes on.
        progress: called with numbers of bytes as they are read.
        records: makes what keeps those that count.

    Attributes:
        records: those that count.
        cut: the offsets of the log, if it has records above the high watermark that might count.
        newer: keys with newer records that the cleaner has been over: it may have removed the
            record that counted at the moment.
        is_complete: whether all of the log could be read.

    Raises:
        KafkaLogError: a file cannot be read.
    """

    def __init__(
        self,
        number: int,
        replica: PartitionDir,
        at: Moment | None,
        defects: Callable[[Defect], object] | None,
        progress: Callable[[int], None] | None,
        records: Callable[[], R],
    ) -> None:
        self._defects = defects
        self._progress = progress
        self._log = UnifiedLog(show_now(replica).partition)
        self.is_complete = True
        self.records = records()
        end = mark = self._log.high_watermark
        if at is not None and at.time_ms is not None:
            end = min(end, self._first_later_than(at.time_ms, end))
        elif at is not None and at.partition == number:
            end = min(end, at.offset)
        offsets = self._log.offsets
        is_cut = end == mark and offsets.high_watermark.above > 0
        self.cut = [offsets.of_partition(Isolation.READ_UNCOMMITTED)] if is_cut else []
        for rows in self._scan(COLUMNS, Selection(to_offset=end, isolation=Isolation.LOG)):
            self.records.take(rows)
        self.records.finish()
        self.newer = self._keys_cleaned_after(end)

    def _scan(
        self, columns: Iterable[str], selection: Selection, *, batches: bool = False
    ) -> Iterator[Any]:
        if find_spec("pyarrow") is None:
            yield from self._read(selection, batches=batches)
            return
        yield from scan(
            self._log.partition,
            columns=list(columns),
            selection=selection,
            batches=batches,
            defects=self._note,
            progress=self._progress,
        )

    def _read(self, selection: Selection, *, batches: bool) -> Iterator[_Rows]:
        read = read_batches if batches else read_records
        for found in read(self._log.partition, selection, self._progress):
            if isinstance(found, Defect):
                self._note(found)
            elif isinstance(found, Batch):
                yield _Rows([{
                    "base_offset": found.base_offset, "max_timestamp": found.max_timestamp,
                }])  # fmt: skip
            else:
                yield _Rows([{
                    "offset": found.offset, "timestamp": found.timestamp, "key": found.key,
                    "value": found.value, "producer_id": found.batch.producer_id,
                    "is_control": found.batch.is_control,
                }])  # fmt: skip

    def _note(self, defect: Defect) -> None:
        if defect.severity in (Severity.DAMAGE, Severity.WARNING):
            self.is_complete = False
        if self._defects is not None:
            self._defects(defect)

    def _first_later_than(self, at_ms: int, end: int) -> int:
        """Return the base offset of the first batch with a later timestamp, else the end."""
        wanted = Selection(to_offset=end, isolation=Isolation.LOG)
        for rows in self._scan(("base_offset", "max_timestamp"), wanted, batches=True):
            for row in rows.to_pylist():
                if row["max_timestamp"] > at_ms:
                    return int(row["base_offset"])
        return end

    def _keys_cleaned_after(self, end: int) -> set[bytes]:
        """Return the keys of the compacted part from an offset on."""
        cleaned = self._log.checkpoint(file_names.CLEANER_OFFSETS) or 0
        if cleaned <= end:
            return set()
        wanted = Selection(from_offset=end, to_offset=cleaned, isolation=Isolation.LOG)
        keys: set[bytes] = set()
        for rows in self._scan(("key", "is_control"), wanted):
            keys.update(row["key"] for row in rows.to_pylist() if not row["is_control"])
        return keys - {None}  # of records without a key


def latest_logs(
    topic: InternalTopic,
    incomplete: list[int],
    at: Moment | None,
    defects: Callable[[Defect], object] | None,
    progress: Callable[[int], None] | None,
    failed: Callable[[KafkaLogError], None] | None,
    records: Callable[[], R],
) -> Iterator[tuple[int, LatestLog[R]]]:
    """Yield each partition of a coordinator's topic with its log, read from the best replica.

    Args:
        topic: the topic.
        incomplete: gets the numbers of the partitions of which not everything could be read.
        at, defects, progress: as for `LatestLog`.
        failed: called with what ended the reading of one log; without it the error is raised.
        records: makes what keeps the records of one log.
    """
    for number, error in sorted(topic.unlisted.items()):
        if failed is None:
            raise error
        failed(error)
        incomplete.append(number)
    for number, replicas in sorted(topic.replicas.items()):
        try:
            log = LatestLog(number, best_replica(replicas), at, defects, progress, records)
        except DataError as error:
            if failed is None or isinstance(error, UnsupportedDataError):
                raise
            failed(error)
            incomplete.append(number)
            continue
        if not log.is_complete:
            incomplete.append(number)
        yield number, log


def _schema() -> Any:
    import pyarrow as pa

    return pa.schema([
        pa.field("key", pa.binary()), pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.int64()), pa.field("value", pa.binary()),
    ])  # fmt: skip


def _buckets_of(keys: Any) -> Any:
    """Return the bucket of each key: some of its last bytes, and its size, spread the keys."""
    import numpy as np

    found = []
    for chunk in keys.chunks:
        _, ends, data = chunk.buffers()
        ends = np.frombuffer(ends, np.int32)[chunk.offset : chunk.offset + len(chunk) + 1]
        content = np.frombuffer(data or b"", np.uint8)
        sizes = np.diff(ends)
        mixed = sizes.astype(np.uint32)
        for back, factor in ((1, 5), (5, 3), (6, 7)):
            places = np.maximum(ends[1:] - back, ends[:-1])
            mixed += factor * np.where(sizes > 0, content[np.minimum(places, len(content) - 1)], 0)
        found.append(mixed % _BUCKETS)
    return np.concatenate(found) if found else np.empty(0, np.uint32)


def last_of_keys(rows: Any) -> Any:
    """Return the last row of each key, in the order of the rows, in arrays of their own."""
    import numpy as np
    import pyarrow as pa

    codes = [np.empty(0, np.int32)]
    count = 0
    for chunk in rows["key"].dictionary_encode().chunks:  # all with the dictionary of the last one
        codes.append(chunk.indices.to_numpy())
        count = len(chunk.dictionary)
    last = np.empty(count, np.int64)
    last[np.concatenate(codes)] = np.arange(rows.num_rows)  # the last of several stays
    is_last = np.zeros(rows.num_rows, np.bool_)
    is_last[last] = True
    # Arrow's `take` would make one array of each column, of at most 2 GiB.
    return rows.filter(pa.array(is_last)).cast(_schema()).combine_chunks()
