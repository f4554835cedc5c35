"""A metadata image as the tree that Kafka's metadata shell shows: paths, and texts of the leaves.

Follows `MetadataImageNode` and the other nodes of `org.apache.kafka.image.node`, and the `toString`
methods they print, of Kafka. Quotas of default entities have the name `<default>` here; the
shell gives them the name of the other entity, or none, and shows no values.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from formats.releases import metadata_levels
from kafkalog.files.payloads.java_text import java_double
from kafkalog.node.cluster_image.model import RESOURCE_TYPES, SCRAM_MECHANISMS

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator

    from kafkalog.node.cluster_image.model import (
        Acl,
        Broker,
        ClusterImage,
        Controller,
        DelegationToken,
        Node,
        Partition,
        Provenance,
        Quota,
        ScramCredential,
    )

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_ACL_RESOURCES: Final = (
    "UNKNOWN", "ANY", "TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER",
)  # fmt: skip
_PATTERNS: Final = ("UNKNOWN", "ANY", "MATCH", "LITERAL", "PREFIXED")
_OPERATIONS: Final = (
    "UNKNOWN", "ANY", "ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE",
    "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "CREATE_TOKENS",
    "DESCRIBE_TOKENS", "TWO_PHASE_COMMIT",
)  # fmt: skip
_PERMISSIONS: Final = ("UNKNOWN", "ANY", "DENY", "ALLOW")
_QUOTA_NAMES: Final = (("client-id", "clientId"), ("ip", "ip"), ("user", "user"))
_DEFAULT: Final = "<default>"
_SHORT_MAX: Final = 0x7FFF  # `Short.MAX_VALUE`
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Leaf(NamedTuple):
    """A leaf of the tree.

    Attributes:
        text: what the shell prints of it.
        key: of the record that it comes from, in `ClusterImage.sources`; None for what stands for
            all records.
    """

    text: str
    key: Hashable


Tree = dict[str, Any]
"""Names to leaves and trees."""


def image_tree(image: ClusterImage) -> Tree:
    """Return the tree below `/image`."""
    return {
        "provenance": Leaf(provenance_text(image.provenance), None),
        "features": _features(image),
        "cluster": {
            "brokers": {
                str(one.node_id): Leaf(broker_text(one), ("broker", one.node_id))
                for one in image.brokers.values()
            },
            "controllers": {
                str(one.node_id): Leaf(_controller_text(one), ("controller", one.node_id))
                for one in image.controllers.values()
            },
        },
        "topics": {
            "byName": {
                name: _topic(image, topic_id, name) for name, topic_id in image.topics.items()
            },
            "byId": {
                topic_id: _topic(image, topic_id, name) for topic_id, name in image.names.items()
            },
        },
        "configs": {
            resource_name(*resource): {
                name: Leaf(text, ("config", *resource, name)) for name, text in configs.items()
            }
            for resource, configs in image.configs.items()
        },
        "clientQuotas": {
            _entity_name(entity): {
                name: Leaf(java_double(value), ("quota", entity, name))
                for name, value in quotas.items()
            }
            for entity, quotas in image.quotas.items()
        },
        "producerIds": {"nextProducerId": Leaf(str(image.next_producer_id), ("producer-ids",))},
        "acls": {
            "byId": {acl_id: Leaf(_acl_text(one), ("acl", acl_id))
                     for acl_id, one in image.acls.items()},
        },
        "scram": _scram(image),
        "delegationToken": {
            token_id: Leaf(_token_text(one), ("token", token_id))
            for token_id, one in image.tokens.items()
        },
    }  # fmt: skip


def sorted_names(tree: Tree) -> list[str]:
    """Return the names in a tree in Java's order: by UTF-16 code units."""
    return sorted(tree, key=lambda name: name.encode("utf-16-be", "surrogatepass"))


def leaves(tree: Tree, path: str = "") -> Iterator[tuple[str, Leaf]]:
    """Yield the leaves of a tree with their paths, in the order of the shell."""
    for name in sorted_names(tree):
        child = tree[name]
        if isinstance(child, Leaf):
            yield f"{path}/{name}", child
        else:
            yield from leaves(child, f"{path}/{name}")


def tree_lines(node: Tree | Leaf, depth: int = 0) -> Iterator[str]:
    """Yield the lines that the shell's `tree` prints of a node."""
    indentation = "  " * depth
    if isinstance(node, Leaf):
        yield f"{indentation}{node.text}"
        return
    for name in sorted_names(node):
        yield f"{indentation}{name}:"
        yield from tree_lines(node[name], depth + 1)


def resource_name(kind: int, name: str) -> str:
    """Return the name of a node of configs: `TOPIC:orders`, or `BROKER` for all brokers."""
    shown = RESOURCE_TYPES.get(kind, f"UNKNOWN({kind})")
    return f"{shown}:{name}" if name else shown


def provenance_text(one: Provenance) -> str:
    """Return the last batch, with a time as `ISO_ZONED_DATE_TIME` has it."""
    try:
        text = (_EPOCH + timedelta(milliseconds=one.timestamp)).isoformat()
    except OverflowError:  # a timestamp that no clock shows
        return f"offset {one.offset}, epoch {one.epoch}, time {one.timestamp}"
    whole, _, fraction = text.removesuffix("+00:00").partition(".")
    fraction = fraction.rstrip("0")
    time = f"{whole}.{fraction}" if fraction else whole
    return f"offset {one.offset}, epoch {one.epoch}, time {time}Z[UTC]"


def partition_text(one: Partition) -> str:
    """Return `PartitionRegistration.toString`."""
    return (
        f"PartitionRegistration(replicas={_list(one.replicas)}, "
        f"directories={_list(one.directories)}, isr={_list(one.isr)}, "
        f"removingReplicas={_list(one.removing_replicas)}, "
        f"addingReplicas={_list(one.adding_replicas)}, elr={_list(one.elr)}, "
        f"lastKnownElr={_list(one.last_known_elr)}, leader={one.leader}, "
        f"leaderRecoveryState={'RECOVERING' if one.is_recovering else 'RECOVERED'}, "
        f"leaderEpoch={one.leader_epoch}, partitionEpoch={one.partition_epoch})"
    )


def broker_text(one: Broker) -> str:
    """Return `BrokerRegistration.toString`."""
    cordoned = one.cordoned_directories
    return (
        f"BrokerRegistration(id={one.node_id}, epoch={one.epoch}, "
        f"incarnationId={one.incarnation_id}, {_listeners_and_features(one)}, "
        f"rack={'Optional.empty' if one.rack is None else f'Optional[{one.rack}]'}, "
        f"fenced={_bool(one.is_fenced)}, inControlledShutdown="
        f"{_bool(one.is_in_controlled_shutdown)}, isMigratingZkBroker="
        f"{_bool(one.is_migrating_zk_broker)}, directories={_list(one.directories)}, "
        f"cordonedDirectories={'null' if cordoned is None else _list(cordoned)})"
    )


def _controller_text(one: Controller) -> str:
    return (
        f"ControllerRegistration(id={one.node_id}, incarnationId={one.incarnation_id}, "
        f"zkMigrationReady={_bool(one.is_zk_migration_ready)}, {_listeners_and_features(one)})"
    )


def _listeners_and_features(one: Node) -> str:
    listeners = ", ".join(
        f"Endpoint(listenerName='{endpoint.name}', "
        f"securityProtocol={_named(_PROTOCOLS, endpoint.protocol, 'null')}, "
        f"host='{endpoint.host}', port={endpoint.port})"
        for endpoint in map(one.endpoints.__getitem__, sorted_names(one.endpoints))
    )
    features = ", ".join(
        f"{name}: {_version_range(*one.features[name])}" for name in sorted_names(one.features)
    )
    return f"listeners=[{listeners}], supportedFeatures={{{features}}}"


def _version_range(lowest: int, highest: int) -> str:
    if lowest == highest:
        return str(lowest)
    return f"{lowest}+" if highest == _SHORT_MAX else f"{lowest}-{highest}"


def _features(image: ClusterImage) -> Tree:
    level = image.metadata_version
    version = (
        "Optional.empty" if level is None else f"Optional[{metadata_levels().get(level, level)}]"
    )
    return {
        "metadataVersion": Leaf(version, ("feature", "metadata.version")),
        **{
            f"finalized_{name}": Leaf(str(value), ("feature", name))
            for name, value in image.features.items()
        },
    }


def _topic(image: ClusterImage, topic_id: str, name: str) -> Tree:
    return {
        "name": Leaf(name, ("topic", topic_id)),
        "id": Leaf(topic_id, ("topic", topic_id)),
        **{
            str(number): Leaf(partition_text(one), ("partition", topic_id, number))
            for number, one in image.partitions.get(topic_id, {}).items()
        },
    }


def _entity_name(entity: Quota) -> str:
    named = dict(entity)
    parts = [
        f"{shown}({_DEFAULT if named[kind] is None else _escaped(named[kind] or '')})"
        for kind, shown in _QUOTA_NAMES
        if kind in named
    ]
    others = (f"{kind}({name})" for kind, name in entity if kind not in dict(_QUOTA_NAMES))
    return "_".join((*parts, *others))


def _escaped(name: str) -> str:
    return name.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")


def _acl_text(one: Acl) -> str:
    return (
        f"StandardAcl[resourceType={_named(_ACL_RESOURCES, one.resource_type)}, "
        f"resourceName={one.resource_name}, patternType={_named(_PATTERNS, one.pattern_type)}, "
        f"principal={one.principal}, host={one.host}, "
        f"operation={_named(_OPERATIONS, one.operation)}, "
        f"permissionType={_named(_PERMISSIONS, one.permission_type)}]"
    )


def _scram(image: ClusterImage) -> Tree:
    mechanisms: Tree = {name: {} for name in SCRAM_MECHANISMS.values()}
    for (mechanism, user), one in image.scram.items():
        name = SCRAM_MECHANISMS.get(mechanism, f"UNKNOWN({mechanism})")
        text = _scram_text(one)
        mechanisms.setdefault(name, {})[user] = Leaf(text, ("scram", mechanism, user))
    return mechanisms


def _scram_text(one: ScramCredential) -> str:
    return (
        f"ScramCredentialData(salt={one.salt.hex()}, storedKey={one.stored_key.hex()}, "
        f"serverKey={one.server_key.hex()}, iterations={one.iterations})"
    )


def _token_text(one: DelegationToken) -> str:
    """Return what `DelegationTokenDataNode` prints, its parentheses as they are."""
    return (
        f"DelegationTokenDatatokenId={one.token_id}(owner={one.owner}"
        f"(tokenRequester={one.requester}(renewers={' '.join(one.renewers)}, "
        f"issueTimestamp={one.issue_ms}, maxTimestamp={one.max_ms}), "
        f"expiryTimestamp={one.expiry_ms}"
    )


def _list(values: Iterable[object]) -> str:
    return f"[{', '.join(map(str, values))}]"


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _named(names: tuple[str, ...], number: int, unknown: str = "UNKNOWN") -> str:
    return names[number] if 0 <= number < len(names) else unknown
