"""Replays of generated appends, and a full recount per append."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog.change.roll.replay import Replay, RollSettings, SimulatedSegment
from kafkalog.model import Batch
from tests.sampling import examples

if TYPE_CHECKING:
    from collections.abc import Sequence

BASE = 5


def batch(offset: int, size: int, timestamp: int, count: int = 1, magic: int = 2) -> Batch:
    return Batch(
        path="", position=0, size_bytes=size, base_offset=offset, last_offset=offset + count - 1,
        magic=magic, attributes=0, crc=0, leader_epoch=0, base_timestamp=timestamp,
        max_timestamp=timestamp, producer_id=-1, producer_epoch=-1, base_sequence=-1, records=count,
    )  # fmt: skip


extreme = st.sampled_from((-(2**63), -(2**63) + 7, 2**63 - 1, 2**63 - 20, -2, 2**62))


def of_java(number: int) -> int:
    """Wrap the number as a Java `long` does."""
    return int.from_bytes((number % 2**64).to_bytes(8), signed=True)


@st.composite
def appends(draw: st.DrawFn) -> list[Batch]:
    found, offset = [], BASE
    near = st.integers(0, 3)
    steps = st.one_of(near, near, near, near, st.just(2**31 - 2), st.just(2**31))
    for _ in range(draw(st.integers(0, 40))):
        offset += draw(steps)
        count = draw(st.integers(1, 4))
        stamp = draw(st.one_of(st.integers(0, 60), st.integers(0, 60), st.just(-1), extreme))
        found.append(batch(offset, draw(st.integers(1, 30)), stamp, count))
        offset += count
    return found


limits = st.builds(
    RollSettings,
    segment_bytes=st.integers(20, 120),
    segment_ms=st.integers(1, 60),
    segment_jitter_ms=st.just(0),
    segment_index_bytes=st.one_of(st.integers(4, 80), st.just(10_000)),
    index_interval_bytes=st.integers(0, 60),
)


def entries(batches: Sequence[Batch], interval: int) -> tuple[int, list[int]]:
    """Return the offset index entries and the time index timestamps for a segment's batches."""
    count, stamps = 0, []
    distance = 0
    for number, one in enumerate(batches):
        if distance > interval:
            count += 1
            largest = max(before.max_timestamp for before in batches[: number + 1])
            if largest > max(stamps, default=-1):
                stamps.append(largest)
            distance = 0
        distance += one.size_bytes
    return count, stamps


def counted(batches: Sequence[Batch], given: RollSettings, jitters: list[int]) -> list[tuple]:
    """Return per segment: base offset, offsets, why it ended, sizes of both indexes."""
    segments: list[tuple[int, list[Batch], str]] = [(BASE, [], "")]
    rolls = 0
    for one in batches:
        if one.size_bytes > given.segment_bytes:
            continue
        base, held, _ = segments[-1]
        count, stamps = entries(held, given.index_interval_bytes)
        why = ""
        limit = given.segment_ms - jitters[rolls % len(jitters)]
        if sum(other.size_bytes for other in held) + one.size_bytes > given.segment_bytes:
            why = "segment.bytes"
        elif (
            held
            and held[0].max_timestamp >= 0
            and of_java(one.max_timestamp - held[0].max_timestamp) > limit
        ):
            why = "segment.ms"
        elif (
            count == given.segment_index_bytes // 8
            or len(stamps) >= given.segment_index_bytes // 12 - 1
        ):
            why = "segment.index.bytes"
        elif one.last_offset - base >= 2**31:
            why = "offset-range"
        if why:
            rolls += 1
            if one.base_offset != base or held:
                segments[-1] = (base, held, why)
                segments.append((one.base_offset, [], ""))
        segments[-1][1].append(one)
    found = []
    for base, held, why in segments:
        count, stamps = entries(held, given.index_interval_bytes)
        largest = max((-1, *(one.max_timestamp for one in held)))
        if why and largest > max(stamps, default=-1):
            stamps.append(largest)
        size = sum(one.size_bytes for one in held)
        found.append((base, len(held), size, count, len(stamps), why))
    return found


def told(segments: list[SimulatedSegment]) -> list[tuple]:
    return [
        (
            one.base_offset,
            one.batches,
            one.size_bytes,
            one.index_entries,
            one.timeindex_entries,
            str(one.rolled_by or ""),
        )
        for one in segments
    ]


@settings(max_examples=examples(800))
@given(appends(), limits, st.lists(st.integers(0, 5), min_size=1, max_size=4))
def test_a_replay_is_what_counting_gives(
    batches: list[Batch], given: RollSettings, jitters: list[int]
) -> None:
    """Each segment is recounted from its batches with the rules of the specification."""
    replay = Replay(given, BASE, cycle(jitters))
    for one in batches:
        replay.append((one,))
    assert told(replay.segments()) == counted(batches, given, jitters)


def test_a_timestamp_far_below_the_first_one_rolls() -> None:
    """-2^63 minus today's time is positive in a `long`: `LogSegment.shouldRoll` returns true."""
    given = RollSettings(segment_bytes=1000, segment_ms=10**9)
    batches = [batch(BASE, 10, 1_700_000_000_000), batch(BASE + 1, 10, -(2**63))]
    replay = Replay(given, BASE)
    for one in batches:
        replay.append((one,))
    assert [str(one.rolled_by) for one in replay.segments()] == ["segment.ms", "None"]


def test_an_old_message_begins_a_segment_at_the_log_end() -> None:
    """Only a wrapper's last offset is known, so the new base offset is the log end."""
    given = RollSettings(segment_bytes=10, segment_ms=1000)
    old = [batch(BASE, 10, 0, magic=1), batch(BASE + 9, 10, 0, magic=1)]
    replay = Replay(given, BASE)
    for one in old:
        replay.append((one,))
    assert [one.base_offset for one in replay.segments()] == [BASE, BASE + 1]


def test_index_files_are_whole_entries() -> None:
    """75 bytes hold 9 offset entries or 6 time entries (72 bytes); a rolled index is trimmed."""
    given = RollSettings(
        segment_bytes=100, segment_ms=10**9, segment_index_bytes=75, index_interval_bytes=0,
        preallocate=True,
    )  # fmt: skip
    replay = Replay(given, BASE)
    for number in range(6):
        replay.append((batch(BASE + number, 25, number),))
    ended, active = replay.segments()
    assert (ended.index_bytes(given), ended.timeindex_bytes(given)) == (3 * 8, 3 * 12)
    assert (active.index_bytes(given), active.timeindex_bytes(given)) == (72, 72)
    assert (ended.file_size_bytes(given), active.file_size_bytes(given)) == (100, 100)
    assert active.size_bytes == 50
