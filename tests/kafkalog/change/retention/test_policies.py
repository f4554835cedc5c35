"""Retention of generated logs, compared with a plain simulation that deletes segment by segment."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog.change.retention import (
    Blocker,
    LogFacts,
    Policy,
    Reason,
    SegmentFacts,
    forecast,
    judge_segments,
    run_policies,
)
from tests.sampling import examples

NOW = 1_000
DAY = 86_400_000


@dataclass
class Plain:
    """A log as lists, written from the specification; it shares nothing with kafkalog."""

    bases: list[int]
    sizes: list[int]
    stamps: list[int]
    start: int
    watermark: int
    end: int

    def front_goes(self, wanted: bool) -> bool:
        upper = self.bases[1] if len(self.bases) > 1 else self.end
        is_empty_last = len(self.bases) == 1 and self.sizes[0] == 0
        return wanted and self.watermark >= upper and not is_empty_last

    def drop(self) -> int:
        self.sizes.pop(0)
        self.stamps.pop(0)
        return self.bases.pop(0)

    def settle(self, now: int) -> None:
        if not self.bases:
            self.bases, self.sizes, self.stamps = [self.end], [0], [now]
        self.start = max(self.start, self.bases[0])

    def run(self, policy: Policy, now: int) -> list[tuple[int, str]]:
        gone = []
        while len(self.bases) > 1 and self.front_goes(self.bases[1] <= self.start):
            gone.append((self.drop(), "log-start-offset"))
        self.settle(now)
        if not policy.deletes:
            return gone
        while self.bases and policy.retention_bytes >= 0:
            left = sum(self.sizes[1:])
            if not self.front_goes(left >= policy.retention_bytes):
                break
            gone.append((self.drop(), "retention.bytes"))
        self.settle(now)
        while self.bases and policy.retention_ms >= 0:
            if not self.front_goes(now - self.stamps[0] > policy.retention_ms):
                break
            gone.append((self.drop(), "retention.ms"))
        self.settle(now)
        return gone


@st.composite
def logs(draw: st.DrawFn) -> LogFacts:
    count = draw(st.integers(1, 7))
    steps = draw(st.lists(st.integers(1, 5), min_size=count, max_size=count))
    first = draw(st.integers(0, 3))
    bases = [first + sum(steps[:i]) for i in range(count)]
    sizes = draw(st.lists(st.integers(1, 9), min_size=count, max_size=count))
    if draw(st.booleans()):
        sizes[-1] = 0
    end = bases[-1] if sizes[-1] == 0 else bases[-1] + steps[-1]
    stamps = draw(st.lists(st.integers(NOW - 40, NOW + 20), min_size=count, max_size=count))
    start = draw(st.integers(first, end))
    return LogFacts(
        segments=tuple(map(SegmentFacts, bases, sizes, stamps)),
        log_start_offset=start,
        high_watermark=draw(st.integers(start, end)),
        log_end_offset=end,
    )


policies = st.builds(
    Policy,
    deletes=st.booleans(),
    retention_ms=st.integers(-1, 40),
    retention_bytes=st.integers(-1, 40),
)


def plain(log: LogFacts) -> Plain:
    return Plain(
        [one.base_offset for one in log.segments],
        [one.size_bytes for one in log.segments],
        [one.max_timestamp for one in log.segments],
        log.log_start_offset,
        log.high_watermark,
        log.log_end_offset,
    )


@settings(max_examples=examples(600))
@given(logs(), policies)
def test_a_run_is_the_plain_simulation(log: LogFacts, policy: Policy) -> None:
    """The same segments are deleted, for the same reasons, and the same log remains."""
    naive = plain(log)
    gone = naive.run(policy, NOW)
    outcome = run_policies(log, policy, NOW)
    assert [(one.segment.base_offset, one.reason) for one in outcome.deleted] == gone
    assert plain(outcome.log) == naive
    assert outcome.rolled == (len(gone) == len(log.segments))


@settings(max_examples=examples(600))
@given(logs(), policies)
def test_verdicts_come_true(log: LogFacts, policy: Policy) -> None:
    """A segment goes at `deletable_timestamp`, not earlier; without one, time never deletes it."""
    verdicts = judge_segments(log, policy, run_policies(log, policy, NOW), NOW)
    assert [one.segment for one in verdicts] == list(log.segments)
    alive = plain(log)
    alive.run(policy, NOW)
    times = {
        one.segment.base_offset: one.deletable_timestamp for one in verdicts if not one.is_deleted
    }
    for now in range(NOW, NOW + 70):
        alive.run(policy, now)
        left = set(alive.bases)
        for base, at in times.items():
            assert (base in left) == (at is None or now < at or base == alive.end)


@settings(max_examples=examples(300))
@given(logs(), policies)
def test_bytes_to_append_come_true(log: LogFacts, policy: Policy) -> None:
    """After that many bytes the size policy deletes the segment; one byte earlier it does not."""
    outcome = run_policies(log, policy, NOW)
    for verdict in judge_segments(log, policy, outcome, NOW):
        if verdict.is_deleted or verdict.remaining_bytes is None:
            continue
        for bytes_more in {max(verdict.remaining_bytes - 1, 0), verdict.remaining_bytes}:
            active = outcome.log.segments[-1]
            grown = replace(active, size_bytes=active.size_bytes + bytes_more)
            later = replace(
                outcome.log,
                segments=(*outcome.log.segments[:-1], grown),
                high_watermark=outcome.log.log_end_offset,
            )
            gone = run_policies(later, replace(policy, retention_ms=-1), NOW).deleted
            bases = [one.segment.base_offset for one in gone]
            goes = verdict.segment.base_offset in bases
            below_start = verdict.upper_bound <= log.log_start_offset
            assert goes == (bytes_more >= verdict.remaining_bytes or below_start)


@settings(max_examples=examples(300))
@given(logs(), policies)
def test_blocked_segments_go_without_what_blocks_them(log: LogFacts, policy: Policy) -> None:
    """A blocked segment goes once all is replicated, or once the segment that blocks it is gone."""
    for verdict in judge_segments(log, policy, run_policies(log, policy, NOW), NOW):
        if verdict.blocked_by is None:
            assert verdict.reason != Reason.BLOCKED
            continue
        base = verdict.segment.base_offset
        left = run_policies(log, policy, NOW).log
        if verdict.blocked_by == Blocker.HIGH_WATERMARK:
            left = replace(left, high_watermark=left.log_end_offset)
        elif verdict.blocked_by == Blocker.SEGMENT:
            assert verdict.blocking_segment is not None
            assert verdict.deletable_timestamp is not None
            assert verdict.blocking_segment < base
        alone = tuple(one for one in left.segments if one.base_offset >= base)
        gone = run_policies(replace(left, segments=alone), policy, NOW).deleted
        assert base in [one.segment.base_offset for one in gone]


@settings(max_examples=examples(200))
@given(logs(), policies, st.integers(1, 5))
def test_the_forecast_adds_up(log: LogFacts, policy: Policy, days: int) -> None:
    """Every segment that time deletes within the forecast is counted on exactly one of its days."""
    slow = replace(policy, retention_ms=policy.retention_ms * (DAY // 10))
    verdicts = judge_segments(log, slow, run_policies(log, slow, NOW), NOW)
    until = NOW + days * DAY
    found = forecast(verdicts, NOW, until)
    due = [
        one
        for one in verdicts
        if not one.is_deleted
        and one.deletable_timestamp is not None
        and one.deletable_timestamp <= until
    ]
    assert sum(day.segments for day in found) == len(due)
    assert sum(day.freed_bytes for day in found) == sum(one.segment.size_bytes for one in due)
    for day in found:
        assert day.to_ms - day.from_ms == DAY
        assert (day.from_ms - NOW) % DAY == 0


def test_what_is_not_looked_after_stays() -> None:
    """A log that no policy runs on keeps everything, whatever its configs say."""
    log = LogFacts((SegmentFacts(0, 5, 0), SegmentFacts(5, 5, 0)), 5, 9, 9)
    policy = Policy(retention_ms=0, retention_bytes=0, inert=Reason.CLEANER_DISABLED)
    outcome = run_policies(log, policy, NOW)
    assert not outcome.deleted
    reasons = {one.reason for one in judge_segments(log, policy, outcome, NOW)}
    assert reasons == {Reason.CLEANER_DISABLED}


def test_tiered_segments_wait_for_their_upload() -> None:
    """Segments below the log start go; for the rest, nothing on disk says what was uploaded."""
    segments = tuple(SegmentFacts(base, 5, 0) for base in (0, 5, 10))
    log = LogFacts(segments, 7, 15, 15)
    policy = Policy(retention_ms=0, is_tiered=True)
    outcome = run_policies(log, policy, NOW)
    assert [one.segment.base_offset for one in outcome.deleted] == [0]
    kept = judge_segments(log, policy, outcome, NOW)[1:]
    assert [one.blocked_by for one in kept] == [Blocker.REMOTE_STORAGE] * 2
    assert [one.deletable_timestamp for one in kept] == [None] * 2
