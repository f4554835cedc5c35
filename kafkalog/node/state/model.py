"""Groups, their members and offsets, and a moment in the life of their topic."""

from __future__ import annotations

import re
from dataclasses import field
from datetime import UTC
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from formats.late_classes import dataclass
from kafkalog.errors import EventKind
from kafkalog.io.rows import Rows
from kafkalog.io.times import milliseconds, parse_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import tzinfo

    from kafkalog.files.offsets import PartitionOffsets
    from kafkalog.io.times import Time
    from kafkalog.node.state.coordinators import InternalTopic
    from kafkalog.node.state.offset_rows import GroupOffsets
    from kafkalog.node.state.share_groups import ShareOffsets


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """A committed offset of a group.

    Attributes:
        group, topic, partition: whose.
        offset: the next one to read; None if newer commits have replaced it and compaction may
            have removed it.
        leader_epoch: of the last record that was consumed, -1 if not known.
        metadata: what the client added.
        commit_timestamp: when, by the group coordinator's clock.
        expire_timestamp: when it expires, for the few clients that said so.
        record_offset: of its record in `coordinator`.
        coordinator: the partition of `__consumer_offsets`.
        producer_id: of the open transaction it belongs to; None if it counts.
        is_exact: whether compaction cannot have removed an older commit that counted then.
        is_complete: whether all of the partition's log could be read.
        is_share: whether it is where a share partition starts, and `coordinator` is a partition of
            `__share_group_state`.
        delivered: records from there on that need no delivery any more; None if it is not known.
    """

    _row = (
        "group_id=group", "topic", "partition", "offset", "leader_epoch", "metadata",
        "commit_timestamp", "expire_timestamp", "pending=is_pending", "producer_id", "coordinator",
        "record_offset", "exact=is_exact", "complete=is_complete",
    )  # fmt: skip

    group: str
    topic: str
    partition: int
    offset: int | None
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int | None
    record_offset: int
    coordinator: int
    producer_id: int | None = None
    is_exact: bool = True
    is_complete: bool = True
    is_share: bool = False
    delivered: int | None = 0

    @property
    def is_pending(self) -> bool:
        """Whether it belongs to an open transaction."""
        return self.producer_id is not None


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a group; `instance_id` and `member_epoch` are None where its group has none.

    Attributes:
        assigned: the partitions that it owns, such as `orders-0`, with the topic's id if its name
            is not known; the active tasks in a streams group, such as `0_2`.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    member_epoch: int | None
    assigned: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """A group, with its members and offsets.

    Attributes:
        name: its id.
        kind: `classic`, `consumer`, `share` or `streams`.
        state: as an admin client is told; `Stable` of a classic group may be rebalancing.
        group_epoch: group epoch, or generation of a classic group; -1 of one that only has offsets.
        protocol: assignor or protocol of a classic group, None elsewhere.
        coordinator: the partition of `__consumer_offsets` that it belongs to.
        members: by member id.
        offsets: by topic and partition, those of open transactions last.
        undecoded_records: how many of its records could not be decoded.
        protocol_type: what its members have in common, `consumer` mostly; "" if it never had any.
    """

    _row = (
        "group_id=name", "group_type=kind", "state", "group_epoch", "protocol", "coordinator",
        "undecoded_records",
    )  # fmt: skip

    name: str
    kind: str
    state: str
    group_epoch: int
    protocol: str | None
    coordinator: int
    members: tuple[Member, ...]
    offsets: GroupOffsets
    undecoded_records: int
    protocol_type: str = ""


@dataclass(frozen=True, slots=True)
class OffsetLag:
    """A committed offset, and the end offset of its partition; None if that is not known.

    Attributes:
        outside: how it lies outside the log, in words; None if it does not.
    """

    commit: GroupOffset
    log_end_offset: int | None
    outside: str | None = None

    @property
    def lag(self) -> int | None:
        """Records from the committed offset to the end; negative for an offset above it."""
        offset, delivered = self.commit.offset, self.commit.delivered
        if self.log_end_offset is None or offset is None or delivered is None:
            return None
        return self.log_end_offset - offset - delivered


def total_lag(offsets: Iterable[OffsetLag]) -> int | None:
    """Return the sum over offsets that count; None if an end offset is not known."""
    lags = [one.lag for one in offsets if not one.commit.is_pending]
    return None if None in lags else sum(filter(None, lags))


class Moment(NamedTuple):
    """A moment in the life of `__consumer_offsets`.

    Attributes:
        time_ms: what was appended before the first batch with a later timestamp counts.
        partition, offset: or what lies below an offset of one partition, and all of the others.
    """

    time_ms: int | None = None
    partition: int = -1
    offset: int = 0


def moment_of(at: Time | Moment | None) -> Moment | None:
    """Return the moment of a time, or of the text `P@OFFSET`."""
    if at is None or isinstance(at, Moment):
        return at
    return parse_moment(at) if isinstance(at, str) else Moment(milliseconds(at))


def parse_moment(text: str, now: str | None = None, zone: tzinfo = UTC) -> Moment:
    """Return the moment that `TIME` or `P@OFFSET` names; raises as `parse_time`."""
    if match := re.fullmatch(r"([0-9]{1,9})@([0-9]{1,18})", text):
        return Moment(partition=int(match[1]), offset=int(match[2]))
    return Moment(parse_time(text, now, zone))


@dataclass(slots=True)
class Groups:
    """What all partitions of `__consumer_offsets` hold.

    Attributes:
        groups: by name.
        topic: the replicas they were read from.
        incomplete: partitions whose log could not be read completely.
        undecoded: records whose key names no group that can be read.
        shares: what was read of share groups.
        cut: the offsets of its partitions that have records above their high watermarks.
    """

    kind = EventKind.NOTE

    groups: dict[str, Group]
    topic: InternalTopic
    shares: ShareOffsets
    incomplete: list[int] = field(default_factory=list)
    undecoded: int = 0
    cut: list[PartitionOffsets] = field(default_factory=list)

    @property
    def rows(self) -> Rows[Group]:
        """The groups, as a table."""
        return Rows(self.groups.values(), Group)

    @property
    def offsets(self) -> Rows[GroupOffset]:
        """The committed offsets of all groups, which may be millions, as a table."""
        groups = self.groups.values()
        return Rows(lambda: chain.from_iterable(one.offsets for one in groups), GroupOffset)

    def _repr_html_(self) -> str:
        return self.rows._repr_html_()

    @property
    def is_whole(self) -> bool:
        """Whether nothing is missing that could be of a group."""
        gaps = (self.topic.missing_count, self.incomplete, self.undecoded)
        shares = self.shares
        return not any((*gaps, shares.missing, shares.incomplete, shares.undecoded))


@dataclass(frozen=True, slots=True)
class OffsetChange:
    """A committed offset that differs between two moments; None if there was none."""

    group: str
    topic: str
    partition: int
    before: int | None
    after: int | None
    commit_timestamp: int | None

    @property
    def change(self) -> str:
        """What happened: `added`, `removed` or `changed`."""
        if self.before is None:
            return "added"
        return "removed" if self.after is None else "changed"


def changed_offsets(before: Groups, after: Groups) -> Iterator[OffsetChange]:
    """Yield the committed offsets that differ, by group, topic and partition."""
    old, new = _offsets_by_name(before), _offsets_by_name(after)
    for name in sorted({*old, *new}):
        was, now = old.get(name), new.get(name)
        offsets = (was.offset if was else None, now.offset if now else None)
        if offsets[0] != offsets[1]:
            yield OffsetChange(*name, *offsets, now.commit_timestamp if now else None)


def _offsets_by_name(found: Groups) -> dict[tuple[str, str, int], GroupOffset]:
    return {
        (one.group, one.topic, one.partition): one
        for group in found.groups.values()
        for one in group.offsets
        if not one.is_pending
    }
