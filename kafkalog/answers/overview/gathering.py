"""The facts of a report as one value, gathered from what answers each question by itself."""

from __future__ import annotations

import os
import shlex
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final, TypeVar

from formats.file_names import DirectoryState, FileState, is_staging
from formats.late_classes import dataclass
from kafkalog.answers.disk_usage.ahead import Ahead, Outlook, changes_of, growth_of, over_limit
from kafkalog.answers.disk_usage.model import HOURS, Usage
from kafkalog.answers.overview.model import Contents, Finding, Gap, GroupFacts, PartitionFacts
from kafkalog.answers.verification import Findings
from kafkalog.change.compaction.candidates import find_candidate
from kafkalog.change.compaction.model import CompactionRequest
from kafkalog.change.retention.partition import judge_partition
from kafkalog.check.verdict import verdict
from kafkalog.errors import KafkaLogError, NotFoundError, UnsupportedError, UsageError, contained
from kafkalog.files.log_dir import FileEntry
from kafkalog.files.offsets import LeftOut
from kafkalog.log.defects.table import REFERENCES
from kafkalog.log.living import answered, listed_now
from kafkalog.model import Severity
from kafkalog.node.configs import ConfigsAround
from kafkalog.node.inventory import list_log_dirs, list_partitions
from kafkalog.node.state.groups import EndOffsets, read_groups
from kafkalog.node.state.model import total_lag
from kafkalog.node.state.transactions import read_transactions
from kafkalog.node.targets import open_targets, partitions_of, path_of
from kafkalog.node.view import show

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from kafkalog.answers.disk_usage.model import Disk, OverLimit
    from kafkalog.change.compaction.model import Candidate
    from kafkalog.change.retention.partition import PartitionRetention
    from kafkalog.check.schedule import Summary
    from kafkalog.errors import Event, OnEvent
    from kafkalog.files.log_dir import PartitionDir
    from kafkalog.model import Defect, Level, LogView
    from kafkalog.node.configs import ConfigSources, TopicConfigs
    from kafkalog.node.inventory import LogDirRow
    from kafkalog.node.outcome import View
    from kafkalog.node.recovery import NextStart
    from kafkalog.node.state.transactions import OpenData, TransactionalId, Transactions
    from kafkalog.node.targets import AnyPath, Target
    from kafkalog.tables.profiles.model import Profile

    Progress = Callable[[int], None]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Report:
    """The facts about some log directories and partitions at one moment.

    Attributes:
        paths: what was looked at.
        made_ms: when, and the clock that retention and ages are judged by.
        level: how much the checks read.
        log_dirs: the log directories, as `ls` lists them.
        partitions: by size, largest first.
        findings: most severe first.
        checked: what the checks have read and found.
        is_whole: whether they could read everything.
        next_starts: what the next start of a broker would do, if that is worth mentioning.
        groups: by lag, largest first.
        transactional_ids: by name.
        open_transactions: by topic, partition and first offset.
        disks: when the disks are full, if all grows as in the last 24 hours.
        over: partitions above their retention, and why.
        profiles: of topics and partitions; empty unless records were read.
        gaps: what could not be answered.
    """

    paths: tuple[str, ...]
    made_ms: int
    level: Level
    log_dirs: tuple[LogDirRow, ...]
    partitions: tuple[PartitionFacts, ...]
    findings: tuple[Finding, ...]
    checked: Summary
    is_whole: bool
    next_starts: tuple[NextStart, ...]
    groups: tuple[GroupFacts, ...]
    transactional_ids: tuple[TransactionalId, ...]
    open_transactions: tuple[OpenData, ...]
    disks: tuple[Disk, ...]
    over: tuple[OverLimit, ...]
    profiles: tuple[Profile, ...]
    gaps: tuple[Gap, ...]

    @property
    def size_bytes(self) -> int:
        """Size of all partitions, as `ls` counts it."""
        return sum(one.listed.size_bytes for one in self.partitions)

    @property
    def verdict(self) -> str:
        """The findings in words; without any, how deep nothing is wrong."""
        return verdict(self.checked.looked, self.checked.defects, is_whole=self.is_whole)

    @property
    def worst(self) -> Severity | None:
        """The severity of the worst finding; None without findings."""
        return next((one for one in Severity if self.checked.defects[one]), None)

    def to_html(self) -> str:
        """Return the page: one HTML document that needs nothing else.

        Raises:
            UnsupportedError: a library that draws it is missing.
        """
        from kafkalog.answers.overview.page import page_of

        return page_of(self)


ALIKE_MAX: Final = 20
"""At most this many findings of one kind in one file are listed; the others are counted."""
FINDINGS_MAX: Final = 1000
"""At most this many findings are listed, the most severe ones."""


class Gathering:
    """One run that gathers the facts."""

    def __init__(
        self,
        paths: Sequence[AnyPath],
        level: Level,
        sources: ConfigSources,
        now_ms: int,
        *,
        threads: int | None,
        failed: OnEvent,
        progress: Progress,
    ) -> None:
        self._paths = paths
        self._level = level
        self._sources = sources
        self._now_ms = now_ms
        self._threads = threads
        self._failed_once = failed
        self._progress = progress
        self._told: set[tuple[str | None, str]] = set()
        self._gaps: dict[Gap, None] = {}
        self._targets: list[Target] = []
        self._contents = Contents(threads)
        self._ahead = Ahead(now_ms)
        self._views: dict[str, PartitionDir] = {}

    def report(self, profiles: Callable[[], Sequence[Profile]] | None) -> Report:
        """Gather everything."""
        for target in open_targets(self._paths, hear=self._hear):
            if isinstance(target, FileEntry):
                self._failed(_no_file(target.path))
            else:
                self._targets.append(target)
        self._configs = ConfigsAround(self._sources, (one.path for one in self._targets))
        checks = Findings(
            *self._targets,
            level=self._level,
            threads=self._threads,
            on_event=self._hear,
        )
        findings = _Selected()
        # The checks read all batch headers anyway: codecs, records and times come from the same
        # pass.
        for defect in checks.run(self._progress, read=self._contents.read):
            findings.take(defect)
        is_whole = not self._told
        directories = list(partitions_of(self._targets))
        partitions = [found for one in directories for found in self._partition(one)]
        partitions.sort(key=lambda one: (-one.listed.size_bytes, one.listed.path))
        transactions = self._transactions()
        log_dirs = tuple(list_log_dirs(self._targets))
        return Report(
            paths=tuple(map(path_of, self._paths)),
            made_ms=self._now_ms,
            level=self._level,
            log_dirs=log_dirs,
            partitions=tuple(partitions),
            findings=tuple(findings.listed({one.path for one in directories})),
            checked=checks.summary,
            is_whole=is_whole,
            next_starts=tuple(checks.next_starts),
            groups=tuple(self._groups()),
            transactional_ids=(
                tuple(one for _, one in sorted(transactions.ids.items())) if transactions else ()
            ),
            open_transactions=tuple(transactions.open) if transactions else (),
            disks=tuple(self._disks(log_dirs)),
            over=tuple(sorted(self._ahead.over, key=lambda one: -one.over_bytes)),
            profiles=tuple(self._profiles(profiles)),
            gaps=tuple(self._gaps),
        )

    def _hear(self, event: Event) -> None:
        if isinstance(event, KafkaLogError):
            self._failed(event)

    def _failed(self, error: KafkaLogError) -> None:
        where = error.path
        if (where, error.message) in self._told:
            return
        self._told.add((where, error.message))
        self._gap(where or "the report", error)
        self._failed_once(error)

    def _gap(self, about: str, error: KafkaLogError) -> None:
        self._gaps[Gap(about, error.message)] = None

    def _partition(self, directory: PartitionDir) -> Iterator[PartitionFacts]:
        with contained(directory.path, self._failed):
            rows = list(list_partitions([directory], views=self._view))
            if not rows:
                return  # it disappeared
            retention = self._retention(directory)
            yield PartitionFacts(
                rows[0],
                _used(directory),
                retention,
                self._cleaning(directory),
                tuple(filter(None, map(self._contents.of, directory.segments))),
                self._growth(directory, retention),
            )

    def _view(self, directory: PartitionDir, view: LogView) -> View:
        """Return the view of a start, and keep it: predicting one may read the whole log."""
        shown = show(directory, view)
        self._views[directory.path] = shown.partition
        return shown

    def _configs_of(self, directory: PartitionDir) -> TopicConfigs:
        return self._configs.of_log_dir_of(directory.path).of_topic(directory.topic)

    def _retention(self, directory: PartitionDir) -> PartitionRetention | None:
        found = None
        if directory.segments:
            with contained(directory.path, self._failed):
                configs = self._configs_of(directory)
                found = _asked(lambda one: judge_partition(one, configs, self._now_ms), directory)
        return found

    def _growth(
        self, directory: PartitionDir, retention: PartitionRetention | None
    ) -> tuple[int, ...]:
        """Return the growth of a partition; note what it means for its disk."""
        if retention is None:
            return ()
        # Deleted, future and stray directories do not grow.
        growth: tuple[int, ...] = (0,) * HOURS
        if directory.state == DirectoryState.LIVE:
            with contained(directory.path, self._failed):
                growth = _asked(lambda one: growth_of(one, self._now_ms), directory)
                names = directory.path, directory.log_dir, directory.topic, directory.partition
                changes = tuple(changes_of(retention, growth))
                self._ahead.outlooks.append(Outlook(*names, Usage(growth_bytes=growth), changes))
                if (over := over_limit(retention)) is not None:
                    self._ahead.over.append(over)
        return growth

    def _disks(self, log_dirs: Sequence[LogDirRow]) -> Sequence[Disk]:
        found: Sequence[Disk] = ()
        if log_dirs:
            with contained(log_dirs[0].path, self._failed):
                found = self._ahead.disks({one.path: one.size_bytes for one in log_dirs}, None)
        return found

    def _cleaning(self, directory: PartitionDir) -> Candidate | None:
        found = None
        if not is_staging(os.path.basename(directory.path)):
            with contained(directory.path, self._failed):
                configs = self._configs_of(directory)
                request = CompactionRequest(self._now_ms)
                found = _asked(lambda one: find_candidate(one, configs, request), directory)
        return found

    def _groups(self) -> list[GroupFacts]:
        try:
            found = read_groups(self._targets, defects=_passed_over, failed=self._failed)
        except (NotFoundError, UnsupportedError) as error:
            self._gap("groups", error)
            return []
        self._incomplete(found.topic.name, found.topic.missing_count, found.incomplete)
        ends = EndOffsets(self._targets)
        groups = []
        for group in found.groups.values():
            offsets = tuple(map(ends.lag, group.offsets))
            groups.append(GroupFacts(group, offsets, total_lag(offsets)))
        for line in LeftOut.by([*found.cut, *ends.cut]).lines():
            self._gaps[Gap("groups", line)] = None
        return sorted(groups, key=lambda one: (-(one.lag or 0), one.group.name))

    def _transactions(self) -> Transactions | None:
        try:
            found = read_transactions(
                self._targets,
                now_ms=self._now_ms,
                defects=_passed_over,
                failed=self._failed,
                views=self._views,
            )
        except (NotFoundError, UnsupportedError) as error:
            self._gap("transactions", error)
            return None
        self._incomplete(found.topic.name, found.topic.missing_count, found.incomplete)
        for failure in found.errors:
            self._failed(failure)
        return found

    def _incomplete(self, topic: str, missing: int, incomplete: Sequence[int]) -> None:
        if missing:
            self._gaps[Gap(topic, f"{missing} of its partitions are not in these paths.")] = None
        for number in incomplete:
            self._gaps[Gap(f"{topic}-{number}", "The partition could not be read completely.")] = (
                None
            )

    def _profiles(self, profiles: Callable[[], Sequence[Profile]] | None) -> Sequence[Profile]:
        found: Sequence[Profile] = ()
        if profiles is not None:
            with contained(path_of(self._paths[0]), self._failed):
                found = profiles()
        return found


def _no_file(path: str) -> UsageError:
    return UsageError(
        "This is a file, not a partition or log directory.",
        path=path,
        hint="`kafkalog anatomy` and `kafkalog dump-segment` show what is in it.",
    )


def _asked(question: Callable[[PartitionDir], T], directory: PartitionDir) -> T:
    """Return the answer about a partition, or if it changes about what has its name now."""
    return answered(lambda: question(directory), lambda: question(listed_now(directory)))


def _passed_over(_: Defect) -> None:
    """Ignore a defect: the checks report it."""


def _used(directory: PartitionDir) -> Mapping[int | None, int]:
    """Return the bytes of each segment's files, and under None those of all other files."""
    found: Counter[int | None] = Counter()
    bases = {segment.base_offset for segment in directory.segments}
    for entry in directory.files:
        is_live = entry.name.state == FileState.LIVE and entry.name.offset in bases
        found[entry.name.offset if is_live else None] += entry.used_bytes
    return found


class _Selected:
    """The findings that are listed: in bounded memory, the most severe ones."""

    def __init__(self) -> None:
        self._kept: defaultdict[Severity, list[Defect]] = defaultdict(list)
        self._alike: Counter[tuple[str, str]] = Counter()

    def take(self, defect: Defect) -> None:
        key = defect.path, defect.reference
        self._alike[key] += 1
        kept = self._kept[defect.severity]
        if self._alike[key] <= ALIKE_MAX and len(kept) < FINDINGS_MAX:
            kept.append(defect)

    def listed(self, directories: set[str]) -> Iterator[Finding]:
        """Yield the findings, most severe first."""
        found = [defect for severity in Severity for defect in self._kept[severity]]
        last = {(defect.path, defect.reference): defect for defect in found}
        for defect in found[:FINDINGS_MAX]:
            key = defect.path, defect.reference
            more = max(self._alike[key] - ALIKE_MAX, 0) if last[key] is defect else 0
            yield Finding(defect, more, _command(defect, directories))


def _command(defect: Defect, directories: set[str]) -> str:
    """Return the command line that repairs, with the path of the partition, else `explain`."""
    line = REFERENCES[defect.reference].command
    places = (defect.path, os.path.dirname(defect.path))
    partition = next((place for place in places if place in directories), None)
    if line is None or partition is None:
        return f"kafkalog explain {defect.reference}"
    # Coordinators and their data lie in other partitions.
    path = os.path.dirname(partition) if " transactions " in line else partition
    return line.replace("PATH", shlex.quote(path))
