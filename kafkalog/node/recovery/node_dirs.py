"""The log directories of a node: what their small files say of it, and whether their ids agree.

Follows `MetaPropertiesEnsemble` of Kafka.
"""

from __future__ import annotations

import os
from functools import cached_property
from typing import TYPE_CHECKING, Final

from formats import file_names
from formats.file_names import FileKind
from formats.late_classes import dataclass
from formats.topic_names import CLUSTER_METADATA
from kafkalog.errors import DataError
from kafkalog.files.text_files import read_meta_properties, uuid_bytes
from kafkalog.node.recovery.model import Consequence, Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kafkalog.files.log_dir import LogDirListing
    from kafkalog.files.text_files import MetaProperties
    from kafkalog.node.cluster_image import ClusterImage

_RESERVED_IDS: Final = 100  # the first ids stand for "unassigned", "lost" and the like


@dataclass
class NodeDir:
    """A log directory, and what its small files say of the node that it belongs to.

    Attributes:
        log_dir: its listing.
    """

    log_dir: LogDirListing

    @cached_property
    def properties(self) -> MetaProperties | None:
        """The contents of meta.properties; None if missing or malformed."""
        entry = self.log_dir.file(file_names.META_PROPERTIES)
        if entry is None or entry.error is not None:
            return None
        try:
            return read_meta_properties(entry.path)
        except DataError:
            return None

    @property
    def broker(self) -> tuple[str | None, int] | None:
        """Cluster id and node id, None if they are unknown."""
        found = self.properties
        return None if found is None or found.node_id is None else (found.cluster_id, found.node_id)

    @property
    def directory_id(self) -> str | None:
        """The id of the directory, None if it is unknown."""
        return self.properties.directory_id if self.properties else None

    @cached_property
    def image(self) -> ClusterImage | None:
        """The best cluster image that `__cluster_metadata-0` in the directory gives, or None."""
        if not any(one.topic == CLUSTER_METADATA for one in self.log_dir.partitions):
            return None
        # It loads the schemas of its records.
        from kafkalog.node.cluster_image import read_cluster_image

        return read_cluster_image(self.log_dir)


@dataclass(frozen=True, slots=True)
class NodeRefusal:
    """Why a node fails on a log directory, apart from a log that cannot be loaded.

    Attributes:
        log_dir: the directory.
        refusal: the exception and how far it reaches.
        finding: the reference of the finding that reports the same; None if there is no such
            finding.
    """

    log_dir: LogDirListing
    refusal: Refusal
    finding: str | None = None


def id_refusals(
    dirs: Sequence[NodeDir], home: NodeDir | None, node_id: int | None
) -> Iterator[NodeRefusal]:
    """Yield what `MetaPropertiesEnsemble` refuses when it compares the ids of log directories.

    Args:
        dirs: those of the node.
        home: which of them holds the metadata log, and is compared first; None if none does.
        node_id: the id that the node starts with, None if it is not known.
    """
    first: tuple[str | None, int] | None = None
    ids: dict[str, NodeDir] = {}
    for one in sorted(dirs, key=lambda one: one is not home):
        is_needed = one is home or len(dirs) == 1
        missing = missing_identity(one.log_dir)
        if missing is not None:
            yield node_refusal(one, "RuntimeException", missing, "log-dir-not-formatted")
        elif (malformed := _malformed_identity(one, is_needed=is_needed)) is not None:
            yield malformed
        if one.broker is None:
            continue
        cluster_id, stated = one.broker
        place = os.path.join(one.log_dir.path, file_names.META_PROPERTIES)
        first = first or (cluster_id, stated if node_id is None else node_id)
        if stated != first[1]:
            words = f"Stored node id {stated} doesn't match previous node id {first[1]}"
            yield node_refusal(one, "RuntimeException", f"{words} in {place}", None)
            first = one.broker
        elif None not in (cluster_id, first[0]) and cluster_id != first[0]:
            words = f"Invalid cluster.id in: {place}. Expected {first[0]}"
            yield node_refusal(one, "RuntimeException", f"{words}, but read {cluster_id}", None)
        if one.directory_id is None:
            continue
        if _is_reserved(one.directory_id):
            words = f"Invalid reserved directory ID {one.directory_id} found in"
            yield node_refusal(one, "RuntimeException", f"{words} {one.log_dir.path}", None)
        other = ids.setdefault(one.directory_id, one)
        if other is not one:
            words = f"Duplicate directory ID {one.directory_id}: it is also that of"
            words = f"{words} {other.log_dir.path}"
            yield node_refusal(one, "RuntimeException", words, "directory-id-repeated")


def _malformed_identity(one: NodeDir, *, is_needed: bool) -> NodeRefusal | None:
    """Return what a file that cannot be read leads to; None if it can be read or is missing.

    Args:
        is_needed: whether the node does not start without the directory.
    """
    if one.properties is not None or one.log_dir.file(file_names.META_PROPERTIES) is None:
        return None
    if is_needed:
        words = f"Encountered I/O error in metadata log directory {one.log_dir.path}"
        return node_refusal(one, "RuntimeException", words, "file-malformed")
    words = f"Failed to load {one.log_dir.path}: {file_names.META_PROPERTIES} is malformed"
    refusal = Refusal("IOException", words, Consequence.LOG_DIR_OFFLINE)
    return NodeRefusal(one.log_dir, refusal, "file-malformed")


def missing_identity(log_dir: LogDirListing) -> str | None:
    """Describe what `meta.properties` lacks for a start; None if nothing.

    Also None for partitions without other files next to them, which are not a log directory, and
    for a directory from a ZooKeeper cluster, which names only its broker.
    """
    entry = log_dir.file(file_names.META_PROPERTIES)
    if entry is None:
        is_broker_s = any(entry.name.kind != FileKind.UNKNOWN for entry in log_dir.files)
        return (
            f"{file_names.META_PROPERTIES} is missing"
            if is_broker_s and log_dir.partitions
            else None
        )
    try:
        found = read_meta_properties(entry.path)
    except DataError:
        return None  # the finding about the file reports it
    return f"{file_names.META_PROPERTIES} names no node" if found.node_id is None else None


def node_refusal(one: NodeDir, error: str, message: str, finding: str | None) -> NodeRefusal:
    """Return the refusal of a node that does not start because of a log directory."""
    return NodeRefusal(one.log_dir, Refusal(error, message, Consequence.BROKER_FAILS), finding)


def _is_reserved(directory_id: str) -> bool:
    decoded = uuid_bytes(directory_id)
    return decoded is not None and int.from_bytes(decoded, "big") < _RESERVED_IDS
