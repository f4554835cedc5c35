"""What is decided before a pass: that the log is sound, and every byte of the pass, as JSON.

A task performs a plan. Two equal plans give the same files, wherever and however often they are
carried out. The seed of the map's hash is not part of it, because it has no effect.

Kafka's cleaner verifies no checksum: it copies a damaged batch, or rewrites it under a right
checksum. Here the whole log is read and judged before anything is written.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, Self

from formats.file_names import FileKind
from formats.late_classes import dataclass
from kafkalog.change.compaction.model import (
    Candidate,
    Cleanable,
    CompactionConfig,
    CompactionRequest,
)
from kafkalog.change.journal.requirements import (
    log_dir_around,
    mode_to_judge_by,
    require_own_files,
    require_settled,
    require_start,
)
from kafkalog.check.checkpoints import ENDS_READING
from kafkalog.check.registry import FAILED
from kafkalog.check.verify import Verification
from kafkalog.errors import InternalError, RefusedError
from kafkalog.files.log_dir import PartitionDir, open_partition
from kafkalog.io.paths import file_system
from kafkalog.log.columns import header_table as h
from kafkalog.log.columns.chunks import BATCH_SIZE_MAX
from kafkalog.log.defects import corrupt_data
from kafkalog.log.producers import LastRecord
from kafkalog.model import Level, Severity
from kafkalog.node.claims import ids_of
from kafkalog.node.recovery import StartConfig, predict_start
from kafkalog.node.unified_log import UnifiedLog

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkalog.change.compaction.offset_map import DirtyKeys
    from kafkalog.log.columns.headers import BatchColumns


@dataclass(frozen=True, slots=True)
class SoundLog:
    """What is known of a log without defects.

    Attributes:
        producers: the active producers at the log end, by producer id.
        suits_kernels: whether everything cleanable is of magic 2, in batches that the kernels take,
            and no record has to be measured, which they cannot.
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
            # An index that exceeds a limit lowered since is not full, only old.
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
            raise corrupt_data(
                defect,
                note=f"Nothing was changed in this partition.{note}",
                hint=f"`kafkalog verify {partition.path}` lists all findings; `kafkalog recover` "
                f"truncates a torn tail, `kafkalog salvage` copies what is sound.",
            )
        # A check that broke down has judged nothing: that is no reason to call the log sound.
        if defect.reference == FAILED:
            raise InternalError(
                defect.detail, path=defect.path, note="Nothing was changed in this partition."
            )
        # Cleaning starts from indexes, and drops aborted data by the transaction index: with a
        # missing entry aborted values would win over committed ones.
        if defect.severity == Severity.INDEX:
            raise RefusedError(
                f"{defect.reference}: {defect.detail}",
                path=defect.path,
                position=defect.position,
                hint=f"Run `kafkalog rebuild-index {partition.path} --apply` first.",
            )
    loaded = require_start(predicted, partition)
    old = watch.old
    if old is not None and not request.old_formats:
        raise RefusedError(
            "The log holds messages of an old format, which would become batches of magic 2.",
            path=old,
            hint="--allow-old-formats converts them, as a broker's cleaner does.",
        )
    producers = {state.producer_id: LastRecord.of(state) for state in loaded.producers}
    is_plain = old is None and not (watch.has_huge or config.measures_records)
    return SoundLog(producers, suits_kernels=is_plain)


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
        return path in self._paths

    def take(self, path: str, columns: BatchColumns) -> None:
        if path not in self._paths or self.old is not None:
            return
        # The kernels' chunks end there: the map of a log with such a batch would be incomplete.
        self.has_huge |= bool((columns.headers[h.SIZE] > BATCH_SIZE_MAX).any())
        if (columns.headers[h.MAGIC] < 2).any():
            self.old = path
        elif self._building is not None and not self.has_huge:
            self._building.take(path, columns)


@dataclass(frozen=True)
class PassPlan:
    """One pass over one partition.

    Attributes:
        path: absolute path of the partition directory.
        ids: names and values of the ids of the cluster, the node, the directory and the topic.
        files: name, size and modification time in ns of each file that a broker would read.
        high_watermark: the end of what is replicated.
        request: the clock, and which formats are allowed.
        sound: what an earlier pass has found out; if None, the task judges the log first.
    """

    path: str
    ids: tuple[tuple[str, str], ...]
    files: tuple[tuple[str, int, int], ...]
    log_start_offset: int
    high_watermark: int | None
    cleanable: Cleanable
    config: CompactionConfig
    request: CompactionRequest
    sound: SoundLog | None = None

    @classmethod
    def of(
        cls,
        candidate: Candidate,
        request: CompactionRequest,
        partition: PartitionDir,
        cleanable: Cleanable,
        sound: SoundLog | None = None,
    ) -> Self:
        """Plan the next pass over a partition, as it is listed now.

        Raises:
            UnreadableError: a file no longer exists.
        """
        log = UnifiedLog(partition, high_watermark=candidate.high_watermark)
        return cls(
            os.path.abspath(partition.path),
            ids_of(os.path.abspath(partition.path)),
            _files_of(partition),
            log.log_start_offset,
            candidate.high_watermark,
            cleanable,
            candidate.config,
            request,
            sound,
        )

    def candidate(self) -> Candidate:
        """Return the partition of the plan.

        Raises:
            RefusedError: it has changed since the plan was made.
        """
        partition = open_partition(self.path)
        log = UnifiedLog(partition, high_watermark=self.high_watermark)
        # By ids and times, not by content: workers may see another directory under the same path.
        found = (ids_of(self.path), _files_of(partition), log.log_start_offset)
        if found != (self.ids, self.files, self.log_start_offset):
            raise RefusedError(
                "The partition has changed since the plan was made.",
                path=self.path,
                note=f"Seen on {socket.gethostname()}. Nothing was changed in this partition.",
                hint="Let nobody else change the log directory. Workers must see the same files "
                "under the same paths.",
            )
        return Candidate(
            partition, self.config, (), high_watermark=self.high_watermark, cleanable=self.cleanable
        )

    def to_json(self) -> dict[str, Any]:
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        found |= {name: asdict(found[name]) for name in ("cleanable", "config", "request")}
        found["files"] = [list(one) for one in self.files]
        found["ids"] = [list(one) for one in self.ids]
        found["sound"] = None if self.sound is None else sound_to_json(self.sound)
        return found

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Self:
        sound = given["sound"]
        return cls(
            given["path"],
            tuple((name, value) for name, value in given["ids"]),
            tuple((name, size, mtime_ns) for name, size, mtime_ns in given["files"]),
            given["log_start_offset"],
            given["high_watermark"],
            Cleanable(**given["cleanable"]),
            CompactionConfig(**given["config"]),
            CompactionRequest(**given["request"]),
            None if sound is None else sound_from_json(sound),
        )

    @property
    def digest(self) -> str:
        """A digest that distinguishes it from every other plan: 32 hexadecimal digits."""
        # Sorted: the digest must not depend on the order in which a version writes the fields.
        text = json.dumps(self.to_json(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def sound_to_json(sound: SoundLog) -> dict[str, Any]:
    """Return what is known of a log as JSON, as tasks report it."""
    return {
        "producers": [
            [who, last.last_data_offset, last.producer_epoch]
            for who, last in sorted(sound.producers.items())
        ],
        "suits_kernels": sound.suits_kernels,
    }


def sound_from_json(given: Mapping[str, Any]) -> SoundLog:
    producers = {who: LastRecord(offset, epoch) for who, offset, epoch in given["producers"]}
    return SoundLog(producers, given["suits_kernels"])


def _files_of(partition: PartitionDir) -> tuple[tuple[str, int, int], ...]:
    """Return all files except those that are removed in any case."""
    left_overs = {entry.name.name for entry in partition.left_overs}
    found = []
    for entry in partition.files:
        if entry.name.name not in left_overs:
            status = file_system.status(entry.path)
            found.append((entry.name.name, status.st_size, status.st_mtime_ns))
    return tuple(found)
