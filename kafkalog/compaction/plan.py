"""A plan that decides every byte of a pass over a partition, as JSON; a task performs it.

Equal plans give the same files, wherever and however often they are carried out. The seed of the
map's hash is not part of a plan, because it decides nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Self

from kafkalog.compaction.model import Candidate, Cleanable, CompactionConfig, CompactionRequest
from kafkalog.compaction.soundness import SoundLog
from kafkalog.errors import RefusedError
from kafkalog.log_dir import PartitionDir, open_partition
from kafkalog.paths.reading_errors import reading_error
from kafkalog.producers import LastRecord
from kafkalog.sightings import ids_of
from kafkalog.unified_log import UnifiedLog

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class PassPlan:
    """One pass over one partition.

    Attributes:
        path: absolute path of the partition directory.
        ids: names and values of the ids of the cluster, the node, the directory and the topic.
        files: name, size and modification time in ns of each file that a broker would read.
        log_start_offset: the log start offset.
        high_watermark: the end of what is replicated.
        cleanable: the dirty part.
        config: the configs that decide the result.
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
        found = (ids_of(self.path), _files_of(partition), log.log_start_offset)
        if found != (self.ids, self.files, self.log_start_offset):
            raise RefusedError(
                "It has changed since the plan was made.",
                path=self.path,
                note=f"Seen on {socket.gethostname()}. Nothing was changed in this partition.",
                hint="Let nobody else change the log directory. Workers must see the same files "
                "under the same paths.",
            )
        return Candidate(
            partition,
            self.config,
            (),
            high_watermark=self.high_watermark,
            cleanable=self.cleanable,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON for tasks."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        found |= {name: asdict(found[name]) for name in ("cleanable", "config", "request")}
        found["files"] = [list(one) for one in self.files]
        found["ids"] = [list(one) for one in self.ids]
        found["sound"] = None if self.sound is None else sound_to_json(self.sound)
        return found

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Self:
        """Read back what `to_json` wrote."""
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
    """Read back what `sound_to_json` wrote."""
    producers = {who: LastRecord(offset, epoch) for who, offset, epoch in given["producers"]}
    return SoundLog(producers, given["suits_kernels"])


def _files_of(partition: PartitionDir) -> tuple[tuple[str, int, int], ...]:
    """Return all files except those that are removed in any case."""
    left_overs = {entry.name.name for entry in partition.left_overs}
    found = []
    for entry in partition.files:
        if entry.name.name not in left_overs:
            try:
                status = os.stat(entry.path)
            except OSError as error:
                raise reading_error(error, entry.path) from error
            found.append((entry.name.name, status.st_size, status.st_mtime_ns))
    return tuple(found)
