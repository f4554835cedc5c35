"""The message-protocol vectors of kafka-formats §8.4 and §5.3: bytes and what they mean."""

from __future__ import annotations

from typing import Any

U = "3244d168470a4cfc91ad0a87235ab085"
UUID = "MkTRaEcKTPyRrQqHI1qwhQ"  # U as kafka-formats §8.4 writes it in partition.metadata
OFFSET_COMMIT = {"offset": 42, "metadata": "m", "commitTimestamp": 1000}
MEMBER = {
    "memberId": "m1",
    "groupInstanceId": None,
    "clientId": "c",
    "clientHost": "/1",
    "rebalanceTimeout": 30,
    "sessionTimeout": 10,
    "subscription": b"\x01\x02",
    "assignment": b"\x03",
}
GROUP_METADATA = {
    "protocolType": "consumer",
    "generation": 5,
    "protocol": "range",
    "leader": "m1",
    "currentStateTimestamp": 1000,
    "members": [MEMBER],
}
TRANSACTION = {
    "producerId": 4001,
    "producerEpoch": 3,
    "transactionTimeoutMs": 60000,
    "transactionStatus": 1,
    "transactionPartitions": [{"topic": "t", "partitionIds": [0, 1]}],
    "transactionLastUpdateTimestampMs": 1000,
    "transactionStartTimestampMs": 900,
}
SHARE_UPDATE = {"snapshotEpoch": 1, "leaderEpoch": 2, "startOffset": 3}
PARTITION_CHANGE = {"partitionId": 1, "topicId": UUID}

# kafka-formats §8.4 and §5.3: message, version, bytes, what they mean.
VECTORS: list[tuple[str, int, str, dict[str, Any]]] = [
    ("OffsetCommitKey", 0, "000167 000174 00000003", {"group": "g", "topic": "t", "partition": 3}),
    ("OffsetCommitValue", 0, "000000000000002a 00016d 00000000000003e8", OFFSET_COMMIT),
    (
        "OffsetCommitValue",
        1,
        "000000000000002a 00016d 00000000000003e8 00000000000007d0",
        OFFSET_COMMIT | {"expireTimestamp": 2000},
    ),
    ("OffsetCommitValue", 2, "000000000000002a 00016d 00000000000003e8", OFFSET_COMMIT),
    (
        "OffsetCommitValue",
        3,
        "000000000000002a 00000007 00016d 00000000000003e8",
        OFFSET_COMMIT | {"leaderEpoch": 7},
    ),
    (
        "OffsetCommitValue",
        4,
        "000000000000002a 00000007 026d 00000000000003e8 00",
        OFFSET_COMMIT | {"leaderEpoch": 7},
    ),
    (
        "OffsetCommitValue",
        4,
        "000000000000002a 00000007 026d 00000000000003e8 01 00 10 U",
        OFFSET_COMMIT | {"leaderEpoch": 7, "topicId": UUID},
    ),
    (
        "GroupMetadataValue",
        3,
        (
            "0008636f6e73756d6572 00000005 000572616e6765 00026d31 00000000000003e8 00000001"
            "00026d31 ffff 000163 00022f31 0000001e 0000000a 00000002 0102 00000001 03"
        ),
        GROUP_METADATA,
    ),
    (
        "GroupMetadataValue",
        4,
        (
            "09636f6e73756d6572 00000005 0672616e6765 036d31 00000000000003e8 02"
            "036d31 00 0263 032f31 0000001e 0000000a 03 0102 02 03 00 00"
        ),
        GROUP_METADATA,
    ),
    (
        "ConsumerGroupMemberMetadataValue",
        0,
        "00 00 0263 0268 02 0274 00 00000005 00 01 00 10 01 00000009 02 0672616e6765 0207 00 00",
        {
            "instanceId": None,
            "rackId": None,
            "clientId": "c",
            "clientHost": "h",
            "subscribedTopicNames": ["t"],
            "subscribedTopicRegex": None,
            "rebalanceTimeoutMs": 5,
            "serverAssignor": None,
            "classicMemberMetadata": {
                "sessionTimeoutMs": 9,
                "supportedProtocols": [{"name": "range", "metadata": b"\x07"}],
            },
        },
    ),
    (
        "TransactionLogValue",
        0,
        (
            "0000000000000fa1 0003 0000ea60 01 00000001 000174 00000002 00000000 00000001"
            "00000000000003e8 0000000000000384"
        ),
        TRANSACTION,
    ),
    (
        "TransactionLogValue",
        1,
        (
            "0000000000000fa1 0003 0000ea60 01 02 0274 03 00000000 00000001 00 00000000000003e8"
            "0000000000000384 03 00 08 0000000000000fa0 01 08 0000000000000fa2 02 02 0002"
        ),
        TRANSACTION
        | {"previousProducerId": 4000, "nextProducerId": 4002, "clientTransactionVersion": 2},
    ),
    (
        "ShareUpdateValue",
        0,
        "00000001 00000002 0000000000000003 02 0000000000000004 0000000000000005 02 0001 00 00",
        SHARE_UPDATE
        | {
            "stateBatches": [
                {"firstOffset": 4, "lastOffset": 5, "deliveryState": 2, "deliveryCount": 1}
            ]
        },
    ),
    (
        "ShareUpdateValue",
        0,
        "00000001 00000002 0000000000000003 01 01 00 04 00000009",
        SHARE_UPDATE | {"stateBatches": [], "deliveryCompleteCount": 9},
    ),
    (
        "ConsumerGroupMetadataValue",
        0,
        "00000003 01 00 08 fffffffffffffffb",
        {"epoch": 3, "metadataHash": -5},
    ),
    (
        "StreamsGroupMetadataValue",
        0,
        "00000002 0000000000000005 01 00 04 00000001",
        {"epoch": 2, "metadataHash": 5, "validatedTopologyEpoch": 1},
    ),
    (
        "BrokerRegistrationChangeRecord",
        3,
        "00000001 0000000000000002 01 03 11 02 U",
        {"brokerId": 1, "brokerEpoch": 2, "cordonedLogDirs": [UUID]},
    ),
    ("TopicRecord", 0, "04666f6f U 00", {"name": "foo", "topicId": UUID}),
    (
        "PartitionRecord",
        0,
        "00000001 U 03 00000001 00000002 03 00000001 00000002 01 01 00000001 00000000 00000000 00",
        {
            "partitionId": 1,
            "topicId": UUID,
            "replicas": [1, 2],
            "isr": [1, 2],
            "removingReplicas": [],
            "addingReplicas": [],
            "leader": 1,
            "leaderEpoch": 0,
            "partitionEpoch": 0,
        },
    ),
    ("PartitionChangeRecord", 0, "00000001 U 01 01 04 00000002", PARTITION_CHANGE | {"leader": 2}),
    (
        "PartitionChangeRecord",
        0,
        "00000001 U 02 00 05 02 00000002 05 01 01",
        PARTITION_CHANGE | {"isr": [2], "leaderRecoveryState": 1},
    ),
    (
        "FeatureLevelRecord",
        0,
        "116d657461646174612e76657273696f6e 0015 00",
        {"name": "metadata.version", "featureLevel": 21},
    ),
    ("AbortTransactionRecord", 0, "00", {}),
    ("AbortTransactionRecord", 0, "01 00 02 02 72", {"reason": "r"}),
    (
        "RegisterBrokerRecord",
        3,
        "00000001 00 U 0000000000000009 01 01 00 01 00 01 00 11 02 U",
        {
            "brokerId": 1,
            "isMigratingZkBroker": False,
            "incarnationId": UUID,
            "brokerEpoch": 9,
            "endPoints": [],
            "features": [],
            "rack": None,
            "fenced": True,
            "inControlledShutdown": False,
            "logDirs": [UUID],
        },
    ),
    (
        "LeaderChangeMessage",
        0,
        "0000 00000001 02 00000001 00 02 00000001 00 00",
        {
            "version": 0,
            "leaderId": 1,
            "voters": [{"voterId": 1}],
            "grantingVoters": [{"voterId": 1}],
        },
    ),
    (
        "SnapshotHeaderRecord",
        0,
        "0000 0000018bcfe56800 00",
        {"version": 0, "lastContainedLogTimestamp": 1700000000000},
    ),
    ("SnapshotFooterRecord", 0, "0000 00", {"version": 0}),
    ("KRaftVersionRecord", 0, "0000 0001 00", {"version": 0, "kRaftVersion": 1}),
    (
        "VotersRecord",
        0,
        "0000 02 00000003 U 02 0243 0268 2385 00 0000 0001 00 00 00",
        {
            "version": 0,
            "voters": [
                {
                    "voterId": 3,
                    "voterDirectoryId": UUID,
                    "endpoints": [{"name": "C", "host": "h", "port": 9093}],
                    "kRaftVersionFeature": {"minSupportedVersion": 0, "maxSupportedVersion": 1},
                }
            ],
        },
    ),
]


def unhex(text: str) -> bytes:
    """Bytes of a vector; `U` stands for the document's uuid."""
    return bytes.fromhex(text.replace("U", U))
