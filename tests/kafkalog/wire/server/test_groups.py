"""The group state machine under a clock that the tests control.

Expectations follow Kafka 4.3's `GroupMetadataManager` and its tests;
`tests/kafka/test_served_groups.py` runs the same requests against a real broker.
"""

from __future__ import annotations

import heapq
import random
from typing import TYPE_CHECKING, Any

import pytest

from formats.error_codes import ErrorCode
from kafkalog.wire.server.classic_group import RequestError, State
from kafkalog.wire.server.groups import Caller, GroupCoordinator
from kafkalog.wire.server.groups import Past as Known
from kafkalog.wire.server.rebalances import Limits

if TYPE_CHECKING:
    from collections.abc import Callable

CALLER = Caller("client", "/127.0.0.1")
SESSION_MS, REBALANCE_MS = 10_000, 60_000


class Clock:
    """A clock that advances only when a test advances it."""

    def __init__(self) -> None:
        self.now = 0
        self._number = 0
        self._queue: list[tuple[int, int, tuple[str, ...]]] = []
        self._waiting: dict[tuple[str, ...], tuple[int, Callable[[], None]]] = {}

    def schedule(self, key: tuple[str, ...], delay_ms: int, action: Callable[[], None]) -> None:
        self._number += 1
        self._waiting[key] = self._number, action
        heapq.heappush(self._queue, (self.now + max(delay_ms, 0), self._number, key))

    def cancel(self, key: tuple[str, ...]) -> None:
        self._waiting.pop(key, None)

    def pass_ms(self, milliseconds: int) -> None:
        end = self.now + milliseconds
        while self._queue and self._queue[0][0] <= end:
            self.now, number, key = heapq.heappop(self._queue)
            if key in self._waiting and self._waiting[key][0] == number:
                self._waiting.pop(key)[1]()
        self.now = end


class Past:
    """What the log holds about groups."""

    def __init__(self, **known: Known) -> None:
        self.known = known

    def recall(self, name: str) -> Known | None:
        return self.known.get(name)

    def names(self) -> list[str]:
        return list(self.known)


class Room:
    """A coordinator with client requests; each returned list receives the answer when it comes."""

    def __init__(self, past: Past | None = None, **limits: Any) -> None:
        self.clock = Clock()
        self.groups = GroupCoordinator(
            self.clock, past or Past(), Limits(first_rebalance_ms=3_000, **limits)
        )

    def join(
        self, member: str = "", *, group: str = "g", version: int = 9, instance: str | None = None,
        protocols: dict[str, bytes] | None = None, kind: str = "consumer",
        session: int = SESSION_MS,
    ) -> list[dict[str, Any]]:  # fmt: skip
        request = {
            "groupId": group, "sessionTimeoutMs": session, "rebalanceTimeoutMs": REBALANCE_MS,
            "memberId": member, "groupInstanceId": instance, "protocolType": kind,
            "protocols": [{"name": name, "metadata": data}
                          for name, data in (protocols or {"range": b"topics"}).items()],
        }  # fmt: skip
        answers: list[dict[str, Any]] = []
        self.groups.join(request, version, CALLER, answers.append)
        return answers

    def id(self, group: str = "g") -> str:
        """Request a member id."""
        [answer] = self.join(group=group)
        assert answer["errorCode"] == ErrorCode.MEMBER_ID_REQUIRED
        return answer["memberId"]

    def sync(
        self, member: str, generation: int, assignments: dict[str, bytes] | None = None, **more: Any
    ) -> list[dict[str, Any]]:
        request = {
            "groupId": "g", "memberId": member, "generationId": generation,
            "groupInstanceId": None, "protocolType": "consumer", "protocolName": "range",
            "assignments": [{"memberId": one, "assignment": data}
                            for one, data in (assignments or {}).items()], **more,
        }  # fmt: skip
        answers: list[dict[str, Any]] = []
        self.groups.sync(request, answers.append)
        return answers

    def beat(self, member: str, generation: int, instance: str | None = None) -> ErrorCode:
        return self.groups.heartbeat({
            "groupId": "g", "memberId": member, "generationId": generation,
            "groupInstanceId": instance,
        })  # fmt: skip

    def leave(self, *members: str) -> list[ErrorCode]:
        named = [{"memberId": one, "groupInstanceId": None} for one in members]
        answer = self.groups.leave({"groupId": "g", "members": named}, 5)
        return [one["errorCode"] for one in answer["members"]]

    @property
    def state(self) -> State | None:
        group = self.groups.find("g")
        return None if group is None else group.state

    def stable(self, count: int = 2) -> list[str]:
        """Make a stable group of `count` members, the first of them the leader."""
        ids = [self.id() for _ in range(count)]
        joins = [self.join(one) for one in ids]
        self.clock.pass_ms(6_000)
        assert [one[0]["errorCode"] for one in joins] == [ErrorCode.NONE] * count
        given = {one: one.encode() for one in ids}
        syncs = [self.sync(one, 1) for one in ids[1:]]
        syncs.append(self.sync(ids[0], 1, given))
        assert {one[0]["assignment"] for one in syncs} == set(given.values())
        assert self.state == State.STABLE
        return ids


def test_a_group_forms() -> None:
    room = Room()
    first, second = room.id(), room.id()
    joins = [room.join(first), room.join(second, protocols={"range": b"2", "other": b""})]
    assert joins == [[], []]
    assert room.state == State.PREPARING_REBALANCE
    room.clock.pass_ms(2_999)
    assert joins == [[], []]
    room.clock.pass_ms(1 + 3_000)  # once longer, as the second one came meanwhile
    [leader], [other] = joins
    assert room.state == State.COMPLETING_REBALANCE
    assert (leader["generationId"], leader["leader"], leader["protocolName"]) == (1, first, "range")
    assert [(one["memberId"], one["metadata"]) for one in leader["members"]] == [
        (first, b"topics"), (second, b"2"),
    ]  # fmt: skip
    assert (other["leader"], other["members"], other["memberId"]) == (first, [], second)
    waiting = room.sync(second, 1)
    assert waiting == []
    [own] = room.sync(first, 1, {second: b"all"})
    assert own["assignment"] == b""
    assert waiting[0]["assignment"] == b"all"
    assert room.state == State.STABLE
    [again] = room.sync(second, 1)
    assert again["assignment"] == b"all"


def test_who_is_silent_is_removed_and_the_others_rebalance() -> None:
    room = Room()
    first, second = room.stable()
    for _ in range(5):
        room.clock.pass_ms(SESSION_MS // 2)
        assert room.beat(first, 1) in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
    assert room.beat(first, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert room.beat(second, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    [joined] = room.join(first)
    assert (joined["generationId"], len(joined["members"])) == (2, 1)


def test_a_group_whose_last_member_left_is_empty() -> None:
    room = Room()
    first, second = room.stable()
    assert room.leave(first, "unknown") == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert room.state == State.PREPARING_REBALANCE
    assert room.beat(second, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert room.leave(second) == [ErrorCode.NONE]
    assert room.state == State.EMPTY
    group = room.groups.find("g")
    assert group is not None
    assert group.generation == 2
    assert room.groups.member_count == 0


def test_a_member_that_joins_late_is_out() -> None:
    room = Room()
    first, second = room.stable()
    joined = [room.join(room.id()), room.join(first)]
    for _ in range(REBALANCE_MS // 5_000):
        assert joined == [[], []]
        assert room.beat(second, 1) == ErrorCode.REBALANCE_IN_PROGRESS
        room.clock.pass_ms(5_000)
    assert [one[0]["generationId"] for one in joined] == [2, 2]
    assert room.beat(second, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    # Nobody asks for an assignment: all are removed, and the group is empty in the end.
    room.clock.pass_ms(2 * REBALANCE_MS)
    assert room.state == State.EMPTY


def test_a_new_leader_is_elected_if_the_old_one_does_not_come_back() -> None:
    room = Room()
    first, second, third = room.stable(3)
    assert room.leave(third) == [ErrorCode.NONE]
    joined = room.join(second)
    for _ in range(REBALANCE_MS // 5_000):
        room.beat(first, 1)
        room.clock.pass_ms(5_000)
    assert joined[0]["leader"] == second
    assert [one["memberId"] for one in joined[0]["members"]] == [second]


def test_a_static_member_comes_back_without_a_rebalance() -> None:
    room = Room()
    joined = room.join(instance="one")
    room.clock.pass_ms(3_000)
    old = joined[0]["memberId"]
    assert old.startswith("one-")
    room.sync(old, 1, {old: b"mine"}, groupInstanceId="one")
    [answer] = room.join(instance="one")
    assert answer["errorCode"] == ErrorCode.NONE
    assert (answer["generationId"], answer["skipAssignment"], answer["leader"]) == (
        1, True, answer["memberId"],
    )  # fmt: skip
    assert answer["memberId"] != old
    assert room.state == State.STABLE
    [synced] = room.sync(answer["memberId"], 1, groupInstanceId="one")
    assert synced["assignment"] == b"mine"
    assert room.beat(old, 1, "one") == ErrorCode.FENCED_INSTANCE_ID
    [before_version_9] = room.join(instance="one", version=8)
    assert before_version_9["leader"] == answer["memberId"]  # so that it does not assign
    assert not before_version_9["skipAssignment"]


def test_a_waiting_static_member_is_fenced_by_another_with_its_name() -> None:
    room = Room()
    waiting = room.join(instance="one")
    again = room.join(instance="one")
    assert waiting[0]["errorCode"] == ErrorCode.FENCED_INSTANCE_ID
    room.clock.pass_ms(6_000)
    assert again[0]["errorCode"] == ErrorCode.NONE


def test_a_tool_removes_a_static_member() -> None:
    room = Room()
    room.join(instance="one")
    room.clock.pass_ms(3_000)
    members = [{"memberId": "", "groupInstanceId": one} for one in ("one", "two")]
    answer = room.groups.leave({"groupId": "g", "members": members}, 5)
    codes = [one["errorCode"] for one in answer["members"]]
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert room.state == State.EMPTY


@pytest.mark.parametrize("version", [0, 3])
def test_old_clients_join_with_one_request(version: int) -> None:
    room = Room()
    joined = room.join(version=version)
    assert joined == []
    room.clock.pass_ms(3_000)
    assert joined[0]["errorCode"] == ErrorCode.NONE
    answer = room.groups.leave({"groupId": "g", "memberId": joined[0]["memberId"]}, 2)
    assert answer["errorCode"] == ErrorCode.NONE
    answer = room.groups.leave({"groupId": "g", "memberId": "gone"}, 2)
    assert answer["errorCode"] == ErrorCode.UNKNOWN_MEMBER_ID


def test_errors_of_joining() -> None:
    room = Room()
    room.stable()

    def code(*args: Any, **more: Any) -> ErrorCode:
        return ErrorCode(room.join(*args, **more)[0]["errorCode"])

    assert code(group="") == ErrorCode.INVALID_GROUP_ID
    assert code(session=5_999) == ErrorCode.INVALID_SESSION_TIMEOUT
    assert code(session=1_800_001) == ErrorCode.INVALID_SESSION_TIMEOUT
    assert code("unknown") == ErrorCode.UNKNOWN_MEMBER_ID
    assert code("unknown", group="h") == ErrorCode.UNKNOWN_MEMBER_ID
    assert code(kind="connect") == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert code(protocols={"sticky": b""}) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert code(kind="", group="h") == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert room.state == State.STABLE


def test_errors_of_members() -> None:
    room = Room()
    first, _ = room.stable()
    assert room.beat(first, 2) == ErrorCode.ILLEGAL_GENERATION
    assert room.beat("unknown", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert room.sync(first, 0)[0]["errorCode"] == ErrorCode.ILLEGAL_GENERATION
    assert room.sync("unknown", 1)[0]["errorCode"] == ErrorCode.UNKNOWN_MEMBER_ID
    other = room.sync(first, 1, protocolName="sticky")
    assert other[0]["errorCode"] == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert room.leave("unknown") == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_who_waits_for_an_assignment_is_told_of_the_next_rebalance() -> None:
    room = Room()
    first, second = room.id(), room.id()
    room.join(first), room.join(second)
    room.clock.pass_ms(6_000)
    waiting = room.sync(second, 1)
    room.join(first, protocols={"range": b"other topics"})
    assert waiting[0]["errorCode"] == ErrorCode.REBALANCE_IN_PROGRESS


def test_commits_are_for_members_and_for_empty_groups() -> None:
    room = Room(Past(old=Known(7, "consumer", "classic")))

    def code(group: str, member: str = "", generation: int = -1, version: int = 9) -> ErrorCode:
        request = {"groupId": group, "memberId": member, "groupInstanceId": None,
                   "generationIdOrMemberEpoch": generation}  # fmt: skip
        try:
            room.groups.require_commit(request, version)
        except RequestError as error:
            return error.code
        return ErrorCode.NONE

    assert code("new") == code("old") == ErrorCode.NONE
    assert code("new", "m", 1) == ErrorCode.GROUP_ID_NOT_FOUND
    assert code("new", "m", 1, version=8) == ErrorCode.ILLEGAL_GENERATION
    assert code("old", "m", 7) == ErrorCode.UNKNOWN_MEMBER_ID
    first, _ = room.stable()
    assert code("g", first, 1) == ErrorCode.NONE
    assert code("g", first, 2) == ErrorCode.ILLEGAL_GENERATION
    assert code("g") == ErrorCode.UNKNOWN_MEMBER_ID
    for _ in range(3):  # a commit shows that the member lives
        room.clock.pass_ms(SESSION_MS - 1)
        assert code("g", first, 1) == ErrorCode.NONE
    assert room.beat(first, 1) == ErrorCode.REBALANCE_IN_PROGRESS  # the other one was silent


def test_a_group_of_the_log_goes_on_with_its_generation() -> None:
    room = Room(Past(g=Known(7, "consumer", "classic")))
    assert [one.described()["groupState"] for one in room.groups.all()] == ["Empty"]
    member = room.id()
    joined = room.join(member)
    room.clock.pass_ms(3_000)
    assert joined[0]["generationId"] == 8


@pytest.mark.parametrize("kind", ["consumer", "streams"])
def test_a_member_makes_a_group_of_a_new_protocol_classic(kind: str) -> None:
    """A broker lets classic members join it once it is empty."""
    room = Room(Past(g=Known(7, "consumer", kind)))
    assert [one.kind for one in room.groups.all()] == [kind]
    room.id()
    assert [one.kind for one in room.groups.all()] == ["classic"]


def test_nobody_joins_a_share_group() -> None:
    room = Room(Past(g=Known(7, "share", "share")))
    [answer] = room.join()
    assert answer["errorCode"] == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert [one.kind for one in room.groups.all()] == ["share"]


def test_members_are_limited() -> None:
    room = Room(members=2)
    room.stable(2)
    [answer] = room.join()
    assert (answer["errorCode"], answer["memberId"]) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert room.state == State.STABLE


def test_given_out_ids_are_limited_and_expire() -> None:
    room = Room(members=2)
    room.id(), room.id()
    assert room.join()[0]["errorCode"] == ErrorCode.GROUP_MAX_SIZE_REACHED
    room.clock.pass_ms(SESSION_MS)
    room.id()


def test_groups_and_memory_are_limited() -> None:
    room = Room(groups=2)
    for name in "abcd":  # abandoned groups make room, once their ids have expired
        room.id(name)
        room.clock.pass_ms(SESSION_MS)
    room.id("a"), room.id("b")
    assert room.join(group="c")[0]["errorCode"] == ErrorCode.GROUP_MAX_SIZE_REACHED
    room = Room(bytes=1 << 20)
    member = room.id()
    assert room.join(member, protocols={"range": bytes(1 << 19)}) == []
    refused = room.join(group="h", protocols={"range": bytes(1 << 19)})
    assert refused[0]["errorCode"] == ErrorCode.GROUP_MAX_SIZE_REACHED
    room.clock.pass_ms(2 * REBALANCE_MS)
    answer = room.join(group="h", protocols={"range": bytes(1 << 19)})
    assert answer[0]["errorCode"] == ErrorCode.MEMBER_ID_REQUIRED


@pytest.mark.parametrize("seed", range(20))
def test_whatever_clients_do_each_is_answered_once(seed: int) -> None:
    """Random requests: each is answered exactly once, and silence empties every group."""
    random_ = random.Random(seed)
    room = Room(members=5)
    asked: list[list[dict[str, Any]]] = []
    ids = [""]
    for _ in range(400):
        member, generation = random_.choice(ids), random_.randrange(-1, 12)
        group = room.groups.find("g")
        if group is not None and random_.random() < 0.8:
            generation = group.generation
        instance = random_.choice([None, None, "one", "two"])
        do = random_.randrange(6)
        if do <= 1:
            asked.append(room.join(member, instance=instance, version=random_.choice([3, 8, 9])))
        elif do == 2:
            given = dict.fromkeys(ids, b"x")
            asked.append(room.sync(member, generation, given, groupInstanceId=instance))
        elif do == 3:
            room.beat(member, generation, instance)
        elif do == 4 and random_.random() < 0.3:
            room.leave(member)
        else:
            room.clock.pass_ms(random_.choice([1, 1_000, 3_000, 10_000]))
        ids += [one[0]["memberId"] for one in asked[-1:] if one and "memberId" in one[0]]
        ids = ["", *dict.fromkeys(ids[-8:])]
    room.clock.pass_ms(3_600_000)
    assert {len(one) for one in asked} == {1}
    assert room.state == State.EMPTY
    assert room.groups.member_count == 0
    room.groups._rebalances.account("g")
    assert room.groups._rebalances.used == 0
