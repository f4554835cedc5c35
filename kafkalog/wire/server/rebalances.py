"""Rebalances of classic groups: when the join phase ends, and who is removed for being late.

Follows `GroupMetadataManager` of Kafka. It knows no clock: timers are given.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from formats.error_codes import ErrorCode
from kafkalog.wire.server.classic_group import (
    ClassicGroup,
    GroupMember,
    State,
    join_response,
    sync_response,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.wire.server.model import Fields


class Timers(Protocol):
    """Calls back later; each key has at most one timer."""

    def schedule(self, key: tuple[str, ...], delay_ms: int, action: Callable[[], None]) -> None:
        """Call an action after a delay, in place of any that waits under the same key."""

    def cancel(self, key: tuple[str, ...]) -> None:
        """Forget the action that waits under a key, if there is one."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What clients may make the coordinator hold.

    Attributes:
        groups: number of groups.
        members: number of members of a group, and ids given out.
        bytes: of members, their metadata and assignments in all groups.
        session_ms: the shortest and the longest session timeout, as brokers have them.
        first_rebalance_ms: how long a group waits for further members when the first one comes.
        new_member_ms: how long a new member may wait for the end of a rebalance.
    """

    groups: int = 10_000
    members: int = 1_000
    bytes: int = 128 << 20
    session_ms: tuple[int, int] = (6_000, 1_800_000)
    first_rebalance_ms: int = 500
    new_member_ms: int = 300_000


_SHORTEST_WAIT_MS: Final = 100
"""A group waits at least so long for silent members, whatever they ask for."""


class Rebalances:
    """The groups that were joined, and what happens to them as time passes.

    Attributes:
        used: bytes that their members cost, about.
    """

    def __init__(self, timers: Timers, limits: Limits) -> None:
        self._timers = timers
        self._limits = limits
        self.groups: dict[str, ClassicGroup] = {}
        self.used = 0
        self._sizes: dict[str, int] = {}

    def account(self, name: str) -> None:
        """Recount what a group costs."""
        group = self.groups.get(name)
        size = 0 if group is None else group.size
        self.used += size - self._sizes.pop(name, 0)
        if size:
            self._sizes[name] = size

    def begin_or_complete(self, group: ClassicGroup) -> None:
        """Begin a rebalance if none goes on, else end its join phase if all have joined."""
        if group.can_rebalance:
            self.prepare(group)
        else:
            self.complete_if_joined(group)

    def prepare(self, group: ClassicGroup) -> None:
        """Begin a rebalance: all members have to join again."""
        if group.state == State.COMPLETING_REBALANCE:
            for member in group.members.values():
                member.assignment = b""
            self.answer_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS)
        group.pending_syncs.clear()
        self.stop_syncs(group)
        is_first = group.state == State.EMPTY
        group.turn(State.PREPARING_REBALANCE)
        if is_first:
            delay = self._limits.first_rebalance_ms
            left = max(group.rebalance_timeout_ms - delay, 0)
            self._complete_later(group, delay, partial(self._end_first, group, delay, left))
        elif group.has_all_joined:
            self._complete(group)
        else:
            self._complete_in_time(group)

    def _complete_in_time(self, group: ClassicGroup) -> None:
        delay = max(group.rebalance_timeout_ms, _SHORTEST_WAIT_MS)
        self._complete_later(group, delay, partial(self._complete, group))

    def _complete_later(
        self, group: ClassicGroup, delay_ms: int, action: Callable[[], None]
    ) -> None:
        self._timers.schedule(("join", group.name), delay_ms, self._accounted(group, action))

    def stop_syncs(self, group: ClassicGroup) -> None:
        """Wait no longer for members to ask for their assignment."""
        self._timers.cancel(("sync", group.name))

    def stop_heartbeat(self, group: ClassicGroup, member_id: str) -> None:
        self._timers.cancel(("heartbeat", group.name, member_id))

    def _accounted(self, group: ClassicGroup, action: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            # A group of this name may have been forgotten and made again since.
            if self.groups.get(group.name) is group:
                action()
                self.account(group.name)

        return run

    def _end_first(self, group: ClassicGroup, delay_ms: int, left_ms: int) -> None:
        """End the first rebalance, or prolong it as long as members come."""
        if group.has_newcomer and left_ms:
            group.has_newcomer = False
            delay = min(self._limits.first_rebalance_ms, left_ms)
            left = max(left_ms - delay_ms, 0)
            self._complete_later(group, delay, partial(self._end_first, group, delay, left))
        else:
            self._complete(group)

    def complete_if_joined(self, group: ClassicGroup) -> None:
        """End the join phase if all have joined; the first one of a group ends by its timer."""
        if group.state != State.PREPARING_REBALANCE or group.previous_state == State.EMPTY:
            return
        if group.has_all_joined:
            self._complete(group)

    def _complete(self, group: ClassicGroup) -> None:
        """End the join phase: who has not joined is out, all others are told the generation."""
        self._timers.cancel(("join", group.name))
        late = [one for one in group.members.values() if one.join is None]
        for member in late:
            # A static member keeps its place until its session ends (KIP-345).
            if member.instance_id is None:
                group.remove(member.member_id)
                self.stop_heartbeat(group, member.member_id)
        # All who are left are static and silent.
        if group.members and not group.elect_joined_leader():
            self._complete_in_time(group)
            return
        group.next_generation()
        if group.state == State.EMPTY:
            return
        for member in group.members.values():
            member.answer_join(group.joined(member.member_id))
            self.expect_heartbeat(group, member.member_id, member.session_timeout_ms)
            member.is_new = False
            group.pending_syncs.add(member.member_id)
        expire = self._accounted(group, partial(self._expire_syncs, group, group.generation))
        self._timers.schedule(("sync", group.name), group.rebalance_timeout_ms, expire)

    def _expire_syncs(self, group: ClassicGroup, generation: int) -> None:
        if generation != group.generation or not group.pending_syncs or not group.can_rebalance:
            return
        for member_id in list(group.pending_syncs):
            group.remove(member_id)
            self.stop_heartbeat(group, member_id)
        self.prepare(group)

    def answer_syncs(self, group: ClassicGroup, code: ErrorCode = ErrorCode.NONE) -> None:
        """Answer all members that wait for their assignment."""
        for member in group.members.values():
            response = sync_response(code)
            if code == ErrorCode.NONE:
                response |= assigned(group, member)
            if member.answer_sync(response):
                self.expect_heartbeat(group, member.member_id, member.session_timeout_ms)

    def expect_heartbeat(self, group: ClassicGroup, member_id: str, within_ms: int) -> None:
        """Remove a member unless it shows that it lives within this time."""
        expire = self._accounted(group, partial(self._expire_member, group, member_id))
        self._timers.schedule(("heartbeat", group.name, member_id), within_ms, expire)

    def _expire_member(self, group: ClassicGroup, member_id: str) -> None:
        """Remove a member that has been silent for too long, or an id that was not used."""
        member = group.members.get(member_id)
        if member_id in group.pending_joins:
            group.remove(member_id)
            if group.state == State.PREPARING_REBALANCE and group.has_all_joined:
                self._complete(group)
        elif member is not None and not member.has_satisfied_heartbeat:
            self.remove(group, member)
            if group.state in (State.STABLE, State.COMPLETING_REBALANCE):
                self.begin_or_complete(group)
            elif group.state == State.PREPARING_REBALANCE and group.has_all_joined:
                self._complete(group)

    def remove(self, group: ClassicGroup, member: GroupMember) -> None:
        """Remove a member; one that waits is told that it is none."""
        member.answer_join(join_response("", ErrorCode.UNKNOWN_MEMBER_ID))
        member.answer_sync(sync_response(ErrorCode.UNKNOWN_MEMBER_ID))
        group.remove(member.member_id)


def assigned(group: ClassicGroup, member: GroupMember) -> Fields:
    return {
        "protocolType": group.protocol_type,
        "protocolName": group.protocol_name,
        "assignment": member.assignment,
    }
