"""Committed offsets: from the log, from this server, and from the file that outlives it.

`ExampleData` committed offset 400 of `orders-0` for the group `billing` of the example.
"""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from formats.error_codes import ErrorCode
from kafkalog.errors import (
    CorruptDataError,
    DestinationExistsError,
    KafkaLogError,
    LimitExceededError,
    NotFoundError,
    UnreadableError,
    UsageError,
)
from kafkalog.node.state.groups import read_groups
from kafkalog.node.targets import open_targets
from kafkalog.wire.server import commits_file
from kafkalog.wire.server.catalog import Catalog
from kafkalog.wire.server.commits_file import CommitsFile
from kafkalog.wire.server.committed import CommittedOffsets
from kafkalog.wire.server.group_apis import GroupApis, LoopTimers
from kafkalog.wire.server.groups import GroupCoordinator
from kafkalog.wire.server.model import Client, Commit, Committed, ServeListener, ServeOptions
from tests.checkout import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kafkalog.errors import Note
    from kafkalog.node.state.model import Groups

EXAMPLE = str(ROOT / "examples" / "log-dir")
CLIENT = Client("127.0.0.1", 1, "client")
REFUSED = ErrorCode.GROUP_AUTHORIZATION_FAILED


class Served:
    """The APIs of groups over the example; use it as a context manager."""

    def __init__(
        self,
        read: Callable[[], Groups] | None = None,
        file: CommitsFile | None = None,
        *,
        read_only: bool = False,
        **limits: int,
    ) -> None:
        self.heard: list[KafkaLogError | Note] = []
        self.committed = CommittedOffsets(
            read or partial(read_groups, open_targets([EXAMPLE])),
            file=file, hear=self.heard.append, **limits,
        )  # fmt: skip
        self.catalog = Catalog([EXAMPLE], ServeOptions(), ServeListener())
        coordinator = GroupCoordinator(LoopTimers(), self.committed)
        self._apis = GroupApis(coordinator, self.committed, self.catalog, read_only=read_only)

    async def __aenter__(self) -> Served:
        await self.committed.__aenter__()
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self.committed.__aexit__(*failure)

    async def ask(self, api: str, version: int, **request: Any) -> dict[str, Any]:
        [found] = [one for one in self._apis.apis() if one.name == api]
        answer = await found.handler(request, version, CLIENT)
        assert answer is not None
        return answer

    async def commit(
        self, offset: int, *, group: str = "billing", topic: str = "orders", version: int = 9,
        metadata: str | None = "", partition: int = 0, **more: Any,
    ) -> ErrorCode:  # fmt: skip
        one = {"partitionIndex": partition, "committedOffset": offset, "committedLeaderEpoch": 3,
               "committedMetadata": metadata}  # fmt: skip
        topics = [{"name": topic, "topicId": topic, "partitions": [one]}]
        request = {"groupId": group, "generationIdOrMemberEpoch": -1, "memberId": "",
                   "groupInstanceId": None, "topics": topics}  # fmt: skip
        answer = await self.ask("OffsetCommit", version, **request | more)
        return ErrorCode(answer["topics"][0]["partitions"][0]["errorCode"])

    async def fetch(self, group: str = "billing", topic: str = "orders") -> tuple[int, str, int]:
        topics = [{"name": topic, "partitionIndexes": [0]}]
        answer = await self.ask("OffsetFetch", 8, groups=[{"groupId": group, "topics": topics}])
        one = answer["groups"][0]["topics"][0]["partitions"][0]
        return one["committedOffset"], one["metadata"], one["errorCode"]


def test_offsets_of_the_log_until_others_are_committed() -> None:
    async def run() -> None:
        async with Served() as served:
            assert await served.fetch() == (400, "", ErrorCode.NONE)
            assert await served.fetch("other") == (-1, "", ErrorCode.NONE)
            assert await served.fetch(topic="none") == (-1, "", ErrorCode.NONE)
            assert await served.commit(500, metadata="here") == ErrorCode.NONE
            assert await served.fetch() == (500, "here", ErrorCode.NONE)
            await served.commit(7, group="new", partition=3, metadata=None)
            answer = await served.ask(
                "OffsetFetch", 8, groups=[{"groupId": one, "topics": None}
                                          for one in ("billing", "new", "none")],
            )  # fmt: skip
            listed = [
                [(topic["name"], one["partitionIndex"], one["committedOffset"])
                 for topic in group["topics"] for one in topic["partitions"]]
                for group in answer["groups"]
            ]  # fmt: skip
            assert listed == [[("orders", 0, 500)], [("orders", 3, 7)], []]
            answer = await served.ask("ListGroups", 5, statesFilter=["empty"], typesFilter=[])
            assert [one["groupId"] for one in answer["groups"]] == ["billing", "new"]
            for states, types in (["stable"], []), ([], ["consumer"]):
                answer = await served.ask("ListGroups", 5, statesFilter=states, typesFilter=types)
                assert answer["groups"] == []

    asyncio.run(run())


def test_topic_ids_and_versions_with_one_group() -> None:
    async def run() -> None:
        async with Served() as served:
            topic_id = served.catalog.topic_id(served.catalog.topics["orders"])
            topics = [{"topicId": one, "partitionIndexes": [0]} for one in (topic_id, "B" * 22)]
            for asked in topics, None:
                groups = [{"groupId": "billing", "topics": asked}]
                answer = await served.ask("OffsetFetch", 10, groups=groups)
                found = {
                    topic["topicId"]: (one["committedOffset"], one["errorCode"])
                    for topic in answer["groups"][0]["topics"] for one in topic["partitions"]
                }  # fmt: skip
                unknown = {"B" * 22: (-1, ErrorCode.UNKNOWN_TOPIC_ID)} if asked else {}
                assert found == {topic_id: (400, ErrorCode.NONE)} | unknown
            assert await served.commit(5, topic=topic_id, version=10) == ErrorCode.NONE
            by_id = await served.commit(5, topic="B" * 22, version=10)
            assert by_id == ErrorCode.UNKNOWN_TOPIC_ID
            answer = await served.ask(
                "OffsetFetch", 7, groupId="billing",
                topics=[{"name": "orders", "partitionIndexes": [0, 1]}],
            )  # fmt: skip
            partitions = answer["topics"][0]["partitions"]
            assert [one["committedOffset"] for one in partitions] == [5, -1]

    asyncio.run(run())


def test_what_is_not_committed() -> None:
    async def run() -> None:
        async with Served(size_max=2_200) as served:
            assert await served.commit(1, topic="none") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert (
                await served.commit(1, metadata="x" * 4096) == ErrorCode.INVALID_COMMIT_OFFSET_SIZE
            )
            assert (
                await served.commit(1, metadata="x" * 4097) == ErrorCode.OFFSET_METADATA_TOO_LARGE
            )
            member = {"memberId": "m", "generationIdOrMemberEpoch": 1}
            assert await served.commit(1, **member) == ErrorCode.UNKNOWN_MEMBER_ID
            codes = [await served.commit(1, partition=one) for one in range(5)]
            assert codes == [ErrorCode.NONE] * 5
            assert await served.commit(1, partition=5) == ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        async with Served(read_only=True) as served:
            assert await served.commit(1) == REFUSED
            assert await served.fetch() == (400, "", ErrorCode.NONE)

    asyncio.run(run())


def test_a_log_that_cannot_be_read_is_no_offset() -> None:
    """An error is returned: "no offset" would make consumers start over from the beginning."""

    def failing() -> Groups:
        raise UnreadableError("It cannot be read.", path="here")

    async def run() -> None:
        async with Served(failing) as served:
            assert await served.fetch() == (-1, "", ErrorCode.KAFKA_STORAGE_ERROR)
            answer = await served.ask("OffsetFetch", 8, groups=[{"groupId": "g", "topics": None}])
            assert answer["groups"][0]["errorCode"] == ErrorCode.KAFKA_STORAGE_ERROR
            await served.commit(3)
            assert await served.fetch() == (3, "", ErrorCode.NONE)
            assert [str(one) for one in served.heard] == ["It cannot be read. [here]"]

    asyncio.run(run())


def test_a_damaged_coordinator_costs_its_groups_only() -> None:
    def damaged() -> Groups:
        found = read_groups(open_targets([EXAMPLE]))
        found.incomplete.append(0)  # `billing` is in 1
        return found

    async def run() -> None:
        async with Served(damaged) as served:
            assert await served.fetch() == (400, "", ErrorCode.NONE)
            codes = {(await served.fetch(f"g{number}"))[2] for number in range(10)}
            assert codes == {ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR}

    asyncio.run(run())


def test_no_groups_and_missing_coordinators() -> None:
    def none() -> Groups:
        raise NotFoundError("There is no partition of __consumer_offsets here.")

    def partly() -> Groups:
        found = read_groups(open_targets([EXAMPLE]))
        del found.topic.replicas[0]
        return found

    async def run() -> None:
        async with Served(none) as served:
            assert await served.fetch() == (-1, "", ErrorCode.NONE)
            assert served.heard == []
        async with Served(partly) as served:
            await served.fetch()
            assert [note.text.partition(":")[0] for note in served.heard] == [
                "1 of 2 partitions of __consumer_offsets are not here",
            ]  # fmt: skip

    asyncio.run(run())


def test_commits_outlive_the_server(tmp_path: Path) -> None:
    path = tmp_path / "commits.ndjson"

    async def first() -> None:
        async with Served(file=CommitsFile(str(path), [EXAMPLE])) as served:
            await served.commit(1, metadata="ü\ud800")
            await served.commit(2, group="new")
            await served.commit(3, group="new", topic="none")
            with pytest.raises(DestinationExistsError):
                CommitsFile(str(path), [EXAMPLE]).__enter__()

    async def second() -> None:
        async with Served(file=CommitsFile(str(path), [EXAMPLE])) as served:
            assert await served.fetch() == (1, "ü\ud800", ErrorCode.NONE)
            assert await served.fetch("new") == (2, "", ErrorCode.NONE)

    asyncio.run(first())
    lines = path.read_text().splitlines()
    assert [json.loads(line)["group"] for line in lines] == ["billing", "new"]
    path.write_text("\n".join([*lines, '{"group": "torn']))
    asyncio.run(second())


@pytest.mark.parametrize("line", [
    "", "[]", '{"group": "g"}', "\x00", '{"group": "g", "timestamp": 1, "offsets": [{}]}',
    ('{"group": "g", "timestamp": 1, "offsets": [{"topic": "t", "partition": 4294967296,'
    ' "offset": 1, "leaderEpoch": -1, "metadata": ""}]}'),
])  # fmt: skip
def test_a_file_of_something_else(tmp_path: Path, line: str) -> None:
    path = tmp_path / "commits"
    path.write_text(line + "\n")

    async def run() -> None:
        async with Served(file=CommitsFile(str(path), [EXAMPLE])):
            pass

    with pytest.raises(CorruptDataError, match="Line 1: "):
        asyncio.run(run())


def test_a_file_inside_of_what_is_served() -> None:
    with pytest.raises(UsageError):
        CommitsFile(f"{EXAMPLE}/commits", [EXAMPLE])


def test_a_file_with_too_much(tmp_path: Path) -> None:
    path = str(tmp_path / "commits")

    async def run(**limits: int) -> None:
        async with Served(file=CommitsFile(path, [EXAMPLE]), **limits) as served:
            await served.commit(1)
            await served.commit(2, group="other")

    asyncio.run(run())
    with pytest.raises(LimitExceededError):
        asyncio.run(run(size_max=700))


def test_the_file_is_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits_file, "_ANEW_FROM", 1_000)
    path = tmp_path / "commits"
    sizes = []
    with CommitsFile(str(path), [EXAMPLE]) as file:
        for offset in range(40):
            committed = Committed("g", 1, [("t", 0, Commit(offset))])
            file.append(committed, [committed])
            sizes.append(path.stat().st_size)
            with pytest.raises(DestinationExistsError):
                CommitsFile(str(path), [EXAMPLE]).__enter__()
        assert list(file.read())[-1] == committed
    assert max(sizes) < 1_200
    assert [one.name for one in tmp_path.iterdir()] == ["commits"]


def test_a_commit_that_cannot_be_written_is_not_answered_with_success(tmp_path: Path) -> None:
    class FullDisk(CommitsFile):
        def append(self, *_: object) -> None:
            raise UnreadableError("No space left on device.", path=self.path)

    async def run() -> None:
        async with Served(file=FullDisk(str(tmp_path / "commits"), [EXAMPLE])) as served:
            assert await served.commit(1) == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert await served.fetch() == (400, "", ErrorCode.NONE)
            assert len(served.heard) == 1

    asyncio.run(run())


def test_groups_that_are_described() -> None:
    async def run() -> None:
        async with Served() as served:
            for version, code in (5, ErrorCode.NONE), (6, ErrorCode.GROUP_ID_NOT_FOUND):
                answer = await served.ask(
                    "DescribeGroups", version, groups=["billing", "none"],
                    includeAuthorizedOperations=False,
                )  # fmt: skip
                told = [(one["groupState"], one["errorCode"]) for one in answer["groups"]]
                assert told == [("Empty", ErrorCode.NONE), ("Dead", code)]

    asyncio.run(run())
