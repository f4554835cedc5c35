"""ListTransactions, DescribeTransactions and DescribeProducers, from the files.

Follows `TransactionCoordinator`, `TransactionStateManager.listTransactionStates` and
`UnifiedLog.activeProducers` of Kafka 4.4. Unlike in a broker no transactional id and no producer
expires.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from formats.error_codes import ErrorCode
from kafkalog.errors import DataError, KafkaLogError, Note, UnsupportedError
from kafkalog.model import present_ms
from kafkalog.node.state.coordinators import partition_for
from kafkalog.node.targets import open_targets
from kafkalog.wire.server.model import Api

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.errors import Event
    from kafkalog.node.state.transactions import Transactions
    from kafkalog.wire.server.catalog import Catalog
    from kafkalog.wire.server.model import Client, Fields, ServeListener

_DEAD: Final = "Dead"


class TransactionApis:
    """Answers what is asked about transactions and producers.

    Args:
        follow: whether the files may grow, so that they are read for each request.
    """

    def __init__(self, catalog: Catalog, listener: ServeListener, *, follow: bool) -> None:
        self._catalog = catalog
        self._listener = listener
        self._follow = follow
        self._known: Transactions | None = None
        self._has_failed = False
        self._reading = asyncio.Lock()

    def apis(self) -> list[Api]:
        return [
            Api("DescribeProducers", self.describe_producers),
            Api("DescribeTransactions", self.describe_transactions),
            Api("ListTransactions", self.list_transactions),
        ]

    # What the coordinators' logs hold

    async def _transactions(self) -> Transactions | None:
        """Return what the logs of the coordinators hold; None if they cannot be read."""
        async with self._reading:
            if self._known is None or self._follow:
                try:
                    self._known = await asyncio.to_thread(self._read)
                except (DataError, UnsupportedError) as error:
                    self._known = None
                    if not self._has_failed:
                        self._has_failed = True
                        self._listener.hear(error)
        return self._known

    def _read(self) -> Transactions:
        from kafkalog.node.state.transactions import read_transactional_ids  # needed by few clients

        hear: Callable[[Event], None] = self._listener.hear
        if self._known is not None:  # its notes and defects were reported
            hear = _ignore
        targets = open_targets(self._catalog.paths, hear=hear)
        found = read_transactional_ids(targets, defects=hear, failed=hear)
        if found.topic.missing_count:
            part = f"{found.topic.missing_count} of {found.topic.count} partitions"
            hear(Note(f"{part} of {found.topic.name} are not here: nor are their transactions."))
        return found

    async def list_transactions(self, request: Fields, version: int, client: Client) -> Fields:
        found = await self._transactions()
        if found is None:
            return {"errorCode": ErrorCode.KAFKA_STORAGE_ERROR}
        from kafkalog.files.payloads.message_text import TRANSACTION_STATES
        from kafkalog.node.state.transactions import matching

        wanted, producers = request["stateFilters"], request["producerIdFilters"]
        known = [one for one in found.ids.values() if one.state != _DEAD]
        if wanted:
            known = [one for one in known if one.state in wanted]
        if producers:
            known = [one for one in known if one.producer_id in producers]
        if request["durationFilter"] >= 0:
            before = present_ms() - request["durationFilter"]
            known = [one for one in known if one.start_timestamp < before]
        if request["transactionalIdPattern"]:
            try:
                known = matching(known, request["transactionalIdPattern"])
            except ValueError:
                return {"errorCode": ErrorCode.INVALID_REGULAR_EXPRESSION}
        return {
            "errorCode": ErrorCode.NONE,
            "unknownStateFilters": [one for one in wanted if one not in TRANSACTION_STATES],
            "transactionStates": [
                {
                    "transactionalId": one.name,
                    "producerId": one.producer_id,
                    "transactionState": one.state,
                }
                for one in known
            ],
        }

    async def describe_transactions(self, request: Fields, version: int, client: Client) -> Fields:
        found = await self._transactions()
        return {"transactionStates": [
            _described(name, found) for name in request["transactionalIds"]
        ]}  # fmt: skip

    # What the data hold

    async def describe_producers(self, request: Fields, version: int, client: Client) -> Fields:
        return await asyncio.to_thread(lambda: {"topics": [
            {"name": topic["name"], "partitions": [
                {"partitionIndex": index, **self._producers(topic["name"], index)}
                for index in topic["partitionIndexes"]
            ]} for topic in request["topics"]
        ]})  # fmt: skip

    def _producers(self, topic: str, index: int) -> Fields:
        partition = self._catalog.partition(topic, index)
        if partition is None:
            return {"errorCode": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "activeProducers": []}
        try:
            states = self._catalog.log(partition).log.producer_states()
        except KafkaLogError as failure:
            return {"errorCode": self._catalog.failed(partition, failure), "activeProducers": []}
        return {"errorCode": ErrorCode.NONE, "activeProducers": [
            {
                "producerId": one.producer_id,
                "producerEpoch": one.producer_epoch,
                "lastSequence": one.last_sequence,
                "lastTimestamp": one.last_timestamp,
                "coordinatorEpoch": one.coordinator_epoch,
                "currentTxnStartOffset":
                    -1 if one.current_txn_first_offset is None else one.current_txn_first_offset,
            } for one in states
        ]}  # fmt: skip


def _ignore(_event: Event) -> None:
    pass


def _described(name: str, found: Transactions | None) -> Fields:
    known = None if found is None else found.ids.get(name)
    if known is None or known.state == _DEAD:
        error = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if name else ErrorCode.INVALID_REQUEST
        if found is None or _is_unread(name, found):
            error = ErrorCode.KAFKA_STORAGE_ERROR
        return {
            "errorCode": error, "transactionalId": name, "transactionState": "",
            "transactionTimeoutMs": 0, "transactionStartTimeMs": 0, "producerId": 0,
            "producerEpoch": 0, "topics": [],
        }  # fmt: skip
    topics = defaultdict(list)
    for topic, partition in known.partitions:
        topics[topic].append(partition)
    return {
        "errorCode": ErrorCode.NONE,
        "transactionalId": name,
        "transactionState": known.state,
        "transactionTimeoutMs": known.timeout_ms,
        "transactionStartTimeMs": known.start_timestamp,
        "producerId": known.producer_id,
        "producerEpoch": known.producer_epoch,
        "topics": [
            {"topic": topic, "partitions": partitions} for topic, partitions in topics.items()
        ],
    }


def _is_unread(name: str, found: Transactions) -> bool:
    """Return whether the log of an id's coordinator is missing, or was not read to its end."""
    topic = found.topic
    if not topic.count:
        return False
    number = partition_for(name, topic.count)
    return number in found.incomplete or number not in topic.replicas
