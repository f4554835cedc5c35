"""What clients ask first: which topics there are, and who serves them. It is always this node."""

from __future__ import annotations

import asyncio
import bisect
import os
from typing import TYPE_CHECKING, Final

from formats.error_codes import ErrorCode
from formats.file_names import LOG, is_topic
from kafkalog.io.paths.retry import tried
from kafkalog.wire.server.model import NO_ID, NODE_ID, Api

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kafkalog.wire.server.catalog import Catalog, ServedPartition, Topic
    from kafkalog.wire.server.model import Address, Client, Fields

_NO_NODE: Final = -1
_WITH_IDS: Final = 12  # the first version that asks by id
_READ_ONLY_OPERATIONS: Final = 1 << 3 | 1 << 8 | 1 << 10  # READ, DESCRIBE, DESCRIBE_CONFIGS
_UNKNOWN_OPERATIONS: Final = -(1 << 31)  # `Integer.MIN_VALUE`
_PARTITIONS_MAX: Final = 2000  # max.request.partition.size.limit of a broker
_BROKERS: Final = 1  # the endpoint type


class Metadata:
    """Answers what is asked about the cluster."""

    def __init__(self, catalog: Catalog, address: Address) -> None:
        self._catalog = catalog
        self.address = address

    def apis(self) -> list[Api]:
        return [
            Api("Metadata", self.metadata),
            Api("FindCoordinator", self.find_coordinator),
            Api("DescribeCluster", self.describe_cluster),
            Api("DescribeTopicPartitions", self.describe_topic_partitions),
            Api("DescribeLogDirs", self.describe_log_dirs),
        ]

    async def metadata(self, request: Fields, version: int, client: Client) -> Fields:
        wants_operations = request["includeTopicAuthorizedOperations"]
        wanted = request["topics"]
        error = _error_of(wanted or (), version)
        if error:
            return {"errorCode": error, "controllerId": _NO_NODE, "topics": [
                {"errorCode": error, "name": one["name"] or "", "topicId": one["topicId"]}
                for one in wanted
            ]}  # fmt: skip
        # In version 0 an empty list asks for all topics, later only null does.
        if wanted is None or (version == 0 and not wanted):
            found: Iterable[Topic | Fields] = self._catalog.topics.values()
        else:
            found = await asyncio.to_thread(self._named, wanted, wants_operations)
        topics = await asyncio.to_thread(self._topics, list(found), wants_operations)
        return {
            "brokers": [self._node("nodeId")],
            "clusterId": self._catalog.cluster_id,
            "controllerId": NODE_ID,
            "topics": topics,
            "clusterAuthorizedOperations": self._operations(
                request["includeClusterAuthorizedOperations"]
            ),
        }

    def _named(self, wanted: list[Fields], wants_operations: bool) -> list[Topic | Fields]:
        found: list[Topic | Fields] = []
        # One that is named twice is answered once, and names are passed over if there is an id.
        named = dict.fromkeys((one["name"], one["topicId"]) for one in wanted)
        by_id = dict.fromkeys((None, topic_id) for _, topic_id in named if topic_id != NO_ID)
        for name, topic_id in by_id or named:
            if name is None:
                topic = self._catalog.topic_by_id(topic_id)
                error = ErrorCode.UNKNOWN_TOPIC_ID
            else:
                topic = self._catalog.topics.get(name)
                is_legal = is_topic(name)
                error = (
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    if is_legal
                    else ErrorCode.INVALID_TOPIC_EXCEPTION
                )
            found.append(topic or {
                "errorCode": error, "name": name, "topicId": topic_id,
                "topicAuthorizedOperations":
                    self._operations(wants_operations and name is not None),
            })  # fmt: skip
        return found

    def _topics(self, found: list[Topic | Fields], wants_operations: bool) -> list[Fields]:
        self._catalog.identify(one for one in found if not isinstance(one, dict))
        return [
            one if isinstance(one, dict) else self._topic(one, wants_operations) for one in found
        ]

    def _topic(self, topic: Topic, wants_operations: bool) -> Fields:
        return {
            "errorCode": ErrorCode.NONE,
            "name": topic.name,
            "topicId": self._catalog.topic_id(topic),
            "isInternal": topic.is_internal,
            "partitions": [self._partition(one) for one in topic.partitions.values()],
            "topicAuthorizedOperations": self._operations(wants_operations),
        }

    def _partition(self, partition: ServedPartition) -> Fields:
        return {
            "errorCode": ErrorCode.NONE,
            "partitionIndex": partition.index,
            "leaderId": NODE_ID,
            "leaderEpoch": self._catalog.leader_epoch(partition),
            "replicaNodes": [NODE_ID],
            "isrNodes": [NODE_ID],
            "offlineReplicas": [],
        }

    def _operations(self, wanted: bool) -> int:
        return _READ_ONLY_OPERATIONS if wanted else _UNKNOWN_OPERATIONS

    def _node(self, id_name: str) -> Fields:
        return {id_name: NODE_ID, "host": self.address.host, "port": self.address.port}

    async def find_coordinator(self, request: Fields, version: int, client: Client) -> Fields:
        """Answer FindCoordinator: this node is the coordinator of every group."""
        node = self._node("nodeId")
        if version < 4:
            return {"errorCode": ErrorCode.NONE, "errorMessage": "NONE", **node}
        keys = request["coordinatorKeys"]
        return {"coordinators": [
            {"key": key, "errorCode": ErrorCode.NONE, "errorMessage": "", **node} for key in keys
        ]}  # fmt: skip

    async def describe_cluster(self, request: Fields, version: int, client: Client) -> Fields:
        if version > 0 and request["endpointType"] != _BROKERS:
            return {
                "errorCode": ErrorCode.MISMATCHED_ENDPOINT_TYPE,
                "errorMessage": "This node has brokers' endpoints only.",
                "clusterId": "",
            }
        return {
            "endpointType": _BROKERS,
            "clusterId": self._catalog.cluster_id,
            "controllerId": NODE_ID,
            "brokers": [self._node("brokerId")],
            "clusterAuthorizedOperations": self._operations(
                request["includeClusterAuthorizedOperations"]
            ),
        }

    async def describe_topic_partitions(
        self, request: Fields, version: int, client: Client
    ) -> Fields:
        """Answer DescribeTopicPartitions: topics by name, in pieces of some partitions."""
        return await asyncio.to_thread(self._topic_partitions, request)

    def _topic_partitions(self, request: Fields) -> Fields:
        names = sorted({one["name"] for one in request["topics"]} or self._catalog.topics)
        is_all = not request["topics"]
        cursor = request["cursor"] or {"topicName": "", "partitionIndex": 0}
        left = max(min(request["responsePartitionLimit"], _PARTITIONS_MAX), 1)
        topics: list[Fields] = []
        for name in names[bisect.bisect_left(names, cursor["topicName"]) :]:
            topic = self._catalog.topics.get(name)
            if topic is None:
                if not is_all:
                    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    topics.append({"errorCode": error, "name": name, "topicId": NO_ID})
                continue
            first = cursor["partitionIndex"] if name == cursor["topicName"] else 0
            indexes = [index for index in topic.partitions if index >= first]
            if indexes and not left:
                return {"topics": topics, "nextCursor": {
                    "topicName": name, "partitionIndex": indexes[0],
                }}  # fmt: skip
            described = self._topic(topic, True)
            described["partitions"] = [
                self._partition(topic.partitions[index])
                | {"eligibleLeaderReplicas": [], "lastKnownElr": []}
                for index in indexes[:left]
            ]
            topics.append(described)
            if len(indexes) > left:
                return {"topics": topics, "nextCursor": {
                    "topicName": name, "partitionIndex": indexes[left],
                }}  # fmt: skip
            left -= len(indexes)
        return {"topics": topics, "nextCursor": None}

    async def describe_log_dirs(self, request: Fields, version: int, client: Client) -> Fields:
        return await asyncio.to_thread(self._log_dirs, request["topics"])

    def _log_dirs(self, wanted: list[Fields] | None) -> Fields:
        named = None if wanted is None else {one["topic"]: {*one["partitions"]} for one in wanted}
        found: dict[str, dict[str, list[Fields]]]
        found = {path: {} for path in self._catalog.log_dirs}
        for topic in self._catalog.topics.values():
            if named is not None and topic.name not in named:
                continue
            for partition in topic.partitions.values():
                if named is not None and partition.index not in named[topic.name]:
                    continue
                for path in partition.paths:
                    described = {
                        "partitionIndex": partition.index,
                        "partitionSize": _size_of(path),
                        "offsetLag": 0,
                        "isFutureKey": False,
                    }
                    topics = found.setdefault(os.path.dirname(path) or os.curdir, {})
                    topics.setdefault(topic.name, []).append(described)
        return {"errorCode": ErrorCode.NONE, "results": [
            {"errorCode": ErrorCode.NONE, "logDir": path, "topics": [
                {"name": name, "partitions": partitions} for name, partitions in topics.items()
            ], **_room(path)} for path, topics in found.items()
        ]}  # fmt: skip


def _error_of(wanted: Sequence[Fields], version: int) -> ErrorCode:
    without_name = any(one["name"] is None for one in wanted)
    has_ids = any(one["topicId"] != NO_ID for one in wanted)
    if version < _WITH_IDS and (without_name or has_ids):
        return ErrorCode.INVALID_REQUEST
    if without_name and not has_ids:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return ErrorCode.NONE


def _size_of(path: str) -> int:
    """Return the size of a partition as a broker counts it: the logs of its segments."""
    size = 0
    try:
        with tried(path, os.scandir, path) as entries:
            for entry in entries:
                if entry.name.endswith(LOG):
                    size += entry.stat().st_size
    except OSError:
        return -1
    return size


def _room(path: str) -> dict[str, int]:
    try:
        status = os.statvfs(path)
    except OSError:
        return {"totalBytes": -1, "usableBytes": -1}  # `UNKNOWN_VOLUME_BYTES`
    return {
        "totalBytes": status.f_blocks * status.f_frsize,
        "usableBytes": status.f_bavail * status.f_frsize,
    }
