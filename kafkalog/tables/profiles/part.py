"""The counts of one piece of a log: mergeable, and serializable as JSON."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from formats.constants import NO_TIMESTAMP
from kafkalog.io.engine import failures_kept
from kafkalog.log.defects import DELETED, Events
from kafkalog.tables import Split, TableName, read_split
from kafkalog.tables.listeners import COPIED
from kafkalog.tables.profiles.model import DistinctCount, FrequentKeys, text_of
from kafkalog.tables.profiles.schema_ids import KnownIds
from kafkalog.tables.schemas import table_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

BUCKETS_MAX: Final = 4096
_KEYS_AT_ONCE: Final = 32 << 20  # keys wait until so many bytes of them can be counted together
_OF_RECORDS: Final = ("key", "value", "headers", "offset", "timestamp_ms", "compression")
_OF_BATCHES: Final = (
    "records", "size_bytes", "compression", "producer_id", "base_sequence", "is_control",
    "is_transactional",
)  # fmt: skip


class Part:
    """The counts of one piece of a log.

    Attributes:
        counts: sums, by name; for a codec as `codec/lz4/batches`, for a schema as `schema/value/7`.
        largest, smallest: by name; a name is missing if nothing was seen.
        keys, producers: estimates of distinct values.
        frequent: the frequent keys.
        histogram: records and bytes by time.
    """

    def __init__(self, bucket_ms: int, ids: KnownIds | None = None) -> None:
        self.counts: Counter[str] = Counter()
        self._ids = ids
        self.largest: dict[str, int] = {}
        self.smallest: dict[str, int] = {}
        self.keys = DistinctCount()
        self.producers = DistinctCount()
        self.frequent = FrequentKeys()
        self.histogram = Histogram(bucket_ms)
        self._waiting: list[Any] = []

    def add_records(self, batch: Any) -> None:
        """Count records: the columns `_OF_RECORDS`."""
        keys, values = batch.column("key"), batch.column("value")
        sizes = {
            "key_size_bytes": _sizes(keys),
            "value_size_bytes": _sizes(values),
            "header_size_bytes": _header_sizes(batch.column("headers")),
        }
        self.counts["records"] += batch.num_rows
        self.counts["null_keys"] += keys.null_count
        tombstones = pc.and_(pc.is_valid(keys), pc.is_null(values))
        self.counts["tombstones"] += pc.sum(tombstones).as_py() or 0
        for name, column in sizes.items():
            self.counts[name] += pc.sum(column).as_py() or 0
        data = pc.add(
            pc.add(sizes["key_size_bytes"], sizes["value_size_bytes"]), sizes["header_size_bytes"]
        )
        self._add_range("offset", batch.column("offset"))
        times = batch.column("timestamp_ms")
        known = pc.not_equal(times, NO_TIMESTAMP)  # -1 would become the earliest time of all
        self._add_range("timestamp", times.filter(known))
        self.histogram.add(times.filter(known), data.filter(known))
        by_codec = pa.table({"codec": batch.column("compression"), "data": data})
        for row in (
            by_codec.group_by("codec", use_threads=False).aggregate([("data", "sum")]).to_pylist()
        ):
            self.counts[f"codec/{row['codec']}/data_bytes"] += row["data_sum"]
        if self._ids is not None:
            for source in ("key", "value"):
                found = self._ids.counted(source, batch.column(source), batch.column("headers"))
                for schema_id, number in found:
                    name = "unasked" if schema_id is None else f"schema/{source}/{schema_id}"
                    self.counts[name] += number
        self._waiting.append(keys)
        if sum(some.nbytes for some in self._waiting) > _KEYS_AT_ONCE:
            self._add_keys()

    def add_batches(self, batch: Any) -> None:
        """Count batches: the columns `_OF_BATCHES`."""
        self.counts["batches"] += batch.num_rows
        controls = batch.column("is_control")
        self.counts["control_batches"] += pc.sum(controls).as_py() or 0
        for name, flags in (
            ("transactional_batches", batch.column("is_transactional")),
            # Batches of producers without idempotence have -1.
            ("idempotent_batches", pc.greater_equal(batch.column("base_sequence"), 0)),
        ):
            self.counts[name] += pc.sum(pc.and_(flags, pc.invert(controls))).as_py() or 0
        self._add_range("batch_records", batch.column("records").filter(pc.invert(controls)))
        self._add_range("batch_size", batch.column("size_bytes"))
        producers = pc.unique(batch.column("producer_id"))
        # -1 is no producer.
        self.producers.add(producers.filter(pc.greater_equal(producers, 0)).to_pylist())
        by_codec = pa.table(
            {"codec": batch.column("compression"), "size": batch.column("size_bytes")}
        )
        grouped = by_codec.group_by("codec", use_threads=False).aggregate(
            [("size", "sum"), ("size", "count")]
        )
        for row in grouped.to_pylist():
            self.counts[f"codec/{row['codec']}/batches"] += row["size_count"]
            self.counts[f"codec/{row['codec']}/size_bytes"] += row["size_sum"]

    def merge(self, other: Self) -> None:
        """Add the counts of another part."""
        self.counts.update(other.counts)
        for name, value in other.largest.items():
            self.largest[name] = max(value, self.largest.get(name, value))
        for name, value in other.smallest.items():
            self.smallest[name] = min(value, self.smallest.get(name, value))
        self.keys.merge(other.keys)
        self.producers.merge(other.producers)
        self.frequent.merge(other.frequent)
        self.histogram.merge(other.histogram)

    def as_json(self) -> dict[str, Any]:
        """Return the fields from which `from_json` rebuilds it."""
        self._add_keys()
        return {
            "counts": dict(self.counts),
            "largest": self.largest,
            "smallest": self.smallest,
            "keys": self.keys.as_text(),
            "producers": self.producers.as_text(),
            "frequent": self.frequent.as_text(),
            "bucket_ms": self.histogram.bucket_ms,
            "histogram": [[start, *both] for start, both in self.histogram.buckets.items()],
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """Rebuild it from the result of `as_json`."""
        part = cls(fields["bucket_ms"])
        part.counts.update(fields["counts"])
        part.largest, part.smallest = dict(fields["largest"]), dict(fields["smallest"])
        part.keys = DistinctCount(fields["keys"])
        part.producers = DistinctCount(fields["producers"])
        part.frequent = FrequentKeys(fields["frequent"])
        part.histogram.buckets = {one[0]: (one[1], one[2]) for one in fields["histogram"]}
        return part

    def _add_range(self, name: str, column: Any) -> None:
        if len(column):
            both = pc.min_max(column).as_py()
            self.smallest[name] = min(both["min"], self.smallest.get(name, both["min"]))
            self.largest[name] = max(both["max"], self.largest.get(name, both["max"]))

    def _add_keys(self) -> None:
        """Pass the waiting keys to the sketches, each once with its count, which is faster."""
        counted = pc.value_counts(pa.chunked_array(self._waiting, pa.binary()).drop_null())
        self._waiting.clear()
        texts = [text_of(key.as_py()) for key in counted.field("values")]
        self.keys.add(texts)
        self.frequent.add(zip(texts, counted.field("counts").to_pylist(), strict=True))


class Histogram:
    """Records and bytes in intervals of time, which double in length when there are too many.

    So the result does not depend on the order in which parts are merged.
    """

    def __init__(self, bucket_ms: int) -> None:
        self.bucket_ms = bucket_ms
        self.buckets: dict[int, tuple[int, int]] = {}

    def add(self, times: Any, sizes: Any) -> None:
        """Count records: their times, in milliseconds, and their sizes."""
        quotients = pc.divide(times, self.bucket_ms)  # rounds toward zero; a bucket starts below
        above = pc.less(times, pc.multiply(quotients, self.bucket_ms))
        buckets = pc.subtract(quotients, above.cast(pa.int64()))
        table = pa.table({"bucket": buckets, "size": sizes})
        grouped = table.group_by("bucket", use_threads=False).aggregate(
            [("size", "count"), ("size", "sum")]
        )
        for row in grouped.to_pylist():
            self._count(row["bucket"] * self.bucket_ms, row["size_count"], row["size_sum"])
        self._shorten()

    def merge(self, other: Histogram) -> None:
        """Add another histogram."""
        while self.bucket_ms < other.bucket_ms:
            self._double()
        for start, (records, size) in other.buckets.items():
            self._count(start // self.bucket_ms * self.bucket_ms, records, size)
        self._shorten()

    def _count(self, start: int, records: int, size: int) -> None:
        before = self.buckets.get(start, (0, 0))
        self.buckets[start] = (before[0] + records, before[1] + size)

    def _shorten(self) -> None:
        while len(self.buckets) > BUCKETS_MAX:
            self._double()

    def _double(self) -> None:
        self.bucket_ms *= 2
        buckets, self.buckets = self.buckets, {}
        for start, (records, size) in buckets.items():
            self._count(start // self.bucket_ms * self.bucket_ms, records, size)


def profile_part(task: Mapping[str, Any]) -> dict[str, Any]:
    """Count the records and batches in some splits: a task of an engine.

    Args:
        task: `splits` of the table of records, as JSON, `bucket_ms`, and the `ids`, `guids` and
            `place` of `KnownIds`.

    Returns:
        A `Part` as JSON under `part`; `failures` of kafkalog itself, which leave it incomplete.

    Cost:
        Reads the splits twice: for the records, and for the headers with their checksums.
    """
    has_ids = task["ids"] or task["place"] is not None
    ids = KnownIds(task["ids"], task["guids"], task["place"]) if has_ids else None
    part = Part(task["bucket_ms"], ids)
    failures: list[dict[str, Any]] = []
    splits = [Split.from_json(one) for one in task["splits"]]
    with failures_kept(splits[0].path, failures):
        _count(part, splits)
    return {"part": part.as_json(), "failures": failures}


def _count(part: Part, splits: Iterable[Split]) -> None:
    for split in splits:
        heard = Events()
        for batch in read_split(split, table_schema(split.table, _OF_RECORDS), heard):
            part.add_records(batch)
        of_batches = replace(split, table=TableName.BATCHES, from_offset=None, committed=False)
        for batch in read_split(of_batches, table_schema(of_batches.table, _OF_BATCHES), heard):
            part.add_batches(batch)
        # Defects of a batch are found by both passes, defects of its records by one.
        # What either pass has lost counts once: the other may have read it in time.
        told = {
            one.reference if one.reference == DELETED else (one.reference, one.path, one.position)
            for one in heard.defects
            if one.reference != COPIED  # its records count, wherever they are
        }
        part.counts["defects"] += len(told)


def _sizes(column: Any) -> Any:
    return pc.fill_null(pc.binary_length(column).cast(pa.int64()), 0)


def _header_sizes(column: Any) -> Any:
    """Return the size of the keys and values of all headers, per record."""
    flat = column.flatten()
    if not len(flat):
        return pa.repeat(pa.scalar(0, pa.int64()), len(column))
    keys = _sizes(flat.field("key").cast(pa.binary()))
    sums = pa.table({"record": pc.list_parent_indices(column),
                     "size": pc.add(keys, _sizes(flat.field("value")))})  # fmt: skip
    grouped = sums.group_by("record", use_threads=False).aggregate([("size", "sum")])
    # A record without headers is in no group.
    indices = pc.index_in(
        pa.array(range(len(column)), pa.int64()),
        grouped["record"].combine_chunks().cast(pa.int64()),
    )
    return pc.fill_null(grouped["size_sum"].combine_chunks().take(indices), 0)
