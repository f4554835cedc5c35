"""The metadata of the new cluster as records: features, topics, partitions, configs and the rest.

Follows `ActivationRecordsGenerator` of Kafka 4.4 and 4.3, which appends the records of a
`bootstrap.checkpoint` to an empty metadata log. `kafka-storage format` of 4.4 writes a snapshot at
offset 0 in its place, which 4.4 reads first. It is not written here: 4.3 passes over it, begins
with empty metadata, and makes each partition a stray.

Without the feature `eligible.leader.replicas`, and with a leader in each record, all partitions are
led as soon as the broker is registered; with the feature, its first registration empties each ISR.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

from formats.releases import METADATA_VERSION
from formats.topic_names import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from kafkalog.change.resurrection.model import MetadataRecord, Missing, Retention
from kafkalog.files.payloads.kinds import PayloadKind, payload_kind
from kafkalog.node.cluster_image.model import BROKER, TOPIC
from kafkalog.node.configs.definitions import start_error

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from formats.releases import Release
    from kafkalog.change.resurrection.choice import TopicChoice
    from kafkalog.change.resurrection.model import ResurrectOptions
    from kafkalog.change.resurrection.partition import Judged
    from kafkalog.change.resurrection.sources import SourceImage

_ELR: Final = "eligible.leader.replicas.version"
_NOT_WRITTEN: Final = ("kraft.version", _ELR, METADATA_VERSION)
"""Features without a record of the kind here, and the one whose record comes first."""
_TRANSACTIONS: Final = 14
"""The first `metadata.version` with metadata transactions; before, all records are one batch."""
_ATOMIC_MAX: Final = 9_000
_DIRECTORIES: Final = 17
"""The first `metadata.version` whose partitions name log directories."""
_UNASSIGNED: Final = base64.urlsafe_b64encode((1).to_bytes(16, "big")).decode().rstrip("=")
_NOBODY: Final = 999_999
"""A node that does not exist: it has the partitions that are offline."""
_PRODUCER_IDS: Final = 1_000
"""Ids are given in blocks of this size."""
_SEGMENT: Final = str(100 << 20)
_INTERNAL_CONFIGS: Final = {
    CONSUMER_OFFSETS: {
        "cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": _SEGMENT,
    },
    TRANSACTION_STATE: {
        "cleanup.policy": "compact", "compression.type": "uncompressed", "segment.bytes": _SEGMENT,
        "unclean.leader.election.enable": "false",
    },
    SHARE_GROUP_STATE: {
        "cleanup.policy": "delete", "compression.type": "producer", "segment.bytes": _SEGMENT,
        "retention.ms": "-1",
    },
}  # fmt: skip
"""What Kafka's coordinators create their topics with."""
_KEPT: Final = {"retention.ms": "-1", "retention.bytes": "-1"}
REMOTE: Final = "remote.storage.enable"


def feature_records(
    images: Sequence[SourceImage], count: int, release: Release
) -> Iterator[MetadataRecord]:
    """Yield the features of the newest metadata; those of a new cluster without any.

    Args:
        images: the metadata, newest first.
        count: how many other records there are.
        release: the one that is to start.
    """
    level, evidence = release.metadata_version, f"what Kafka {release.name} formats"
    levels = {
        name: one.default for name, one in release.features.items() if name not in _NOT_WRITTEN
    }
    if images:
        image = images[0].image
        level = max((one.image.metadata_version or 0 for one in images), default=0) or level
        levels = {name: one for name, one in image.features.items() if name != _ELR}
        evidence = f"the metadata log in {images[0].path}"
        if level < _TRANSACTIONS and count > _ATOMIC_MAX:
            level, evidence = _TRANSACTIONS, "so many records need metadata transactions"
    yield _record("FeatureLevelRecord", 0, evidence, name=METADATA_VERSION, featureLevel=level)
    for name, one in sorted(levels.items()):
        yield _record("FeatureLevelRecord", 0, evidence, name=name, featureLevel=one)


def producer_ids_record(
    largest: int, images: Sequence[SourceImage], node_id: int
) -> MetadataRecord | None:
    """Return the record with the first id for new producers; None if none was ever given.

    An id that is given twice is refused, or its batches are taken for repetitions.

    Args:
        largest: the largest id in the logs, -1 without one.
    """
    known = max((one.image.next_producer_id for one in images), default=-1)
    following = max(largest + 1, known)
    if following <= 0:
        return None
    # Up to a whole block: the ids of the last block may be in use without a batch in a log.
    following = -(-following // _PRODUCER_IDS) * _PRODUCER_IDS
    evidence = f"the largest producer id in the logs is {largest}"
    if known > largest:
        evidence = "the metadata log"
    return _record("ProducerIdsRecord", 0, evidence, brokerId=node_id, brokerEpoch=-1,
                   nextProducerId=following)  # fmt: skip


def topic_records(
    topic: TopicChoice,
    judged: Mapping[int, Judged],
    configs: Mapping[str, str],
    options: ResurrectOptions,
    directory_id: str,
    *,
    level: int,
) -> Iterator[MetadataRecord]:
    """Yield the records of a topic: itself, its partitions, its configs.

    Args:
        judged: its partitions by number; the others are missing.
        options: of the run.
        level: `metadata.version`.
    """
    yield _record("TopicRecord", 0, topic.evidence, name=topic.name, topicId=topic.topic_id)
    for number in range(topic.count):
        found = judged.get(number)
        is_offline = found is None and options.missing == Missing.OFFLINE
        node = _NOBODY if is_offline else options.node_id
        fields: dict[str, Any] = {
            "partitionId": number,
            "topicId": topic.topic_id,
            "replicas": [node],
            "isr": [node],
            "removingReplicas": [],
            "addingReplicas": [],
            "leader": -1 if is_offline else node,
            # A new leadership, above every epoch in the log.
            "leaderEpoch": 0 if found is None else found.leader_epoch + 1,
            "partitionEpoch": 0,
        }
        version = 1 if level >= _DIRECTORIES else 0
        if version:
            fields["directories"] = [_UNASSIGNED if is_offline else directory_id]
        evidence = "no directory" if found is None else f"leader epoch {found.leader_epoch}"
        yield MetadataRecord("PartitionRecord", version, fields, evidence)
    evidence = "the topic" if topic.image is None else f"the metadata log in {topic.image.path}"
    for name, value in configs.items():
        yield _config(TOPIC, topic.name, name, value, evidence)


def configs_of(
    topic: TopicChoice, compacted: set[str], retention: Retention
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the configs of a topic, and those of the source that it does not have any more.

    Args:
        compacted: topics with an entry in `cleaner-offset-checkpoint`, by their old names.
        retention: whether old data stay.
    """
    if topic.image is not None:
        old = dict(topic.image.image.configs.get((TOPIC, topic.old_name), {}))
    elif topic.old_name in _INTERNAL_CONFIGS:
        old = dict(_INTERNAL_CONFIGS[topic.old_name])
    else:
        old = {"cleanup.policy": "compact"} if topic.old_name in compacted else {}
    # Older brokers accepted values with which those of today do not start.
    new = {name: value for name, value in old.items() if start_error(name, value) is None}
    if topic.name not in _INTERNAL_CONFIGS and retention == Retention.KEEP:
        new |= _KEPT
        new[REMOTE] = "false"
    if old.get(REMOTE) == "true":
        new[REMOTE] = "false"  # nothing here reaches what was moved away
    replaced = {name: value for name, value in old.items() if new.get(name) != value}
    return dict(sorted(new.items())), replaced


def is_tiered(topic: TopicChoice) -> bool:
    """Return whether a topic had remote storage, by its configs in the source."""
    configs = topic.image.image.configs if topic.image is not None else {}
    return configs.get((TOPIC, topic.old_name), {}).get(REMOTE) == "true"


def is_internal(topic: str) -> bool:
    return payload_kind(topic) not in (None, PayloadKind.CLUSTER_METADATA)


def other_records(images: Sequence[SourceImage]) -> Iterator[MetadataRecord]:
    """Yield the configs of groups and clients, ACLs, SCRAM credentials, quotas and tokens.

    If several clusters have one of them, that of the newest metadata counts.
    """
    seen: set[object] = set()
    for one in images:
        evidence = f"the metadata log in {one.path}"
        for key, record in _others(one, evidence):
            if key not in seen:
                seen.add(key)
                yield record


def _others(one: SourceImage, evidence: str) -> Iterator[tuple[object, MetadataRecord]]:
    image = one.image
    for (kind, name), settings in sorted(image.configs.items()):
        for config, value in settings.items() if kind not in (TOPIC, BROKER) else ():
            yield (kind, name, config), _config(kind, name, config, value, evidence)
    for entity, quotas in sorted(image.quotas.items(), key=str):
        named = [{"entityType": kind, "entityName": name} for kind, name in entity]
        for key, quota in quotas.items():
            yield (
                (entity, key),
                _record(
                    "ClientQuotaRecord",
                    0,
                    evidence,
                    entity=named,
                    key=key,
                    value=quota,
                    remove=False,
                ),
            )
    for acl_id, acl in sorted(image.acls.items()):
        yield acl, _record(
            "AccessControlEntryRecord", 0, evidence, id=acl_id, resourceType=acl.resource_type,
            resourceName=acl.resource_name, patternType=acl.pattern_type, principal=acl.principal,
            host=acl.host, operation=acl.operation, permissionType=acl.permission_type,
        )  # fmt: skip
    for (mechanism, user), scram in sorted(image.scram.items()):
        yield ("scram", mechanism, user), _record(
            "UserScramCredentialRecord", 0, evidence, name=user, mechanism=mechanism,
            salt=scram.salt, storedKey=scram.stored_key, serverKey=scram.server_key,
            iterations=scram.iterations,
        )  # fmt: skip
    for token_id, token in sorted(image.tokens.items()):
        yield ("token", token_id), _record(
            "DelegationTokenRecord", 0, evidence, owner=token.owner, requester=token.requester,
            renewers=list(token.renewers), issueTimestamp=token.issue_ms,
            maxTimestamp=token.max_ms, expirationTimestamp=token.expiry_ms, tokenId=token_id,
        )  # fmt: skip


def _config(kind: int, resource: str, name: str, value: str, evidence: str) -> MetadataRecord:
    return _record("ConfigRecord", 0, evidence, resourceType=kind, resourceName=resource,
                   name=name, value=value)  # fmt: skip


def _record(message: str, version: int, evidence: str, /, **fields: Any) -> MetadataRecord:
    return MetadataRecord(message, version, fields, evidence)
