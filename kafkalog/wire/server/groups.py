"""The coordinator of classic groups: who is in which group, in which generation, with what to read.

Follows `GroupMetadataManager` and `GroupCoordinatorService` of Kafka. It lives in memory and is
limited in all that clients can make it hold. It knows no clock: timers are given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from formats.error_codes import ErrorCode
from kafkalog.wire.server.classic_group import (
    CLASSIC,
    SHARE,
    ClassicGroup,
    GroupMember,
    RequestError,
    Respond,
    State,
    join_response,
    protocols_of,
    sync_response,
)
from kafkalog.wire.server.rebalances import Limits, Rebalances, Timers, assigned

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kafkalog.wire.server.model import Fields

_KNOWS_MEMBER_ID: Final = 4
"""From this version of JoinGroup on, a new member first gets an id, then joins."""
_SKIPS_ASSIGNMENT: Final = 9
"""From this version of JoinGroup on, a leader can be told not to assign."""
_MEMBERS_LEAVE: Final = 3
"""From this version of LeaveGroup on, it names several members."""


class Past(NamedTuple):
    """What is known of a group that nobody has joined here; attributes as of `ClassicGroup`."""

    generation: int
    protocol_type: str | None
    kind: str


class Known(Protocol):
    """The groups that have committed offsets, or are in the log."""

    def recall(self, name: str) -> Past | None:
        """Return what is known of a group, None if nothing is."""

    def names(self) -> Iterable[str]:
        """Return the names of all groups that are known."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sends a request: the client's id, and its address as brokers show it."""

    client_id: str
    host: str


class GroupCoordinator:
    """Coordinates groups.

    Args:
        known: groups besides those that were joined.
    """

    def __init__(self, timers: Timers, known: Known, limits: Limits | None = None) -> None:
        self._rebalances = Rebalances(timers, limits or Limits())
        self._known = known
        self._limits = limits or Limits()

    @property
    def member_count(self) -> int:
        return sum(len(one.members) for one in self._rebalances.groups.values())

    def all(self) -> Iterator[ClassicGroup]:
        for name in sorted({*self._rebalances.groups, *self._known.names()}):
            group = self.find(name)
            if group is not None:
                yield group

    def find(self, name: str) -> ClassicGroup | None:
        """Return a group, None if there is none; one that was never joined is empty."""
        group = self._rebalances.groups.get(name)
        if group is not None:
            return group
        past = self._known.recall(name)
        return None if past is None else ClassicGroup(name, **past._asdict())

    def _required(self, name: str) -> ClassicGroup:
        if not name:
            raise RequestError(ErrorCode.INVALID_GROUP_ID)
        group = self.find(name)
        if group is None:
            raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group

    # Join

    def join(self, request: Fields, version: int, caller: Caller, respond: Respond) -> None:
        """Handle JoinGroup; `respond` is called now, or when the join phase ends."""
        name, member_id = request["groupId"], request["memberId"]
        told_id = member_id
        try:
            low, high = self._limits.session_ms
            if not name:
                raise RequestError(ErrorCode.INVALID_GROUP_ID)
            if not low <= request["sessionTimeoutMs"] <= high:
                raise RequestError(ErrorCode.INVALID_SESSION_TIMEOUT)
            group = self.find(name)
            if group is None and member_id:
                raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID)
            if group is not None and group.kind == SHARE:
                raise RequestError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            group = self._keep(group or ClassicGroup(name))
            if not self._accepts(group, member_id, request):
                if member_id in group.members:
                    self._rebalances.remove(group, group.members[member_id])
                told_id = ""
                raise RequestError(ErrorCode.GROUP_MAX_SIZE_REACHED)
            if not group.supports(request["protocolType"], protocols_of(request)):
                raise RequestError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            if member_id:
                self._join_again(group, request, caller, respond)
            else:
                self._join_anew(group, request, version, caller, respond)
        except RequestError as error:
            respond(join_response(told_id, error.code))
        self._rebalances.account(name)

    def _keep(self, group: ClassicGroup) -> ClassicGroup:
        """Note a group that is being joined; abandoned ones make room for it."""
        if (
            group.name not in self._rebalances.groups
            and len(self._rebalances.groups) >= self._limits.groups
        ):
            for one in [one for one in self._rebalances.groups.values() if one.is_abandoned]:
                self._forget(one.name)
            if len(self._rebalances.groups) >= self._limits.groups:
                raise RequestError(ErrorCode.GROUP_MAX_SIZE_REACHED)
        self._rebalances.groups[group.name] = group
        group.kind = CLASSIC
        return group

    def _forget(self, name: str) -> None:
        del self._rebalances.groups[name]
        self._rebalances.account(name)

    def _has_room(self, *pieces: bytes | str) -> bool:
        return self._rebalances.used + sum(map(len, pieces)) <= self._limits.bytes

    def _accepts(self, group: ClassicGroup, member_id: str, request: Fields) -> bool:
        """Return whether there is room for a member, as `acceptJoiningMember`, and memory."""
        protocols = protocols_of(request)
        if not self._has_room(*protocols, *protocols.values()):
            return False
        member = group.members.get(member_id)
        most = self._limits.members
        is_new = member is None and member_id not in group.pending_joins
        if is_new and len(group.pending_joins) + len(group.members) >= most:
            return False
        if group.state == State.EMPTY:
            return True
        if group.state == State.PREPARING_REBALANCE:
            return (member is not None and member.join is not None) or group.awaiting_join < most
        return member is not None or len(group.members) < most

    def _join_anew(
        self, group: ClassicGroup, request: Fields, version: int, caller: Caller,
        respond: Respond,
    ) -> None:  # fmt: skip
        instance_id = request.get("groupInstanceId")
        new_id = group.new_member_id(caller.client_id, instance_id)
        # KIP-394: a client that has gone before it knows its id leaves no member behind.
        if instance_id is None and version >= _KNOWS_MEMBER_ID:
            group.pending_joins.add(new_id)
            self._rebalances.expect_heartbeat(group, new_id, request["sessionTimeoutMs"])
            respond(join_response(new_id, ErrorCode.MEMBER_ID_REQUIRED))
        elif instance_id is not None and instance_id in group.static_members:
            self._replace_static(group, new_id, request, version, respond)
        else:
            self._add(group, new_id, request, caller, respond)

    def _join_again(
        self, group: ClassicGroup, request: Fields, caller: Caller, respond: Respond
    ) -> None:
        member_id, instance_id = request["memberId"], request.get("groupInstanceId")
        if member_id in group.pending_joins:
            if instance_id is not None:
                raise RequestError(ErrorCode.UNKNOWN_SERVER_ERROR)  # no id is given to static ones
            self._add(group, member_id, request, caller, respond)
            return
        group.require_member(member_id, instance_id)
        member = group.members[member_id]
        is_same = member.offers(protocols_of(request))
        if group.state == State.EMPTY:
            raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID)
        if group.state == State.PREPARING_REBALANCE or not is_same:
            self._update(group, member, request, respond)
        elif group.state == State.STABLE and group.leader == member_id:
            self._update(group, member, request, respond)  # leaders ask for a rebalance so
        else:
            respond(group.joined(member_id))

    def _add(
        self, group: ClassicGroup, member_id: str, request: Fields, caller: Caller,
        respond: Respond,
    ) -> None:  # fmt: skip
        member = GroupMember(
            member_id,
            request.get("groupInstanceId"),
            caller.client_id,
            caller.host,
            request["rebalanceTimeoutMs"],
            request["sessionTimeoutMs"],
            request["protocolType"],
            protocols_of(request),
            join=respond,
            is_new=True,
        )
        if (group.state, group.previous_state) == (State.PREPARING_REBALANCE, State.EMPTY):
            group.has_newcomer = True
        # The first rebalance of a group waits for further members.
        group.add(member)
        self._rebalances.expect_heartbeat(group, member_id, self._limits.new_member_ms)
        self._rebalances.begin_or_complete(group)

    def _set(self, member: GroupMember, request: Fields, respond: Respond) -> None:
        member.protocols = protocols_of(request)
        member.rebalance_timeout_ms = request["rebalanceTimeoutMs"]
        member.session_timeout_ms = request["sessionTimeoutMs"]
        # A client that asks once more, on another connection, no longer waits on the first one.
        member.answer_join(join_response(member.member_id, ErrorCode.REBALANCE_IN_PROGRESS))
        member.join = respond

    def _update(
        self, group: ClassicGroup, member: GroupMember, request: Fields, respond: Respond
    ) -> None:
        self._set(member, request, respond)
        self._rebalances.begin_or_complete(group)

    def _replace_static(
        self, group: ClassicGroup, new_id: str, request: Fields, version: int,
        respond: Respond,
    ) -> None:  # fmt: skip
        leader = group.leader
        member = group.replace_static(request["groupInstanceId"], new_id)
        self._rebalances.expect_heartbeat(group, new_id, member.session_timeout_ms)
        self._set(member, request, respond)
        if group.state == State.STABLE:
            if group.protocol_name != group.select_protocol():
                self._rebalances.begin_or_complete(group)
            elif version >= _SKIPS_ASSIGNMENT:
                is_leader = group.leader == new_id
                member.answer_join(group.joined(new_id, skip_assignment=is_leader))
            else:
                # Under its new id it must not take itself for the leader, and assign.
                member.answer_join(group.joined(new_id, leader=leader))
        elif group.state == State.COMPLETING_REBALANCE:
            self._rebalances.prepare(group)
        else:
            self._rebalances.complete_if_joined(group)

    # Sync, heartbeat, leave

    def sync(self, request: Fields, respond: Respond) -> None:
        """Handle SyncGroup; `respond` is called now, or when the leader has assigned."""
        try:
            group = self._required(request["groupId"])
            self._sync(group, request, respond)
        except RequestError as error:
            respond(sync_response(error.code))
        self._rebalances.account(request["groupId"])

    def _sync(self, group: ClassicGroup, request: Fields, respond: Respond) -> None:
        member_id = request["memberId"]
        if group.state == State.EMPTY:
            raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID)
        group.require_member(member_id, request.get("groupInstanceId"))
        if request["generationId"] != group.generation:
            raise RequestError(ErrorCode.ILLEGAL_GENERATION)
        # Clients of older versions name neither.
        for told, own in (("protocolType", group.protocol_type),
                          ("protocolName", group.protocol_name)):  # fmt: skip
            if None not in (request.get(told), own) and request[told] != own:
                raise RequestError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.state == State.PREPARING_REBALANCE:
            raise RequestError(ErrorCode.REBALANCE_IN_PROGRESS)
        member = group.members[member_id]
        group.pending_syncs.discard(member_id)
        if not group.pending_syncs:
            self._rebalances.stop_syncs(group)
        if group.state == State.STABLE:
            respond(sync_response() | assigned(group, member))
            return
        member.answer_sync(sync_response(ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync = respond
        if group.leader == member_id:
            given = {one["memberId"]: bytes(one["assignment"]) for one in request["assignments"]}
            if not self._has_room(*given.values()):
                member.sync = None
                raise RequestError(ErrorCode.GROUP_MAX_SIZE_REACHED)
            for one in group.members.values():
                one.assignment = given.get(one.member_id, b"")
            self._rebalances.answer_syncs(group)
            group.turn(State.STABLE)

    def heartbeat(self, request: Fields) -> ErrorCode:
        try:
            group = self._required(request["groupId"])
            member_id = request["memberId"]
            group.require_member(member_id, request.get("groupInstanceId"))
            if request["generationId"] != group.generation:
                return ErrorCode.ILLEGAL_GENERATION
        except RequestError as error:
            return error.code
        self._rebalances.expect_heartbeat(
            group, member_id, group.members[member_id].session_timeout_ms
        )
        if group.state == State.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def leave(self, request: Fields, version: int) -> Fields:
        members = request.get("members", ())
        if version < _MEMBERS_LEAVE:
            members = [{"memberId": request["memberId"]}]
        name = request["groupId"]
        if not name:
            return {"throttleTimeMs": 0, "errorCode": ErrorCode.INVALID_GROUP_ID, "members": []}
        group = self.find(name)
        answers = []
        for one in members:
            code = ErrorCode.UNKNOWN_MEMBER_ID
            if group is not None:
                code = self._leave(group, one["memberId"], one.get("groupInstanceId"))
            answers.append({
                "memberId": one["memberId"],
                "groupInstanceId": one.get("groupInstanceId"),
                "errorCode": code,
            })  # fmt: skip
        if group is not None and any(one["errorCode"] == ErrorCode.NONE for one in answers):
            # Perhaps the others only waited for those that have left.
            if group.state == State.PREPARING_REBALANCE:
                self._rebalances.complete_if_joined(group)
            elif group.state != State.EMPTY:
                self._rebalances.begin_or_complete(group)
            self._rebalances.account(name)
        top = ErrorCode.NONE
        if version < _MEMBERS_LEAVE:
            top = answers[0]["errorCode"]
        return {"throttleTimeMs": 0, "errorCode": top, "members": answers}

    def _leave(self, group: ClassicGroup, member_id: str, instance_id: str | None) -> ErrorCode:
        if not member_id:  # a tool removes a static member
            found = group.static_members.get(instance_id) if instance_id is not None else None
            if found is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = found
        elif member_id in group.pending_joins:
            group.remove(member_id)
            self._rebalances.stop_heartbeat(group, member_id)
            return ErrorCode.NONE
        else:
            try:
                group.require_member(member_id, instance_id)
            except RequestError as error:
                return error.code
        self._rebalances.stop_heartbeat(group, member_id)
        self._rebalances.remove(group, group.members[member_id])
        return ErrorCode.NONE

    # Commit

    def require_commit(self, request: Fields, version: int) -> None:
        """Raise unless offsets may be committed; a commit of a member shows that it lives.

        Raises:
            RequestError: see `ClassicGroup.require_commit`.
        """
        generation, member_id = request["generationIdOrMemberEpoch"], request["memberId"]
        group = self.find(request["groupId"])
        if group is None:
            if generation < 0:
                return
            raise RequestError(
                ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION
            )
        group.require_commit(member_id, request.get("groupInstanceId"), generation)
        member = group.members.get(member_id)
        if member is not None and group.state in (State.STABLE, State.PREPARING_REBALANCE):
            self._rebalances.expect_heartbeat(group, member_id, member.session_timeout_ms)
