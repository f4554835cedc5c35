"""The properties that a broker needs for a resurrected log directory.

Follows `KafkaConfig` and `MetaProperties` of Kafka.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from formats.topic_names import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE

if TYPE_CHECKING:
    from collections.abc import Mapping

BROKER_PORT: Final = 9092
CONTROLLER_PORT: Final = 9093
_COORDINATORS: Final = {
    CONSUMER_OFFSETS: "offsets.topic",
    TRANSACTION_STATE: "transaction.state.log",
    SHARE_GROUP_STATE: "share.coordinator.state.topic",
}
"""The internal topics, and how the configs begin that they are created with."""


def meta_properties(cluster_id: str, node_id: int, directory_id: str) -> bytes:
    """Return `meta.properties` of version 1, with comments as Kafka writes them."""
    import javaproperties

    properties = {
        "version": "1",
        "cluster.id": cluster_id,
        "node.id": str(node_id),
        "directory.id": directory_id,
    }
    text = javaproperties.dumps(properties, comments="", timestamp=datetime.now(UTC))
    return text.encode("ascii")


def server_properties(
    node_id: int, log_dir: str, counts: Mapping[str, int], *, has_acls: bool
) -> bytes:
    """Return the properties of a node that is both broker and controller, on this machine only.

    Args:
        counts: internal topics to their number of partitions: by it groups and transactional ids
            find their partition.
        has_acls: whether the metadata hold ACLs, which need an authorizer to be seen.
    """
    host = "127.0.0.1"
    controller = f"{host}:{CONTROLLER_PORT}"
    lines = {
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "listeners": f"PLAINTEXT://{host}:{BROKER_PORT},CONTROLLER://{controller}",
        "advertised.listeners": f"PLAINTEXT://{host}:{BROKER_PORT}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"{node_id}@{controller}",
        "log.dirs": log_dir,
        # A client that asks for a topic that was left out gets an error, not an empty topic.
        "auto.create.topics.enable": "false",
        "auto.leader.rebalance.enable": "false",
    }
    for topic, prefix in _COORDINATORS.items():
        if topic in counts:
            lines[f"{prefix}.num.partitions"] = str(counts[topic])
        # One node: the defaults of 3 would keep coordinators from creating their topics.
        lines[f"{prefix}.replication.factor"] = "1"
    for prefix in (_COORDINATORS[TRANSACTION_STATE], _COORDINATORS[SHARE_GROUP_STATE]):
        lines[f"{prefix}.min.isr"] = "1"
    if has_acls:  # who connects without a password may do everything, as without an authorizer
        lines["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
        lines["super.users"] = "User:ANONYMOUS"
    return _text(lines)


def _text(properties: Mapping[str, str]) -> bytes:
    import javaproperties

    lines = (javaproperties.join_key_value(*one) for one in properties.items())
    text = "".join(f"{line}\n" for line in lines)
    return text.replace("\\:", ":").encode("ascii")  # in a value a colon needs no escape
