"""The committed offsets of groups: numbers of all of them, objects only when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, overload

from kafkalog.files.payloads.offset_commits import commit_value
from kafkalog.node.state.model import GroupOffset

if TYPE_CHECKING:
    EndOf = Callable[[str, int], int | None]
    IsMeant = Callable[[str, int], bool]

_ROWS_DECODED: Final = 1 << 16
_PLACE_BITS: Final = 32
_UNKNOWN, _NOT_ASKED = -1, -2


class OffsetRecords:
    """The latest records of a partition of `__consumer_offsets`, as columns.

    Args:
        rows: a `pyarrow.Table` of keys, values and offsets.
        coordinator: the partition.
        newer: keys of which compaction may have removed the records that counted.
        is_complete: whether all of the partition's log could be read.

    Attributes:
        groups: groups with plain offsets: name to the range of its rows, which are in the order of
            topics and partitions.
        others: record batch and row of each record that is not a plain offset and counts.
        seen: those of `newer` that have a record.

    Cost:
        The rows, and 20 bytes for each; 40 more while they are sorted.
    """

    def __init__(
        self, rows: Any, coordinator: int, newer: set[bytes], *, is_complete: bool
    ) -> None:
        self._batches = rows.to_batches(_ROWS_DECODED)
        self._coordinator = coordinator
        self._newer = newer
        self._is_complete = is_complete
        self.others: list[tuple[Any, int]] = []
        self.seen: set[bytes] = set()
        self.groups: dict[str, range] = {}
        self._readers: dict[int, _Reader] = {}
        self._end_of: EndOf | None = None
        self._sort()

    def _sort(self) -> None:
        """Decode the rows, and put the plain ones in the order of groups, topics, partitions."""
        import numpy as np

        from kafkalog.node.state.offset_columns import (
            commit_keys,
            commit_values,
            group_names,
            partition_names,
        )

        groups, partitions = group_names(), partition_names()
        found: list[tuple[Any, ...]] = [
            tuple(np.empty(0, kind) for kind in (np.int32, np.int32, np.int64, np.int64))
        ]
        for number, batch in enumerate(self._batches):
            is_plain, group, partition = commit_keys(batch["key"], groups, partitions)
            has_value, offset = commit_values(batch["value"])
            is_plain &= has_value
            self._note_others(batch, is_plain)
            rows = np.flatnonzero(is_plain)
            # Batch and row in one number, which sorts with the rest.
            place = number << _PLACE_BITS | rows
            small = (one[rows].astype(np.int32) for one in (group, partition))
            found.append((*small, offset[rows], place))
        group, partition, offset, place = map(np.concatenate, zip(*found, strict=True))
        by_name = sorted(range(len(partitions.names)), key=partitions.names.__getitem__)
        rank = np.empty(len(by_name), np.int32)
        rank[by_name] = np.arange(len(by_name))
        ranks = rank[partition]
        order = np.lexsort((ranks, group))
        self._partitions = [partitions.names[one] for one in by_name]
        self._partition, self._offset, self._place = ranks[order], offset[order], place[order]
        ends = np.cumsum(np.bincount(group, minlength=len(groups.names))).tolist()
        for name, start, end in zip(groups.names, [0, *ends], ends, strict=False):
            if start < end:
                self.groups[name] = range(start, end)

    def _note_others(self, batch: Any, is_plain: Any) -> None:
        """Note the rows that are left to the decoder that follows the schemas."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        counts = batch["value"].is_valid().to_numpy(zero_copy_only=False)
        if self._newer:
            is_newer = pc.is_in(batch["key"], value_set=pa.array(self._newer, pa.binary()))
            self.seen.update(batch["key"].filter(is_newer).to_pylist())
            counts = counts | is_newer.to_numpy(zero_copy_only=False)
        self.others += [(batch, row) for row in np.flatnonzero(counts & ~is_plain).tolist()]

    def decoded(self, group: str, rows: range) -> Iterator[GroupOffset]:
        """Yield offsets of a group, in the order of their topics and partitions."""
        some = slice(rows.start, rows.stop)
        for number, place in zip(
            self._partition[some].tolist(), self._place[some].tolist(), strict=True
        ):
            topic, partition = self._partitions[number]
            key, value, record_offset = self._row(place)
            what = commit_value(value)
            assert what is not None, "only plain records have places"
            yield GroupOffset(
                group,
                topic,
                partition,
                what.offset,
                what.leader_epoch,
                what.metadata,
                what.commit_timestamp,
                None if what.expire_timestamp < 0 else what.expire_timestamp,
                record_offset,
                self._coordinator,
                None,
                key not in self._newer,
                self._is_complete,
            )

    def _row(self, place: int) -> tuple[bytes, bytes, int]:
        batch, row = place >> _PLACE_BITS, place & (1 << _PLACE_BITS) - 1
        reader = self._readers.get(batch)
        if reader is None:
            reader = self._readers[batch] = _Reader(self._batches[batch])
        return reader.row(row)

    def lag(self, rows: range, end_of: EndOf, is_meant: IsMeant | None) -> int | None:
        """Return the sum over offsets, of some partitions; None if an end offset is not known."""
        import numpy as np

        if self._end_of != end_of:
            self._end_of = end_of
            self._ends = np.full(len(self._partitions), _NOT_ASKED, np.int64)
        some = slice(rows.start, rows.stop)
        partition, offset = self._partition[some], self._offset[some]
        if is_meant is not None:
            is_wanted = np.array(
                [is_meant(*self._partitions[one]) for one in partition.tolist()], np.bool_
            )
            partition, offset = partition[is_wanted], offset[is_wanted]
        ends = self._ends[partition]
        if (ends == _NOT_ASKED).any():
            for one in np.unique(partition[ends == _NOT_ASKED]).tolist():
                end = end_of(*self._partitions[one])
                self._ends[one] = _UNKNOWN if end is None else end
            ends = self._ends[partition]
        if (ends == _UNKNOWN).any():
            return None
        if offset.min(initial=0) < 0:  # the difference may need more than 64 bits
            offset = offset.astype(object)
        return int((ends - offset).sum(dtype=object))


class _Reader:
    """Single rows of a record batch, without an object of Arrow's for each."""

    def __init__(self, batch: Any) -> None:
        self._columns = []
        for name in ("key", "value"):
            column = batch[name]
            _, bounds, data = column.buffers()
            ends = memoryview(bounds).cast("i")[column.offset :]
            self._columns.append((ends, memoryview(data or b"")))
        self._offsets = batch["offset"].to_numpy()

    def row(self, row: int) -> tuple[bytes, bytes, int]:
        """Return key, value and offset."""
        key, value = (bytes(data[ends[row] : ends[row + 1]]) for ends, data in self._columns)
        return key, value, int(self._offsets[row])


class GroupOffsets(Sequence[GroupOffset]):
    """Committed offsets by topic and partition, then those of open transactions.

    A group may have millions: each pass over them decodes them again, and none is kept.

    Args:
        group: name of the group.
        records: those of the coordinator's partition; None if all are decoded.
        others: decoded ones, which are not plain or belong to open transactions.
    """

    def __init__(
        self, group: str, records: OffsetRecords | None, others: Sequence[GroupOffset]
    ) -> None:
        self._group = group
        self._records = records
        self._rows = range(0) if records is None else records.groups.get(group, range(0))
        self._others = sorted(others, key=_order)

    @property
    def committed_count(self) -> int:
        """Number of offsets that count: those of open transactions do not."""
        return len(self._rows) + sum(not one.is_pending for one in self._others)

    def lag(self, end_of: EndOf, is_meant: IsMeant | None = None) -> int | None:
        """Return the sum over offsets that count; None if an end offset is not known.

        Args:
            end_of: returns the end offset of a partition of a topic, None if it is not known.
            is_meant: returns whether the offset of a partition of a topic is summed; all without.
        """
        from kafkalog.node.state.model import OffsetLag, total_lag

        plain = 0 if self._records is None else self._records.lag(self._rows, end_of, is_meant)
        others = total_lag(
            OffsetLag(one, end_of(one.topic, one.partition))
            for one in self._others
            if is_meant is None or is_meant(one.topic, one.partition)
        )
        return None if plain is None or others is None else plain + others

    def __len__(self) -> int:
        return len(self._rows) + len(self._others)

    def __iter__(self) -> Iterator[GroupOffset]:
        if self._records is None:
            return iter(self._others)
        decoded = self._records.decoded(self._group, self._rows)
        if not self._others:
            return decoded
        return iter(sorted((*decoded, *self._others), key=_order))

    @overload
    def __getitem__(self, index: int) -> GroupOffset: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[GroupOffset, ...]: ...

    def __getitem__(self, index: int | slice) -> GroupOffset | tuple[GroupOffset, ...]:
        return tuple(self)[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment] # as of any sequence that compares by content

    def __repr__(self) -> str:
        return f"<{len(self)} offsets>"


def _order(one: GroupOffset) -> tuple[bool, str, int]:
    return one.is_pending, one.topic, one.partition
