"""The APIs of groups: what clients ask the coordinator, and what becomes of their offsets."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from formats.error_codes import ErrorCode
from kafkalog.node.targets import open_targets
from kafkalog.wire.server.classic_group import (
    SHARE,
    RequestError,
    join_response,
    sync_response,
)
from kafkalog.wire.server.committed import METADATA_SIZE_MAX, CommittedOffsets
from kafkalog.wire.server.groups import Caller, GroupCoordinator
from kafkalog.wire.server.model import Api, Commit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from kafkalog.node.state.model import Groups
    from kafkalog.wire.server.catalog import Catalog
    from kafkalog.wire.server.model import Client, Fields, ServeListener, ServeOptions

_NULLABLE_PROTOCOL: Final = 7
"""From this version of JoinGroup on, a response may have no protocol."""
_TOP_LEVEL_ERROR: Final = 2
_SEVERAL_GROUPS: Final = 8
_TOPIC_IDS: Final = 10
"""Versions of OffsetFetch, and of OffsetCommit for the last one."""
_GROUP_NOT_FOUND: Final = 6
"""From this version of DescribeGroups on, a missing group is an error, and no dead group."""
_DEAD: Final = "Dead"
_NOT_ASKED: Final = -(1 << 31)  # `Integer.MIN_VALUE`
_READ_AND_DESCRIBE: Final = 1 << 3 | 1 << 8
"""Codes of `AclOperation` as bits."""

Rows = list[tuple[str, int, Commit]]


class GroupApis:
    """Answers the requests of groups."""

    def __init__(
        self,
        coordinator: GroupCoordinator,
        committed: CommittedOffsets,
        catalog: Catalog,
        *,
        read_only: bool = False,
    ) -> None:
        self._coordinator = coordinator
        self._committed = committed
        self._catalog = catalog
        self._read_only = read_only

    def apis(self) -> list[Api]:
        return [
            Api("JoinGroup", self.join_group),
            Api("SyncGroup", self.sync_group),
            Api("Heartbeat", self.heartbeat),
            Api("LeaveGroup", self.leave_group),
            Api("DescribeGroups", self.describe_groups),
            Api("ListGroups", self.list_groups),
            Api("OffsetCommit", self.offset_commit),
            Api("OffsetFetch", self.offset_fetch),
        ]

    # Members

    async def join_group(self, request: Fields, version: int, client: Client) -> Fields:
        """Answer when the join phase has ended."""
        if code := await self._loading():
            return join_response(request["memberId"], code)
        caller = Caller(client.client_id or "", f"/{client.host}")  # as Java prints an address
        answer, respond = _later()
        self._coordinator.join(request, version, caller, respond)
        # It is held as long as this waits, which may be minutes.
        del request
        client.forget_request()
        response = await answer
        if version < _NULLABLE_PROTOCOL and response["protocolName"] is None:
            response["protocolName"] = ""
        return response

    async def sync_group(self, request: Fields, version: int, client: Client) -> Fields:
        """Answer when the leader has assigned."""
        if code := await self._loading():
            return sync_response(code)
        answer, respond = _later()
        self._coordinator.sync(request, respond)
        del request
        client.forget_request()
        return await answer

    async def heartbeat(self, request: Fields, version: int, client: Client) -> Fields:
        return {"throttleTimeMs": 0, "errorCode": self._coordinator.heartbeat(request)}

    async def leave_group(self, request: Fields, version: int, client: Client) -> Fields:
        return self._coordinator.leave(request, version)

    # Groups

    async def describe_groups(self, request: Fields, version: int, client: Client) -> Fields:
        code = await self._loading()
        wants_operations = request.get("includeAuthorizedOperations")
        operations = _READ_AND_DESCRIBE if wants_operations else _NOT_ASKED
        found = []
        for name in request["groups"]:
            one = {"groupId": name, "errorCode": code, "errorMessage": None, "groupState": "",
                   "protocolType": "", "protocolData": "", "members": [],
                   "authorizedOperations": operations}  # fmt: skip
            group = None if code else self._coordinator.find(name)
            is_share = group is not None and group.kind == SHARE
            if group is not None and not is_share:
                one |= group.described()
            elif not code:
                one["groupState"] = _DEAD
                if version >= _GROUP_NOT_FOUND:
                    one["errorCode"] = ErrorCode.GROUP_ID_NOT_FOUND
                    why = "is not a classic group" if is_share else "not found"
                    one["errorMessage"] = f"Group {name} {why}."
            found.append(one)
        return {"throttleTimeMs": 0, "groups": found}

    async def list_groups(self, request: Fields, version: int, client: Client) -> Fields:
        code = await self._loading()
        states = {one.strip().lower() for one in request.get("statesFilter") or ()}
        types = {one.lower() for one in request.get("typesFilter") or ()}
        found = [
            {
                "groupId": one.name,
                "protocolType": one.protocol_type or "",
                "groupState": str(one.state),
                "groupType": one.kind,
            }
            for one in (() if code else self._coordinator.all())
            if (not states or one.state.lower() in states) and (not types or one.kind in types)
        ]
        return {"throttleTimeMs": 0, "errorCode": code, "groups": found}

    async def _loading(self) -> ErrorCode:
        try:
            await self._committed.ready()
        except RequestError as error:
            return error.code
        return ErrorCode.NONE

    # Offsets

    async def offset_commit(self, request: Fields, version: int, client: Client) -> Fields:
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED if self._read_only else ErrorCode.NONE
        if not code:
            try:
                await self._committed.ready()
                self._coordinator.require_commit(request, version)
            except RequestError as refused:
                code = refused.code
        topics, rows = [], Rows()
        for topic in request["topics"]:
            name = self._name_of(topic, version)
            answers = []
            for one in topic["partitions"]:
                error = code or self._judge(name, one, version)
                if not error and name is not None:
                    epoch, metadata = one["committedLeaderEpoch"], one["committedMetadata"] or ""
                    commit = Commit(one["committedOffset"], epoch, metadata)
                    rows.append((name, one["partitionIndex"], commit))
                answers.append({"partitionIndex": one["partitionIndex"], "errorCode": error})
            topics.append({"name": name or "", "topicId": topic["topicId"], "partitions": answers})
        error = ErrorCode.NONE if code else await self._commit(request["groupId"], rows)
        if error:
            for answer in (one for topic in topics for one in topic["partitions"]):
                answer["errorCode"] = answer["errorCode"] or error
        return {"throttleTimeMs": 0, "topics": topics}

    def _judge(self, name: str | None, one: Fields, version: int) -> ErrorCode:
        if name not in self._catalog.topics:
            by_id = version >= _TOPIC_IDS
            return ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if len(one["committedMetadata"] or "") > METADATA_SIZE_MAX:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        return ErrorCode.NONE

    async def _commit(self, group: str, rows: Rows) -> ErrorCode:
        if not self._committed.has_room(group, rows):
            return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        try:
            await self._committed.commit(group, rows)
        except RequestError as error:
            return error.code
        return ErrorCode.NONE

    def _name_of(self, topic: Fields, version: int) -> str | None:
        """Return the name of a topic in a request, None for an id that is not known."""
        if version < _TOPIC_IDS:
            return str(topic["name"])
        found = self._catalog.topic_by_id(topic["topicId"])
        return None if found is None else found.name

    async def offset_fetch(self, request: Fields, version: int, client: Client) -> Fields:
        if version >= _SEVERAL_GROUPS:
            groups = [await self._fetch(one, version) for one in request["groups"]]
            return {"throttleTimeMs": 0, "groups": groups}
        return {"throttleTimeMs": 0, **await self._fetch(request, version)}

    async def _fetch(self, request: Fields, version: int) -> Fields:
        group, topics = request["groupId"], request["topics"]
        answer: Fields = {"groupId": group, "errorCode": ErrorCode.NONE, "topics": []}
        code = await self._loading()
        if topics is None:
            if not code and self._committed.is_unreadable(group):
                code = ErrorCode.KAFKA_STORAGE_ERROR
            answer["errorCode"] = code
            if not code:
                answer["topics"] = await self._fetch_all(group, version)
            return answer
        if code and version >= _TOP_LEVEL_ERROR:
            answer["errorCode"] = code
            return answer
        named = [(self._name_of(one, version), one) for one in topics]
        wanted = {
            (name, index)
            for name, one in named
            if name is not None
            for index in one["partitionIndexes"]
        }
        found = {} if code else await self._committed.of(group, wanted)
        missing = ErrorCode.NONE
        if self._committed.is_unreadable(group):
            missing = ErrorCode.KAFKA_STORAGE_ERROR
        for name, one in named:
            error = code or (ErrorCode.UNKNOWN_TOPIC_ID if name is None else missing)
            partitions = [
                _fetched(index, None if name is None else found.get((name, index)), error)
                for index in one["partitionIndexes"]
            ]
            answer["topics"].append({**one, "partitions": partitions})
        return answer

    async def _fetch_all(self, group: str, version: int) -> list[Fields]:
        """Return all offsets of a group; those of unknown topics have no id."""
        found: dict[str, list[Fields]] = {}
        for (topic, index), commit in (await self._committed.of(group)).items():
            found.setdefault(topic, []).append(_fetched(index, commit, ErrorCode.NONE))
        if version < _TOPIC_IDS:
            return [{"name": name, "partitions": each} for name, each in found.items()]
        known = ((self._catalog.topics.get(name), each) for name, each in found.items())
        return [
            {"topicId": self._catalog.topic_id(topic), "partitions": each}
            for topic, each in known
            if topic is not None
        ]


def _fetched(index: int, commit: Commit | None, error: ErrorCode) -> Fields:
    """Return the answer for one partition; without a commit that is offset -1, or an error."""
    offset, epoch, metadata = (-1, -1, "") if commit is None else commit
    return {
        "partitionIndex": index,
        "committedOffset": offset,
        "committedLeaderEpoch": epoch,
        "metadata": metadata,
        "errorCode": error if commit is None else ErrorCode.NONE,
    }


def _later() -> tuple[asyncio.Future[Fields], Callable[[Fields], None]]:
    """Return an answer to wait for, and what gives it, which does nothing once nobody waits."""
    answer: asyncio.Future[Fields] = asyncio.get_running_loop().create_future()

    def respond(response: Fields) -> None:
        if not answer.done():
            answer.set_result(response)

    return answer, respond


@asynccontextmanager
async def served_groups(
    catalog: Catalog, options: ServeOptions, listener: ServeListener
) -> AsyncIterator[tuple[GroupApis, GroupCoordinator]]:
    """Coordinate groups within the block.

    Raises:
        KafkaLogError: as `CommitsFile`, and as `CommittedOffsets` reads it.
    """

    # What is not needed to listen is loaded when it is.
    def read() -> Groups:
        from kafkalog.node.state.groups import read_groups

        return read_groups(
            open_targets(catalog.paths, hear=listener.hear),
            defects=listener.hear,
            failed=listener.hear,
        )

    file, timers = None, LoopTimers()
    if options.groups_file is not None:
        from kafkalog.wire.server.commits_file import CommitsFile

        file = CommitsFile(options.groups_file, catalog.paths)
    committed = CommittedOffsets(
        read,
        file=file,
        hear=listener.hear,
    )
    async with committed:
        coordinator = GroupCoordinator(timers, committed)
        apis = GroupApis(coordinator, committed, catalog, read_only=options.read_only_groups)
        try:
            yield apis, coordinator
        finally:
            timers.close()


class LoopTimers:
    """Timers of the running event loop."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, ...], asyncio.TimerHandle] = {}

    def schedule(self, key: tuple[str, ...], delay_ms: int, action: Callable[[], None]) -> None:
        self.cancel(key)

        def run() -> None:
            del self._waiting[key]
            action()

        loop = asyncio.get_running_loop()
        self._waiting[key] = loop.call_later(max(delay_ms, 0) / 1000, run)

    def cancel(self, key: tuple[str, ...]) -> None:
        waiting = self._waiting.pop(key, None)
        if waiting is not None:
            waiting.cancel()

    def close(self) -> None:
        for waiting in self._waiting.values():
            waiting.cancel()
        self._waiting.clear()
