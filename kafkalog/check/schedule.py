"""How much one run reads: which segments, at which level, for how long; and what it counted."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from dataclasses import field
from hashlib import blake2b
from math import ceil
from typing import TYPE_CHECKING, Final, TypeVar

from formats.constants import INT64_MAX
from formats.file_names import FileKind, FileState
from formats.late_classes import dataclass
from kafkalog.check.verdict import LOOKED_AT, Looked
from kafkalog.errors import NotAKafkaFileError
from kafkalog.files.log_dir import FileEntry, LogDirListing, PartitionDir, Segment
from kafkalog.io.documents import Entries, Fields, Number, OneOf, Row, Text, parsed, read_document
from kafkalog.io.paths import file_system
from kafkalog.model import Defect, Level, Severity, present_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from kafkalog.files.log_dir import Target


_MARK: Final = "kafkalog_verify_state"
_VERSION: Final = 1
_TIME: Final = Number(-INT64_MAX, INT64_MAX)
_STATE: Final = Fields(
    {
        _MARK: OneOf((_VERSION,)),
        "begun": Entries(Text(), _TIME),
        "files": Entries(
            Text(), Row((Number(), _TIME, Entries(OneOf(tuple(map(str, Level))), _TIME)))
        ),
    }
)


@dataclass(slots=True)
class _Checked:
    """A log file as it was at its last check, and the time (ms) of the last check per level."""

    size_bytes: int
    modified_timestamp: int
    when: dict[Level, int] = field(default_factory=dict)


class History:
    """What earlier runs checked, by absolute path, so that it holds from any directory.

    A check at one level counts for the lower levels, too. Memory and text grow with the number of
    segments: about 150 bytes each.
    """

    def __init__(self) -> None:
        self._files: dict[str, _Checked] = {}
        self._begun: dict[str, int] = {}

    def last_check(self, log: FileEntry, level: Level) -> int:
        """Return when the log was last checked at this level or above; 0 for never.

        It may have grown since: otherwise a log that always grows would always be the oldest.
        """
        known = self._files.get(_key(log.path))
        if known is None:
            return 0
        levels = list(Level)
        deep_enough = levels[levels.index(level) :]
        return max((known.when.get(deeper, 0) for deeper in deep_enough), default=0)

    def is_checked(self, log: FileEntry, level: Level, since_ms: int) -> bool:
        """Return whether the file, as it is now, was checked at the level since then."""
        known = self._files.get(_key(log.path))
        if known is None or (known.size_bytes, known.modified_timestamp) != (
            log.size_bytes,
            log.modified_timestamp,
        ):
            return False
        return self.last_check(log, level) >= since_ms

    def note(self, log: FileEntry, level: Level, now_ms: int) -> None:
        known = self._files.get(_key(log.path))
        if known is None or (known.size_bytes, known.modified_timestamp) != (
            log.size_bytes,
            log.modified_timestamp,
        ):
            known = _Checked(log.size_bytes, log.modified_timestamp)
        known.when[level] = now_ms
        self._files[_key(log.path)] = known

    def begin(self, partition: PartitionDir, now_ms: int) -> int:
        """Return when the walk over the partition began that now begins or continues."""
        return self._begun.setdefault(_key(partition.path), now_ms)

    def finish(self, partition: PartitionDir) -> None:
        self._begun.pop(_key(partition.path), None)

    def forget_missing(self, partitions: Iterable[PartitionDir], roots: Iterable[str]) -> None:
        """Forget the logs below the roots that belong to none of the partitions any more."""
        below = tuple(os.path.join(_key(root), "") for root in roots)
        there = set()
        for partition in partitions:
            there.add(_key(partition.path))
            there |= {_key(segment.log.path) for segment in partition.segments}
        for known in (self._files, self._begun):
            for path in [p for p in known if p.startswith(below) and p not in there]:
                del known[path]

    def to_json(self) -> str:
        files = {
            path: [checked.size_bytes, checked.modified_timestamp, checked.when]
            for path, checked in sorted(self._files.items())
        }
        value = {_MARK: _VERSION, "begun": self._begun, "files": files}
        return json.dumps(value, separators=(",", ":")) + "\n"

    @classmethod
    def from_json(cls, text: str, path: str) -> History:
        """Read back what `to_json` wrote.

        Raises:
            NotAKafkaFileError: it is something else.
            CorruptDataError: it begins like a state file, but is malformed.
        """
        try:
            is_state = parsed(text).keys() >= {_MARK}
        except (ValueError, AttributeError):
            is_state = text.startswith(f'{{"{_MARK}"')
        if not is_state:
            raise NotAKafkaFileError(
                "This is not a state file of `kafkalog verify --state`.",
                path=path,
                hint="Name another file, or remove this one to start from the beginning.",
            )
        value = read_document(text, _STATE, path, "a state of an earlier `kafkalog verify --state`")
        found = cls()
        found._begun = value["begun"]
        for key, (size, mtime, when) in value["files"].items():
            times = {Level(level): time for level, time in when.items()}
            found._files[key] = _Checked(size, mtime, times)
        return found


def _key(path: str) -> str:
    return file_system.absolute(path)


@dataclass(frozen=True, slots=True)
class Sample:
    """A share of segments, the same for the same seed.

    Attributes:
        share: above 0 and at most 1.
        seed: seed of the choice.
    """

    share: float
    seed: int

    def choose(self, paths: Iterable[str]) -> list[str]:
        """Return the share of the log files, rounded up, chosen only by directory and file name.

        So a copy elsewhere gives the same choice, and a new segment changes it little.
        """
        ranked = sorted(paths, key=self._rank)
        return ranked[: ceil(self.share * len(ranked))]

    def _rank(self, path: str) -> bytes:
        name = os.path.join(os.path.basename(os.path.dirname(path)), os.path.basename(path))
        return blake2b(f"{self.seed}/{name}".encode("utf-8", "surrogateescape")).digest()


@dataclass(frozen=True, slots=True)
class Reading:
    """A segment to be read.

    Attributes:
        is_due: false if it was checked already, and is read only for the checks of what follows.
    """

    segment: Segment
    level: Level
    is_due: bool = True


class Schedule:
    """Which parts of its targets a run reads; by default all of them, at one level.

    Args:
        sample: segments outside it are read at level quick.
        left_out: absolute paths of the logs outside a sample that was chosen earlier.
        history: what earlier runs checked; segments checked longest ago come first.
        duration_s: seconds after which nothing else is started.
        clock: returns seconds, monotonic.
        now_ms: returns the time for the history.
    """

    def __init__(
        self,
        targets: Sequence[Target] = (),
        level: Level = Level.STANDARD,
        *,
        sample: Sample | None = None,
        left_out: Iterable[str] = (),
        history: History | None = None,
        duration_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        now_ms: Callable[[], int] = present_ms,
    ) -> None:
        self.level = level
        self.sample = sample
        self.history = history
        self._clock = clock
        self._now_ms = now_ms
        self._started = clock()
        self._duration_s = duration_s
        self._has_read = False
        self._read_bytes = 0
        self._left_out = frozenset(left_out)
        self.segments_in_all = 0
        self.segments_chosen = 0
        if sample is not None:
            paths = {file_system.absolute(path) for target in targets for path in _logs_of(target)}
            chosen = sample.choose(paths)
            self.segments_in_all, self.segments_chosen = len(paths), len(chosen)
            self._left_out = frozenset(paths - set(chosen))
        self.targets = sorted(targets, key=self._age) if history is not None else list(targets)

    def level_of(self, segment: Segment) -> Level:
        """Return the level at which a segment is read, regardless of earlier runs."""
        left_out = self._left_out
        is_left_out = left_out and file_system.absolute(segment.log.path) in left_out
        return Level.QUICK if is_left_out else self.level

    def in_order(self, partitions: Sequence[PartitionDir]) -> list[PartitionDir]:
        """Return the partitions; with a history, those checked longest ago come first."""
        return sorted(partitions, key=self._age) if self.history is not None else list(partitions)

    def _age(self, target: Target) -> int:
        history = self.history
        assert history is not None
        if isinstance(target, LogDirListing):
            return min(map(self._age, target.partitions), default=0)
        if isinstance(target, FileEntry):
            return history.last_check(target, self.level)
        ages = [history.last_check(s.log, self.level_of(s)) for s in target.segments]
        return min(ages, default=0)

    def readings(self, partition: PartitionDir, *, afresh: bool = False) -> list[Reading]:
        """Return how to read each segment of a partition whose turn it is.

        If an earlier run stopped within the partition, the segments that it read are read again at
        level quick, because checks of the whole partition need them. With `afresh`, nothing counts
        as read.
        """
        wanted = [(segment, self.level_of(segment)) for segment in partition.segments]
        if self.history is None or afresh:
            return [Reading(segment, level) for segment, level in wanted]
        begun = self.history.begin(partition, self._now_ms())
        return [
            Reading(segment, Level.QUICK, is_due=False)
            if self.history.is_checked(segment.log, level, begun)
            else Reading(segment, level)
            for segment, level in wanted
        ]

    @property
    def is_limited(self) -> bool:
        """Whether nothing more is begun after some time."""
        return self._duration_s is not None

    def has_time_for(self, size_bytes: int) -> bool:
        """Return whether a partition of this size can be finished in time, at the speed so far.

        The first partition is always started: otherwise a very short run would never get anywhere.
        """
        if self._duration_s is None or not self._has_read:
            return True
        elapsed = self._clock() - self._started
        needed = elapsed * size_bytes / max(self._read_bytes, 1)
        return elapsed < self._duration_s and elapsed + needed <= self._duration_s

    def is_over(self) -> bool:
        """Return whether to start no further segment; each run reads at least one that is due."""
        if self._duration_s is None or not self._has_read:
            return False
        return self._clock() - self._started >= self._duration_s

    def segment_read(self, reading: Reading) -> None:
        if reading.is_due:
            self._has_read = True
            self._read_bytes += reading.segment.log.size_bytes
        if self.history is not None:
            self.history.note(reading.segment.log, reading.level, self._now_ms())

    def partition_read(self, partition: PartitionDir) -> None:
        if self.history is not None:
            self.history.finish(partition)


def _logs_of(target: Target) -> Iterator[str]:
    if isinstance(target, LogDirListing):
        for partition in target.partitions:
            yield from _logs_of(partition)
    elif isinstance(target, PartitionDir):
        for segment in target.segments:
            yield segment.log.path
    elif (target.name.kind, target.name.state) == (FileKind.LOG, FileState.LIVE):
        yield target.path


def lowest_level(readings: Sequence[Reading], asked: Level) -> Level:
    """Return the lowest level at which a segment is read, `asked` without segments."""
    return min((reading.level for reading in readings), key=list(Level).index, default=asked)


T = TypeVar("T")


@dataclass
class Summary:
    """Counts of what a run read and found; complete when the walk has ended.

    `deferred_bytes` and `deferred_segments` were deferred because time was up: they are not part of
    `expected_bytes`. `bytes_unreadable` are bytes that the disk did not return: expected, but not
    checked.
    """

    files: int = 0
    batches: int = 0
    records: int = 0
    expected_bytes: int = 0
    checked_bytes: int = 0
    bytes_unreadable: int = 0
    deferred_bytes: int = 0
    deferred_segments: int = 0
    defects: Counter[Severity] = field(default_factory=Counter)
    levels: set[Level] = field(default_factory=set)
    has_listed_only: bool = False
    """Whether some logs were judged by the names and sizes of their files."""

    @property
    def looked(self) -> Looked:
        """How deep every log was read."""
        if self.has_listed_only:
            return Looked.NAMES
        # Without logs, nothing was left unread.
        lowest = min(self.levels, key=list(Level).index, default=Level.DEEP)
        return LOOKED_AT[lowest]

    @property
    def grave(self) -> int:
        """Number of defects above a note."""
        return self.defects.total() - self.defects[Severity.NOTE]

    @property
    def is_complete(self) -> bool:
        """Whether all listed bytes have been read or reported as unreadable."""
        return self.checked_bytes + self.bytes_unreadable >= self.expected_bytes

    def give_up(self) -> None:
        """Expect nothing more, because the listed files no longer exist."""
        self.expected_bytes = min(self.expected_bytes, self.checked_bytes + self.bytes_unreadable)

    def counting(self, defects: Generator[Defect, None, T]) -> Generator[Defect, None, T]:
        """Count defects while passing them on."""
        while True:
            try:
                defect = next(defects)
            except StopIteration as end:
                found: T = end.value
                return found
            self.defects[defect.severity] += 1
            yield defect

    def add_looked_at(self, other: Summary) -> None:
        """Add what another run read; its defects are counted as they arrive."""
        self.files += other.files
        self.batches += other.batches
        self.records += other.records
        self.expected_bytes += other.expected_bytes
        self.checked_bytes += other.checked_bytes
        self.bytes_unreadable += other.bytes_unreadable
        self.deferred_bytes += other.deferred_bytes
        self.deferred_segments += other.deferred_segments
        self.levels |= other.levels
        self.has_listed_only |= other.has_listed_only
