"""Metadata next to partitions that lie in one log directory already: nothing is copied.

A broker starts only on a log directory with `meta.properties`. That goes first and comes last, so
that a crash leaves the log directory as it was, or one that no broker starts on, or the new one.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from formats import file_names
from formats.file_names import DirectoryState
from formats.topic_names import CLUSTER_METADATA
from kafkalog.change.journal import Run, undo
from kafkalog.change.journal.journal import JOURNAL_NAME, PartitionState, read_journal
from kafkalog.change.journal.requirements import (
    require_own_checkpoints,
    require_own_files,
    require_settled,
)
from kafkalog.change.journal.top_files import digest
from kafkalog.change.resurrection.choice import choose
from kafkalog.change.resurrection.model import THERE, LeftOutDirectory, ResurrectOptions
from kafkalog.change.resurrection.partition import judge
from kafkalog.change.resurrection.requirements import (
    release_for,
    require_meaning,
    require_read_back,
    require_sense,
)
from kafkalog.change.resurrection.run import Resurrection
from kafkalog.change.resurrection.sources import source_images
from kafkalog.errors import (
    DestinationExistsError,
    KafkaLogError,
    NotFoundError,
    PartlyDoneError,
    RefusedError,
    UsageError,
)
from kafkalog.files.log_dir import LogDirListing, open_path
from kafkalog.files.text_files import read_meta_properties, read_topic_id, topic_id_text
from kafkalog.io.paths import file_system
from kafkalog.io.paths.uris import require_local
from kafkalog.io.storage import LogDirLock, NewFile

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkalog.change.resurrection.choice import Candidate, Chosen
    from kafkalog.change.resurrection.model import MetadataRecord, ResurrectSummary, Row
    from kafkalog.change.resurrection.partition import Judged
    from kafkalog.change.resurrection.sources import SourceImage
    from kafkalog.files.log_dir import PartitionDir
    from kafkalog.io.storage import Step

COMMAND: Final = "resurrect"
_MEANINGLESS: Final = ("topics", "undelete", "rename", "copy", "prefer", "salvage")
_DELETED: Final = "its topic was deleted, and a broker removes it when it starts"
_ELSEWHERE: Final = "Move it away; or make a new directory with --to."


def run_in_place(
    log_dir: str,
    options: ResurrectOptions,
    *,
    backup: str | None,
    dry_run: bool,
    tell: Callable[[Row], None] | None,
    progress: Callable[[int], None] | None,
    arguments: Sequence[str] = (),
    observe: Callable[[Step], None] | None = None,
) -> ResurrectSummary:
    """Do what `kafkalog.resurrect_in_place` describes; `observe` is called after each step."""
    require_meaning(options, _MEANINGLESS, "--apply in place")
    require_sense(log_dir, options)
    require_local(log_dir)
    place = os.path.realpath(log_dir)
    _listing(log_dir)
    require_own_checkpoints(place)
    if dry_run:
        with LogDirLock(place):
            return _resurrected(log_dir, None, options, tell, progress).summary
    if backup is None:
        raise UsageError(
            "--apply in place requires --backup.",
            hint="With one, `kafkalog undo` can restore PATH.",
        )
    is_undone = _undo_unfinished(place, backup)
    with ExitStack() as held:
        out = None
        if options.properties_out is not None:  # it gets its name last
            out = held.enter_context(NewFile(options.properties_out))
        run = held.enter_context(
            Run(place, observe, command=COMMAND, arguments=arguments, backup=backup)
        )
        try:
            work = _resurrected(log_dir, run, options, tell, progress, is_undone=is_undone)
        except KafkaLogError as error:
            if not run.has_changed:
                raise
            raise PartlyDoneError(
                f"Some of it is written, and no broker starts on it: {error.message}",
                path=error.path,
                hint="The same command starts over; `kafkalog undo` restores what was there.",
            ) from error
        if out is not None:
            out.file.write(work.properties)
    return work.summary


def _undo_unfinished(log_dir: str, backup: str) -> bool:
    """Undo a run that was interrupted; return whether there was one.

    Raises:
        DestinationExistsError: the run is finished.
    """
    path = os.path.join(os.path.realpath(backup), JOURNAL_NAME)
    journal = read_journal(path) if file_system.is_there(path) else None
    if journal is None or not journal.is_of(COMMAND, log_dir):
        return False  # the run says what is wrong with it
    top = journal.tops.get(file_names.META_PROPERTIES)
    now = digest(os.path.join(log_dir, file_names.META_PROPERTIES))
    # `meta.properties` is written last: where it is, the run had finished.
    if top is not None and now is not None and now in top.after:
        raise DestinationExistsError(
            "The run of this backup is finished.",
            path=backup,
            hint="`kafkalog undo` takes it back; for another run choose a new directory.",
        )
    left = [one for one in journal.partitions.values() if one.state != PartitionState.UNDONE]
    if not left and not journal.tops and not journal.lacks_mark:
        return False
    undo(backup, in_place=True)
    return True


def _listing(log_dir: str) -> LogDirListing:
    target = open_path(log_dir)
    if not isinstance(target, LogDirListing):
        raise UsageError("This is not a log directory.", path=log_dir,
                         hint="Give the directory that the partitions are in.")  # fmt: skip
    return target


def _resurrected(
    log_dir: str,
    run: Run | None,
    options: ResurrectOptions,
    tell: Callable[[Row], None] | None,
    progress: Callable[[int], None] | None,
    *,
    is_undone: bool = False,
) -> _InPlace:
    """Judge a log directory that is locked, and write its metadata; without a run only judge."""
    whole = _listing(log_dir)
    deleted = [one for one in whole.partitions if one.state == DirectoryState.DELETE]
    # A start finishes these deletions; nothing else is made of them.
    target = replace(whole, partitions=tuple(one for one in whole.partitions if one not in deleted))
    _require_own(target, options)
    images = source_images(
        [target], options.as_of_metadata, release_for(options), takes_damage=False
    )
    chosen = choose([target], images, options)
    if chosen.left_out:
        one = chosen.left_out[0]
        raise RefusedError(f"A broker would not keep it: {one.reason}.",
                           path=one.path, hint=_ELSEWHERE)  # fmt: skip
    if not any(one.partitions for one in chosen.topics):
        raise NotFoundError("No partition is found.", path=log_dir)
    work = _InPlace(target, run, options, images, tell, progress)
    if is_undone:
        work.summary.notes.append("the run that was interrupted was undone first")
    chosen.left_out += (LeftOutDirectory(one.path, _DELETED) for one in deleted)
    work.work(chosen)
    return work


def _require_own(target: LogDirListing, options: ResurrectOptions) -> None:
    """Raise `RefusedError` for what a broker would remove, or not start with."""
    for error in target.errors.values():
        raise error
    for name in target.others:
        if os.path.basename(name) != file_names.REMOTE_INDEX_CACHE:
            path = os.path.join(target.path, name)
            raise RefusedError("A broker would not start with this directory.",
                               path=path, hint="Move it away.")  # fmt: skip
    for one in target.partitions:
        # Copies leave them out; in place they would stay, and a broker removes or ignores them.
        if one.state != DirectoryState.LIVE:
            raise RefusedError(f"The directory is not a live partition: its name says {one.state}.",
                               path=one.path, hint=_ELSEWHERE)  # fmt: skip
        require_own_files(one)
        require_settled(one)
    if options.cluster_id is not None:
        return
    path = os.path.join(target.path, file_names.META_PROPERTIES)
    metadata = _metadata_of(target)
    owner = read_meta_properties(path).cluster_id if file_system.is_there(path) else None
    if owner is not None or metadata is not None:
        raise RefusedError(
            f"The log directory belongs to the cluster {owner or 'of its metadata log'}.",
            path=target.path,
            note="Its brokers would not take it back.",
            hint="--cluster-id new makes it one of its own; --cluster-id ID gives it that id.",
        )


def _metadata_of(target: LogDirListing) -> PartitionDir | None:
    """Return the metadata log, which must be empty for a broker to read the new metadata."""
    found = (one for one in target.partitions if one.topic == CLUSTER_METADATA)
    return next((one for one in found if one.files), None)


class _InPlace(Resurrection):
    """The work on all topics of one log directory."""

    def __init__(
        self,
        target: LogDirListing,
        run: Run | None,
        options: ResurrectOptions,
        images: Sequence[SourceImage],
        tell: Callable[[Row], None] | None,
        progress: Callable[[int], None] | None,
    ) -> None:
        super().__init__(None, None, target.path, options, images, tell, progress)
        self.summary.log_dir = os.path.realpath(target.path)
        self.summary.dry_run = run is None
        self._target_dir, self._run = target, run
        self._progress = progress or (lambda _: None)
        self._ids: list[tuple[PartitionDir, str]] = []

    def _copied(self, one: Candidate, topic_id: str, name: str, start: int) -> Judged:
        """Judge a partition where it is; its name stays."""
        assert os.path.basename(one.path) == name, "nothing is renamed"
        judged = judge(one.directory, start, None, self._progress)
        judged.how = THERE
        metadata = os.path.join(one.path, file_names.PARTITION_METADATA)
        if not file_system.is_there(metadata) or read_topic_id(metadata) != topic_id:
            self._ids.append((one.directory, topic_id))
        return judged

    def _target(self, name: str) -> str:
        return name

    def _write(self, records: Sequence[MetadataRecord], chosen: Chosen) -> None:
        """Write everything; a broker starts on it when `meta.properties` is there."""
        if self._run is None:
            return
        run, files = self._run, self._top_files(records)
        # First: from here on no broker starts, whatever is half done after a crash.
        run.change_top(file_names.META_PROPERTIES, None)
        # Logs were only judged: the first start is to scan them.
        run.forget_clean_shutdown()
        metadata = _metadata_of(self._target_dir)
        if metadata is not None:
            names = [entry.name.name for entry in metadata.files]
            with run.partition(metadata, names) as changing:
                # Emptied: a bootstrap.checkpoint is read only if the metadata log has no record.
                for name in names:
                    changing.changes.remove(name)
                changing.changes.sync_directory()
        for partition, topic_id in self._ids:
            with run.partition(partition, [file_names.PARTITION_METADATA]) as changing:
                changing.changes.replace(file_names.PARTITION_METADATA, topic_id_text(topic_id))
        last = files.pop(file_names.META_PROPERTIES)
        for name, data in files.items():
            run.change_top(name, data)
        run.change_top(file_names.SERVER_PROPERTIES, self.properties)
        # Before the file that lets a broker start.
        require_read_back(self.summary.log_dir, chosen)
        run.change_top(file_names.META_PROPERTIES, last)
