"""Predicts a broker's start on all log directories of a node: ids, quorum, metadata, hosting.

Follows `KafkaRaftServer.initializeLogDirs`, `FileQuorumStateStore`, `LogManager` and
`ReplicaManager` of Kafka, in the order in which a start comes to them.
"""

from __future__ import annotations

import os
from collections import defaultdict, deque
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from formats import file_names
from formats.file_names import DirectoryState, parse_directory_name
from formats.late_classes import dataclass
from formats.topic_names import CLUSTER_METADATA, CLUSTER_METADATA_ID
from kafkalog.errors import DataError
from kafkalog.files.log_dir import PartitionDir
from kafkalog.files.text_files import (
    QuorumStateError,
    read_offset_checkpoint,
    read_quorum_state,
    uuid_bytes,
)
from kafkalog.io.paths import file_system
from kafkalog.io.wording import counted, some_of
from kafkalog.node.configs.definitions import start_error
from kafkalog.node.identity import topic_id_of
from kafkalog.node.recovery.directory import checkpoint_lines
from kafkalog.node.recovery.metadata_start import StartedMetadata, bootstrap_refusal, start_metadata
from kafkalog.node.recovery.model import Consequence, Refusal, StartRefusedError
from kafkalog.node.recovery.node_dirs import NodeDir, NodeRefusal, id_refusals, node_refusal
from kafkalog.node.recovery.start import CHECKPOINTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from kafkalog.files.log_dir import LogDirListing
    from kafkalog.node.cluster_image import ClusterImage
    from kafkalog.node.cluster_image.model import Partition

_LOADED: Final = (DirectoryState.LIVE, DirectoryState.FUTURE)


@dataclass(frozen=True, slots=True)
class Hosting:
    """The partition assignments of a cluster, as one of its brokers sees them.

    Attributes:
        node_id: the broker.
        image: the cluster metadata.
    """

    node_id: int
    image: ClusterImage

    def stray_reason(self, partition: PartitionDir) -> str | None:
        """Return why the start makes the directory a stray; None if it does not.

        As in Kafka, the topic id counts and not the name. Also None if the metadata could not be
        read to the end: then anything missing from it proves nothing.
        """
        is_judged = partition.state in _LOADED and partition.topic != CLUSTER_METADATA
        if not is_judged or not self.image.is_whole:
            return None
        topic_id = topic_id_of(partition)
        if topic_id is None:
            try:
                file_system.stat(os.path.join(partition.path, file_names.PARTITION_METADATA))
            except FileNotFoundError:
                return f"it has no {file_names.PARTITION_METADATA}"
            except (OSError, DataError):
                pass  # the log cannot be loaded anyway
            return None
        if topic_id in self.image.removed:
            return f"the topic with id {topic_id} was deleted"
        if topic_id not in self.image.names:
            return f"the cluster's metadata has no topic with id {topic_id}"
        known = self.image.partition(topic_id, partition.partition or 0)
        if known is None:
            return f"the topic has no partition {partition.partition} in the cluster's metadata"
        if self.node_id not in known.replicas:
            nodes = ", ".join(map(str, known.replicas)) or "no node"
            return f"its replicas are on {nodes}, not on node {self.node_id}"
        return None

    def missing_id(self, partition: PartitionDir, epoch: int) -> str | None:
        """Return the topic id that a partition of this node lacks; None if that is not certain.

        Args:
            epoch: the last leader epoch of its log, which may be of a deleted topic of the name.
        """
        topic_id = self.image.topics.get(partition.topic)
        path = os.path.join(partition.path, file_names.PARTITION_METADATA)
        is_live = partition.state == DirectoryState.LIVE and partition.topic != CLUSTER_METADATA
        if topic_id is None or not (is_live and self.image.is_whole) or file_system.exists(path):
            return None
        known = self.image.partition(topic_id, partition.partition or 0)
        if known is None or self.node_id not in known.replicas:
            return None
        return topic_id if epoch <= known.leader_epoch else None

    def directory_id(self, partition: PartitionDir) -> str | None:
        """Return the id of the directory that a partition is assigned to; None if to none here."""
        topic_id = topic_id_of(partition)
        if topic_id is None:
            return None
        known = self.image.partition(topic_id, partition.partition or 0)
        if known is None or self.node_id not in known.replicas:
            return None
        return known.directories[known.replicas.index(self.node_id)]


@dataclass(frozen=True, slots=True)
class Absent:
    """A partition that is assigned to a node and in none of its log directories.

    Attributes:
        name: topic and number, as a directory is called.
        home: the log directory that the start creates it in.
        in_sync: the other nodes that are in sync.
    """

    name: str
    home: LogDirListing
    in_sync: tuple[int, ...]

    @property
    def directory(self) -> PartitionDir:
        """The directory that the start creates."""
        path = os.path.join(self.home.path, self.name)
        return PartitionDir(path, parse_directory_name(self.name), ())


class NodeStart:
    """The start of a node on its log directories; everything is read when it is asked for.

    Args:
        dirs: all log directories of the node that are known.
        metadata_dir: another directory with the cluster's metadata, which are not this node's own
            files, but evidence about it; None if the node's own are there.
        node_id: the id in the node's properties file; None if it is not known.

    Cost:
        Scans the metadata log, and reads the cluster image.
    """

    def __init__(
        self,
        dirs: Sequence[NodeDir],
        metadata_dir: NodeDir | None = None,
        node_id: int | None = None,
    ) -> None:
        self.dirs = dirs
        self._metadata_dir = metadata_dir
        self._configured_id = node_id

    @cached_property
    def home(self) -> NodeDir | None:
        """The first of the directories that holds `__cluster_metadata-0`, None if none does.

        It is taken for `metadata.log.dir`: with another one the broker refuses to start.
        """
        return next((one for one in self.dirs if _metadata_of(one) is not None), None)

    @cached_property
    def refusals(self) -> tuple[NodeRefusal, ...]:
        """Why the node would not start, or do without a log directory, in the broker's order."""
        return (
            *id_refusals(self.dirs, self.home, self.node_id),
            *self._of_metadata(),
            *self._of_configs(),
            *self._of_directories(),
        )

    @property
    def is_refused(self) -> bool:
        """Whether the node does not start, whatever its partitions are like."""
        return any(one.refusal.consequence == Consequence.BROKER_FAILS for one in self.refusals)

    @cached_property
    def node_id(self) -> int | None:
        """The id of the node, None if no directory states it."""
        if self._configured_id is not None:
            return self._configured_id
        ordered = [self.home, *self.dirs] if self.home else self.dirs
        return next((one.broker[1] for one in ordered if one is not None and one.broker), None)

    def predict(self) -> None:
        """Read everything now."""
        _ = self.refusals, self.absent, self.promoted

    # The quorum and the metadata log.

    def _of_metadata(self) -> Iterator[NodeRefusal]:
        home = self.home
        directory = None if home is None else _metadata_of(home)
        if home is None or directory is None:
            return
        for other in self.dirs:
            if other is not home and _metadata_of(other) is not None:
                words = f"Found unexpected metadata location in data directory {other.log_dir.path}"
                yield node_refusal(other, "KafkaException", words, None)
        # Of a malformed one its own prediction says that it is refused.
        if directory.topic_id is not None and uuid_bytes(directory.topic_id) != uuid_bytes(
            CLUSTER_METADATA_ID
        ):
            words = f"Tried to assign topic ID {CLUSTER_METADATA_ID} to log for topic partition"
            path = os.path.join(directory.path, file_names.PARTITION_METADATA)
            words = f"{words} {CLUSTER_METADATA}-0, but {path} has another"
            yield node_refusal(home, "InconsistentTopicIdException", words, None)
        path = os.path.join(directory.path, file_names.QUORUM_STATE)
        if file_system.exists(path):
            try:
                read_quorum_state(path)
            except QuorumStateError as error:
                words = f"Error while reading the Quorum status from the file {path}"
                yield node_refusal(
                    home, error.thrown, f"{words}: {error.message}", "file-malformed"
                )
            except DataError:
                pass  # the finding about the file reports it
        bootstrap = home.log_dir.file(file_names.BOOTSTRAP)
        if bootstrap is not None and bootstrap.error is None:
            refused = bootstrap_refusal(bootstrap)
            if refused is not None:
                yield node_refusal(home, *refused, None)
        if self._metadata.refusal is not None:
            yield node_refusal(home, *self._metadata.refusal)

    @cached_property
    def _metadata(self) -> StartedMetadata:
        directory = None if self.home is None else _metadata_of(self.home)
        if self.home is None or directory is None:
            return StartedMetadata()
        return start_metadata(directory, self.home.image)

    @property
    def metadata_detail(self) -> str | None:
        """What the start does to leave the node with other metadata than its log has; or None."""
        return self._metadata.detail

    @cached_property
    def hosting(self) -> Hosting | None:
        """The partitions assigned to the node once it has started; None if that is unknown.

        A node that is the only controller goes on with what its start leaves of the metadata.
        Others catch up with the quorum, so what a start cuts off comes back.
        """
        source = self.home or self._metadata_dir
        if source is None or self.node_id is None:
            return None
        if source is self._metadata_dir and not _may_share_cluster([source, *self.dirs]):
            return None
        is_alone = source is self.home and not self._other_controllers
        image = self._metadata.image if is_alone else source.image
        if image is None or image.owners(self.dirs[0].directory_id) - {self.node_id}:
            return None
        return Hosting(self.node_id, image)

    @cached_property
    def _other_controllers(self) -> set[int]:
        """The other nodes of the quorum, which have what a start cuts off."""
        voters: set[int] = set()
        if self.home is not None and (directory := _metadata_of(self.home)) is not None:
            try:
                state = read_quorum_state(os.path.join(directory.path, file_names.QUORUM_STATE))
                voters = {one["voterId"] for one in state.get("currentVoters") or ()}
            except DataError:
                pass  # a missing one says nothing, a malformed one is a refusal
            if not voters and (image := self.home.image) is not None:
                known = image.voters
                voters = {one["voterId"] for one in known} if known else {*image.controllers}
        return voters - {self.node_id}

    # The configs of all topics, as LogManager.startup parses them, wherever their replicas are.

    def _of_configs(self) -> Iterator[NodeRefusal]:
        if self.hosting is None:
            return
        from kafkalog.node.cluster_image.model import TOPIC  # with the schemas of its records

        image, home = self.hosting.image, self.home or self.dirs[0]
        for (kind, topic), configs in image.configs.items():
            for name, value in configs.items() if kind == TOPIC and topic in image.topics else ():
                if (error := start_error(name, value)) is not None:
                    words = f"Invalid value {value} for configuration {name} of topic {topic}: "
                    yield node_refusal(home, "ConfigException", words + error, None)

    # The log directories and what is in them.

    def _of_directories(self) -> Iterator[NodeRefusal]:
        duplicates = self._duplicates
        for one in self.dirs:
            for name in one.log_dir.others:
                # The one directory that LogManager.loadLogs leaves out by its name.
                if name != file_names.REMOTE_INDEX_CACHE:
                    words = f"Found directory {name!r}, which is not in the form of topic-partition"
                    yield node_refusal(one, "KafkaException", words, "directory-unknown")
            for refusal in _checkpoint_refusals(one.log_dir):
                # No node does without the directory of its metadata.
                reach = Consequence.BROKER_FAILS if one is self.home else refusal.consequence
                refusal = replace(refusal, consequence=reach)
                yield NodeRefusal(one.log_dir, refusal, "file-malformed")
            for partition in one.log_dir.partitions:
                if (other := duplicates.get(partition.path)) is not None:
                    words = f"Duplicate log directories found: {partition.path} and {other.path}"
                    is_live = partition.state == DirectoryState.LIVE
                    found = "partition-in-two-places" if is_live else None
                    yield node_refusal(one, "IllegalStateException", words, found)

            yield from self._collisions(one)

    @cached_property
    def _duplicates(self) -> dict[str, PartitionDir]:
        """The paths of partitions that an earlier directory has, too, with the other one."""
        seen: dict[tuple[str, int | None, DirectoryState], PartitionDir] = {}
        found: dict[str, PartitionDir] = {}
        for partition in (partition for one in self.dirs for partition in one.log_dir.partitions):
            if partition.state in _LOADED and partition.topic != CLUSTER_METADATA:
                key = partition.topic, partition.partition, partition.state
                other = seen.setdefault(key, partition)
                if other is not partition:
                    found[partition.path] = other
        return found

    def misplaced(self, is_read: Callable[[PartitionDir], bool]) -> Iterator[str]:
        """Describe which of the partitions that would be read are not where the node has them."""
        for partition in (one for inner in self.dirs for one in inner.log_dir.partitions):
            if not is_read(partition):
                continue
            if (other := self._duplicates.get(partition.path)) is not None:
                yield f"{partition.path} is in {other.path}, too: no broker starts on both"
            if (reason := self.stray_reason(partition)) is not None:
                yield f"{partition.path} becomes a stray when a broker starts: {reason}"
        absent = [one for one in self.absent if is_read(one.directory)]
        if absent:
            yield f"the next start would {absences_line(absent)}"

    def _collisions(self, one: NodeDir) -> Iterator[NodeRefusal]:
        """Yield the future copies that the start cannot give the names of their partitions."""
        names = {os.path.basename(partition.path) for partition in one.log_dir.partitions}
        for partition in one.log_dir.partitions:
            name = f"{partition.topic}-{partition.partition}"
            if partition in self.promoted and name in names:
                words = f"Error while renaming dir for {name}: DirectoryNotEmptyException: "
                words += os.path.join(one.log_dir.path, name)
                yield node_refusal(one, "KafkaStorageException", words, None)

    @cached_property
    def promoted(self) -> tuple[PartitionDir, ...]:
        """The future copies that take the places of their partitions, which are assigned there."""
        if self.hosting is None:
            return ()
        return tuple(
            partition
            for one in self.dirs
            for partition in one.log_dir.partitions
            if partition.state == DirectoryState.FUTURE
            and self.hosting.directory_id(partition) == (one.directory_id or "")
        )

    def stray_reason(self, partition: PartitionDir) -> str | None:
        """Return why the start makes a directory a stray; None if it does not, or is unknown."""
        return None if self.hosting is None else self.hosting.stray_reason(partition)

    @cached_property
    def absent(self) -> tuple[Absent, ...]:
        """The partitions that were on the node and are gone: the start creates them empty.

        New ones, which no start has created yet, are not among them.
        """
        hosting = self.hosting
        if hosting is None or not hosting.image.is_whole:
            return ()
        listings = [one.log_dir for one in self.dirs]
        there = {
            (one.topic, one.partition)
            for inner in listings
            for one in (*inner.partitions, *inner.unlisted)
            if one.state == DirectoryState.LIVE or one in self.promoted
        }
        known = [_checkpointed_in(one.log_dir) for one in self.dirs]
        offline = {
            one.log_dir.path
            for one in self.refusals
            if one.refusal.consequence == Consequence.LOG_DIR_OFFLINE
        }
        found = []
        for topic_id, partitions in hosting.image.partitions.items():
            topic = hosting.image.names.get(topic_id)
            for number, one in partitions.items():
                if topic is None or hosting.node_id not in one.replicas or (topic, number) in there:
                    continue
                home = self._home_of(one, [(topic, number) in entries for entries in known])
                if home is None or home.log_dir.path in offline:
                    continue
                others = tuple(node for node in _in_sync(one) if node != hosting.node_id)
                gone = Absent(f"{topic}-{number}", home.log_dir, others)
                # The metadata may be newer than the listing: a broker has created it meanwhile.
                if not file_system.exists(gone.directory.path):
                    found.append(gone)
        # Internal topics last: the line names only some.
        return tuple(sorted(found, key=lambda one: (one.name.startswith("__"), one.name)))

    def _home_of(self, partition: Partition, has_entry: Sequence[bool]) -> NodeDir | None:
        """Return where an absent partition was; None if it was nowhere here, or may be elsewhere.

        Args:
            has_entry: for each directory, whether a checkpoint in it names the partition.
        """
        assert self.hosting is not None, "it has the assignment"
        node_id = self.hosting.node_id
        is_new = node_id not in _in_sync(partition) or not partition.partition_epoch
        if is_new and not any(has_entry):
            return None
        assigned = partition.directories[partition.replicas.index(node_id)]
        here = {one.directory_id: one for one in self.dirs}
        if assigned in here:
            return here[assigned]
        node = self.hosting.image.brokers.get(node_id)
        registered = {*node.directories} if node is not None else set()
        if len(registered - here.keys()) > (None in here) or not (registered or any(has_entry)):
            return None  # it may be in a directory that is not given
        if assigned in registered:
            return here[None]
        return self.dirs[has_entry.index(True) if any(has_entry) else 0]


def _in_sync(partition: Partition) -> set[int]:
    """Return the nodes that have all committed records; a shutdown moves the last of them out."""
    return {*partition.isr, *partition.elr}


def absences_line(absent: Sequence[Absent]) -> str:
    """Describe in one line the logs that a start creates in place of those that are gone."""
    places = sorted({one.home.path for one in absent})
    gone = [one.name for one in absent if not one.in_sync]
    line = f"create {counted(len(absent), 'empty log')} in {' and '.join(places)} for partitions "
    line += f"that were there: {some_of([one.name for one in absent])}"
    if gone:
        of_these = "their records are" if len(gone) == len(absent) else f"of {len(gone)} they are"
        line += f"; {of_these} gone: no other replica is in sync"
    return line


def nodes_of(
    dirs: Sequence[NodeDir], metadata_dir: NodeDir | None = None, node_id: int | None = None
) -> list[NodeStart]:
    """Divide log directories among their nodes.

    A directory belongs to the node that has registered its id, whatever its file says; else to the
    node in its file. One without either belongs to the others, if these are of one node.

    Args:
        dirs: the log directories.
        metadata_dir: as for `NodeStart`; it counts as one of them if it belongs to their node.
        node_id: the id in the node's properties file, for all of them; None if it is not known.
    """
    asked = {one.log_dir.path for one in dirs}
    if metadata_dir is not None and metadata_dir.log_dir.path not in asked:
        dirs = [*dirs, metadata_dir]
    brokers = {one.broker for one in dirs if one.broker is not None}
    owners: dict[str, tuple[str | None, int]] = {}
    if len(brokers) > 1:
        for one in dirs:
            if one.broker is not None and one.image is not None:
                for node in one.image.brokers.values():
                    for directory_id in node.directories:
                        owners.setdefault(directory_id, (one.broker[0], node.node_id))
    groups: dict[object, list[NodeDir]] = defaultdict(list)
    for one in dirs:
        key: object = owners.get(one.directory_id or "", one.broker)
        groups[one.log_dir.path if key is None and len(brokers) != 1 else key or ()].append(one)
    if len(brokers) == 1 and () in groups:
        nameless = groups.pop(())
        [key] = groups
        groups[key] += nameless
    return [
        NodeStart(inner, metadata_dir, node_id)
        for inner in groups.values()
        if not asked.isdisjoint(one.log_dir.path for one in inner)
    ]


def _metadata_of(one: NodeDir) -> PartitionDir | None:
    return next(
        (
            partition
            for partition in one.log_dir.partitions
            if os.path.basename(partition.path) == f"{CLUSTER_METADATA}-0"
        ),
        None,
    )


def _may_share_cluster(dirs: Iterable[NodeDir]) -> bool:
    stated = {one.broker[0] for one in dirs if one.broker is not None}
    return len(stated - {None}) < 2


def is_passed_over(partition: PartitionDir) -> bool:
    """Return whether no start loads a directory: any of the metadata topic but the one in use."""
    is_metadata = partition.topic == CLUSTER_METADATA
    return is_metadata and os.path.basename(partition.path) != f"{CLUSTER_METADATA}-0"


def _checkpoint_refusals(log_dir: LogDirListing) -> Iterator[Refusal]:
    """Yield malformed checkpoints, which are I/O errors; a wrong number in one is only logged."""
    # Of the high watermarks, replicas read theirs before they serve it.
    for name in (*CHECKPOINTS, file_names.HIGH_WATERMARKS):
        entry = log_dir.file(name)
        if entry is None or entry.error is not None:
            continue
        path = os.path.join(log_dir.path, name)
        try:
            # Only its errors count: all lines are read, none is kept.
            deque(checkpoint_lines(path, name, 3), 0)
        except StartRefusedError as error:
            # LogManager.loadLogs catches exceptions and goes on without entries; an I/O error has
            # marked the directory offline by then, and an Error is not caught.
            if error.is_storage or error.error == "OutOfMemoryError":
                yield error.refusal()


def _checkpointed_in(log_dir: LogDirListing) -> set[tuple[str, int]]:
    found: set[tuple[str, int]] = set()
    for name in (file_names.RECOVERY_POINTS, file_names.HIGH_WATERMARKS):
        entry = log_dir.file(name)
        try:
            entries = read_offset_checkpoint(entry.path) if entry is not None else ()
            found.update((one.topic, one.partition) for one in entries)
        except DataError:
            continue  # its checks report it
    return found
