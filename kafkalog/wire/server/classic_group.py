"""One group of the classic protocol: its members, its state, and what both allow.

Follows `ClassicGroup` and `ClassicGroupMember` of Kafka.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from formats.error_codes import ErrorCode
from kafkalog.wire.server.model import Fields

if TYPE_CHECKING:
    from collections.abc import Iterable

Respond = Callable[[Fields], None]
"""Answers a request, at once or when the group is so far."""

CLASSIC: Final = "classic"
SHARE: Final = "share"
MEMBER_OVERHEAD: Final = 1024
"""What a member costs in memory besides its texts and bytes."""


class RequestError(Exception):
    """Ends a request with an error code."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


class State(StrEnum):
    """The state of a group."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


def protocols_of(request: Fields) -> dict[str, bytes]:
    """Return the protocols that a JoinGroup request offers, in the member's order of preference."""
    found: dict[str, bytes] = {}
    for one in request["protocols"]:
        found.setdefault(one["name"], bytes(one["metadata"]))
    return found


@dataclass(slots=True)
class GroupMember:
    """A member, and the requests of it that wait for an answer.

    Attributes:
        protocol_type: what all members of a group share.
        protocols: name to metadata, preferred ones first.
        assignment: what the leader gave it.
        join, sync: answer its waiting request; None if it waits for none.
        is_new: whether it has not yet been told its id.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: dict[str, bytes]
    assignment: bytes = b""
    join: Respond | None = None
    sync: Respond | None = None
    is_new: bool = False

    @property
    def has_satisfied_heartbeat(self) -> bool:
        """Whether it may be silent: it waits for an answer, unless it is new."""
        return not self.is_new and (self.join is not None or self.sync is not None)

    def offers(self, protocols: dict[str, bytes]) -> bool:
        return list(self.protocols.items()) == list(protocols.items())

    def answer_join(self, response: Fields) -> None:
        """Answer its JoinGroup request, if it waits for one."""
        respond, self.join = self.join, None
        if respond is not None:
            respond(response)

    def answer_sync(self, response: Fields) -> bool:
        """Answer its SyncGroup request; return whether it waited for one."""
        respond, self.sync = self.sync, None
        if respond is not None:
            respond(response)
        return respond is not None

    @property
    def size(self) -> int:
        """About what it costs in memory."""
        texts = (self.member_id, self.instance_id or "", self.client_id, self.protocol_type)
        return (
            MEMBER_OVERHEAD
            + sum(map(len, texts))
            + sum(len(name) + len(data) for name, data in self.protocols.items())
            + len(self.assignment)
        )


_MAY_FOLLOW: Final = {
    State.EMPTY: (State.PREPARING_REBALANCE,),
    State.PREPARING_REBALANCE: (State.STABLE, State.COMPLETING_REBALANCE, State.EMPTY),
    State.COMPLETING_REBALANCE: (State.PREPARING_REBALANCE,),
    State.STABLE: (State.COMPLETING_REBALANCE,),
}
"""Each state and those it can come after."""


@dataclass(slots=True)
class ClassicGroup:
    """A group.

    Attributes:
        generation: counts rebalances.
        state, previous_state: its state, and the one before.
        protocol_type: what its members share; None if it never had any.
        kind: its type in the log; a member makes it `classic`.
        protocol_name: the protocol that its members agreed on.
        leader: id of the member that assigns.
        members: by id, in the order in which they came.
        static_members: instance id to member id.
        pending_joins: ids that were given out and not yet used.
        pending_syncs: ids of members that have not yet asked for their assignment.
        has_newcomer: whether a member came during the first rebalance, which is then prolonged.
    """

    name: str
    generation: int = 0
    state: State = State.EMPTY
    previous_state: State = State.EMPTY
    protocol_type: str | None = None
    kind: str = CLASSIC
    protocol_name: str | None = None
    leader: str | None = None
    members: dict[str, GroupMember] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    pending_joins: set[str] = field(default_factory=set)
    pending_syncs: set[str] = field(default_factory=set)
    has_newcomer: bool = False

    @property
    def size(self) -> int:
        """About what its members cost in memory."""
        given_out = sum(MEMBER_OVERHEAD + len(one) for one in self.pending_joins)
        return given_out + sum(one.size for one in self.members.values())

    @property
    def is_abandoned(self) -> bool:
        """Whether nobody is in it or about to join."""
        return self.state == State.EMPTY and not self.members and not self.pending_joins

    @property
    def awaiting_join(self) -> int:
        """How many members wait for the answer to a JoinGroup request."""
        return sum(one.join is not None for one in self.members.values())

    @property
    def has_all_joined(self) -> bool:
        """Whether all members wait for the end of the join phase, and no other id is given out."""
        return self.awaiting_join == len(self.members) and not self.pending_joins

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((one.rebalance_timeout_ms for one in self.members.values()), default=0)

    @property
    def can_rebalance(self) -> bool:
        return self.state in _MAY_FOLLOW[State.PREPARING_REBALANCE]

    def turn(self, state: State) -> None:
        assert self.state in _MAY_FOLLOW[state], f"{self.state} to {state}"
        self.previous_state, self.state = self.state, state

    def add(self, member: GroupMember) -> None:
        """Add a member; the first one is the leader."""
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self.pending_joins.discard(member.member_id)

    def remove(self, member_id: str) -> None:
        """Remove a member, or an id that was given out; another member becomes the leader."""
        member = self.members.pop(member_id, None)
        if member is not None and member.instance_id is not None:
            self.static_members.pop(member.instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending_joins.discard(member_id)
        self.pending_syncs.discard(member_id)

    def replace_static(self, instance_id: str, new_id: str) -> GroupMember:
        """Give a static member a new id; requests that wait under the old one are fenced."""
        old_id = self.static_members[instance_id]
        member = self.members.pop(old_id)
        code = ErrorCode.FENCED_INSTANCE_ID
        member.answer_join(join_response(old_id, code))
        member.answer_sync(sync_response(code))
        member.member_id = new_id
        member.is_new = False
        self.members[new_id] = member
        if self.leader == old_id:
            self.leader = new_id
        self.static_members[instance_id] = new_id
        return member

    def elect_joined_leader(self) -> bool:
        """Make a member the leader that waits for the end of the join phase; False if none does."""
        if self.leader is None:
            return False
        if self.members[self.leader].join is not None:
            return True
        joined = (one.member_id for one in self.members.values() if one.join is not None)
        found = next(joined, None)
        if found is not None:
            self.leader = found
        return found is not None

    def new_member_id(self, client_id: str, instance_id: str | None) -> str:
        """Return an id that no other member has."""
        return f"{client_id if instance_id is None else instance_id}-{uuid.uuid4()}"

    def require_member(self, member_id: str, instance_id: str | None) -> None:
        """Raise unless a request comes from a member, under its present id.

        Raises:
            RequestError: `UNKNOWN_MEMBER_ID`, or `FENCED_INSTANCE_ID`.
        """
        if instance_id is not None:
            known = self.static_members.get(instance_id)
            if known is None:
                raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID)
            if known != member_id:
                raise RequestError(ErrorCode.FENCED_INSTANCE_ID)
        if member_id not in self.members:
            raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID)

    def require_commit(self, member_id: str, instance_id: str | None, generation: int) -> None:
        """Raise unless offsets may be committed.

        Raises:
            RequestError: who commits is no member, is of another generation, or should rejoin.
        """
        if generation < 0 and self.state == State.EMPTY:
            return  # a tool, or a consumer without group management
        if generation >= 0 or member_id or instance_id is not None:
            self.require_member(member_id, instance_id)
            if generation != self.generation:
                raise RequestError(ErrorCode.ILLEGAL_GENERATION)
        elif self.state != State.EMPTY:
            raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID)
        if self.state == State.COMPLETING_REBALANCE:
            raise RequestError(ErrorCode.REBALANCE_IN_PROGRESS)

    def supports(self, protocol_type: str, protocols: Iterable[str]) -> bool:
        if self.state == State.EMPTY:
            return bool(protocol_type) and bool(list(protocols))
        if self.protocol_type != protocol_type:
            return False
        return any(all(one in member.protocols for member in self.members.values())
                   for one in protocols)  # fmt: skip

    def select_protocol(self) -> str:
        """Return the protocol that all members know and most prefer."""
        members = list(self.members.values())
        known = set(members[0].protocols).intersection(*(one.protocols for one in members))
        votes = Counter(
            next(name for name in member.protocols if name in known) for member in members
        )
        return votes.most_common(1)[0][0]

    def next_generation(self) -> None:
        """Begin the next generation: members are to be assigned, or the group is empty."""
        self.generation += 1
        if self.members:
            self.protocol_name = self.select_protocol()
            self.turn(State.COMPLETING_REBALANCE)
        else:
            self.protocol_name = None
            self.turn(State.EMPTY)
        self.pending_syncs.clear()

    def joined(
        self, member_id: str, *, skip_assignment: bool = False, leader: str | None = None
    ) -> Fields:
        """Return the answer that tells a member of the generation, and the leader of all members.

        Args:
            skip_assignment: whether the leader need not assign.
            leader: the one to name, if that is not the present one.
        """
        is_leader = (self.leader if leader is None else leader) == member_id
        members = [
            {
                "memberId": one.member_id,
                "groupInstanceId": one.instance_id,
                "metadata": one.protocols.get(self.protocol_name or "", b""),
            }
            for one in self.members.values()
        ]
        return join_response(member_id) | {
            "generationId": self.generation,
            "protocolType": self.protocol_type,
            "protocolName": self.protocol_name,
            "leader": (self.leader if leader is None else leader) or "",
            "skipAssignment": skip_assignment,
            "members": members if is_leader else [],
        }

    def described(self) -> Fields:
        is_stable = self.state == State.STABLE
        name = self.protocol_name or ""
        return {
            "groupState": str(self.state),
            # Before the group is stable, members and protocol are not agreed upon.
            "protocolType": self.protocol_type or "",
            "protocolData": name if is_stable else "",
            "members": [
                {
                    "memberId": one.member_id,
                    "groupInstanceId": one.instance_id,
                    "clientId": one.client_id,
                    "clientHost": one.client_host,
                    "memberMetadata": one.protocols.get(name, b"") if is_stable else b"",
                    "memberAssignment": one.assignment,
                }
                for one in self.members.values()
            ],
        }


def join_response(member_id: str, code: ErrorCode = ErrorCode.NONE) -> Fields:
    """Return an answer to JoinGroup that has no generation."""
    return {
        "throttleTimeMs": 0,
        "errorCode": code,
        "generationId": -1,
        "protocolType": None,
        "protocolName": None,
        "leader": "",
        "skipAssignment": False,
        "memberId": member_id,
        "members": [],
    }


def sync_response(code: ErrorCode = ErrorCode.NONE) -> Fields:
    """Return an answer to SyncGroup that has no assignment."""
    return {
        "throttleTimeMs": 0,
        "errorCode": code,
        "protocolType": None,
        "protocolName": None,
        "assignment": b"",
    }
