"""The facts of a report: everything its page shows, as one value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalog.model import Severity

if TYPE_CHECKING:
    from kafkalog.check.schedule import Summary
    from kafkalog.disk_usage.model import Disk, OverLimit
    from kafkalog.inventory import LogDirRow
    from kafkalog.model import Level
    from kafkalog.overview.model import Finding, Gap, GroupFacts, PartitionFacts
    from kafkalog.profiles.model import Profile
    from kafkalog.recovery import NextStart
    from kafkalog.state.transactions import OpenData, TransactionalId


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
    def worst(self) -> Severity | None:
        """The severity of the worst finding; None without findings."""
        return next((one for one in Severity if self.checked.defects[one]), None)

    def to_html(self) -> str:
        """Return the page: one HTML document that needs nothing else.

        Raises:
            UnsupportedError: a library that draws it is missing.
        """
        from kafkalog.overview.page import page_of

        return page_of(self)
