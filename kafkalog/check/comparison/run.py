"""Compares the copies of partitions that several places have.

Each path is a side: a partition, a log directory, or the parent of the log directories of a broker
or of a backup. The first one is compared with each of the others.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from dataclasses import field
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from formats import file_names
from formats.file_names import DirectoryState, is_staging
from formats.late_classes import dataclass
from kafkalog.check.comparison.model import Comparison, RecordDifference, Side, Truncation, Verdict
from kafkalog.errors import (
    GoneError,
    KafkaLogError,
    Listener,
    ShortageError,
    UsageError,
    contained,
)
from kafkalog.files.log_dir import FileEntry, LogDirListing
from kafkalog.io.jit.fast_path import require_arrow
from kafkalog.io.paths.reading_errors import unread_places
from kafkalog.io.rows import Rows
from kafkalog.log.events import reporting
from kafkalog.log.living import answered, listed_again
from kafkalog.model import LogView, Severity, named_member
from kafkalog.node.identity import topic_id_of
from kafkalog.node.targets import open_targets, require_topics, topics_of, unlisted_of
from kafkalog.node.unified_log import UnifiedLog
from kafkalog.node.view import show_now

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from kafkalog.check.comparison.walk import Prefix
    from kafkalog.errors import DataError, OnEvent
    from kafkalog.files.log_dir import PartitionDir
    from kafkalog.model import Defect
    from kafkalog.node.outcome import View
    from kafkalog.node.targets import Target

    Copies = dict[tuple[str, int | None], PartitionDir]


@dataclass(frozen=True, slots=True)
class Pair:
    """The copies of one partition on two sides; None if a side does not have it.

    Attributes:
        error: why one of them cannot be listed.
    """

    left: PartitionDir | None
    right: PartitionDir | None
    error: DataError | None = None

    @property
    def partition(self) -> PartitionDir:
        """The copy that there is, the left one if there are two."""
        found = self.left or self.right
        assert found is not None, "one of them is there"
        return found


@dataclass
class Comparer:
    """Compares pairs of partition directories.

    Attributes:
        listener: hears of defects, of views that differ from files, and of copies that cannot be
            read.
    """

    view: LogView = LogView.RECOVERED
    listener: Listener = field(default_factory=Listener)
    progress: Callable[[int], None] | None = None
    _shown: dict[str, View] = field(default_factory=dict, repr=False)
    _met: list[Defect] = field(default_factory=list, repr=False)

    def compare(self, pair: Pair) -> Comparison:
        """Return how two copies relate; what goes wrong concerns only them."""
        one = pair.partition
        found = Comparison(one.topic, one.partition, Verdict.UNREADABLE, None, None)
        with contained(one.path, self.listener.hear):
            if pair.error is not None:
                raise pair.error
            found = answered(partial(self._asked, pair), lambda: self._asked(_as_now(pair)))
        self._shown.clear()
        return found

    def _asked(self, pair: Pair) -> Comparison:
        self._shown.clear()
        self._met = []
        found = self._compare(pair)
        for defect in self._met:  # not of a listing that was given up
            self.listener.hear(defect)
        return found

    def _compare(self, pair: Pair) -> Comparison:
        topic, number = pair.partition.topic, pair.partition.partition
        left = None if pair.left is None else self._side(pair.left)
        right = None if pair.right is None else self._side(pair.right)
        if left is None or right is None or pair.left is None or pair.right is None:
            return Comparison(topic, number, Verdict.MISSING, left, right)
        if None not in (left.topic_id, right.topic_id) and left.topic_id != right.topic_id:
            return Comparison(topic, number, Verdict.OTHER_TOPIC, left, right)
        shown = self._show(pair.left), self._show(pair.right)
        return self._compared(topic, number, (left, right), *shown)

    def records(self, pair: Pair, found: Comparison) -> Iterator[RecordDifference]:
        """Yield the records that only one side of a comparison has, or that differ, by offset."""
        from kafkalog.check.comparison.records import windows

        if found.first is None or pair.left is None or pair.right is None:
            return
        assert found.left is not None, "both were compared"
        assert found.right is not None, "both were compared"
        marks = [found.left.high_watermark, found.right.high_watermark]
        try:
            for window in windows(self._show(pair.left), self._show(pair.right),
                                  _start_of(found), lambda _: None):  # fmt: skip
                rows = [(row, None) for row in window.left.to_pylist()]
                rows += [(None, row) for row in window.right.to_pylist()]
                rows += zip(*(table.to_pylist() for table in window.differing), strict=True)
                for left, right in sorted(rows, key=_offset_of):
                    offset = _offset_of((left, right))
                    is_above = any(
                        row is not None and mark is not None and offset >= mark
                        for row, mark in zip((left, right), marks, strict=True)
                    )
                    yield RecordDifference(found.topic, found.partition, offset, left, right,
                                           is_above)  # fmt: skip
        except ShortageError:
            raise
        except KafkaLogError as error:
            self.listener.hear(error)
        finally:
            self._shown.clear()

    def _show(self, partition: PartitionDir) -> View:
        if partition.path not in self._shown:
            shown = self._shown[partition.path] = show_now(partition, self.view)
            if shown.difference is not None:
                self.listener.hear(shown.difference)
        return self._shown[partition.path]

    def _side(self, partition: PartitionDir) -> Side:
        log = UnifiedLog(self._show(partition).partition)
        # What a follower goes back to, whatever a leader would compute.
        noted = log.checkpoint(file_names.HIGH_WATERMARKS)
        return Side(
            partition.path,
            log.log_start_offset,
            log.log_end_offset,
            None if noted is None else max(log.log_start_offset, min(noted, log.log_end_offset)),
            log.leader_epochs,
            topic_id_of(partition),
        )

    def _compared(
        self, topic: str, number: int | None, sides: tuple[Side, Side], one: View, other: View
    ) -> Comparison:
        from kafkalog.check.comparison.walk import common_prefix

        left, right = sides
        start = max(left.log_start_offset, right.log_start_offset)
        with unread_places() as unread:
            prefix = common_prefix(one.segments, other.segments, start, self.progress)
        truncation = _truncation(left, right)
        if prefix.first is None:
            return Comparison(topic, number, Verdict.IDENTICAL, left, right, prefix.end_offset,
                              truncation=truncation)  # fmt: skip
        counts, is_damaged = self._counts(one, other, prefix)
        if unread and not is_damaged:  # what a disk did not give the first time is no difference
            raise unread.error()
        verdict = Verdict.DIFFERENT
        if not (prefix.is_odd or is_damaged or counts["differing"]):
            verdict = self._verdict(sides, one, other, prefix, start)
        is_common = start < min(left.log_end_offset, right.log_end_offset)
        same_up_to = prefix.end_offset if is_common else None
        return Comparison(topic, number, verdict, left, right, same_up_to, prefix.first,
                          truncation, **counts)  # fmt: skip

    def _counts(self, one: View, other: View, prefix: Prefix) -> tuple[Counter[str], bool]:
        """Count the records that differ; return whether damage was met, too."""
        require_arrow()
        from kafkalog.check.comparison.records import windows

        damage = False

        def met(defect: Defect) -> None:
            nonlocal damage
            damage |= defect.severity == Severity.DAMAGE and defect.reference != "torn-tail"
            self._met.append(defect)

        counts = Counter(left_only_records=0, right_only_records=0, differing=0)
        for window in windows(one, other, prefix.end_offset, met):
            counts["left_only_records"] += window.left.num_rows
            counts["right_only_records"] += window.right.num_rows
            counts["differing"] += window.differing[0].num_rows
        return counts, damage

    def _verdict(
        self, sides: tuple[Side, Side], one: View, other: View, prefix: Prefix, start: int
    ) -> Verdict:
        from kafkalog.check.comparison.records import fits_compaction, same_latest_records

        first = prefix.first
        assert first is not None, "they differ"
        if None in (first.left_position, first.right_position):
            return Verdict.BEHIND
        end = min(side.log_end_offset for side in sides)
        if (
            fits_compaction(one, other, prefix.end_offset)
            and same_latest_records(one, other, start, end, lambda _: None)
            and not (_lost(one) or _lost(other))
        ):
            return Verdict.COMPACTED
        return Verdict.DIFFERENT


def _lost(view: View) -> bool:
    """Return whether a log lacks offsets that no cleaner took, as `verify` judges it."""
    from kafkalog.check.segments import lacks_offsets

    return lacks_offsets(view.partition, view.segments)


def _as_now(pair: Pair) -> Pair:
    """List both sides again; one that a broker has deleted since is missing."""

    def listed(one: PartitionDir | None) -> PartitionDir | None:
        with suppress(GoneError):
            return None if one is None else listed_again(one)
        return None

    now = Pair(listed(pair.left), listed(pair.right))
    return now if now.left or now.right else pair


def _start_of(found: Comparison) -> int:
    starts = [side.log_start_offset for side in (found.left, found.right) if side is not None]
    return max(starts) if found.identical_up_to is None else found.identical_up_to


def _offset_of(rows: tuple[dict[str, object] | None, dict[str, object] | None]) -> int:
    row = rows[0] or rows[1]
    assert row is not None, "one side has it"
    offset = row["offset"]
    assert isinstance(offset, int), "it is a column of int64"
    return offset


def _truncation(left: Side, right: Side) -> Truncation | None:
    """Return what the less recent copy would cut off; None if neither knows leader epochs."""
    from kafkalog.check.replicas import truncation_offset

    if not (left.epochs or right.epochs):
        return None
    is_left = (left.last_epoch, left.log_end_offset) >= (right.last_epoch, right.log_end_offset)
    leader, follower = (left, right) if is_left else (right, left)
    offset = truncation_offset(
        leader.epochs, leader.log_end_offset, follower.epochs, follower.log_end_offset
    )
    if offset is None:  # it goes back to its high watermark, if that is known
        offset = follower.high_watermark
    common = {entry.leader_epoch for entry in left.epochs} & {
        entry.leader_epoch for entry in right.epochs
    }
    names = ("left", "right") if is_left else ("right", "left")
    is_cut = offset is not None and offset < follower.log_end_offset
    return Truncation(*names, offset if is_cut else None, max(common, default=None))


def pairs_of(
    sides: Sequence[Sequence[Target]], topics: Collection[str] | None = None
) -> Iterator[Pair]:
    """Yield what is compared: each partition of the first side with those of the others.

    Two partition directories are compared whatever they are called.

    Raises:
        UsageError: there are not two sides, one is a file or has a partition twice.
        NothingFoundError: a topic is on no side.
    """
    if len(sides) < 2:
        raise UsageError("Name at least two places.", hint="kafkalog diff BROKER_1 BROKER_2")
    require_topics(topics, topics_of(target for side in sides for target in side) if topics else ())
    found = [_copies(side, topics) for side in sides]
    errors = {one.path: error for side in sides for one, error in unlisted_of(side)}
    is_alone = all(len(side) == 1 and not isinstance(side[0], LogDirListing) for side in sides)
    for other in found[1:]:
        if is_alone and topics is None:
            yield Pair(next(iter(found[0].values())), next(iter(other.values())))
            continue
        for name in sorted({*found[0], *other}, key=str):
            pair = found[0].get(name), other.get(name)
            failed = (errors.get(one.path) for one in pair if one is not None)
            yield Pair(*pair, next(filter(None, failed), None))


def _copies(side: Sequence[Target], topics: Collection[str] | None) -> Copies:
    copies: Copies = {}
    for target in side:
        if isinstance(target, FileEntry):
            raise UsageError(
                "Files are not compared.", path=target.path, hint="Name its partition directory."
            )
        is_listed = isinstance(target, LogDirListing)
        for partition in (
            (*target.partitions, *target.unlisted)
            if isinstance(target, LogDirListing)
            else (target,)
        ):
            if is_listed and (
                partition.state != DirectoryState.LIVE
                or is_staging(os.path.basename(partition.path))
            ):
                continue
            name = partition.topic, partition.partition
            if topics is not None and name[0] not in topics:
                continue
            if name in copies:
                raise UsageError(
                    "A side has two copies of this partition; compare these places one by one.",
                    path=partition.path,
                    note=f"The other one is {copies[name].path}.",
                )
            copies[name] = partition
    return copies


def diff(
    *paths: str | os.PathLike[str],
    topics: Collection[str] | None = None,
    view: LogView | str = LogView.RECOVERED,
    on_event: OnEvent | None = None,
    progress: bool = False,
) -> Rows[Comparison]:
    """Compare the copies of partitions, those of the first path with those of each other path.

    Args:
        paths: partitions, log directories, or parents of the log directories of a broker.
        topics: only these topics.
        view: what of a partition directory is compared.
        on_event: is passed each event; without it the first error or grave defect is raised.
        progress: whether to draw a bar.

    Raises:
        UsageError: there is only one path, a path is a file, or a side has a partition twice.
        KafkaLogError: what is at a path cannot be read.
    """
    chosen = named_member(LogView, view)
    sides = [open_targets([path]) for path in paths]
    with reporting(on_event, progress=progress, targets=chain(*sides)) as report:
        comparer = Comparer(chosen, report, report.advance)
        return Rows(map(comparer.compare, pairs_of(sides, topics)), Comparison)
