"""Fetch: bytes of logs, as they lie in the files.

Follows `KafkaApis.handleFetchRequest`, `ReplicaManager.readFromLog` and `Partition.readRecords` of
Kafka. There are no fetch sessions: every response names session 0, and clients send whole
requests then.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from formats.constants import NO_EPOCH
from formats.error_codes import ErrorCode
from kafkalog.errors import KafkaLogError, ReplacedError
from kafkalog.model import Isolation
from kafkalog.wire.server.catalog import epoch_end_served
from kafkalog.wire.server.model import NODE_ID, Api, Begun, Fields, FileRange, nothing
from kafkalog.wire.server.offsets import isolation_of
from kafkalog.wire.server.served_log import DamagedError, InvalidSizeError, OutOfRangeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kafkalog.wire.server.catalog import Catalog, ServedPartition
    from kafkalog.wire.server.model import Address, Answer, Client, ServeOptions
    from kafkalog.wire.server.served_log import ServedLog

FETCH_SIZE_MAX: Final = 55 << 20
"""`fetch.max.bytes` of a broker by default."""
_WAIT_SECONDS_MAX: Final = 60
_LARGE_WAIT_SECONDS_MAX: Final = 1
_LOOK_AGAIN_SECONDS: Final = 0.1
_OPENING_SECONDS: Final = 0.5
"""How much work a response may wait for, of logs that are opened; others come in the next one."""
# What is open is answered from memory; opening reads indexes and snapshots.
_STORE_SECONDS: Final = 3
"""How long it may wait for a store, if it has something then; clients wait for half a minute."""
_WITH_IDS: Final = 13  # KIP-516: ids of topics in place of names
_WITH_LEADERS: Final = 16  # KIP-951: where the leader is

_Wanted = tuple[Fields, "ServedPartition | None"]


@dataclass(slots=True)
class _Gathered:
    """What a response has so far."""

    topics: list[Fields]
    ranges: list[tuple[ServedLog, FileRange]] = field(default_factory=list)
    size: int = 0
    answers_now: bool = False
    names_leader: bool = False


class Fetch:
    """Answers Fetch.

    Args:
        reached: called with each partition whose end a client has reached.
    """

    def __init__(
        self,
        catalog: Catalog,
        address: Address,
        options: ServeOptions,
        reached: Callable[[ServedPartition], object] = lambda _: None,
    ) -> None:
        self._catalog = catalog
        self._endpoint = {"nodeId": NODE_ID, "host": address.host, "port": address.port}
        self._options = options
        self._reached = reached

    def apis(self) -> list[Api]:
        return [Api("Fetch", self.fetch)]

    async def fetch(self, request: Fields, version: int, client: Client) -> Answer:
        """Answer Fetch: at once if there is enough, else when the time of the request is over."""
        # There are no sessions: the client sends its next request whole.
        if request["sessionEpoch"] > 0:
            return {"errorCode": ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "responses": []}
        # A large request has room that others may wait for.
        is_small = client.forget_request is nothing
        wait_max = _WAIT_SECONDS_MAX if is_small else _LARGE_WAIT_SECONDS_MAX
        wait = min(request["maxWaitMs"] / 1000, wait_max)
        deadline = time.monotonic() + wait
        enough = min(request["minBytes"], request["maxBytes"], FETCH_SIZE_MAX)

        def answer() -> tuple[Fields | Begun, _Gathered, bool]:
            found = self._gather(request, version)
            response = self._response(found)
            if found.answers_now or found.size >= enough or time.monotonic() >= deadline:
                return client.begin(response), found, True
            return response, found, False

        while True:
            response, found, is_enough = await asyncio.to_thread(answer)
            if is_enough:
                if found.ranges and isinstance(response, Begun) and not response.left:
                    asyncio.get_running_loop().run_in_executor(None, _check_ahead, found.ranges)
                return response
            left = deadline - time.monotonic()
            if not self._options.follow:  # nothing will come
                # As a broker would: a client that is answered at once would ask again at once.
                await asyncio.sleep(left)
                return response
            await asyncio.sleep(min(left, _LOOK_AGAIN_SECONDS))

    def _response(self, found: _Gathered) -> Fields:
        answer = {"errorCode": ErrorCode.NONE, "sessionId": 0, "responses": found.topics}
        if found.names_leader:
            answer["nodeEndpoints"] = [self._endpoint]
        return answer

    def _gather(self, request: Fields, version: int) -> _Gathered:
        found = _Gathered([], answers_now=not request["topics"])
        isolation = isolation_of(request)
        left = min(request["maxBytes"], FETCH_SIZE_MAX)
        all_wanted = list(self._wanted(request, version))
        late_after = time.monotonic() + _STORE_SECONDS
        self._read_together(all_wanted, isolation, left)
        slow_after = time.thread_time() + _OPENING_SECONDS
        at_least_one = True
        for wanted, unknown, partitions in all_wanted:
            answers = []
            for one, partition in partitions:
                is_late = time.monotonic() > late_after
                is_slow = is_late or time.thread_time() > slow_after
                if partition is None:
                    answer = unknown
                elif is_slow and ((is_late and found.size) or not self._catalog.is_open(partition)):
                    answer = _answer(ErrorCode.NONE)
                    found.answers_now = True
                else:
                    size = min(one["partitionMaxBytes"], left)
                    got = self._partition(partition, one, size, isolation, at_least_one)
                    answer = got or _unknown(version)
                records = answer["records"]
                if isinstance(records, FileRange) and partition is not None:
                    log = self._catalog.opened(partition)
                    if log is not None and log.has_ahead(records):
                        found.ranges.append((log, records))
                size = len(records)
                found.size += size
                if partition is not None:
                    left = max(left - size, 0)
                # As `minOneMessage` of `ReplicaManager.readFromLog`: only the first batch may
                # exceed the limits.
                at_least_one = at_least_one and not size
                if answer["errorCode"] or "divergingEpoch" in answer:
                    found.answers_now = True
                if version < _WITH_LEADERS:
                    answer.pop("currentLeader", None)
                elif "currentLeader" in answer:
                    found.names_leader = True
                answers.append({"partitionIndex": one["partition"], **answer})
            found.topics.append({**wanted, "partitions": answers})
        return found

    def _read_together(
        self,
        all_wanted: Iterable[tuple[object, object, list[_Wanted]]],
        isolation: Isolation,
        left: int,
    ) -> None:
        """Read from a store what will probably be in a response, which then finds it in memory."""
        positions = {}
        for one, partition in (pair for *_, pairs in all_wanted for pair in pairs):
            if partition is not None and left > 0:
                size = min(one["partitionMaxBytes"], left)
                positions[partition.topic, partition.index] = partition, one["fetchOffset"], size
                left -= size

        def read(partition: ServedPartition) -> None:
            _, offset, size = positions[partition.topic, partition.index]
            # Met again, and answered, when the response is made.
            with suppress(OutOfRangeError, InvalidSizeError, DamagedError):
                self._catalog.log(partition).read(offset, size, isolation)

        wanted = [partition for partition, *_ in positions.values()]
        self._catalog.together(read, wanted, _STORE_SECONDS)

    def _wanted(
        self, request: Fields, version: int
    ) -> Iterator[tuple[Fields, Fields, list[_Wanted]]]:
        """Yield each topic as it was named, the answer for what it lacks, and its partitions.

        A partition that is named twice is answered once.
        """
        topics: dict[tuple[str, str], dict[int, Fields]] = {}
        for topic in request["topics"]:
            # Until version 12 topics have names here, then ids.
            partitions = topics.setdefault((topic["topic"], topic["topicId"]), {})
            partitions.update((one["partition"], one) for one in topic["partitions"])
        for (name, topic_id), partitions in topics.items():
            if version < _WITH_IDS:
                served = self._catalog.topics.get(name)
            else:
                served = self._catalog.topic_by_id(topic_id)
            known = served.partitions if served is not None else {}
            found = [(one, known.get(index)) for index, one in partitions.items()]
            unknown = _unknown(version if served is None else 0)
            yield {"topic": name, "topicId": topic_id}, unknown, found

    def _partition(
        self,
        partition: ServedPartition,
        wanted: Fields,
        size: int,
        isolation: Isolation,
        at_least_one: bool,
    ) -> Fields | None:
        """Return the answer for a partition; None if the topic is another one now."""
        believed = max(wanted["currentLeaderEpoch"], NO_EPOCH)
        try:
            log = self._catalog.log(partition)  # first of all whether it is still the topic's
            error = self._catalog.epoch_error(partition, believed)
            if error == ErrorCode.FENCED_LEADER_EPOCH:
                leader = {"leaderId": NODE_ID, "leaderEpoch": self._catalog.leader_epoch(partition)}
                return _answer(error) | {"currentLeader": leader}
            if error:
                return _answer(error)
            return self._read(partition, log, wanted, size, isolation, at_least_one)
        except ReplacedError:
            return None
        except OutOfRangeError:
            return _answer(ErrorCode.OFFSET_OUT_OF_RANGE)
        except InvalidSizeError:
            return _answer(ErrorCode.UNKNOWN_SERVER_ERROR)
        except DamagedError:
            return _answer(ErrorCode.CORRUPT_MESSAGE)
        except KafkaLogError as failure:
            return _answer(self._catalog.failed(partition, failure))

    def _read(
        self,
        partition: ServedPartition,
        log: ServedLog,
        wanted: Fields,
        size: int,
        isolation: Isolation,
        at_least_one: bool,
    ) -> Fields:
        start, stable, end = log.bounds(Isolation.READ_COMMITTED)
        offsets = {
            "highWatermark": log.bounds(Isolation.READ_UNCOMMITTED)[1],
            "lastStableOffset": stable,
            "logStartOffset": start,
        }
        offset, fetched_epoch = wanted["fetchOffset"], wanted["lastFetchedEpoch"]
        if fetched_epoch >= 0:
            known = epoch_end_served(log.log.leader_epochs, end, fetched_epoch)
            if known is None or offset < start:
                raise OutOfRangeError
            # KIP-595: the client's log of this epoch ends elsewhere, so it has to truncate.
            if known[0] < fetched_epoch or known[1] < offset:
                diverging = {"epoch": known[0], "endOffset": known[1]}
                return {**_answer(ErrorCode.NONE), **offsets, "divergingEpoch": diverging}
        found = log.read(offset, size, isolation, at_least_one=at_least_one)
        if found.is_end:
            self._reached(partition)
        aborted = None
        if found.aborted is not None:
            aborted = [
                {"producerId": one.producer_id, "firstOffset": one.first_offset}
                for one in found.aborted
            ]
        return {
            **_answer(ErrorCode.NONE),
            **offsets,
            "records": found.records,
            "abortedTransactions": aborted,
        }


def _check_ahead(ranges: Iterable[tuple[ServedLog, FileRange]]) -> None:
    for log, sent in ranges:
        log.check_ahead(sent)


def _unknown(version: int) -> Fields:
    """Return the answer for what is not there, by its id where requests name that."""
    is_by_id = version >= _WITH_IDS
    error = ErrorCode.UNKNOWN_TOPIC_ID if is_by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return {**_answer(error), "abortedTransactions": []}


def _answer(error: ErrorCode) -> Fields:
    return {
        "errorCode": error,
        "highWatermark": -1,
        "lastStableOffset": -1,
        "logStartOffset": -1,
        "abortedTransactions": None,
        "preferredReadReplica": -1,
        "records": b"",
    }
