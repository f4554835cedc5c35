"""Where the segments of a partition lie in time, and what happens to them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kafkalog.retention.model import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kafkalog.overview.model import PartitionFacts
    from kafkalog.retention.model import Verdict

BARS_MAX: Final = 4000
"""About how many segments are drawn: neighbours are drawn together where there are more."""
DAY_MS: Final = 86_400_000
_DETAIL_MAX: Final = 300
_BLOCKED: Final = "blocked"


@dataclass(frozen=True, slots=True)
class Bar:
    """A segment, or neighbouring segments with the same fate, over time.

    Attributes:
        start_ms, end_ms: timestamp of the first batch, and the largest timestamp.
        fate: what retention does to it.
        count: number of segments.
        base_offset, end_offset: offset of the first record, and after the last.
        size_bytes: size of the logs.
        why: what blocks its deletion.
    """

    start_ms: int
    end_ms: int
    fate: str
    count: int
    base_offset: int
    end_offset: int
    size_bytes: int
    why: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A mark on a lane: the log start, the high watermark, or findings."""

    time_ms: int
    what: str
    detail: str


def fate_of(verdict: Verdict, now_ms: int) -> str:
    """Return what retention does to a segment, in a few words."""
    if verdict.is_deleted:
        return "deleted now"
    if verdict.reason == Reason.BLOCKED:
        return _BLOCKED
    if verdict.deletable_at is not None and verdict.deletable_at <= now_ms + DAY_MS:
        return "goes within 24 h"
    return "active" if verdict.is_active else "stays"


def bars_of(partition: PartitionFacts, now_ms: int, count_max: int) -> Iterator[Bar]:
    """Yield the bars of a partition; segments without a usable timestamp have none.

    Args:
        partition: the partition.
        now_ms: the clock; timestamps more than a day later are not usable.
        count_max: about how many bars at most.
    """
    placed = list(_placed(partition, now_ms))
    per_bar = -(-len(placed) // count_max)
    run: list[tuple[int, int, Verdict]] = []
    for one in placed:
        is_other = run and fate_of(run[-1][2], now_ms) != fate_of(one[2], now_ms)
        if run and (is_other or len(run) >= per_bar):
            yield _bar(run, now_ms)
            run = []
        run.append(one)
    if run:
        yield _bar(run, now_ms)


def _placed(partition: PartitionFacts, now_ms: int) -> Iterator[tuple[int, int, Verdict]]:
    """Yield the segments with the times at which they begin and end."""
    if partition.retention is None:
        return
    contents = {one.base_offset: one for one in partition.contents}
    for verdict in partition.retention.verdicts:
        known = contents.get(verdict.segment.base_offset)
        if known is None or known.first_timestamp is None or known.last_timestamp is None:
            continue
        if known.first_timestamp > 0 and known.last_timestamp <= now_ms + DAY_MS:
            yield known.first_timestamp, known.last_timestamp, verdict


def _bar(run: Sequence[tuple[int, int, Verdict]], now_ms: int) -> Bar:
    first, last = run[0][2], run[-1][2]
    fate = fate_of(last, now_ms)
    return Bar(
        start_ms=min(start for start, _, _ in run),
        end_ms=max(end for _, end, _ in run),
        fate=fate,
        count=len(run),
        base_offset=first.segment.base_offset,
        end_offset=last.upper_bound,
        size_bytes=sum(verdict.segment.size_bytes for _, _, verdict in run),
        why=last.detail[:_DETAIL_MAX] if fate == _BLOCKED else "",
    )


def marks_of(
    partition: PartitionFacts, findings: Mapping[str, Sequence[str]], now_ms: int
) -> Iterator[Mark]:
    """Yield log start, high watermark and the findings of a partition, where they lie in time.

    An offset within a segment is placed in proportion, between its first and last timestamp.

    Args:
        partition: the partition.
        findings: path of a file to the references of its findings.
        now_ms: the clock.
    """
    placed = list(_placed(partition, now_ms))
    if not placed:
        return
    start, mark = partition.listed.log_start_offset, partition.listed.high_watermark
    for offset, what in ((start, "log start"), (mark, "high watermark")):
        if offset is not None:
            time_ms = _time_of(offset, placed)
            if time_ms is not None:
                yield Mark(time_ms, what, str(offset))
    for begin_ms, _, verdict in placed:
        stem = os.path.splitext(verdict.segment.path)[0]
        found = [
            reference
            for suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
            for reference in findings.get(stem + suffix, ())
        ]
        if found:
            yield Mark(begin_ms, "finding", ", ".join(dict.fromkeys(found)))


def _time_of(offset: int, placed: Sequence[tuple[int, int, Verdict]]) -> int | None:
    for begin_ms, end_ms, verdict in placed:
        base = verdict.segment.base_offset
        if base <= offset <= verdict.upper_bound:
            length = max(verdict.upper_bound - base, 1)
            return begin_ms + (end_ms - begin_ms) * (offset - base) // length
    return None
