"""What a metadata image holds: the state of a cluster as far as one node has received it.

Follows `MetadataImage`, `PartitionRegistration`, `BrokerRegistration` and `ControllerRegistration`
of Kafka.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from formats.late_classes import dataclass
from kafkalog.model import Defect, Severity

if TYPE_CHECKING:
    from collections.abc import Hashable


TORN_TAIL: Final = "torn-tail"
SNAPSHOT_EMPTY: Final = "kraft-snapshot-empty"
# Ids of `ConfigResource.Type`.
TOPIC: Final = 2
BROKER: Final = 4
RESOURCE_TYPES: Final = {
    0: "UNKNOWN", TOPIC: "TOPIC", BROKER: "BROKER", 8: "BROKER_LOGGER", 16: "CLIENT_METRICS",
    32: "GROUP",
}  # fmt: skip
"""`ConfigResource.Type`: the kinds of things that have configs."""
SCRAM_MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}


class Source(NamedTuple):
    """The record that something comes from.

    Attributes:
        offset, timestamp: of the record.
        snapshot: name of the snapshot that holds it; its offsets are not those of the log.
    """

    offset: int
    timestamp: int
    snapshot: str | None = None

    def __str__(self) -> str:
        return self.snapshot or f"offset {self.offset}"


class Endpoint(NamedTuple):
    """A listener of a node; `protocol` is the number of a security protocol."""

    name: str
    protocol: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Node:
    """What brokers and controllers register.

    Attributes:
        node_id: its id.
        incarnation_id: of its process.
        endpoints: name to listener.
        features: name to the lowest and the highest supported version.
    """

    node_id: int
    incarnation_id: str
    endpoints: dict[str, Endpoint]
    features: dict[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Broker(Node):
    """The latest registration of a broker.

    Attributes:
        epoch: the broker epoch.
        rack: its rack, None if it has none.
        is_fenced, is_in_controlled_shutdown, is_migrating_zk_broker: its state.
        directories: the ids of its log directories; empty if it registered none.
        cordoned_directories: those that get no new partitions, None if it has not said.
    """

    epoch: int
    rack: str | None
    is_fenced: bool
    is_in_controlled_shutdown: bool
    is_migrating_zk_broker: bool
    directories: tuple[str, ...]
    cordoned_directories: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Controller(Node):
    """The latest registration of a controller."""

    is_zk_migration_ready: bool


@dataclass(frozen=True, slots=True)
class Partition:
    """The state of a partition, by the names of `PartitionRegistration`.

    Attributes:
        replicas, isr, removing_replicas, adding_replicas: node ids.
        elr, last_known_elr: eligible leader replicas, node ids.
        directories: id of the log directory of each replica.
        leader: node id, -1 if it has none.
        is_recovering: whether it recovers from an unclean election.
        leader_epoch, partition_epoch: count elections, and changes of any kind.
    """

    replicas: tuple[int, ...]
    directories: tuple[str, ...]
    isr: tuple[int, ...]
    removing_replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    elr: tuple[int, ...]
    last_known_elr: tuple[int, ...]
    leader: int
    is_recovering: bool
    leader_epoch: int
    partition_epoch: int


@dataclass(frozen=True, slots=True)
class Acl:
    """An access control entry; types and operations are Kafka's numbers."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """A SCRAM credential of a user."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A delegation token; principals are texts such as `User:alice`."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_ms: int
    max_ms: int
    expiry_ms: int


class Provenance(NamedTuple):
    """The last batch of an image: its last offset, its leader epoch, its largest timestamp."""

    offset: int = -1
    epoch: int = -1
    timestamp: int = -1


EMPTY: Final = Provenance()
Quota = tuple[tuple[str, str | None], ...]
"""An entity with quotas: its types with their names, by type; None is the default entity."""


@dataclass
class ClusterImage:
    """The metadata of a cluster as far as one node had received it.

    Attributes:
        metadata_version: feature level of `metadata.version`, None if no record sets it.
        features: other features to their finalized level.
        topics: name to topic id of the existing topics.
        names: topic id to name of the existing topics.
        removed: ids of the topics that the log deletes.
        partitions: topic id to partition number to state.
        brokers, controllers: node id to registration.
        voters: the quorum's voters by their last record; None for static voters.
        configs: (resource type, resource name) to config name to value; the broker with the name ""
            stands for all brokers.
        quotas: entity to quota name to value.
        next_producer_id: the first one that no broker has been given, -1 if none has.
        acls: id to entry.
        scram: (mechanism, user) to credential.
        tokens: id to delegation token.
        sources: what was changed to the record that changed it last, removals included. The keys
            are those of `replay`.
        provenance: the last batch.
        snapshot: name of the snapshot that the image began with, None if it has none.
        defects: damage on the way; anything after it may be missing.
        unknown: number of records that could not be read because this program is too old.
        refused: why records could not be applied; Kafka reports each of them as a fault.
    """

    metadata_version: int | None = None
    features: dict[str, int] = field(default_factory=dict)
    topics: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    partitions: defaultdict[str, dict[int, Partition]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    brokers: dict[int, Broker] = field(default_factory=dict)
    controllers: dict[int, Controller] = field(default_factory=dict)
    voters: list[dict[str, Any]] | None = None
    configs: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)
    quotas: dict[Quota, dict[str, float]] = field(default_factory=dict)
    next_producer_id: int = -1
    acls: dict[str, Acl] = field(default_factory=dict)
    scram: dict[tuple[int, str], ScramCredential] = field(default_factory=dict)
    tokens: dict[str, DelegationToken] = field(default_factory=dict)
    sources: dict[Hashable, Source] = field(default_factory=dict)
    provenance: Provenance = EMPTY
    snapshot: str | None = None
    defects: list[Defect] = field(default_factory=list)
    unknown: int = 0
    refused: list[str] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """Whether the snapshot and the log could be read completely."""
        return all(defect.severity == Severity.NOTE for defect in self.defects)

    @property
    def damage(self) -> list[Defect]:
        """What could not be read, but for what a killed broker leaves incomplete."""
        return [
            one
            for one in self.defects
            if one.severity != Severity.NOTE and one.reference not in (TORN_TAIL, SNAPSHOT_EMPTY)
        ]

    @property
    def known(self) -> set[str]:
        """The ids of all topics that exist or existed."""
        return {*self.names, *self.removed}

    def partition(self, topic_id: str, number: int) -> Partition | None:
        """Return a partition, None if there is no such partition."""
        return self.partitions.get(topic_id, {}).get(number)

    def partition_count(self, topic: str) -> int | None:
        """Return how many partitions a topic has, None if there is no such topic."""
        topic_id = self.topics.get(topic)
        return None if topic_id is None else len(self.partitions.get(topic_id, ()))

    def owners(self, directory_id: str | None) -> set[int]:
        """Return the ids of the nodes that registered a log directory."""
        return {node for node, one in self.brokers.items() if directory_id in one.directories}
