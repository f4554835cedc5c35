"""The runs whose backups lie in a directory, and whether they can be undone."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from formats.late_classes import dataclass
from kafkalog.change.journal.journal import JOURNAL_NAME, PartitionState, read_journal
from kafkalog.change.journal.undo import undo
from kafkalog.errors import DataError, KafkaLogError, ShortageError
from kafkalog.io.paths import file_system
from kafkalog.io.paths.uris import require_local

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A run with a backup.

    Attributes:
        backup: the directory of the backup.
        start_timestamp: when the run began.
        log_dir: the log directory that it changed; None if it changed copied partitions.
        partitions: number of partitions that it changed and nobody has restored.
        is_finished: whether it finished each partition that it began.
        refusal: why it cannot be undone now; None if it can, or if nothing is left to undo.
        files: names of files at the top that it replaced and nobody has restored.
    """

    backup: str
    start_timestamp: int
    command: str
    log_dir: str | None
    partitions: int
    is_finished: bool
    refusal: KafkaLogError | None
    files: tuple[str, ...] = ()

    @property
    def can_be_undone(self) -> bool:
        """Whether `undo` would restore something."""
        return self.refusal is None and (self.partitions > 0 or bool(self.files))


def recorded_runs(
    path: str | os.PathLike[str], *, failed: Callable[[KafkaLogError], object]
) -> list[RecordedRun]:
    """Return the runs whose backup is a directory or lies directly in it, the latest first.

    Args:
        path: a backup, or the directory that backups are in.
        failed: called with the error of a journal that cannot be read.

    Raises:
        NotFoundError, UnreadableError: the directory is missing, or cannot be listed.

    Cost:
        For each run that of the plan to undo it: a listing of each partition.
    """
    path = os.fspath(path)
    require_local(path)
    places = [path, *(os.path.join(path, name) for name in file_system.names_in(path))]
    found = []
    for place in places:
        journal = os.path.join(place, JOURNAL_NAME)
        if file_system.is_there(journal):
            try:
                run = _recorded(place, journal)
            except DataError as error:
                failed(error)
            else:
                found += [] if run is None else [run]
    return sorted(found, key=lambda run: -run.start_timestamp)


def _recorded(backup: str, path: str) -> RecordedRun | None:
    journal = read_journal(path)
    if journal is None:
        return None  # it was killed before it did anything
    left = [one for one in journal.partitions.values() if one.state != PartitionState.UNDONE]
    refusal = None
    try:
        if left or journal.tops:
            # Only a plan: `in_place` is not set.
            undo(path)
    except ShortageError:
        raise
    except KafkaLogError as error:
        refusal = error
    is_finished = all(one.state != PartitionState.IN_PROGRESS for one in left)
    return RecordedRun(
        backup,
        journal.start_timestamp,
        journal.command,
        journal.log_dir,
        len(left),
        is_finished,
        refusal,
        tuple(sorted(journal.tops)),
    )
