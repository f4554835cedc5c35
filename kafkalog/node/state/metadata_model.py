"""What a metadata image says of a cluster: topics, configs, leaves of its tree, and changes."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

from formats.late_classes import dataclass
from kafkalog.node.cluster_image.model import TOPIC, ClusterImage, Partition, Source
from kafkalog.node.state.image_tree import (
    Leaf,
    Tree,
    image_tree,
    leaves,
    resource_name,
    sorted_names,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


ROOT: Final = "/"


class Origin(NamedTuple):
    """Where something in an image comes from.

    Attributes:
        offset, timestamp: of the record that changed it last; None if it comes from a snapshot.
        is_committed: whether the quorum is known to have committed that record.
    """

    offset: int | None
    timestamp: int | None
    is_committed: bool


@dataclass(frozen=True, slots=True)
class MetadataLeaf:
    """A leaf of the tree of an image: its path, its text, and where it comes from."""

    path: str
    text: str
    origin: Origin


@dataclass(frozen=True, slots=True)
class MetadataChange:
    """A leaf that differs between two images: None where one has no such leaf.

    `origin` is the last record that changed it.
    """

    path: str
    before: str | None
    after: str | None
    origin: Origin

    @property
    def change(self) -> str:
        """What happened: `added`, `removed` or `changed`."""
        if self.before is None:
            return "added"
        return "removed" if self.after is None else "changed"


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic.

    Attributes:
        name, topic_id: its name and its id.
        partitions: by number.
        configs: its own configs, name to value.
        origin: the record that created it.
    """

    name: str
    topic_id: str
    partitions: tuple[PartitionState, ...]
    configs: dict[str, str]
    origin: Origin

    @property
    def replication_factor(self) -> int:
        """The largest number of replicas of a partition."""
        return max((len(one.state.replicas) for one in self.partitions), default=0)

    @property
    def under_replicated_partitions(self) -> int:
        """Number of partitions with fewer replicas in sync than replicas."""
        return sum(len(one.state.isr) < len(one.state.replicas) for one in self.partitions)

    @property
    def leaderless_partitions(self) -> int:
        """Number of partitions without a leader."""
        return sum(one.state.leader < 0 for one in self.partitions)


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition of a topic, and where its state comes from."""

    topic: str
    partition: int
    state: Partition
    origin: Origin


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """A config; `resource` is `TOPIC:orders`, `BROKER:1`, or `BROKER` for all brokers."""

    resource: str
    name: str
    value: str
    origin: Origin


@dataclass
class Metadata:
    """The metadata of a cluster at a moment.

    Attributes:
        path: what was read.
        image: the state of the cluster.
        end_offset: the records below it are in the image.
        committed: the records below it were committed by the quorum.
        pending: records of an open metadata transaction, which do not count.
        changes: what differs from the earlier image, by path, if one was asked for. Leaves that say
            nothing new are left out: topics by id, and the offset of the image.
    """

    path: str
    image: ClusterImage
    end_offset: int
    committed: int
    pending: int
    changes: list[MetadataChange]

    @cached_property
    def tree(self) -> Tree:
        """The tree that Kafka's metadata shell shows, from `/` on."""
        return {"image": image_tree(self.image)}

    @property
    def uncommitted(self) -> int:
        """Number of offsets in the image that may not be committed."""
        return max(0, self.end_offset - self.committed)

    def node(self, path: str = ROOT) -> Tree | Leaf | None:
        """Return the tree or the leaf at a path, None if there is none. Names may have slashes."""
        return _node(self.tree, path.strip("/"))

    def leaves(self, path: str = ROOT) -> Iterator[MetadataLeaf]:
        """Yield the leaves at a path and below it, in the order of the shell."""
        node, start = self.node(path), path.rstrip("/")
        if node is not None:
            found = [(start, node)] if isinstance(node, Leaf) else leaves(node, start)
            for name, leaf in found:
                yield MetadataLeaf(name, leaf.text, self.origin(leaf.key))

    def find(self, name: str) -> Iterator[MetadataLeaf]:
        """Yield the leaves that have a name in their path with this text in it."""
        for leaf in self.leaves():
            if any(name in part for part in leaf.path.split("/")):
                yield leaf

    def topics(self) -> Iterator[TopicState]:
        """Yield the topics by name."""
        for name in sorted_names(self.image.topics):
            topic_id = self.image.topics[name]
            partitions = tuple(
                PartitionState(name, number, one, self.origin(("partition", topic_id, number)))
                for number, one in sorted(self.image.partitions.get(topic_id, {}).items())
            )
            configs = dict(sorted(self.image.configs.get((TOPIC, name), {}).items()))
            origin = self.origin(("topic", topic_id))
            yield TopicState(name, topic_id, partitions, configs, origin)

    def configs(self, of: str) -> Iterator[ConfigValue]:
        """Yield the configs of a topic, or of another resource: `BROKER:1`, `GROUP:billing`."""
        for resource in sorted(self.image.configs):
            shown = resource_name(*resource)
            if of == shown or resource == (TOPIC, of):
                for name, value in sorted(self.image.configs[resource].items()):
                    yield ConfigValue(shown, name, value, self.origin(("config", *resource, name)))

    def origin(self, key: object) -> Origin:
        """Return where something comes from, by its key in `ClusterImage.sources`."""
        return _origin(self.image.sources.get(key), self.committed)


def changes_of(before: dict[str, Leaf], found: Metadata) -> Iterator[MetadataChange]:
    """Yield the leaves that differ from those of an earlier image, by path."""
    after = dict(leaves(found.tree))
    for path in sorted_names({**before, **after}):
        old, new = before.get(path), after.get(path)
        if _is_news(path) and (old is None or new is None or old.text != new.text):
            leaf = new or old
            assert leaf is not None, "one of them has it"
            was, now = (None if one is None else one.text for one in (old, new))
            yield MetadataChange(path, was, now, found.origin(leaf.key))


def _is_news(path: str) -> bool:
    """Return whether a leaf says what no other leaf does."""
    _, _, part, *rest = path.split("/")
    if part == "topics":
        return rest[0] == "byName" and rest[-1] != "name"
    return part != "provenance"


def _node(tree: Tree | Leaf, path: str) -> Tree | Leaf | None:
    """Return the node at a path without slashes around it; of several names the longest fits."""
    if not path:
        return tree
    if isinstance(tree, Leaf):
        return None
    fitting = (name for name in tree if path == name or path.startswith(f"{name}/"))
    for name in sorted(fitting, key=len, reverse=True):
        found = _node(tree[name], path[len(name) + 1 :])
        if found is not None:
            return found
    return None


def _origin(source: Source | None, committed: int) -> Origin:
    if source is None or source.snapshot is not None:
        return Origin(None, None, True)
    return Origin(source.offset, source.timestamp, source.offset < committed)
