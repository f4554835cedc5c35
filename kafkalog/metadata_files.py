"""The small files that say whose log this is: ids of directory, partition and quorum.

Follows `MetaProperties`, `PartitionMetadataFile`, `CleanShutdownFileHandler` and
`FileQuorumStateStore` of Kafka 4.3.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from formats.clean_shutdown import CleanShutdown
from formats.partition_metadata import PartitionMetadata
from formats.quorum_state import QuorumState
from formats.remote_log_snapshot import RemoteLogSnapshot
from kafkalog.checkpoints import read_number_pairs
from kafkalog.errors import CorruptDataError
from kafkalog.names import FileKind
from kafkalog.parsing import parse
from kafkalog.source import read_file


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """What `meta.properties` says; None for what is not there.

    `node_id` is `broker.id` in files of version 0.
    """

    version: int
    cluster_id: str | None
    node_id: int | None
    directory_id: str | None


_SIZE_MAX = 1 << 20  # each of these files has a few lines


def read_properties(path: str) -> dict[str, str]:
    """A file of Java properties, unescaped; the last of equal keys wins.

    Raises:
        CorruptDataError: an escape is malformed.
        NotFoundError, UnreadableError: it cannot be read.
    """
    import javaproperties

    try:
        return dict(javaproperties.loads(read_file(path, _SIZE_MAX).decode("iso-8859-1")))
    except ValueError as error:
        raise _malformed(path, f"{error}.") from error


def read_meta_properties(path: str) -> MetaProperties:
    """`meta.properties` of a log directory; raises as `read_properties`."""
    properties = read_properties(path)
    version = _integer(properties.get("version", "0"), path)
    if version not in (0, 1):
        raise _malformed(path, f"Version {version} is unknown to Kafka 4.3.")
    node = properties.get("node.id" if version else "broker.id")
    return MetaProperties(
        version=version,
        cluster_id=properties.get("cluster.id"),
        node_id=None if node is None else _integer(node, path),
        directory_id=properties.get("directory.id"),
    )


def read_topic_id(path: str) -> str:
    """The topic id in `partition.metadata`, 22 characters; raises as `read_properties`."""
    for line in parse(PartitionMetadata, read_file(path, _SIZE_MAX), path):
        if line.key == "topic_id" and line.value:
            return str(line.value)
    raise _malformed(path, "It holds no topic id.")


def read_quorum_state(path: str) -> dict[str, Any]:
    """The object in `quorum-state`, Kafka's own names; raises as `read_properties`."""
    return dict(parse(QuorumState, read_file(path, _SIZE_MAX), path))


def read_clean_shutdown(path: str) -> dict[str, Any]:
    """The object in `.kafka_cleanshutdown`, empty up to Kafka 3.6; raises as `read_properties`."""
    return dict(parse(CleanShutdown, read_file(path, _SIZE_MAX), path) or {})


def read_remote_log_file(path: str, kind: FileKind) -> dict[str, Any]:
    """The left-overs of tiered storage up to Kafka 3.7; raises as `read_properties`.

    `remote_log_snapshot`: where the snapshot was taken, and how many entries it has.
    `_rlmm_committed_offsets`: metadata partition to offset.
    """
    if kind == FileKind.REMOTE_LOG_OFFSETS:
        return {str(partition): offset for partition, offset in read_number_pairs(path)}
    snapshot = parse(RemoteLogSnapshot, read_file(path), path)
    return {
        "version": snapshot.version,
        "metadata_partition": snapshot.metadata_partition,
        "metadata_partition_offset": snapshot.metadata_partition_offset,
        "entries": len(snapshot.entries),
    }


def _integer(text: str, path: str) -> int:
    """An int as Java parses it."""
    if re.fullmatch(r"[+-]?[0-9]{1,20}", text) and -(2**31) <= int(text) < 2**31:
        return int(text)
    raise _malformed(path, f"{text[:40]!r} is not a number.")


def _malformed(path: str, message: str) -> CorruptDataError:
    return CorruptDataError(message, reference="file-malformed", path=path)
