"""DescribeQuorum: who leads the quorum and who votes, from the newest metadata log.

Follows `LeaderState.describeQuorum` of Kafka 4.4. Nobody fetches from a dead leader: there are no
observers, and no times of fetches.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from formats.error_codes import ErrorCode
from formats.topic_names import CLUSTER_METADATA
from kafkalog.errors import DataError
from kafkalog.node.identity import image_of
from kafkalog.node.view import show_now
from kafkalog.wire.server.model import NO_ID, Api

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.node.quorum.model import Voter
    from kafkalog.node.quorum.quorum import Quorum
    from kafkalog.wire.server.catalog import Catalog
    from kafkalog.wire.server.model import Client, Fields, ServeListener

_ASKED: Final = [{"topicName": CLUSTER_METADATA, "partitions": [{"partitionIndex": 0}]}]
_NO_OFFSET: Final = -1
_UNKNOWN: Final = {
    "errorCode": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "leaderId": 0, "leaderEpoch": 0,
    "highWatermark": 0, "currentVoters": [], "observers": [],
}  # fmt: skip


class QuorumApi:
    """Answers what is asked about the quorum."""

    def __init__(self, catalog: Catalog, listener: ServeListener) -> None:
        self._catalog = catalog
        self._listener = listener

    def apis(self) -> list[Api]:
        return [Api("DescribeQuorum", self.describe_quorum)]

    async def describe_quorum(self, request: Fields, version: int, client: Client) -> Fields:
        if request["topics"] != _ASKED:
            return {"errorCode": ErrorCode.NONE, "topics": [
                {"topicName": topic["topicName"], "partitions": [
                    {**one, **_UNKNOWN} for one in topic["partitions"]
                ]} for topic in request["topics"]
            ]}  # fmt: skip
        try:
            return await asyncio.to_thread(self._described)
        except DataError as error:
            self._listener.hear(error)
            return {"errorCode": ErrorCode.UNKNOWN_SERVER_ERROR, "errorMessage": error.message}

    def _described(self) -> Fields:
        # Few clients need it.
        from kafkalog.node.quorum.quorum import quorum_of
        from kafkalog.node.quorum.read import read_replicas

        logs = self._catalog.metadata_logs()
        if not logs:
            # An error of the partition would be one that clients retry.
            words = f"There is no {CLUSTER_METADATA}-0 among what is served."
            return {"errorCode": ErrorCode.INVALID_REQUEST, "errorMessage": words}
        found = quorum_of(*read_replicas([show_now(one).partition for one in logs]))
        ends = {one.node_id: one.started.end for one in found.copies}
        leader_id, leader_epoch = found.leader
        partition = {
            "partitionIndex": 0,
            "errorCode": ErrorCode.NONE,
            "leaderId": leader_id,
            "leaderEpoch": leader_epoch,
            "highWatermark": found.proven,
            "currentVoters": [
                {
                    "replicaId": one.node_id,
                    "replicaDirectoryId": one.directory_id or NO_ID,
                    "logEndOffset": ends.get(one.node_id, _NO_OFFSET),
                }
                for one in found.voters.voters
            ],
            "observers": [],
        }
        nodes = [
            {"nodeId": voter.node_id, "listeners": [
                {"name": name, "host": host, "port": port}
                for name, host, port in _listeners(voter, found)
            ]} for voter in found.voters.voters
        ]  # fmt: skip
        topic = {"topicName": CLUSTER_METADATA, "partitions": [partition]}
        return {"errorCode": ErrorCode.NONE, "topics": [topic], "nodes": nodes}


def _listeners(voter: Voter, quorum: Quorum) -> Iterator[tuple[str, str, int]]:
    """Yield where a voter listens: static voters have that in properties, and register it."""
    yield from voter.listeners
    if voter.directory_id is None and quorum.chosen is not None:
        image = image_of(quorum.chosen.partition)
        known = None if image is None else image.controllers.get(voter.node_id)
        for at in () if known is None else known.endpoints.values():
            yield at.name, at.host, at.port
