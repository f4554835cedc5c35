"""The identity of log directories: ids of brokers, directories and topics against each other.

Follows `MetaPropertiesEnsemble`, `LogManager` and `UnifiedLog` of Kafka. The cluster metadata
in one node's `__cluster_metadata-0` is evidence about every given log directory.
"""

from __future__ import annotations

import os
from collections import defaultdict
from typing import TYPE_CHECKING

from formats import file_names
from formats.file_names import DirectoryState
from formats.late_classes import dataclass
from formats.topic_names import CLUSTER_METADATA
from kafkalog.check.batches import CheckedPartition, joint_check, log_dir_check
from kafkalog.errors import DataError
from kafkalog.files.log_dir import LogDirListing, LogDirTop, look_at
from kafkalog.files.text_files import read_clean_shutdown
from kafkalog.io.paths import file_system
from kafkalog.log.defects import make_defect
from kafkalog.node.cluster_image.reader import metadata_partition
from kafkalog.node.identity import newest_metadata, topic_id_of
from kafkalog.node.recovery import NodeDir, NodeStart, absences_line, missing_identity, nodes_of
from kafkalog.node.recovery.model import refusal_line

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from kafkalog.files.log_dir import PartitionDir
    from kafkalog.model import Defect
    from kafkalog.node.cluster_image import ClusterImage


@dataclass
class CheckedLogDir(NodeDir):
    """A log directory that was walked over.

    Attributes:
        is_around: whether it is only what is around a partition that was given individually.
        nodes: the starts of all nodes that are checked together, once they were asked for.
    """

    partitions: Sequence[CheckedPartition]
    is_around: bool = False
    nodes: Sequence[NodeStart] | None = None

    def live(self) -> Iterator[CheckedPartition]:
        """Yield the partitions that a broker would serve, except the quorum's."""
        for partition in self.partitions:
            directory = partition.directory
            if directory.state == DirectoryState.LIVE and directory.topic != CLUSTER_METADATA:
                yield partition

    def path(self, name: str) -> str:
        return os.path.join(self.log_dir.path, name)


def around(partition: CheckedPartition) -> CheckedLogDir:
    return CheckedLogDir(listed_around(partition.directory), [partition], is_around=True)


def listed_around(directory: PartitionDir) -> LogDirListing:
    """Return the listing of the log directory around a partition, as if it held nothing else."""
    path = os.path.dirname(file_system.absolute(directory.path))
    try:
        top = look_at(path)
    except DataError:
        top = directory
    files = top.files if isinstance(top, LogDirTop) else ()
    return LogDirListing(path, files, (directory,))


@log_dir_check
def log_dir_is_formatted(
    log_dir: LogDirListing, partitions: Sequence[CheckedPartition]
) -> Iterator[Defect]:
    """A log directory states which node it belongs to."""
    del partitions  # this check needs only the file next to them
    missing = missing_identity(log_dir)
    if missing is not None:
        path = os.path.join(log_dir.path, file_names.META_PROPERTIES)
        yield make_defect("log-dir-not-formatted", path, f"A broker does not start: {missing}.")


@joint_check
def log_dirs_fit_together(log_dirs: Sequence[CheckedLogDir]) -> Iterator[Defect]:
    """Directory ids are unique, and the directories of one broker are those the cluster knows."""
    seen: dict[str, CheckedLogDir] = {}
    for found in log_dirs:
        identity = found.properties.directory_id if found.properties else None
        if identity is not None and identity in seen:
            detail = f"The directory id {identity} is that of {seen[identity].log_dir.path}, too."
            yield make_defect(
                "directory-id-repeated", found.path(file_names.META_PROPERTIES), detail
            )
        elif identity is not None:
            seen[identity] = found
    yield from dict.fromkeys(  # each directory with metadata says so
        defect
        for source in log_dirs
        if source.image is not None and source.broker is not None
        for found in log_dirs
        for defect in _registered(source, source.image, found)
    )


def _registered(
    source: CheckedLogDir, image: ClusterImage, found: CheckedLogDir
) -> Iterator[Defect]:
    """A directory id is registered by the cluster and node that its file names."""
    if found.properties is None or found.properties.directory_id is None:
        return
    identity = found.properties.directory_id
    nodes = image.owners(identity)
    assert source.properties is not None, "its broker is known"
    cluster = source.properties.cluster_id
    path = found.path(file_names.META_PROPERTIES)
    if nodes and (found.properties.node_id not in nodes or found.properties.cluster_id != cluster):
        yield make_defect(
            "log-dir-of-other-broker",
            path,
            f"The directory id {identity} is registered by node {min(nodes)} of cluster {cluster}; "
            f"the file says node {found.properties.node_id} of cluster "
            f"{found.properties.cluster_id}.",
        )
    elif found is source and not nodes and any(found.live()):
        registered = image.brokers.get(found.properties.node_id or 0)
        if registered is None or registered.directories:
            detail = f"No broker of the cluster has registered the directory id {identity}."
            yield make_defect("directory-id-unknown", path, detail)


@joint_check
def partitions_are_in_one_place(log_dirs: Sequence[CheckedLogDir]) -> Iterator[Defect]:
    """A broker has each partition in one log directory, future copies apart."""
    seen: dict[tuple[object, ...], str] = {}
    identities: set[str] = set()
    futures: list[tuple[tuple[object, ...], CheckedPartition]] = []
    for found in log_dirs:
        identity = found.properties.directory_id if found.properties else None
        if identity in identities:
            continue  # a copy of a directory that was seen already
        if identity is not None:
            identities.add(identity)
        for partition in found.partitions:
            directory = partition.directory
            broker = found.broker or found.log_dir.path
            key: tuple[object, ...] = (broker, directory.topic, directory.partition)
            if directory.state == DirectoryState.FUTURE:
                futures.append((key, partition))
            elif directory.state == DirectoryState.LIVE and key in seen:
                detail = f"The broker has the partition in {seen[key]}, too."
                yield make_defect("partition-in-two-places", directory.path, detail)
            elif directory.state == DirectoryState.LIVE:
                seen[key] = directory.path
    for of_future, partition in futures:
        if of_future not in seen:
            detail = "A replica being moved here, of a partition that no given directory holds."
            yield make_defect("leftover-directory", partition.directory.path, detail)


@joint_check
def topic_ids_fit(log_dirs: Sequence[CheckedLogDir]) -> Iterator[Defect]:
    """Every partition has the same topic id as its topic elsewhere in the cluster."""
    for members in clusters_of(log_dirs):
        image = _newest_image(members)
        votes: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        for found in members:
            for partition in found.live():
                if (topic_id := topic_id_of(partition.directory)) is not None:
                    votes[partition.directory.topic][topic_id] += 1
        for found in members:
            for partition in found.live():
                yield from _topic_id(found, partition, image, votes[partition.directory.topic])


def clusters_of(log_dirs: Sequence[CheckedLogDir]) -> Collection[list[CheckedLogDir]]:
    """Return log directories by the cluster that they belong to."""
    clusters: dict[str | None, list[CheckedLogDir]] = defaultdict(list)
    for found in log_dirs:
        clusters[found.properties.cluster_id if found.properties else None].append(found)
    return clusters.values()


def _newest_image(log_dirs: Sequence[CheckedLogDir]) -> ClusterImage | None:
    """Return the newest image of a cluster: an older one may name what is deleted."""
    images = {}
    for found in log_dirs:
        metadata = metadata_partition(found.log_dir)
        if metadata is not None and found.image is not None:
            images[metadata] = found.image
    newest = newest_metadata(images)
    return None if newest is None else images[newest]


def _topic_id(
    found: CheckedLogDir,
    partition: CheckedPartition,
    image: ClusterImage | None,
    votes: dict[str, int],
) -> Iterator[Defect]:
    topic, path = partition.directory.topic, partition.directory.path
    path = os.path.join(path, file_names.PARTITION_METADATA)
    if not file_system.exists(path):
        has_batches = any(segment.log.size_bytes for segment in partition.directory.segments)
        if has_batches and found.properties is not None and found.properties.version:
            detail = "The partition has batches, but no file that names its topic."
            yield make_defect("partition-metadata-missing", path, detail)
        return
    topic_id = topic_id_of(partition.directory)
    if topic_id is None:
        return
    known = None if image is None else image.topics.get(topic)
    if topic_id == known:
        return
    if image is not None and topic_id in image.removed:
        yield make_defect("topic-deleted", path, f"The topic with id {topic_id} was deleted.")
    elif known is not None:
        detail = f"The topic id is {topic_id}, the cluster's metadata has {known} for {topic}."
        yield make_defect("topic-id-mismatch", path, detail)
    # Without metadata the majority of the topic's partitions decides; a tie reports all of them.
    elif len(votes) > 1 and votes[topic_id] <= max(
        count for other, count in votes.items() if other != topic_id
    ):
        others = ", ".join(sorted(votes.keys() - {topic_id}))
        detail = f"The topic id is {topic_id}, other partitions of {topic} have {others}."
        yield make_defect("topic-id-mismatch", path, detail)


def strays_of(log_dirs: Sequence[CheckedLogDir]) -> Iterator[tuple[CheckedPartition, str]]:
    """Yield the partitions that a start takes away from their broker, each with the reason."""
    for node in starts_of(log_dirs):
        for found in node.dirs:
            assert isinstance(found, CheckedLogDir), "of what was given"
            for partition in found.partitions:
                reason = node.stray_reason(partition.directory)
                if reason is not None:
                    yield partition, reason


def starts_of(log_dirs: Sequence[CheckedLogDir]) -> Sequence[NodeStart]:
    """Return the starts of the nodes that log directories belong to; all checks share them.

    If a bug of ours prevents them, only the first caller fails; the others know of none.
    """
    first = log_dirs[0]
    if first.nodes is None:
        first.nodes = ()
        nodes = nodes_of(log_dirs)
        for node in nodes:
            node.predict()
        first.nodes = nodes
    return first.nodes


@joint_check
def starts_succeed(log_dirs: Sequence[CheckedLogDir]) -> Iterator[Defect]:
    """A node starts on its log directories, and has the partitions that it had."""
    for node in starts_of(log_dirs):
        for one in node.refusals:
            if one.finding is None:
                yield make_defect("start-refused", one.log_dir.path, refusal_line(one.refusal))
        if node.absent:
            detail = f"The next start would {absences_line(node.absent)}."
            yield make_defect("partition-absent", node.absent[0].home.path, detail)


@joint_check
def metadata_is_there(log_dirs: Sequence[CheckedLogDir]) -> Iterator[Defect]:
    """One of the log directories of a KRaft node holds the cluster metadata."""
    with_metadata = {
        found.broker
        for found in log_dirs
        for partition in found.log_dir.partitions
        if partition.topic == CLUSTER_METADATA
    }
    for found in log_dirs:
        is_kraft = found.properties is not None and found.properties.version > 0
        if is_kraft and found.broker not in with_metadata and any(found.live()):
            with_metadata.add(found.broker)
            path = found.path(f"{CLUSTER_METADATA}-0")
            detail = "No given log directory holds it; the partitions assigned to the node are "
            yield make_defect("cluster-metadata-missing", path, f"{detail}unknown.")


@joint_check
def partitions_are_assigned(log_dirs: Sequence[CheckedLogDir]) -> Iterator[Defect]:
    """By the cluster metadata, the partition is assigned to its broker."""
    newest = [image for some in clusters_of(log_dirs) if (image := _newest_image(some)) is not None]
    for partition, reason in strays_of(log_dirs):
        topic_id = topic_id_of(partition.directory)
        if topic_id is not None and not _is_told_by_topic(partition, topic_id, newest):
            detail = f"A start takes the partition away from the broker: {reason}."
            yield make_defect("partition-not-assigned", partition.directory.path, detail)


def _is_told_by_topic(
    partition: CheckedPartition, topic_id: str, images: Sequence[ClusterImage]
) -> bool:
    """Return whether `topic_ids_fit` reports the partition: its topic was replaced or deleted."""
    is_live = partition.directory.state == DirectoryState.LIVE
    return is_live and any(
        topic_id in image.removed
        or (image.topics.get(partition.directory.topic, topic_id) != topic_id)
        for image in images
    )


@joint_check
def shutdown_fits_metadata(log_dirs: Sequence[CheckedLogDir]) -> Iterator[Defect]:
    """What a clean shutdown left behind agrees with the cluster metadata of that time."""
    images = {found.broker: found.image for found in log_dirs if found.image is not None}
    for found in log_dirs:
        image = images.get(found.broker)
        mark = found.log_dir.file(file_names.CLEAN_SHUTDOWN)
        if image is None or found.broker is None or mark is None:
            continue
        node_id = found.broker[1]
        yield from _broker_epoch(mark.path, image, node_id)
        for partition in found.live():
            topic_id = topic_id_of(partition.directory)
            if topic_id is not None and image.topics.get(partition.directory.topic) == topic_id:
                known = image.partition(topic_id, partition.directory.partition or 0)
                yield from _latest_epoch(partition, None if known is None else known.leader_epoch)
                if known is not None and known.replicas == (node_id,):
                    yield from _only_replica(found, partition)


def _broker_epoch(path: str, image: ClusterImage, node_id: int) -> Iterator[Defect]:
    try:
        epoch = read_clean_shutdown(path).get("brokerEpoch")
    except DataError:
        return
    registered = image.brokers.get(node_id)
    if epoch is not None and registered is not None and epoch != registered.epoch:
        detail = f"The broker epoch is {epoch}, node {node_id} registered with {registered.epoch}."
        yield make_defect("broker-epoch-mismatch", path, detail)


def _latest_epoch(partition: CheckedPartition, known: int | None) -> Iterator[Defect]:
    entries = partition.log.leader_epochs
    if known is not None and entries and entries[-1].leader_epoch > known:
        yield make_defect(
            "leader-epoch-beyond-metadata",
            partition.directory.place_of(file_names.LEADER_EPOCHS),
            f"The last leader epoch is {entries[-1].leader_epoch}, the cluster's metadata has "
            f"reached {known}.",
            offset=entries[-1].start_offset,
        )


def _only_replica(found: CheckedLogDir, partition: CheckedPartition) -> Iterator[Defect]:
    """Check that a sole replica's high watermark is its log end: everything is replicated."""
    name = file_names.HIGH_WATERMARKS
    offset = partition.log.checkpoint(name)
    if offset is not None and partition.is_judged and offset < partition.end_offset:
        yield make_defect(
            "high-watermark-not-at-end",
            found.path(name),
            f"The high watermark of {os.path.basename(partition.directory.path)} is {offset}, its "
            f"log ends at {partition.end_offset}, and it has no other replica.",
            offset=offset,
        )
