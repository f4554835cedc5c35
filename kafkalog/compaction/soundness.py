"""Checks that a partition may be compacted: its layout is known and every batch is sound.

Kafka's cleaner verifies no checksum: it copies a damaged batch, or rewrites it under a right
checksum. Here the whole log is read and judged before anything is written.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalog.check.registry import FAILED
from kafkalog.check.verify import Verification
from kafkalog.cleaner_verdict import ENDS_READING
from kafkalog.columns import header_table as h
from kafkalog.columns.chunks import BATCH_SIZE_MAX
from kafkalog.errors import CorruptDataError, InternalError, RefusedError
from kafkalog.journal.requirements import (
    log_dir_around,
    mode_to_judge_by,
    require_own_files,
    require_settled,
    require_start,
)
from kafkalog.model import Level, Severity
from kafkalog.names import FileKind
from kafkalog.producers import LastRecord
from kafkalog.recovery import StartConfig, predict_start

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkalog.columns.headers import Stretch
    from kafkalog.compaction.model import Candidate, CompactionRequest
    from kafkalog.compaction.offset_map import DirtyKeys
    from kafkalog.log_dir import PartitionDir


@dataclass(frozen=True, slots=True)
class SoundLog:
    """What is known of a log without defects.

    Attributes:
        producers: the active producers at the log end, by producer id.
        suits_kernels: whether everything cleanable is of magic 2, in batches that the kernels take.
    """

    producers: Mapping[int, LastRecord]
    suits_kernels: bool


def require_known_layout(partition: PartitionDir) -> None:
    """Raise `RefusedError` if the directory holds files that a compaction cannot preserve."""
    require_own_files(partition)
    require_settled(partition)
    for name in partition.directories:
        raise RefusedError(
            "It contains a directory, which Kafka never creates.",
            path=os.path.join(partition.path, name),
            hint="Move it elsewhere.",
        )
    for entry in partition.files:
        if entry.name.kind == FileKind.REMOTE_LOG_SNAPSHOT:
            raise RefusedError(
                "The log is tiered: part of it is in remote storage.", path=entry.path
            )
        # A start that completes a swap deletes every file whose name begins with such an offset.
        if entry.name.kind == FileKind.UNKNOWN and entry.name.name.split(".")[0].isdigit():
            raise RefusedError(
                "Kafka does not know this file, and might delete it as part of a segment.",
                path=entry.path,
                hint="Move it elsewhere.",
            )


def require_sound(
    candidate: Candidate,
    request: CompactionRequest,
    progress: Callable[[int], None] | None = None,
    building: DirtyKeys | None = None,
) -> SoundLog:
    """Read a whole partition, and refuse it if anything is damaged.

    Every batch is compared with its checksum and decoded, every index with its log, the transaction
    indexes with the transactions in the log.

    Args:
        candidate: the partition.
        request: the clock, and whether old formats are allowed.
        progress: called with the number of bytes read since the last call.
        building: gets the records; of no use if the log does not suit the kernels.

    Raises:
        CorruptDataError: a batch is damaged.
        RefusedError: an index is wrong, a broker's start would change something, or there are
            messages of magic 0 or 1 and they are not allowed.
    """
    partition, config = candidate.partition, candidate.config
    predicted = predict_start(
        partition,
        mode_to_judge_by(log_dir_around(partition)),
        config=StartConfig(
            config.index_interval_bytes,
            max(config.segment_index_bytes, *_index_sizes(partition)),
            config.producer_id_expiration_ms,
            request.now_ms,
        ),
    )
    watch = _Watch(candidate, building)
    for defect in Verification(Level.DEEP, progress, watch=watch).check(partition):
        if defect.severity == Severity.DAMAGE:
            ends = defect.reference in ENDS_READING and watch.is_cleaned(defect.path)
            note = " A broker's cleaner fails on this partition here." if ends else ""
            raise CorruptDataError(
                defect.detail,
                reference=defect.reference,
                path=defect.path,
                position=defect.position,
                note=f"Nothing was changed in this partition.{note}",
                hint=f"`kafkalog verify {partition.path}` lists all findings; `kafkalog recover` "
                f"truncates a torn tail, `kafkalog salvage` copies what is sound.",
            )
        if defect.reference == FAILED:
            raise InternalError(
                defect.detail, path=defect.path, note="Nothing was changed in this partition."
            )
        if defect.severity == Severity.INDEX:
            raise RefusedError(
                f"{defect.reference}: {defect.detail}",
                path=defect.path,
                position=defect.position,
                hint=f"Run `kafkalog rebuild-index {partition.path}` first.",
            )
    loaded = require_start(predicted, partition)
    old = watch.old
    if old is not None and not request.old_formats:
        raise RefusedError(
            "It holds messages of an old format, which would become batches of magic 2.",
            path=old,
            hint="--allow-old-formats converts them, as a broker's cleaner does.",
        )
    producers = {state.producer_id: LastRecord.of(state) for state in loaded.producers}
    return SoundLog(producers, suits_kernels=old is None and not watch.has_huge)


def _index_sizes(partition: PartitionDir) -> list[int]:
    kinds = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX)
    return [0, *(entry.size_bytes for kind in kinds for entry in partition.live(kind))]


class _Watch:
    """Observes a verification: builds the map, or notes why it cannot be built."""

    def __init__(self, candidate: Candidate, building: DirtyKeys | None) -> None:
        assert candidate.cleanable is not None, "there is something to clean"
        upper = candidate.cleanable.first_uncleanable_offset
        segments = candidate.partition.segments
        self.old: str | None = None
        self.has_huge = False
        self.look = None if building is None else building.look
        self._building = building
        self._paths = {one.log.path for one in segments if one.base_offset < upper}

    def is_cleaned(self, path: str) -> bool:
        """Return whether the cleaner reads this log."""
        return path in self._paths

    def take(self, path: str, stretch: Stretch) -> None:
        """Take the next batches of a log."""
        if path not in self._paths or self.old is not None:
            return
        self.has_huge |= bool((stretch.headers[h.SIZE] > BATCH_SIZE_MAX).any())
        if (stretch.headers[h.MAGIC] < 2).any():
            self.old = path
        elif self._building is not None and not self.has_huge:
            self._building.take(path, stretch)
