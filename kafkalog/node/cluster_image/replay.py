"""Applies the records of the metadata log to an image.

Follows `MetadataDelta` and the deltas of its parts, `PartitionRegistration.merge` and
`MetadataBatchLoader` of Kafka 4.4. Where Kafka throws, the record is refused and the image stays
as it is. Configs that Kafka does not know are kept; it drops them.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, Generic, TypeVar

from kafkalog.node.cluster_image.model import (
    TOPIC,
    Acl,
    Broker,
    ClusterImage,
    Controller,
    DelegationToken,
    Endpoint,
    Partition,
    ScramCredential,
    Source,
)

_NO_LEADER_CHANGE: Final = -2  # `LeaderConstants.NO_LEADER_CHANGE`
_NO_RECOVERY_CHANGE: Final = -1  # `LeaderRecoveryState.NO_CHANGE`
_RECOVERY_STATES: Final = (0, 1)
_MIGRATING: Final = "A" * 22
"""`DirectoryId.MIGRATING`: the log directory of a replica is not assigned yet."""
_METADATA_VERSION: Final = "metadata.version"
_KRAFT_VERSION: Final = "kraft.version"

T = TypeVar("T")
Data = dict[str, Any]
Keys = Iterator[Hashable]


class ContradictionError(Exception):
    """A record contradicts the image; the text says how."""


class MetadataTransactions(Generic[T]):
    """Holds back the records of a metadata transaction until it ends; drops them if it aborts.

    Attributes:
        pending: what an open transaction has written, None if none is open.
    """

    def __init__(self) -> None:
        self.pending: list[T] | None = None

    def take(self, kind: str, change: T) -> Sequence[T]:
        """Add a record; return the changes that take effect with it."""
        if kind == "BEGIN_TRANSACTION_RECORD":
            if self.pending is None:  # Kafka reports a second one as a fault, and goes on
                self.pending = []
        elif kind in ("END_TRANSACTION_RECORD", "ABORT_TRANSACTION_RECORD"):
            pending, self.pending = self.pending or [], None
            return pending if kind == "END_TRANSACTION_RECORD" else ()
        elif self.pending is not None:
            self.pending.append(change)
        else:
            return (change,)
        return ()


def replay(image: ClusterImage, kind: str, data: Data, source: Source) -> None:
    """Apply one record to the image; a contradiction goes to `image.refused`."""
    change = _CHANGES.get(kind)
    if change is None:
        return  # it says nothing that an image holds
    try:
        for key in change(image, data):
            image.sources[key] = source
    except ContradictionError as error:
        image.refused.append(f"{kind} at {source}: {error}")


def _topic(image: ClusterImage, data: Data) -> Keys:
    name, topic_id = data["name"], data["topicId"]
    image.topics[name] = topic_id
    image.names[topic_id] = name
    image.partitions[topic_id] = {}
    yield "topic", topic_id


def _remove_topic(image: ClusterImage, data: Data) -> Keys:
    topic_id = data["topicId"]
    image.removed.add(topic_id)
    name = image.names.pop(topic_id, None)
    if name is None:
        raise ContradictionError(f"no topic has the id {topic_id}")
    image.topics.pop(name, None)
    yield "topic", topic_id
    for number in image.partitions.pop(topic_id, ()):
        yield "partition", topic_id, number
    for config in image.configs.pop((TOPIC, name), ()):
        yield "config", TOPIC, name, config


def _partition(image: ClusterImage, data: Data) -> Keys:
    topic_id, number = _existing(image, data), data["partitionId"]
    _require_directories(data)
    image.partitions[topic_id][number] = Partition(
        tuple(data["replicas"]),
        _directories(data.get("directories"), len(data["replicas"])),
        tuple(data["isr"]),
        tuple(data["removingReplicas"]),
        tuple(data["addingReplicas"]),
        tuple(data.get("eligibleLeaderReplicas") or ()),
        tuple(data.get("lastKnownElr") or ()),
        data["leader"],
        _is_recovering(data.get("leaderRecoveryState", 0)),
        data["leaderEpoch"],
        data["partitionEpoch"],
    )
    yield "partition", topic_id, number


def _change_partition(image: ClusterImage, data: Data) -> Keys:
    topic_id, number = _existing(image, data), data["partitionId"]
    before = image.partitions[topic_id].get(number)
    if before is None:
        raise ContradictionError(f"{image.names[topic_id]} has no partition {number}")
    image.partitions[topic_id][number] = _merged(before, data)
    yield "partition", topic_id, number


def _merged(before: Partition, data: Data) -> Partition:
    """Return what `PartitionRegistration.merge` makes of a change."""

    def nodes(name: str, current: tuple[int, ...]) -> tuple[int, ...]:
        given = data.get(name)
        return current if given is None else tuple(given)

    if data.get("replicas") is not None:
        _require_directories(data)
    replicas = nodes("replicas", before.replicas)
    given = data.get("directories")
    leader, recovery = data.get("leader", _NO_LEADER_CHANGE), data.get("leaderRecoveryState", -1)
    is_kept, is_led = recovery == _NO_RECOVERY_CHANGE, leader == _NO_LEADER_CHANGE
    return Partition(
        replicas,
        _directories(before.directories if given is None else given, len(replicas)),
        nodes("isr", before.isr),
        nodes("removingReplicas", before.removing_replicas),
        nodes("addingReplicas", before.adding_replicas),
        nodes("eligibleLeaderReplicas", before.elr),
        nodes("lastKnownElr", before.last_known_elr),
        before.leader if is_led else leader,
        before.is_recovering if is_kept else _is_recovering(recovery),
        # As in `PartitionRegistration.merge`: naming a leader, even the same one, begins an epoch.
        before.leader_epoch if is_led else before.leader_epoch + 1,
        before.partition_epoch + 1,
    )


def _clear_elr(image: ClusterImage, data: Data) -> Keys:
    name = data["topicName"]
    if name and name not in image.topics:
        raise ContradictionError(f"there is no topic {name}")
    for topic_id in [image.topics[name]] if name else list(image.names):
        for number, one in list(image.partitions[topic_id].items()):
            if one.elr or one.last_known_elr:
                nothing: Data = {"eligibleLeaderReplicas": (), "lastKnownElr": ()}
                image.partitions[topic_id][number] = _merged(one, nothing)
                yield "partition", topic_id, number


def _existing(image: ClusterImage, data: Data) -> str:
    topic_id: str = data["topicId"]
    if topic_id not in image.names:
        raise ContradictionError(f"no topic has the id {topic_id}")
    return topic_id


def _require_directories(data: Data) -> None:
    """Refuse a record with some directories, but not one for each replica."""
    given = data.get("directories")
    if given and len(given) != len(data["replicas"]):
        raise ContradictionError(f"{len(given)} directories for {len(data['replicas'])} replicas")


def _directories(given: Sequence[str] | None, count: int) -> tuple[str, ...]:
    if given is None or all(one == _MIGRATING for one in given):
        return (_MIGRATING,) * count
    if len(given) != count:
        raise ContradictionError(f"{len(given)} directories for {count} replicas")
    return tuple(given)


def _is_recovering(state: int) -> bool:
    if state not in _RECOVERY_STATES:
        raise ContradictionError(f"{state} is not a leader recovery state")
    return bool(state)


def _register_broker(image: ClusterImage, data: Data) -> Keys:
    cordoned = data.get("cordonedLogDirs")
    image.brokers[data["brokerId"]] = Broker(
        data["brokerId"],
        data["incarnationId"],
        _endpoints(data),
        _features(data),
        data["brokerEpoch"],
        data["rack"],
        data["fenced"],
        data.get("inControlledShutdown", False),
        data.get("isMigratingZkBroker", False),
        _sorted_ids(data.get("logDirs") or ()),
        None if cordoned is None else tuple(cordoned),
    )
    yield "broker", data["brokerId"]


def _unregister_broker(image: ClusterImage, data: Data) -> Keys:
    image.brokers.pop(data["brokerId"], None)
    yield "broker", data["brokerId"]


def _fence_broker(image: ClusterImage, data: Data) -> Keys:
    broker = _registered(image, data["id"], data["epoch"])
    image.brokers[broker.node_id] = replace(broker, is_fenced=True)
    yield "broker", broker.node_id


def _unfence_broker(image: ClusterImage, data: Data) -> Keys:
    broker = _registered(image, data["id"], data["epoch"])
    image.brokers[broker.node_id] = replace(broker, is_fenced=False)
    yield "broker", broker.node_id


def _change_broker(image: ClusterImage, data: Data) -> Keys:
    broker = _registered(image, data["brokerId"], data["brokerEpoch"])
    fenced, leaving = data.get("fenced", 0), data.get("inControlledShutdown", 0)
    if fenced not in (-1, 0, 1) or leaving not in (0, 1):
        raise ContradictionError(f"unknown change of state: {fenced}, {leaving}")
    cordoned = data.get("cordonedLogDirs")
    image.brokers[broker.node_id] = replace(
        broker,
        is_fenced=fenced > 0 if fenced else broker.is_fenced,
        is_in_controlled_shutdown=bool(leaving) or broker.is_in_controlled_shutdown,
        directories=_sorted_ids(data.get("logDirs") or ()) or broker.directories,
        cordoned_directories=broker.cordoned_directories if cordoned is None else tuple(cordoned),
    )
    yield "broker", broker.node_id


def _registered(image: ClusterImage, node_id: int, epoch: int) -> Broker:
    broker = image.brokers.get(node_id)
    if broker is None:
        raise ContradictionError(f"broker {node_id} is not registered")
    if broker.epoch != epoch:
        raise ContradictionError(f"broker {node_id} has epoch {broker.epoch}, not {epoch}")
    return broker


def _register_controller(image: ClusterImage, data: Data) -> Keys:
    image.controllers[data["controllerId"]] = Controller(
        data["controllerId"],
        data["incarnationId"],
        _endpoints(data),
        _features(data),
        data["zkMigrationReady"],
    )
    yield "controller", data["controllerId"]


def _unregister_controller(image: ClusterImage, data: Data) -> Keys:
    image.controllers.pop(data["controllerId"], None)
    yield "controller", data["controllerId"]


def _endpoints(data: Data) -> dict[str, Endpoint]:
    return {
        one["name"]: Endpoint(one["name"], one["securityProtocol"], one["host"], one["port"])
        for one in data["endPoints"]
    }


def _features(data: Data) -> dict[str, tuple[int, int]]:
    return {
        one["name"]: (one["minSupportedVersion"], one["maxSupportedVersion"])
        for one in data["features"]
    }


def _sorted_ids(ids: Sequence[str]) -> tuple[str, ...]:
    """Return ids in the order of `Uuid.compareTo`: two signed numbers of 64 bits."""

    def numbers(text: str) -> tuple[int, int]:
        raw = base64.urlsafe_b64decode(text + "==")
        return (
            int.from_bytes(raw[:8], "big", signed=True),
            int.from_bytes(raw[8:], "big", signed=True),
        )

    return tuple(sorted(ids, key=numbers))


def _config(image: ClusterImage, data: Data) -> Keys:
    resource = data["resourceType"], data["resourceName"]
    settings = image.configs.setdefault(resource, {})
    if data["value"] is None:
        settings.pop(data["name"], None)
    else:
        settings[data["name"]] = data["value"]
    if not settings:  # an image has no empty resources
        del image.configs[resource]
    yield "config", *resource, data["name"]


def _quota(image: ClusterImage, data: Data) -> Keys:
    named = {one["entityType"]: one["entityName"] for one in data["entity"]}
    entity = tuple(sorted(named.items()))
    quotas = image.quotas.setdefault(entity, {})
    if data["remove"]:
        quotas.pop(data["key"], None)
    else:
        quotas[data["key"]] = float(data["value"])
    if not quotas:
        del image.quotas[entity]
    yield "quota", entity, data["key"]


def _feature(image: ClusterImage, data: Data) -> Keys:
    name, level = data["name"], data["featureLevel"]
    if name == _METADATA_VERSION:
        image.metadata_version = level
    elif name == _KRAFT_VERSION:
        return  # an image does not hold it: KAFKA-18979
    elif level:
        image.features[name] = level
    else:
        image.features.pop(name, None)
    yield "feature", name


def _producer_ids(image: ClusterImage, data: Data) -> Keys:
    image.next_producer_id = data["nextProducerId"]
    yield ("producer-ids",)


def _acl(image: ClusterImage, data: Data) -> Keys:
    image.acls[data["id"]] = Acl(
        data["resourceType"],
        data["resourceName"],
        data["patternType"],
        data["principal"],
        data["host"],
        data["operation"],
        data["permissionType"],
    )
    yield "acl", data["id"]


def _remove_acl(image: ClusterImage, data: Data) -> Keys:
    if image.acls.pop(data["id"], None) is None:
        raise ContradictionError(f"there is no ACL {data['id']}")
    yield "acl", data["id"]


def _scram(image: ClusterImage, data: Data) -> Keys:
    key = data["mechanism"], data["name"]
    salt, stored, server = (
        base64.b64decode(data[name]) for name in ("salt", "storedKey", "serverKey")
    )
    image.scram[key] = ScramCredential(salt, stored, server, data["iterations"])
    yield "scram", *key


def _remove_scram(image: ClusterImage, data: Data) -> Keys:
    key = data["mechanism"], data["name"]
    image.scram.pop(key, None)
    yield "scram", *key


def _token(image: ClusterImage, data: Data) -> Keys:
    principals = (data["owner"], data["requester"], *data["renewers"])
    if any(":" not in one for one in principals):
        raise ContradictionError("a principal is not TYPE:NAME")
    image.tokens[data["tokenId"]] = DelegationToken(
        data["tokenId"],
        data["owner"],
        data["requester"],
        tuple(data["renewers"]),
        data["issueTimestamp"],
        data["maxTimestamp"],
        data["expirationTimestamp"],
    )
    yield "token", data["tokenId"]


def _remove_token(image: ClusterImage, data: Data) -> Keys:
    image.tokens.pop(data["tokenId"], None)
    yield "token", data["tokenId"]


_CHANGES: Final[dict[str, Callable[[ClusterImage, Data], Keys]]] = {
    "REGISTER_BROKER_RECORD": _register_broker,
    "UNREGISTER_BROKER_RECORD": _unregister_broker,
    "TOPIC_RECORD": _topic,
    "PARTITION_RECORD": _partition,
    "CONFIG_RECORD": _config,
    "PARTITION_CHANGE_RECORD": _change_partition,
    "FENCE_BROKER_RECORD": _fence_broker,
    "UNFENCE_BROKER_RECORD": _unfence_broker,
    "REMOVE_TOPIC_RECORD": _remove_topic,
    "DELEGATION_TOKEN_RECORD": _token,
    "USER_SCRAM_CREDENTIAL_RECORD": _scram,
    "FEATURE_LEVEL_RECORD": _feature,
    "CLIENT_QUOTA_RECORD": _quota,
    "PRODUCER_IDS_RECORD": _producer_ids,
    "BROKER_REGISTRATION_CHANGE_RECORD": _change_broker,
    "ACCESS_CONTROL_ENTRY_RECORD": _acl,
    "REMOVE_ACCESS_CONTROL_ENTRY_RECORD": _remove_acl,
    "REMOVE_USER_SCRAM_CREDENTIAL_RECORD": _remove_scram,
    "REGISTER_CONTROLLER_RECORD": _register_controller,
    "UNREGISTER_CONTROLLER_RECORD": _unregister_controller,
    "REMOVE_DELEGATION_TOKEN_RECORD": _remove_token,
    "CLEAR_ELR_RECORD": _clear_elr,
}
