"""Random metadata logs: records of all kinds, built by the schemas; one operation per batch.

An operation is what a controller writes at once. With two of them in one batch, the result on a
broker depends on how records are fetched: see `MetadataBatchLoader` after an ABORT, and
`ConfigurationsDelta` of a topic that is created and deleted at once.
"""

from __future__ import annotations

import base64
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from formats.message_schema import message, schema
from tests.builders import batch, record

if TYPE_CHECKING:
    import random
    from pathlib import Path

NAMES = ("orders", "payments", "__consumer_offsets", "a.b", "ü", "\U0001f600", "slash/ed", "(x)\\")
CONFIGS = ("retention.ms", "cleanup.policy", "segment.bytes", "min.insync.replicas")
FEATURES = ("group.version", "transaction.version", "kraft.version", "share.version")


def value_of(name: str, version: int | None = None, /, **fields: Any) -> bytes:
    """Encode a metadata record: frame version, type, version, message."""
    found = message(name)
    version = found.versions[-1] if version is None else version
    assert found.api_key is not None
    return bytes([1, found.api_key, version]) + schema(name, version).build(fields)


class MetadataLife:
    """A cluster with random changes; `step` returns the records of its next operation."""

    def __init__(self, rnd: random.Random) -> None:
        self.rnd = rnd
        self.topics: dict[str, str] = {}
        self.partitions: dict[str, int] = {}
        self.brokers: dict[int, int] = {}
        self.acls: list[str] = []
        self.epoch = 0

    def first(self) -> list[bytes]:
        return [self.feature("metadata.version", 30)]

    def step(self) -> list[bytes]:
        steps = (
            self.create, self.create, self.change, self.change, self.change, self.change,
            self.remove, self.configs, self.configs, self.register, self.broker_change,
            self.fence, self.controller, self.acl, self.remove_acl, self.quota, self.quota,
            self.scram, self.token, self.features, self.producer_ids, self.clear_elr, self.idle,
        )  # fmt: skip
        return self.rnd.choice(steps)()

    def uuid(self) -> str:
        return base64.urlsafe_b64encode(self.rnd.randbytes(16)).decode().rstrip("=")

    def nodes(self, count: int | None = None) -> list[int]:
        return self.rnd.sample(range(1, 7), self.rnd.randint(0, 3) if count is None else count)

    def maybe(self, **fields: Any) -> dict[str, Any]:
        """Return some of these fields."""
        return {name: value for name, value in fields.items() if self.rnd.random() < 0.4}

    def create(self) -> list[bytes]:
        name, topic_id = self.rnd.choice(NAMES), self.uuid()
        if name in self.topics:
            return self.grow(name)
        self.topics[name], self.partitions[topic_id] = topic_id, 0
        records = [value_of("TopicRecord", name=name, topicId=topic_id), *self.grow(name)]
        if self.rnd.random() < 0.5:
            records.append(self.config(2, name))
        return records

    def grow(self, name: str) -> list[bytes]:
        topic_id = self.topics[name]
        first = self.partitions[topic_id]
        self.partitions[topic_id] += self.rnd.randint(1, 3)
        return [self.partition(topic_id, one) for one in range(first, self.partitions[topic_id])]

    def partition(self, topic_id: str, number: int) -> bytes:
        version, count = self.rnd.randrange(3), self.rnd.randint(1, 3)
        size = self.rnd.choice((0, count, count, count, count + 1))
        directories = [self.rnd.choice(("A" * 22, self.uuid())) for _ in range(size)]
        elr = {"eligibleLeaderReplicas": self.nodes(), "lastKnownElr": self.nodes()}
        return value_of(
            "PartitionRecord", version, partitionId=number, topicId=topic_id,
            replicas=self.nodes(count), isr=self.nodes(), removingReplicas=self.nodes(),
            addingReplicas=self.nodes(), leader=self.rnd.randint(-1, 6),
            leaderEpoch=self.rnd.randrange(9), partitionEpoch=self.rnd.randrange(9),
            **({"directories": directories} if version else {}),
            **(self.maybe(**elr) if version == 2 else {}),
            **self.maybe(leaderRecoveryState=self.rnd.choice((0, 1, 7))),
        )  # fmt: skip

    def change(self) -> list[bytes]:
        if not self.topics:
            return self.create()
        topic_id = self.rnd.choice(list(self.topics.values()))
        replicas = self.nodes(self.rnd.randint(1, 3))
        fields = self.maybe(
            isr=self.nodes(), leader=self.rnd.randint(-2, 6), replicas=replicas,
            removingReplicas=self.nodes(), addingReplicas=self.nodes(),
            leaderRecoveryState=self.rnd.choice((-1, 0, 1, 5)),
            directories=[self.uuid() for _ in replicas], eligibleLeaderReplicas=self.nodes(),
            lastKnownElr=self.nodes(),
        )  # fmt: skip
        number = self.rnd.randrange(self.partitions[topic_id] + 1)  # one that is not there, too
        return [value_of("PartitionChangeRecord", partitionId=number, topicId=topic_id, **fields)]

    def remove(self) -> list[bytes]:
        if not self.topics or self.rnd.random() < 0.2:
            return [value_of("RemoveTopicRecord", topicId=self.uuid())]
        topic_id = self.topics.pop(self.rnd.choice(list(self.topics)))
        del self.partitions[topic_id]
        return [value_of("RemoveTopicRecord", topicId=topic_id)]

    def clear_elr(self) -> list[bytes]:
        name = self.rnd.choice(("", *self.topics, "unknown"))
        return [value_of("ClearElrRecord", topicName=name)]

    def config(self, kind: int, name: str) -> bytes:
        value = self.rnd.choice((None, "1", "", "compact,delete", "ü = {x}"))
        key = self.rnd.choice(CONFIGS)
        return value_of("ConfigRecord", resourceType=kind, resourceName=name, name=key, value=value)

    def configs(self) -> list[bytes]:
        kind = self.rnd.choice((2, 4, 16, 32))
        names = ("", "1", "2") if kind == 4 else (*self.topics, "billing")
        return [self.config(kind, self.rnd.choice(names)) for _ in range(self.rnd.randint(1, 3))]

    def listeners(self) -> dict[str, Any]:
        names = self.rnd.sample(("PLAINTEXT", "EXTERNAL", "CONTROLLER"), self.rnd.randint(0, 3))
        features = self.rnd.sample(FEATURES, self.rnd.randint(0, 3))
        return {
            "endPoints": [
                {"name": name, "host": "10.0.0.7", "port": self.rnd.randrange(1 << 16),
                 "securityProtocol": self.rnd.randrange(4)}
                for name in names
            ],
            "features": [
                {"name": name, "minSupportedVersion": self.rnd.randrange(2),
                 "maxSupportedVersion": self.rnd.choice((1, 5, 0x7FFF))}
                for name in features
            ],
        }  # fmt: skip

    def register(self) -> list[bytes]:
        node, version = self.rnd.randint(1, 4), self.rnd.randrange(5)
        self.epoch += 1
        self.brokers[node] = self.epoch
        ids = [self.uuid() for _ in range(self.rnd.randrange(4))]
        newer = [
            (1, {"inControlledShutdown": self.rnd.random() < 0.5}),
            (2, {"isMigratingZkBroker": self.rnd.random() < 0.2}),
            (3, {"logDirs": ids}),
            (4, self.maybe(cordonedLogDirs=ids[:1])),
        ]
        fields = {k: v for since, one in newer if version >= since for k, v in one.items()}
        return [value_of(
            "RegisterBrokerRecord", version, brokerId=node, incarnationId=self.uuid(),
            brokerEpoch=self.epoch, rack=self.rnd.choice((None, "r1", "")),
            fenced=self.rnd.random() < 0.5, **fields, **self.listeners(),
        )]  # fmt: skip

    def broker_change(self) -> list[bytes]:
        node = self.rnd.randint(1, 4)
        epoch = self.brokers.get(node, 1) + (self.rnd.random() < 0.1)
        ids = [self.uuid() for _ in range(self.rnd.randrange(3))]
        fields = self.maybe(
            fenced=self.rnd.choice((-1, 0, 1, 2)), inControlledShutdown=self.rnd.choice((0, 1, 2)),
            logDirs=ids, cordonedLogDirs=ids,
        )  # fmt: skip
        name = "BrokerRegistrationChangeRecord"
        return [value_of(name, brokerId=node, brokerEpoch=epoch, **fields)]

    def fence(self) -> list[bytes]:
        node = self.rnd.randint(1, 4)
        epoch, what = self.brokers.get(node, 1), self.rnd.randrange(3)
        if what == 2:
            return [value_of("UnregisterBrokerRecord", brokerId=node, brokerEpoch=epoch)]
        name = ("FenceBrokerRecord", "UnfenceBrokerRecord")[what]
        return [value_of(name, id=node, epoch=epoch)]

    def controller(self) -> list[bytes]:
        return [value_of(
            "RegisterControllerRecord", controllerId=self.rnd.randint(7, 9),
            incarnationId=self.uuid(), zkMigrationReady=self.rnd.random() < 0.5,
            **self.listeners(),
        )]  # fmt: skip

    def acl(self) -> list[bytes]:
        self.acls.append(self.uuid())
        return [value_of(
            "AccessControlEntryRecord", id=self.acls[-1], resourceType=self.rnd.randint(0, 8),
            resourceName=self.rnd.choice(NAMES), patternType=self.rnd.randint(0, 5),
            principal="User:alice", host="*", operation=self.rnd.randint(0, 16),
            permissionType=self.rnd.randint(0, 4),
        )]  # fmt: skip

    def remove_acl(self) -> list[bytes]:
        known = self.acls and self.rnd.random() < 0.8
        acl_id = self.acls.pop() if known else self.uuid()
        return [value_of("RemoveAccessControlEntryRecord", id=acl_id)]

    def quota(self) -> list[bytes]:
        kinds = self.rnd.choice((("user",), ("client-id",), ("user", "client-id"), ("ip",)))
        return [value_of(
            "ClientQuotaRecord",
            entity=[{"entityType": kind, "entityName": self.rnd.choice(("alice", "(b)\\", "c/d"))}
                    for kind in kinds],
            key=self.rnd.choice(("producer_byte_rate", "request_percentage")),
            value=self.rnd.choice((1000.0, 0.1, 1e7, 1e-5, 12.5)),
            remove=self.rnd.random() < 0.3,
        )]  # fmt: skip

    def scram(self) -> list[bytes]:
        who = {"name": self.rnd.choice(("alice", "bob")), "mechanism": self.rnd.randint(1, 2)}
        if self.rnd.random() < 0.3:
            return [value_of("RemoveUserScramCredentialRecord", **who)]
        return [value_of(
            "UserScramCredentialRecord", **who, salt=self.rnd.randbytes(4), iterations=4096,
            storedKey=self.rnd.randbytes(8), serverKey=self.rnd.randbytes(8),
        )]  # fmt: skip

    def token(self) -> list[bytes]:
        token = self.rnd.choice(("t1", "t2"))
        if self.rnd.random() < 0.3:
            return [value_of("RemoveDelegationTokenRecord", tokenId=token)]
        renewers = self.rnd.sample(("User:r1", "User:r:2"), self.rnd.randrange(3))
        return [value_of(
            "DelegationTokenRecord", owner="User:alice", requester="User:bob", renewers=renewers,
            issueTimestamp=1, maxTimestamp=2, expirationTimestamp=3, tokenId=token,
        )]  # fmt: skip

    def feature(self, name: str, level: int) -> bytes:
        return value_of("FeatureLevelRecord", name=name, featureLevel=level)

    def features(self) -> list[bytes]:
        if self.rnd.random() < 0.3:
            return [self.feature("metadata.version", self.rnd.randint(7, 31))]
        return [self.feature(self.rnd.choice(FEATURES), self.rnd.randrange(3))]

    def producer_ids(self) -> list[bytes]:
        fields = {"brokerId": 1, "brokerEpoch": 1, "nextProducerId": self.rnd.randrange(10**6)}
        return [value_of("ProducerIdsRecord", **fields)]

    def idle(self) -> list[bytes]:
        return [value_of("NoOpRecord")]


def write_metadata_log(directory: Path, rnd: random.Random, operations: int) -> int:
    """Write a log of random operations, some in metadata transactions; return its end offset."""
    life = MetadataLife(rnd)
    before: MetadataLife | None = None  # as it was when the open transaction began
    batches, offset = [], 0
    for number in range(operations):
        if before is not None and rnd.random() < 0.1:
            values, life, before = [value_of("AbortTransactionRecord")], before, None
        else:
            was = deepcopy(life)
            was.rnd = rnd
            values = life.step() if number else life.first()
            if before is not None and rnd.random() < 0.3:
                values.append(value_of("EndTransactionRecord"))
                before = None
            elif before is None and number and rnd.random() < 0.1:
                is_first = rnd.random() < 0.5
                values.insert(0 if is_first else len(values), value_of("BeginTransactionRecord"))
                before = was if is_first else deepcopy(life)
                before.rnd = rnd
        time = 1_700_000_000_000 + 500 * number + rnd.randrange(500)
        records = [record(delta, None, value) for delta, value in enumerate(values)]
        batches.append(
            batch(offset, records, base_time=time, max_time=time, epoch=number // 40 + 1)
        )
        offset += len(values)
    directory.mkdir(parents=True)
    (directory / f"{0:020}.log").write_bytes(b"".join(batches))
    return offset
