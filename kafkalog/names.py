"""The meaning of names: every file and directory name that Kafka gives, in any state.

Follows `LogFileUtils`, `LocalLog.parseTopicPartitionName`, `Snapshots`, `CheckpointFile` and
`RemoteIndexCache` of Kafka 4.3, with the leftovers of older releases.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from formats import file_names
from formats.constants import INT32_MAX, INT64_MAX


class FileKind(StrEnum):
    """The kind of a file."""

    LOG = "log"
    OFFSET_INDEX = "index"
    TIME_INDEX = "timeindex"
    TRANSACTION_INDEX = "txnindex"
    PRODUCER_SNAPSHOT = "snapshot"
    KRAFT_SNAPSHOT = "checkpoint"
    LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
    PARTITION_METADATA = "partition.metadata"
    QUORUM_STATE = "quorum-state"
    OFFSET_CHECKPOINT = "offset-checkpoint"
    META_PROPERTIES = "meta.properties"
    CLEAN_SHUTDOWN = "clean-shutdown"
    LOCK = "lock"
    REMOTE_LOG_SNAPSHOT = "remote_log_snapshot"
    REMOTE_LOG_OFFSETS = "_rlmm_committed_offsets"
    UNKNOWN = "unknown"


class FileState(StrEnum):
    """The state of a file in its life cycle."""

    LIVE = "live"
    CLEANED = "cleaned"
    SWAP = "swap"
    DELETED = "deleted"
    PART = "part"
    TEMPORARY = "temporary"


class DirectoryState(StrEnum):
    """The state of a partition directory in its life cycle."""

    LIVE = "live"
    DELETE = "delete"
    FUTURE = "future"
    STRAY = "stray"


@dataclass(frozen=True, slots=True)
class FileName:
    """A parsed file name.

    Attributes:
        name: the name as it is on disk.
        kind: what the file is, UNKNOWN if Kafka has no such name.
        state: what the suffix says.
        offset: base offset of a segment file, end offset of a snapshot; None for others.
        epoch: leader epoch of a KRaft snapshot; None for others.
        segment_id: remote segment of a cached index; None for others.
    """

    name: str
    kind: FileKind
    state: FileState = FileState.LIVE
    offset: int | None = None
    epoch: int | None = None
    segment_id: str | None = None


@dataclass(frozen=True, slots=True)
class DirectoryName:
    """A parsed name of a partition directory.

    `topic` may be cut short in the states delete and stray. `uid` is None for a live directory.
    """

    name: str
    topic: str
    partition: int
    state: DirectoryState = DirectoryState.LIVE
    uid: str | None = None


OFFSET_CHECKPOINTS = {
    file_names.RECOVERY_POINTS: "recovery point",
    file_names.HIGH_WATERMARKS: "high watermark",
    file_names.LOG_STARTS: "log start offset",
    file_names.CLEANER_OFFSETS: "first dirty offset",
}
TOP_FILES = (file_names.META_PROPERTIES, file_names.CLEAN_SHUTDOWN, *OFFSET_CHECKPOINTS)
"""Files in a log directory besides its partitions."""
STAGING_TOPIC = "kafkalog-staging"

_FIXED = {
    file_names.LEADER_EPOCHS: FileKind.LEADER_EPOCH_CHECKPOINT,
    file_names.PARTITION_METADATA: FileKind.PARTITION_METADATA,
    file_names.QUORUM_STATE: FileKind.QUORUM_STATE,
    file_names.META_PROPERTIES: FileKind.META_PROPERTIES,
    file_names.CLEAN_SHUTDOWN: FileKind.CLEAN_SHUTDOWN,
    file_names.LOCK: FileKind.LOCK,
    file_names.REMOTE_LOG_SNAPSHOT: FileKind.REMOTE_LOG_SNAPSHOT,
    file_names.REMOTE_LOG_OFFSETS: FileKind.REMOTE_LOG_OFFSETS,
    file_names.BOOTSTRAP: FileKind.KRAFT_SNAPSHOT,
    **dict.fromkeys(OFFSET_CHECKPOINTS, FileKind.OFFSET_CHECKPOINT),
}
_SUFFIXES = {
    file_names.CLEANED: FileState.CLEANED,
    ".clean": FileState.CLEANED,
    file_names.SWAP: FileState.SWAP,
    file_names.DELETED: FileState.DELETED,
}
# No file name has more than 255 characters, but a name need not come from a file system.
_SEGMENT = re.compile(r"(\d{20,255})\.(log|index|timeindex|txnindex|snapshot)")
_KRAFT_SNAPSHOT = re.compile(r"(\d{20,255})-(\d{10,255})(?:-[^.]+)?\.checkpoint(\.part)?")
_REMOTE_INDEX = re.compile(r"(\d{1,255})_([A-Za-z0-9_-]{22})\.(index|timeindex|txnindex)")
_DIRECTORY = re.compile(r"(\S+)-(\S+)\.(\S+)-(delete|future|stray)")
_PARTITION = re.compile(r"(.+)-([+-]?\d{1,255})", re.DOTALL)
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_STAGED = re.compile(r"kafkalog-\d{1,19}\.tmp")
_NAME_SIZE_MAX = 255
_NAMES_KEPT = 1 << 12  # many partitions have files of the same names


@lru_cache(_NAMES_KEPT)
def parse_file_name(name: str) -> FileName:
    """Parse a file name; any text is accepted, and unknown names have kind UNKNOWN."""
    stem, state = name, FileState.LIVE
    for suffix, meaning in _SUFFIXES.items():
        if name.endswith(suffix):
            stem, state = name.removesuffix(suffix), meaning
            break
    if name.endswith(".tmp"):
        stem, state = name.removesuffix(".tmp"), FileState.TEMPORARY
    if stem in _FIXED and state in (FileState.LIVE, FileState.TEMPORARY):
        return FileName(name, _FIXED[stem], state)
    if match := _SEGMENT.fullmatch(stem):
        offset = int(match[1])
        if offset <= INT64_MAX:
            return FileName(name, FileKind(match[2]), state, offset)
    elif match := _KRAFT_SNAPSHOT.fullmatch(stem):
        offset, epoch = int(match[1]), int(match[2])
        if match[3]:
            state = FileState.PART
        if offset <= INT64_MAX and epoch <= INT32_MAX:
            return FileName(name, FileKind.KRAFT_SNAPSHOT, state, offset, epoch)
    elif match := _REMOTE_INDEX.fullmatch(stem):
        offset = int(match[1])
        if offset <= INT64_MAX:
            return FileName(name, FileKind(match[3]), state, offset, segment_id=match[2])
    return FileName(name, FileKind.UNKNOWN, FileState.LIVE)


@lru_cache(_NAMES_KEPT)
def parse_directory_name(name: str) -> DirectoryName | None:
    """Parse the name of a partition directory; None if a broker would refuse to start on it."""
    state, uid, live = DirectoryState.LIVE, None, name
    if name.endswith(
        (file_names.DELETE_DIRECTORY, file_names.FUTURE_DIRECTORY, file_names.STRAY_DIRECTORY)
    ):
        match = _DIRECTORY.fullmatch(name)
        if match is None:
            return None
        live, _, tail = name.rpartition(".")
        uid, _, suffix = tail.rpartition("-")
        state = DirectoryState(suffix)
    match = _PARTITION.fullmatch(live)
    if match is None or abs(int(match[2])) > INT32_MAX:
        return None
    return DirectoryName(name, match[1], int(match[2]), state, uid)


def is_plain(name: str) -> bool:
    """Return whether a text is the name of one file in a directory rather than a path."""
    try:
        encoded = os.fsencode(name)
    except UnicodeEncodeError:
        return False
    is_name = 0 < len(encoded) <= _NAME_SIZE_MAX and name not in (os.curdir, os.pardir)
    return is_name and b"/" not in encoded and b"\0" not in encoded


def is_topic(name: str) -> bool:
    """Return whether Kafka accepts a text as a topic name: `Topic.validate`."""
    return _TOPIC.fullmatch(name) is not None and name not in (os.curdir, os.pardir)


def is_known(name: str) -> bool:
    """Return whether Kafka or kafkalog gives a file this name."""
    if is_staged(name) or parse_file_name(name).kind != FileKind.UNKNOWN:
        return True
    stem = name.removesuffix(".tmp")  # such as a `.swap` file that is being written
    return stem != name and parse_file_name(stem).kind != FileKind.UNKNOWN


def staged_name(number: int) -> str:
    """Return the name of a partition's new file until it is put in place; brokers ignore it."""
    return f"kafkalog-{number}.tmp"


def is_staged(name: str) -> bool:
    """Return whether a name is one that `staged_name` gives."""
    return _STAGED.fullmatch(name) is not None


def segment_file_name(base_offset: int, kind: FileKind) -> str:
    """Name a segment's file: `LogFileUtils.filenamePrefixFromOffset` and its suffix."""
    return f"{base_offset:020d}.{kind}"


def staging_name(uid: str = "0" * 32) -> str:
    """Return the name of the directory that holds new segments while a run changes a log directory.

    A broker that starts after a run was killed takes it for a deleted partition, and removes the
    directory after `file.delete.delay.ms`.
    """
    return f"{STAGING_TOPIC}-0.{uid}-delete"


def is_staging(name: str) -> bool:
    """Return whether a name is one that `staging_name` makes, for any uid."""
    parsed = parse_directory_name(name)
    return parsed is not None and (parsed.topic, parsed.state) == (
        STAGING_TOPIC,
        DirectoryState.DELETE,
    )
