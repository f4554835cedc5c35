"""Which directories of one name are one topic: chosen by ids, before copies of it are ranked.

A topic that was deleted and created again has another id, and a broker that was down meanwhile
still has the directories of the old one. What the newest metadata of the cluster say decides;
without metadata all directories have to state one id.
"""

from __future__ import annotations

import os
import warnings
from collections import defaultdict
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from formats.file_names import DirectoryState, partition_of
from formats.topic_names import CLUSTER_METADATA
from kafkalog.errors import DataError, UsageError, on_left_out
from kafkalog.files.log_dir import LogDirListing, LogDirTop, PartitionDir, list_partition
from kafkalog.files.text_files import properties_of
from kafkalog.io.paths import file_system
from kafkalog.io.paths.uris import is_object
from kafkalog.io.wording import some_of
from kafkalog.node.identity import image_of, newest_metadata, topic_id_of
from kafkalog.node.targets import names_in, partitions_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from kafkalog.node.cluster_image import ClusterImage
    from kafkalog.node.recovery import NodeStart
    from kafkalog.node.targets import Target

_NAMED_MAX: Final = 8
_METADATA: Final = f"{CLUSTER_METADATA}-0"


def live_id(name: str, stated: Collection[str], images: Iterable[ClusterImage]) -> str | None:
    """Return which of the ids that its directories state a topic has; None if that is not clear.

    Args:
        name: name of the topic.
        stated: the ids.
        images: the newest metadata of each cluster.
    """
    known = {topic_id for one in images if (topic_id := one.topics.get(name)) in stated}
    found = known or set(stated)
    return found.pop() if len(found) == 1 else None


def _newest_image(metadata: Iterable[PartitionDir]) -> ClusterImage | None:
    """Return the image of the newest metadata log; None if it cannot be read whole."""
    found = newest_metadata(metadata)
    image = None if found is None else image_of(found)
    return image if image is not None and not image.damage else None


def metadata_logs(targets: Iterable[Target]) -> list[PartitionDir]:
    """Return the metadata logs among targets."""
    return [
        one
        for one in partitions_of(targets)
        if one.topic == CLUSTER_METADATA and one.state == DirectoryState.LIVE
    ]


def live_partitions(targets: Sequence[Target], topic: str | None = None) -> list[PartitionDir]:
    """Return the partition directories that a broker would serve, and logs in remote storage.

    All are of one cluster, and those with one name of one topic. Raises as `paths_of_others`.

    Args:
        targets: where they are.
        topic: only those of this one.
    """
    found = [one for one in partitions_of(targets) if one.is_served]
    if topic is not None:
        require_one_cluster(found)
        found = [one for one in found if one.topic == topic]
    others = paths_of_others(found, lambda: metadata_logs(targets))
    return [one for one in found if one.path not in others]


def require_one_cluster(partitions: Iterable[PartitionDir]) -> set[int | None]:
    """Return the ids of the nodes that partitions are of.

    Raises:
        UsageError: they are of several clusters.
    """
    log_dirs = dict.fromkeys(
        one.log_dir for one in partitions if one.state != DirectoryState.REMOTE
    )
    if len(log_dirs) < 2:
        return {None}
    nodes = {log_dir: properties_of(log_dir) for log_dir in log_dirs}
    places: dict[str, list[str]] = defaultdict(list)
    for log_dir, found in nodes.items():
        if found is not None and found.cluster_id is not None:
            places[found.cluster_id].append(log_dir)
    if len(places) > 1:
        raise UsageError(
            f"These are log directories of {len(places)} clusters: {_listed(places)}.",
            hint="Give those of one cluster.",
        )
    return {None if found is None else found.node_id for found in nodes.values()}


def paths_of_others(
    partitions: Sequence[PartitionDir],
    metadata: Callable[[], Iterable[PartitionDir]],
    *,
    dead: bool = False,
) -> set[str]:
    """Return the paths of partitions of another topic with the name, after a note that names them.

    Directories without an id belong to a topic if all others state the same one.

    Args:
        partitions: the directories that are meant, of any topics.
        metadata: returns the metadata logs that are given.
        dead: whether those in other states than live are taken as they are.

    Raises:
        UsageError: they are of several clusters, or it is not clear which of several ids counts.

    Cost:
        A small file per directory, unless there is only one. For several nodes, or if ids differ,
        the metadata are read.
    """
    nodes = require_one_cluster(partitions)
    topics: dict[str, list[PartitionDir]] = defaultdict(list)
    for one in partitions:
        if one.is_served or not dead:
            topics[one.topic].append(one)
    examined = [
        one for some in topics.values() if len(nodes) > 1 or _may_differ(some) for one in some
    ]
    ids = _ids_of(examined)
    image: ClusterImage | None = None
    if len(nodes) > 1 or any(len(_stated(some, ids)) > 1 for some in topics.values()):
        image = _newest_image(metadata())
    left_out: set[str] = set()
    for name, some in topics.items():
        for words, group in _others(name, some, ids, image):
            left_out.update(one.path for one in group)
            _tell(f"{words} left out: {some_of([one.path for one in group], _NAMED_MAX)}")
    return left_out


def _may_differ(found: Sequence[PartitionDir]) -> bool:
    """Return whether to compare the topic ids of directories with one name.

    Within one log directory of a store they are not compared, since each id costs a request.
    """
    one = found[0]
    if not is_object(one.path) or (one.name is not None and one.name.uid):
        return len(found) > 1
    places = {(other.partition, other.log_dir) for other in found}
    return len({number for number, _ in places}) < len(found) or len({at for _, at in places}) > 1


def _ids_of(partitions: Sequence[PartitionDir]) -> dict[str, str | None]:
    """Return the id that each directory states, by its path; those in a store are read together."""
    at_once = max((file_system.requests_at_once(one.path) for one in partitions), default=1)
    if at_once == 1:
        return {one.path: topic_id_of(one) for one in partitions}
    from kafkalog.io.engine import in_order

    found = in_order(topic_id_of, partitions, at_once)
    return dict(zip((one.path for one in partitions), found, strict=True))


def _stated(found: Iterable[PartitionDir], ids: dict[str, str | None]) -> dict[str, list[str]]:
    """Return the ids that directories state, with these; live ones count before all others."""
    ranks: dict[bool, dict[str, list[str]]] = {}
    for one in found:
        if (topic_id := ids.get(one.path)) is not None:
            stated = ranks.setdefault(one.state == DirectoryState.LIVE, {})
            stated.setdefault(topic_id, []).append(one.path)
    return ranks.get(True) or ranks.get(False) or {}


def _others(
    name: str,
    found: Sequence[PartitionDir],
    ids: dict[str, str | None],
    image: ClusterImage | None,
) -> Iterator[tuple[str, list[PartitionDir]]]:
    """Yield the directories that are not of the live topic, each group with what it is."""
    removed = image.removed if image is not None else ()
    named = _stated(found, ids)
    stated = {one: named[one] for one in named if one not in removed}
    live = live_id(name, stated, [image] if image is not None else [])
    if stated and live is None:
        raise UsageError(
            f"The topic {name} has different topic ids: {_listed(stated)}.",
            hint="Give the directories of one of them, or with them a log directory whose metadata "
            "log has the topic.",
        )
    groups: dict[str, list[PartitionDir]] = defaultdict(list)
    for one in found:
        topic_id = ids.get(one.path)
        if topic_id is None and named and (len(named) > 1 or not stated):
            groups[f"directories of {name} without a topic id, where others differ,"].append(one)
        elif topic_id is not None and topic_id in removed:
            groups[f"the deleted topic {name} with the id {topic_id}"].append(one)
        elif topic_id is not None and live not in (None, topic_id):
            groups[f"another topic {name}, whose id is {topic_id} and not {live},"].append(one)
    yield from groups.items()


def note_hosting(
    targets: Iterable[Target | LogDirTop], is_read: Callable[[PartitionDir], bool]
) -> None:
    """Note which partitions of log directories are not where the cluster's metadata have them.

    Args:
        targets: where they are; what is no log directory is passed over.
        is_read: whether a partition, of which only the path is known, would be read.

    Cost:
        Where one of them has the metadata log, the image is read, once in a run.
    """
    tops = tuple(
        LogDirTop(one.path, one.files, tuple(sorted(names_in(one))))
        for one in targets
        if isinstance(one, LogDirListing | LogDirTop) and not is_object(one.path)
    )
    metadata = []
    for place in (one.path for one in tops if _METADATA in one.directories):
        with suppress(DataError):  # `verify` reports it
            metadata.append(list_partition(os.path.join(place, _METADATA)))
    for node in _nodes_at(tops, tuple(metadata)) if metadata else ():
        for line in node.misplaced(is_read):
            _tell(line)


@lru_cache(1)  # each table of a query has a plan
def _nodes_at(tops: tuple[LogDirTop, ...], metadata: tuple[PartitionDir, ...]) -> list[NodeStart]:
    """Return the nodes of log directories; files are only listed of their metadata logs."""
    from kafkalog.node.recovery import NodeDir, nodes_of

    known = {one.path: one for one in metadata}
    dirs = []
    for top in tops:
        paths = [os.path.join(top.path, name) for name in top.directories]
        found = (known.get(one) or PartitionDir(one, partition_of(one), ()) for one in paths)
        dirs.append(NodeDir(LogDirListing(top.path, top.files, tuple(found))))
    return nodes_of(dirs)


def _listed(places: dict[str, list[str]]) -> str:
    return "; ".join(f"{one} in {some_of(places[one], _NAMED_MAX)}" for one in sorted(places))


def _tell(text: str) -> None:
    """Report what is left out: to those who listen, else as a `UserWarning`."""
    for hear in on_left_out:
        hear(text)
    if not on_left_out:
        warnings.warn(text, stacklevel=2)
