"""What a comparison of two copies of a partition says."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from formats.late_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalog.model import EpochEntry


class Verdict(StrEnum):
    """How two copies of a partition relate."""

    IDENTICAL = "identical"
    """The same bytes, from the later log start offset to the end of both."""
    BEHIND = "behind"
    """The same bytes up to the end of one; the other has more."""
    COMPACTED = "compacted"
    """Other bytes, but the same latest record of every key: one was compacted further."""
    DIFFERENT = "different"
    """Other records, or other headers of their batches."""
    MISSING = "missing"
    """Only one side has the partition."""
    OTHER_TOPIC = "other-topic"
    """The topic ids differ: the topic was deleted and created again, or these are two clusters."""
    UNREADABLE = "unreadable"
    """One of them could not be read."""


ALIKE = (Verdict.IDENTICAL, Verdict.COMPACTED)
"""Verdicts that are no difference."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of two copies.

    Attributes:
        log_start_offset: its first readable offset.
        log_end_offset: the offset that its next record would get.
        high_watermark: from the checkpoint; None if it has no entry.
        epochs: its leader epochs with their start offsets, ascending.
        topic_id: from `partition.metadata`; None if it is missing or cannot be read.
    """

    _row = (
        "path", "log_start_offset", "log_end_offset", "high_watermark", "leader_epoch=last_epoch",
        "topic_id",
    )  # fmt: skip

    path: str
    log_start_offset: int
    log_end_offset: int
    high_watermark: int | None
    epochs: tuple[EpochEntry, ...]
    topic_id: str | None

    @property
    def last_epoch(self) -> int:
        """Its latest leader epoch, -1 if it knows none."""
        return self.epochs[-1].leader_epoch if self.epochs else -1


@dataclass(frozen=True, slots=True)
class FieldDifference:
    """A field that differs: of a `batch` header, or of a `record`; None where a side has none."""

    level: str
    name: str
    left: object
    right: object


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """The first place at which two logs differ.

    Attributes:
        offset: base offset of the batch, the smaller one of both.
        left_path, left_position: where the left log has it; None after its end.
        right_path, right_position: where the right log has it.
        fields: what differs, batch headers first; empty where only one log goes on.
    """

    offset: int
    left_path: str | None
    left_position: int | None
    right_path: str | None
    right_position: int | None
    fields: tuple[FieldDifference, ...] = ()


@dataclass(frozen=True, slots=True)
class Truncation:
    """What a broker would cut off if the more recent copy led.

    Attributes:
        leader: `left` or `right`: the copy with the later leader epoch, then with the later end.
        follower: the other one.
        offset: where the follower cuts its log; None if it keeps all of it.
        last_common_leader_epoch: the latest leader epoch that both know; None without one.
    """

    leader: str
    follower: str
    offset: int | None
    last_common_leader_epoch: int | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two copies of a partition.

    Attributes:
        topic, partition: of the left one, or of the one that there is.
        verdict: how they relate.
        left, right: the copies; None if a side does not have the partition.
        identical_up_to: all batches below are the same; None if nothing was compared.
        first: the first difference; None if there is none.
        truncation: None unless both have leader epochs or one has to cut.
        left_only_records, right_only_records: number of records that only this side has.
        differing: number of records that both have at an offset, but not the same.
    """

    _in_repr = ("topic", "partition", "verdict", "identical_up_to", "differing")
    _row = (
        "topic", "partition", "verdict", "left", "right", "identical_up_to", "left_only_records",
        "right_only_records", "differing",
    )  # fmt: skip

    topic: str
    partition: int | None
    verdict: Verdict
    left: Side | None
    right: Side | None
    identical_up_to: int | None = None
    first: FirstDifference | None = None
    truncation: Truncation | None = None
    left_only_records: int = 0
    right_only_records: int = 0
    differing: int = 0


@dataclass(frozen=True, slots=True)
class RecordDifference:
    """A record that only one side has, or that differs.

    Attributes:
        topic, partition, offset: which record.
        left, right: timestamp, key, value and headers; None on a side that does not have it.
        is_above_high_watermark: whether it is at or above the high watermark of a side that has it.
    """

    topic: str
    partition: int | None
    offset: int
    left: Mapping[str, object] | None
    right: Mapping[str, object] | None
    is_above_high_watermark: bool
