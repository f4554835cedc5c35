"""The latest offset of each key.

Follows `SkimpyOffsetMap` and `Cleaner.buildOffsetMap` of Kafka 4.3, but for what identifies a key:
Kafka takes its MD5 digest, this map the key itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.compaction.model import read_otherwise
from kafkalog.model import Batch
from kafkalog.records import decode_records

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.compaction.model import Cleanable
    from kafkalog.compaction.transactions import TransactionState
    from kafkalog.log_dir import Segment
    from kafkalog.unified_log import UnifiedLog


class OffsetMap:
    """Offsets by key, as far as the log was read.

    Args:
        keys_max: how many keys it takes, None without a limit.
    """

    def __init__(self, keys_max: int | None) -> None:
        self._keys_max = keys_max
        self._offsets: dict[bytes, int] = {}
        self.latest_offset = -1

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def is_full(self) -> bool:
        """Whether nothing more is taken, not even for a key that is there: so does Kafka."""
        return self._keys_max is not None and len(self._offsets) >= self._keys_max

    def put(self, key: bytes, offset: int) -> None:
        """A record with the key was met."""
        self._offsets[key] = offset
        self.latest_offset = offset

    def get(self, key: bytes) -> int:
        """The latest offset of the key, -1 without one."""
        return self._offsets.get(key, -1)


def build_map(
    log: UnifiedLog,
    segments: list[Segment],
    cleanable: Cleanable,
    transactions: TransactionState,
    keys_max: int | None,
    progress: Callable[[int], None] | None = None,
) -> OffsetMap:
    """The map of the dirty part, up to where it is full.

    Args:
        log: the partition.
        segments: those of the dirty part.
        cleanable: from which offset on, and up to where.
        transactions: knows the aborted transactions of these segments.
        keys_max: how many keys the map takes.
        progress: called with the number of bytes read since the last call.

    Raises:
        CorruptDataError, LimitExceededError: a batch cannot be decoded.
    """
    found = OffsetMap(keys_max)
    first = cleanable.first_dirty_offset
    for segment, following in zip(segments, [*segments, None][1:], strict=True):
        with log.open_segment(segment) as opened:
            for batch in opened.scan_from(first):
                if not isinstance(batch, Batch):
                    raise read_otherwise(batch.path, batch)
                if progress is not None:
                    progress(batch.size_bytes)
                is_discardable = transactions.is_discardable(opened.source, batch)
                has_no_keys = is_discardable or batch.is_control
                for record in () if has_no_keys else decode_records(opened.source, batch):
                    if record.key is None or record.offset < first:
                        continue
                    if found.is_full:
                        return found
                    found.put(record.key, record.offset)
                if batch.last_offset >= first:
                    found.latest_offset = batch.last_offset
        bound = cleanable.first_uncleanable_offset if following is None else following.base_offset
        found.latest_offset = bound - 1
    return found
