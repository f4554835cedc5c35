"""ListOffsets and OffsetForLeaderEpoch.

Follows `KafkaApis`, `ReplicaManager.fetchOffset`, `Partition.fetchOffsetForTimestamp` and
`Partition.lastOffsetForLeaderEpoch` of Kafka.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from formats.constants import NO_EPOCH
from formats.error_codes import ErrorCode
from kafkalog.errors import KafkaLogError
from kafkalog.model import Isolation, Special
from kafkalog.node.lookup import lookup_special, lookup_timestamp
from kafkalog.wire.server.catalog import epoch_end_served
from kafkalog.wire.server.model import Api

if TYPE_CHECKING:
    from kafkalog.wire.server.catalog import Catalog, ServedPartition
    from kafkalog.wire.server.model import Client, Fields

_LATEST, _EARLIEST, _MAX, _EARLIEST_LOCAL, _LATEST_TIERED, _PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
_TIERED: Final = {
    _EARLIEST_LOCAL: Special.EARLIEST_LOCAL,
    _LATEST_TIERED: Special.LATEST_TIERED,
    _PENDING_UPLOAD: Special.EARLIEST_PENDING_UPLOAD,
}
_SINCE: Final = {_MAX: 7, _EARLIEST_LOCAL: 8, _LATEST_TIERED: 9, _PENDING_UPLOAD: 11}
"""The first version that knows a special timestamp."""
_DEBUGGING_CLIENT: Final = -2
_NOTHING: Final = {"timestamp": -1, "offset": -1, "leaderEpoch": -1}


def isolation_of(request: Fields) -> Isolation:
    return Isolation.READ_COMMITTED if request["isolationLevel"] else Isolation.READ_UNCOMMITTED


class Offsets:
    """Answers where offsets are."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def apis(self) -> list[Api]:
        return [
            Api("ListOffsets", self.list_offsets),
            Api("OffsetForLeaderEpoch", self.offset_for_leader_epoch),
        ]

    async def list_offsets(self, request: Fields, version: int, client: Client) -> Fields:
        return await asyncio.to_thread(self._list_offsets, request, version)

    def _list_offsets(self, request: Fields, version: int) -> Fields:
        isolation = isolation_of(request)
        # `ListOffsetsRequest.DEBUGGING_REPLICA_ID`: it sees what consumers do not yet.
        if request["replicaId"] == _DEBUGGING_CLIENT:
            isolation = Isolation.LOG
        times = Counter(
            (topic["name"], one["partitionIndex"])
            for topic in request["topics"]
            for one in topic["partitions"]
        )
        asked = (self._catalog.partition(name, index) for name, index in times)
        self._catalog.together(self._catalog.log, [one for one in asked if one is not None])
        topics: dict[str, dict[int, Fields]] = {}
        for topic in request["topics"]:
            name = topic["name"]
            answers = topics.setdefault(name, {})
            for one in topic["partitions"]:
                index = one["partitionIndex"]
                if times[name, index] > 1:
                    found = _error(ErrorCode.INVALID_REQUEST)
                else:
                    found = self._offset(name, one, isolation, version)
                answers[index] = {"partitionIndex": index, **found}
        return {"topics": [
            {"name": name, "partitions": [*answers.values()]} for name, answers in topics.items()
        ]}  # fmt: skip

    def _offset(self, topic: str, wanted: Fields, isolation: Isolation, version: int) -> Fields:
        partition = self._catalog.partition(topic, wanted["partitionIndex"])
        timestamp = wanted["timestamp"]
        if timestamp < _PENDING_UPLOAD or version < _SINCE.get(timestamp, 0):
            return _error(ErrorCode.UNSUPPORTED_VERSION)
        if partition is None:
            return _error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        error = self._catalog.epoch_error(partition, wanted["currentLeaderEpoch"])
        if error:
            return _error(error)
        try:
            return {"errorCode": ErrorCode.NONE, **self._found(partition, timestamp, isolation)}
        except KafkaLogError as failure:
            return _error(self._catalog.failed(partition, failure))

    def _found(self, partition: ServedPartition, timestamp: int, isolation: Isolation) -> Fields:
        served = self._catalog.log(partition)
        log = served.log
        is_tiered = log.partition.tier is not None or log.partition.is_remote
        if timestamp == _LATEST:
            epoch = self._catalog.leader_epoch(partition)
            return {"timestamp": -1, "offset": served.bounds(isolation)[1], "leaderEpoch": epoch}
        if timestamp in _TIERED and is_tiered:
            found = lookup_special(log, _TIERED[timestamp], isolation)
        # Nothing is in a tier, which is what a broker answers, too.
        elif timestamp in (_LATEST_TIERED, _PENDING_UPLOAD):
            return _NOTHING
        elif timestamp in (_EARLIEST, _EARLIEST_LOCAL):
            found = lookup_special(log, Special.EARLIEST, isolation)
            # An empty log: its leader has noted its epoch at the end, see `epoch_end_served`.
            if not log.leader_epochs and found.offset == log.log_end_offset:
                found = replace(found, leader_epoch=self._catalog.leader_epoch(partition))
        elif timestamp == _MAX:
            found = lookup_special(log, Special.MAX_TIMESTAMP, isolation)
        else:
            found = lookup_timestamp(log, timestamp, isolation)
        if found.offset is None:
            return _NOTHING
        return {
            "timestamp": -1 if found.timestamp is None else found.timestamp,
            "offset": found.offset,
            "leaderEpoch": -1 if found.leader_epoch is None else found.leader_epoch,
        }

    async def offset_for_leader_epoch(
        self, request: Fields, version: int, client: Client
    ) -> Fields:
        return await asyncio.to_thread(
            lambda: {"topics": [
                {"topic": topic["topic"], "partitions": [
                    {"partition": one["partition"], **self._epoch_end(topic["topic"], one)}
                    for one in topic["partitions"]
                ]} for topic in request["topics"]
            ]}
        )  # fmt: skip

    def _epoch_end(self, topic: str, wanted: Fields) -> Fields:
        partition = self._catalog.partition(topic, wanted["partition"])
        if partition is None:
            return {"errorCode": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        error = self._catalog.epoch_error(partition, wanted["currentLeaderEpoch"])
        if error:
            return {"errorCode": error}
        try:
            log = self._catalog.log(partition).log
            found = None
            if wanted["leaderEpoch"] != NO_EPOCH:
                known, end = log.leader_epochs, log.log_end_offset
                found = epoch_end_served(known, end, wanted["leaderEpoch"])
        except KafkaLogError as failure:
            return {"errorCode": self._catalog.failed(partition, failure)}
        epoch, end = found or (-1, -1)
        return {"errorCode": ErrorCode.NONE, "leaderEpoch": epoch, "endOffset": end}


def _error(code: ErrorCode) -> Fields:
    return {"errorCode": code, **_NOTHING}
