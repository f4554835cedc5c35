"""The names that Kafka gives to files and directories on disk, in any state, and what they mean.

Follows `LogFileUtils`, `LogManager`, `LocalLog.parseTopicPartitionName`, `Snapshots`,
`CheckpointFile`, `OffsetCheckpointFile`, `LeaderEpochCheckpointFile`, `PartitionMetadataFile`,
`CleanShutdownFileHandler`, `MetaPropertiesEnsemble`, `RemoteIndexCache` and the file sets of
`LocalTieredStorage` of Kafka, with the leftovers of older releases. Kafkalog's own names among
them are here too.
"""

from __future__ import annotations

import os
import re
from enum import StrEnum
from functools import lru_cache
from typing import Final

from formats.constants import INT32_MAX, INT64_MAX
from formats.late_classes import dataclass
from formats.late_patterns import pattern

# Files of a segment are named by 20 digits and one of these.
LOG: Final = ".log"
OFFSET_INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TRANSACTION_INDEX: Final = ".txnindex"
INDEXES: Final = (OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX)
SNAPSHOT: Final = ".snapshot"

# Beside the log of a segment that Aiven's plugin uploaded.
MANIFEST: Final = ".rsm-manifest"
INDEXES_OBJECT: Final = ".indexes"

# States of a file.
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
DELETED: Final = ".deleted"

# States of a partition directory.
DELETE_DIRECTORY: Final = "-delete"
FUTURE_DIRECTORY: Final = "-future"
STRAY_DIRECTORY: Final = "-stray"

# In a partition directory.
LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
QUORUM_STATE: Final = "quorum-state"
REMOTE_LOG_SNAPSHOT: Final = "remote_log_snapshot"
REMOTE_LOG_OFFSETS: Final = "_rlmm_committed_offsets"

# In a log directory.
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"
META_PROPERTIES: Final = "meta.properties"
BOOTSTRAP: Final = "bootstrap.checkpoint"
SERVER_PROPERTIES: Final = "server.properties"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
LOCK: Final = ".lock"
REMOTE_INDEX_CACHE: Final = "remote-log-index-cache"


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
    MANIFEST = "rsm-manifest"
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
    REMOTE = "remote"
    """Not in a log directory at all: its segments are in remote storage."""


@dataclass(frozen=True, slots=True)
class FileName:
    """A parsed file name.

    Attributes:
        name: the name as it is on disk.
        kind: what the file is, UNKNOWN if Kafka has no such name.
        state: what the suffix says.
        offset: base offset of a segment file, end offset of a snapshot; None for others.
        epoch: leader epoch of a KRaft snapshot; None for others.
        segment_id: id of the remote segment that it belongs to, as a cached index or in the remote
            storage itself; None for others.
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

    `topic` may be cut short in the states delete and stray. `uid` is None for a live directory, and
    the topic id for one in remote storage.
    """

    name: str
    topic: str
    partition: int
    state: DirectoryState = DirectoryState.LIVE
    uid: str | None = None


INDEX_KINDS = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TRANSACTION_INDEX)

OFFSET_CHECKPOINTS = {
    RECOVERY_POINTS: "recovery point",
    HIGH_WATERMARKS: "high watermark",
    LOG_STARTS: "log start offset",
    CLEANER_OFFSETS: "first dirty offset",
}
TOP_FILES = (META_PROPERTIES, CLEAN_SHUTDOWN, *OFFSET_CHECKPOINTS)
"""Files in a log directory besides its partitions."""
STAGING_TOPIC = "kafkalog-staging"

_FIXED = {
    LEADER_EPOCHS: FileKind.LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA: FileKind.PARTITION_METADATA,
    QUORUM_STATE: FileKind.QUORUM_STATE,
    META_PROPERTIES: FileKind.META_PROPERTIES,
    CLEAN_SHUTDOWN: FileKind.CLEAN_SHUTDOWN,
    LOCK: FileKind.LOCK,
    REMOTE_LOG_SNAPSHOT: FileKind.REMOTE_LOG_SNAPSHOT,
    REMOTE_LOG_OFFSETS: FileKind.REMOTE_LOG_OFFSETS,
    BOOTSTRAP: FileKind.KRAFT_SNAPSHOT,
    **dict.fromkeys(OFFSET_CHECKPOINTS, FileKind.OFFSET_CHECKPOINT),
}
# `.clean` means nothing to Kafka's loader, which leaves such files where they are.
_SUFFIXES = {
    CLEANED: FileState.CLEANED,
    ".clean": FileState.CLEANED,
    SWAP: FileState.SWAP,
    DELETED: FileState.DELETED,
}
# No file name has more than 255 characters, but a name need not come from a file system.
_RSYNC: Final = pattern(r"\.(.+)\.[A-Za-z0-9]{6}")
_SEGMENT = pattern(r"(\d{20,255})\.(log|index|timeindex|txnindex|snapshot)")
_KRAFT_SNAPSHOT = pattern(r"(\d{20,255})-(\d{10,255})(?:-[^.]+)?\.checkpoint(\.part)?")
# RemoteIndexCache does not pad the offset.
_REMOTE_INDEX = pattern(r"(\d{1,255})_([A-Za-z0-9_-]{22})\.(index|timeindex|txnindex)")
_REMOTE_FILE = pattern(
    r"(\d{20})-([A-Za-z0-9_-]{22})\.(log|index|timeindex|txnindex|snapshot|leader_epoch_checkpoint)"
)
_AIVENS = pattern(r"\d{20}-[A-Za-z0-9_-]{22}\.(rsm-manifest|indexes)")
# The last of 22 characters holds 2 bits of an id: A, Q, g or w.
_TOPIC_DIRECTORY = pattern(r"[a-zA-Z0-9._-]{1,400}-[A-Za-z0-9_-]{21}[AQgw]")
_REMOTE_DIRECTORY = pattern(r"([a-zA-Z0-9._-]{1,249})-(\d{1,10})-([A-Za-z0-9_-]{21}[AQgw])")
_DIRECTORY = pattern(r"(\S+)-(\S+)\.(\S+)-(delete|future|stray)")
# Integer.parseInt takes signs; a name is split at its last dash (LocalLog.parseTopicPartitionName).
_PARTITION = pattern(r"(.+)-([+-]?\d{1,255})", re.DOTALL)
_TOPIC = pattern(r"[a-zA-Z0-9._-]{1,249}")
_STAGED = pattern(r"kafkalog-\d{1,19}\.tmp")
_NAME_SIZE_MAX = 255
_NAMES_KEPT = 1 << 12  # many partitions have files of the same names
_DIRECTORIES_KEPT = 1 << 14  # a directory's name is parsed by several steps, one after the other


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
    if "." not in stem and stem not in _FIXED:  # most names of directories
        return FileName(name, FileKind.UNKNOWN, FileState.LIVE)
    if stem in _FIXED and state in (FileState.LIVE, FileState.TEMPORARY):
        return FileName(name, _FIXED[stem], state)
    if match := _SEGMENT.fullmatch(stem):
        offset = int(match[1])
        # Kafka's Long.parseLong throws beyond that.
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
    elif match := _REMOTE_FILE.fullmatch(name):
        offset = int(match[1])
        if offset <= INT64_MAX:
            kind = FileKind(match[3].replace("_", "-"))
            return FileName(name, kind, FileState.LIVE, offset, segment_id=match[2])
    return FileName(name, FileKind.UNKNOWN, FileState.LIVE)


def copied_by_rsync(name: str) -> FileName | None:
    """Return the name that a file gets when rsync has written all of it; None for other files."""
    match = _RSYNC.fullmatch(name)
    found = None if match is None else parse_file_name(match[1])
    return None if found is None or found.kind == FileKind.UNKNOWN else found


@lru_cache(_DIRECTORIES_KEPT)
def parse_directory_name(name: str) -> DirectoryName | None:
    """Parse the name of a partition directory; None if a broker would refuse to start on it."""
    state, uid, live = DirectoryState.LIVE, None, name
    # Of these a topic may be cut, so only the end of the name is certain.
    if name.endswith((DELETE_DIRECTORY, FUTURE_DIRECTORY, STRAY_DIRECTORY)):
        match = _DIRECTORY.fullmatch(name)
        if match is None:
            return None
        live, _, tail = name.rpartition(".")
        uid, _, suffix = tail.rpartition("-")
        state = DirectoryState(suffix)
    match = _PARTITION.fullmatch(live)
    # Not a partition's: LogManager.loadLogs stops the start at such a directory.
    if match is None or abs(int(match[2])) > INT32_MAX:
        return None
    return DirectoryName(name, match[1], int(match[2]), state, uid)


@lru_cache(_DIRECTORIES_KEPT)
def parse_remote_directory_name(name: str) -> DirectoryName | None:
    """Parse the name that `LocalTieredStorage` gives a partition: topic, partition and topic id.

    None if it is another name. No broker takes such a directory for a partition, because the last
    of the 22 characters of an id is never a digit.
    """
    match = _REMOTE_DIRECTORY.fullmatch(name)
    if match is None or int(match[2]) > INT32_MAX:
        return None
    return DirectoryName(name, match[1], int(match[2]), DirectoryState.REMOTE, match[3])


def plugin_directory(path: str) -> DirectoryName | None:
    """Parse the path that Aiven's plugin gives a partition: a topic and its id, and the partition.

    None if it is another path.
    """
    above, _, name = path.rpartition("/")
    topic = above.rpartition("/")[2]
    if not (is_topic_directory(topic) and name.isdecimal() and name.isascii()):
        return None
    if len(name) > 10 or int(name) > INT32_MAX:
        return None
    uid = topic[-22:]
    named = topic.removesuffix(f"-{uid}")
    return DirectoryName(f"{topic}/{name}", named, int(name), DirectoryState.REMOTE, uid)


def partition_of(path: str) -> DirectoryName | None:
    """Parse the path of a partition's directory, be it in a log directory or in remote storage."""
    return plugin_directory(path) or partition_name(path.rpartition("/")[2])


def partition_name(name: str) -> DirectoryName | None:
    """Parse the name of a partition's directory, be it in a log directory or in remote storage."""
    return parse_directory_name(name) or parse_remote_directory_name(name)


def is_in_remote_storage(name: FileName) -> bool:
    """Return whether a name is that of a remote segment's file rather than of a cached index."""
    return name.segment_id is not None and _REMOTE_FILE.fullmatch(name.name) is not None


def is_of_aivens_plugin(name: str) -> bool:
    """Return whether a name is one that only Aiven's plugin for tiered storage gives."""
    return _AIVENS.fullmatch(name) is not None


def is_topic_directory(name: str) -> bool:
    """Return whether a name is what Aiven's plugin calls a topic's directory: with its id."""
    return _TOPIC_DIRECTORY.fullmatch(name) is not None


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
    """Name a segment's file, or a snapshot of producers, by its kind."""
    return segment_file(base_offset, f".{kind}")


def segment_file(base_offset: int, suffix: str) -> str:
    """Name a segment's file, or a snapshot of producers, by its suffix, such as `.log.swap`.

    The number has at least 20 digits: `LogFileUtils.filenamePrefixFromOffset`.
    """
    # The sign of a damaged offset is not one of the 20 digits.
    return f"{base_offset:021d}{suffix}" if base_offset < 0 else f"{base_offset:020d}{suffix}"


def remote_file_name(base_offset: int, segment_id: str, kind: FileKind) -> str:
    """Name a remote segment's file by its kind: `RemoteLogSegmentFileset`, and Aiven's plugin."""
    return f"{base_offset:020d}-{segment_id}{remote_suffix(kind)}"


def remote_suffix(kind: FileKind) -> str:
    """Return what the names of remote files of a kind end in."""
    return MANIFEST if kind == FileKind.MANIFEST else f".{kind.replace('-', '_')}"


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
