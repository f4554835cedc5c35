"""The small files of a log directory: checkpoints, and the ids of directory, topic and quorum.

Follows Kafka. `CheckpointFile`, `OffsetCheckpointFile` and `LeaderEpochCheckpointFile`: the
same files are accepted and the same ones rejected. `MetaProperties`, `PartitionMetadataFile`,
`CleanShutdownFileHandler` and `FileQuorumStateStore`.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Final

from formats import file_names
from formats.file_names import OFFSET_CHECKPOINTS, DirectoryState, FileKind, parse_directory_name
from formats.late_classes import dataclass
from formats.late_patterns import pattern
from formats.text_lines import SEPARATOR, checkpoint_fields, key_and_value, split_lines
from kafkalog.errors import CorruptDataError, DataError, NotFoundError
from kafkalog.files.payloads.java_text import java_lines
from kafkalog.io.paths import file_system
from kafkalog.io.paths.reading_errors import parse, reading_error
from kafkalog.io.paths.source import read_file
from kafkalog.io.wording import counted
from kafkalog.model import CheckpointEntry, EpochEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


_VERSION = 0
_CHECKPOINT_SIZE_MAX = 1 << 24  # enough for several hundred thousand partitions
_AT_ONCE = 1 << 16
_SMALL_SIZE = 1 << 10
_LINE_END = pattern(rb"\n|\r(?!\n)")


def read_offset_checkpoint(path: str) -> list[CheckpointEntry]:
    """Return the entries of an offset checkpoint in file order.

    Raises:
        CorruptDataError: Kafka would refuse the file (and take its log directory offline).
        NotFoundError, UnreadableError: the file cannot be read.
    """
    return [
        CheckpointEntry(topic, _number(partition, path, 32), _number(offset, path))
        for topic, partition, offset in _fields(path, read_file(path, _CHECKPOINT_SIZE_MAX), 3)
    ]


def read_leader_epochs(path: str) -> list[EpochEntry]:
    """Return the entries of a leader-epoch-checkpoint. Raises as `read_offset_checkpoint`."""
    data = read_file(path, _CHECKPOINT_SIZE_MAX)
    # Thousands of partitions have a file of the same few bytes.
    if len(data) <= _SMALL_SIZE:
        with suppress(CorruptDataError):  # which does not name the file
            return list(_small_leader_epochs(data))
    return [EpochEntry(epoch, offset) for epoch, offset in _number_pairs(path, data)]


def noted_epoch(partition_path: str, offset: int) -> int | None:
    """Return the leader epoch of an offset by leader-epoch-checkpoint; None if it does not say.

    Raises:
        UnreadableError: the file cannot be read.
    """
    with suppress(NotFoundError, CorruptDataError):
        entries = read_leader_epochs(os.path.join(partition_path, file_names.LEADER_EPOCHS))
        return max(
            (one.leader_epoch for one in entries if one.start_offset <= offset), default=None
        )
    return None


@lru_cache(1 << 10)
def _small_leader_epochs(data: bytes) -> tuple[EpochEntry, ...]:
    """Return the entries of a file that many partitions have alike."""
    return tuple(EpochEntry(epoch, offset) for epoch, offset in _number_pairs("", data))


def epoch_end(epochs: Sequence[EpochEntry], end: int, epoch: int) -> tuple[int, int] | None:
    """Return the latest epoch up to this one, and where it ends; None if all known are earlier.

    Args:
        epochs: the epochs of a log.
        end: its log end offset.
        epoch: the epoch that is asked for.

    Source: `LeaderEpochFileCache.endOffsetFor`.
    """
    # The current epoch has not ended: its end is that of the log.
    if epochs and epochs[-1].leader_epoch == epoch:
        return epoch, end
    later = [entry for entry in epochs if entry.leader_epoch > epoch]
    if not later:
        return None
    known = [entry.leader_epoch for entry in epochs if entry.leader_epoch <= epoch]
    return max(known, default=epoch), later[0].start_offset


def read_number_pairs(path: str) -> list[tuple[int, int]]:
    """Read any checkpoint with two numbers per line. Raises as `read_offset_checkpoint`."""
    return _number_pairs(path, read_file(path, _CHECKPOINT_SIZE_MAX))


def _number_pairs(path: str, data: bytes) -> list[tuple[int, int]]:
    return [
        (_number(first, path, 32), _number(second, path))
        for first, second in _fields(path, data, 2)
    ]


def checkpoint_text(entries: Sequence[Sequence[object]]) -> bytes:
    """Return a checkpoint with these entries, each a sequence of fields, as Kafka writes it."""
    lines = [str(_VERSION), str(len(entries))]
    lines += [" ".join(str(field) for field in entry) for entry in entries]
    return "".join(f"{line}\n" for line in lines).encode()


def topic_id_text(topic_id: str) -> bytes:
    """Return a `partition.metadata` with this id, as Kafka writes it."""
    return f"version: {_VERSION}\ntopic_id: {topic_id}".encode()


def _fields(path: str, data: bytes, count: int) -> Iterator[list[str]]:
    lines = _lines(path, data)
    first = next(lines, None)
    if first is None:
        return
    version = _number(first[0], path, 32) if len(first) == 1 else None
    if version != _VERSION:
        raise _checkpoint_malformed(path, "The first line is not a version that Kafka knows.")
    second = next(lines, None)
    if second is None:
        return
    expected = _number(second[0], path, 32) if len(second) == 1 else None
    found = 0
    for line in lines:
        fields = _trimmed(line)
        found += 1
        if len(fields) != count:
            raise _checkpoint_malformed(
                path, f"Line {found + 2} has {len(fields)} fields, not {count}."
            )
        yield fields
    if expected is None:
        raise _checkpoint_malformed(path, "The second line is not a number of entries.")
    if expected != found:
        raise _checkpoint_malformed(
            path, f"The second line says {counted(expected, 'entry')}; the file has {found}."
        )


def _lines(path: str, data: bytes) -> Iterator[list[str]]:
    """Yield the fields of each line, decoding a block of lines at a time to bound memory."""
    start = 0
    while start < len(data):
        last = _LINE_END.search(data, start + _AT_ONCE)
        end = last.end() if last else len(data)
        try:
            text = data[start:end].decode("utf-8")
        except UnicodeDecodeError as error:
            raise _malformed(path, f"The content cannot be parsed: not UTF-8: {error}.") from error
        for line, _ in split_lines(text):
            yield checkpoint_fields(line)[0]
        start = end


def _trimmed(fields: list[str]) -> list[str]:
    """Drop the empty last field that trailing whitespace leaves, as Java's split does.

    Only entries are trimmed: Kafka parses the two lines before them as whole numbers.
    """
    return fields[:-1] if len(fields) > 1 and not fields[-1] else fields


def _number(text: str, path: str, bits: int = 64) -> int:
    """Parse an int or a long as Java does."""
    number = java_number(text, bits)
    if number is None:
        raise _checkpoint_malformed(path, f"{text!r} is not a number of {bits} bits.")
    return number


def java_number(text: str, bits: int) -> int | None:
    """Parse text as `Integer.parseInt` or `Long.parseLong` does; return None where they throw.

    They accept the decimal digits of any script, as long as a digit fits in one `char`.
    """
    digits = text[1:] if text[:1] in ("-", "+") else text
    # At most 19 digits, before Python makes a number of them: a line can have millions.
    if not digits.isdecimal() or max(digits) > "\uffff" or len(digits.lstrip("0")) > 19:
        return None
    number = int(digits) if text[0] != "-" else -int(digits)
    return number if -(1 << bits - 1) <= number < 1 << bits - 1 else None


def _checkpoint_malformed(path: str, message: str) -> CorruptDataError:
    return CorruptDataError(
        message,
        reference="checkpoint-malformed",
        path=path,
        hint="A broker takes the whole log directory offline over this file; move it away or "
        "rewrite it.",
    )


def checkpointed(log_dir: str, name: str, topic: str, partition: int | None) -> int | None:
    """Return a partition's offset in a checkpoint; None if missing or the file is malformed.

    Raises:
        UnreadableError: the file cannot be read.
    """
    path = os.path.join(log_dir, name)
    try:
        status = file_system.stat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        reading_error(error, path)  # reported
        return None
    # A broker replaces checkpoints by a rename: another inode.
    version = status.st_ino, status.st_mtime_ns, status.st_size
    return _entries(path, version).get((topic, partition))


def closed_end(partition_path: str) -> int | None:
    """Return where a log ended when its broker shut down cleanly; None if it did not, or unknown.

    `LogManager.shutdown` flushes each log to its end, and notes that as its recovery point.

    Raises:
        UnreadableError: a file cannot be read.
    """
    log_dir, name = os.path.split(file_system.absolute(partition_path))
    parsed = parse_directory_name(name)
    if parsed is None or parsed.state not in (DirectoryState.LIVE, DirectoryState.FUTURE):
        return None
    if not file_system.exists(os.path.join(log_dir, file_names.CLEAN_SHUTDOWN)):
        return None
    return checkpointed(log_dir, file_names.RECOVERY_POINTS, parsed.topic, parsed.partition)


@lru_cache(len(OFFSET_CHECKPOINTS))
def _entries(path: str, _version: tuple[int, ...]) -> dict[tuple[str, int | None], int]:
    """Return the entries of a checkpoint, cached since every partition needs them."""
    try:
        found = read_offset_checkpoint(path)
    except (NotFoundError, CorruptDataError):
        return {}
    return {(entry.topic, entry.partition): entry.offset for entry in found}


_UUID_BYTES: Final = 16
_UUID_TEXT_MAX: Final = 24
_QUORUM_STATE: Final[dict[int, dict[str, tuple[type, ...]]]] = {
    0: {
        "clusterId": (str,),
        "leaderId": (int,),
        "leaderEpoch": (int,),
        "votedId": (int,),
        "appliedOffset": (int,),
        "currentVoters": (list, type(None)),
    },
    1: {"leaderId": (int,), "leaderEpoch": (int,), "votedId": (int,), "votedDirectoryId": (str,)},
}


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The contents of `meta.properties`; None for a missing property.

    `node_id` is `broker.id` in files of version 0.
    """

    version: int
    cluster_id: str | None
    node_id: int | None
    directory_id: str | None


_SIZE_MAX = 1 << 20  # each of these files has only a few lines


PLAIN_PROPERTIES: Final = pattern(r"(?:#[^\r\n\\]*\n|[\w.-]+=[\w.,:/@-]*\n)*", re.ASCII)
"""What brokers write: lines that mean what they say."""


def read_properties(path: str) -> dict[str, str]:
    """Read a file of Java properties, unescaped; the last of equal keys wins.

    Plain files do without the library, which takes 50 ms to load.

    Raises:
        CorruptDataError: an escape is malformed.
        NotFoundError, UnreadableError: the file cannot be read.
    """
    # java.util.Properties.load reads ISO-8859-1, though Kafka writes UTF-8.
    text = read_file(path, _SIZE_MAX).decode("iso-8859-1")
    if PLAIN_PROPERTIES.fullmatch(text):
        pairs = (line.partition("=") for line in text.split("\n")[:-1] if line[0] != "#")
        return {name: value for name, _, value in pairs}
    import javaproperties

    try:
        return dict(javaproperties.loads(text))
    except ValueError as error:
        raise _malformed(path, f"{error}.") from error


def read_meta_properties(path: str) -> MetaProperties:
    """Read the `meta.properties` of a log directory. Raises as `read_properties`."""
    properties = read_properties(path)
    version = _integer(properties.get("version", "0").strip(" \t\f"), path)
    if version not in (0, 1):
        raise _malformed(path, f"Version {version} is unknown to Kafka.")
    # ZooKeeper brokers wrote version 0.
    node = properties.get("node.id" if version else "broker.id")
    found = MetaProperties(
        version=version,
        cluster_id=properties.get("cluster.id"),
        node_id=None if node is None else _integer(node, path),
        directory_id=properties.get("directory.id"),
    )
    if version and (found.cluster_id is None or found.node_id is None):
        raise _malformed(path, "Version 1 needs cluster.id and node.id.")
    if found.directory_id is not None and uuid_bytes(found.directory_id) is None:
        raise _malformed(path, f"{found.directory_id[:40]!r} is not a directory id.")
    return found


def properties_of(log_dir: str) -> MetaProperties | None:
    """Return the contents of `meta.properties`; None if it is missing or unreadable."""
    with suppress(DataError):  # `verify` reports it
        return read_meta_properties(os.path.join(log_dir, file_names.META_PROPERTIES))
    return None


class KafkaReadError(CorruptDataError):
    """Kafka cannot read a small file.

    Args:
        message: what is wrong.
        thrown: simple name of Kafka's exception; None for the usual one.
    """

    usual: ClassVar[str]

    def __init__(self, message: str, path: str, thrown: str | None = None) -> None:
        super().__init__(message, reference="file-malformed", path=path)
        self.thrown = thrown or self.usual


class NoTopicIdError(KafkaReadError):
    """Kafka cannot read a topic id from `partition.metadata`."""

    usual = "KafkaStorageException"


def read_topic_id(path: str) -> str:
    """Return the topic id in `partition.metadata`, 22 characters.

    Kafka goes by the order of the lines and the value after the colon, and ignores the keys and
    everything after the second line; so does this.

    Raises:
        NoTopicIdError: Kafka cannot read a topic id.
        NotFoundError, UnreadableError: the file cannot be read.
    """
    lines = java_lines(read_file(path, _SIZE_MAX))
    version = _metadata_value(lines, path)
    number = java_number(version, 32)
    if number is None or number < 0:
        raise NoTopicIdError(f"{version[:40]!r} is no version.", path)
    topic_id = _metadata_value(lines, path)
    decoded = uuid_bytes(topic_id)
    if decoded is None:
        message = f"{topic_id[:40]!r} is not a topic id."
        raise NoTopicIdError(message, path, "IllegalArgumentException")
    if not any(decoded):
        raise NoTopicIdError("The topic id is zero.", path)
    return topic_id


def _metadata_value(lines: Iterator[str], path: str) -> str:
    """Return the value after the colon in the next line of `partition.metadata`."""
    try:
        text = next(lines, None)
    except UnicodeDecodeError as error:
        raise NoTopicIdError("The file is not UTF-8.", path) from error
    if text is None:
        message = "Its first two lines are not version and topic id."
        raise NoTopicIdError(message, path, "NullPointerException")
    value, *others = SEPARATOR.split(key_and_value(text)[2])
    if value and not any(others):  # Java's split drops empty fields at the end
        return value
    raise NoTopicIdError(f"The line {text[:40]!r} is malformed.", path)


def uuid_bytes(text: str) -> bytes | None:
    """Return the 16 bytes of an id as `Uuid.fromString` reads it, or None if it is not an id."""
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,24}={0,2}", text) or len(text) > _UUID_TEXT_MAX:
        return None
    from base64 import urlsafe_b64decode

    try:
        decoded = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:  # of binascii
        return None
    return decoded if len(decoded) == _UUID_BYTES else None


class QuorumStateError(KafkaReadError):
    """Kafka cannot read `quorum-state`."""

    usual = "UncheckedIOException"


def read_quorum_state(path: str) -> dict[str, Any]:
    """Return the object in `quorum-state`, with Kafka's keys.

    Raises:
        QuorumStateError: Kafka cannot read it.
        NotFoundError, UnreadableError: the file cannot be read.
    """
    from formats.text_files import QuorumState

    first_line = re.split(rb"[\r\n]", read_file(path, _SIZE_MAX), maxsplit=1)[0]
    try:
        state = dict(parse(QuorumState, first_line, path))
    except CorruptDataError as error:
        raise QuorumStateError(error.message, path) from error
    version = state.get("data_version")
    fields = _QUORUM_STATE.get(version) if type(version) is int else None
    if fields is None:
        thrown = "IllegalStateException" if type(version) is int else "UncheckedIOException"
        raise QuorumStateError("The file has no data_version that Kafka knows.", path, thrown)
    for name, kinds in fields.items():
        # To Python, and only to Python, a boolean is an int.
        if name not in state or type(state[name]) not in kinds:
            words = f"The field {name} is missing or of the wrong type."
            is_number = name in state and kinds == (int,)
            thrown = "NumberFormatException" if is_number else "RuntimeException"
            raise QuorumStateError(words, path, thrown)
    for voter in state.get("currentVoters") or ():
        if not isinstance(voter, dict) or type(voter.get("voterId")) is not int:
            raise QuorumStateError("A voter has no voterId.", path, "RuntimeException")
    return state


def read_clean_shutdown(path: str) -> dict[str, Any]:
    """Read `.kafka_cleanshutdown`, empty up to Kafka 3.6. Raises as `read_properties`."""
    from formats.text_files import CleanShutdown

    reference = "clean-shutdown-unreadable"
    mark = dict(parse(CleanShutdown, read_file(path, _SIZE_MAX), path, reference=reference) or {})
    if mark and type(mark.get("brokerEpoch")) is not int:
        raise CorruptDataError("The file has no broker epoch.", reference=reference, path=path)
    return mark


def read_remote_log_file(path: str, kind: FileKind) -> dict[str, Any]:
    """Read a leftover of tiered storage up to Kafka 3.7. Raises the errors of `read_properties`.

    `remote_log_snapshot`: the offset and partition of the snapshot, and its number of entries.
    `_rlmm_committed_offsets`: metadata partition to offset.
    """
    if kind == FileKind.REMOTE_LOG_OFFSETS:
        return {str(partition): offset for partition, offset in read_number_pairs(path)}
    from formats.side_files import RemoteLogSnapshot

    snapshot = parse(RemoteLogSnapshot, read_file(path), path)
    return {
        "version": snapshot.version,
        "metadata_partition": snapshot.metadata_partition,
        "metadata_partition_offset": snapshot.metadata_partition_offset,
        "entries": len(snapshot.entries),
    }


READERS: Final[dict[FileKind, Callable[[str], Any]]] = {
    FileKind.META_PROPERTIES: read_meta_properties,
    FileKind.PARTITION_METADATA: read_topic_id,
    FileKind.QUORUM_STATE: read_quorum_state,
    FileKind.CLEAN_SHUTDOWN: read_clean_shutdown,
}
"""The reader for each kind of file that a broker of today reads; raises if it cannot read one."""


def read_facts(path: str, kind: FileKind) -> dict[str, Any]:
    """Return the names and values in a small file, as it has them; raises as its reader."""
    if kind == FileKind.LOCK:
        return {}
    if kind == FileKind.META_PROPERTIES:
        return dict(read_properties(path))
    if kind not in READERS:
        return read_remote_log_file(path, kind)
    value = READERS[kind](path)
    return {"topic_id": value} if kind == FileKind.PARTITION_METADATA else value


def _integer(text: str, path: str) -> int:
    """Parse an int as Java does."""
    if re.fullmatch(r"[+-]?[0-9]{1,20}", text) and -(2**31) <= int(text) < 2**31:
        return int(text)
    raise _malformed(path, f"{text[:40]!r} is not a number.")


def _malformed(path: str, message: str) -> CorruptDataError:
    return CorruptDataError(message, reference="file-malformed", path=path)
