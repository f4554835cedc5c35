"""Runs that change a log directory: the lock, the configs, the journal, and each partition."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Self

from formats.file_names import FileKind, FileState
from kafkalog.change.journal import top_files
from kafkalog.change.journal.backup import Backup
from kafkalog.change.journal.journal import MARK_REMOVED, PartitionState, file_line, state_line
from kafkalog.change.journal.log_dir_files import (
    FileStatus,
    Listing,
    PartitionOffsets,
    has_mark,
    keep_mark,
    remove_mark,
)
from kafkalog.change.journal.requirements import (
    log_dir_around,
    require_no_backup,
    require_own_checkpoints,
)
from kafkalog.change.journal.undo import require_unchanged, restore
from kafkalog.errors import (
    KafkaLogError,
    Listener,
    Note,
    PartlyDoneError,
    ShortageError,
    UsageError,
)
from kafkalog.files.log_dir import FileEntry, LogDirListing, PartitionDir, open_one, open_partition
from kafkalog.io.paths import file_system
from kafkalog.io.paths.uris import require_local
from kafkalog.io.storage import Changes, ChangeWatch, LogDirLock, Step, StepKind
from kafkalog.node.targets import (
    partitions_of,
    selected,
    unlisted_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from kafkalog.change.journal.journal import PartitionEntry
    from kafkalog.files.topics import PartitionNumbers
    from kafkalog.node.configs import ConfigSources, LogDirConfigs


_UNFINISHED = (PartitionState.IN_PROGRESS, PartitionState.ABORTED, PartitionState.UNDOING)


class Run:
    """Holds the lock of a log directory while partitions of it are changed, one after another.

    With a backup, the files that a partition loses are kept and the changes are recorded, so that
    `kafkalog undo` can restore everything. With a backup of the same command on the same log
    directory, that run is resumed: finished partitions are left alone, unfinished ones are
    restored first. List and plan within the block.

    Args:
        log_dir: the log directory; None for a copied partition with no log directory around it,
            on which no broker can run.
        observe: called after each step on the disk.
        arguments: of the command, for the journal alone.
        backup: the directory of the journal and the kept files; None for no backup.

    Attributes:
        restored: names of the partitions that were restored.

    Raises:
        LogDirInUseError: a broker, or another run, has it.
        ChangedSinceError: a partition that an earlier run did not finish has changed since.
        RefusedError: an offset checkpoint is a symbolic link.
        Also what `Backup` raises.
    """

    def __init__(
        self,
        log_dir: str | None,
        observe: Callable[[Step], None] | None = None,
        *,
        command: str = "",
        arguments: Sequence[str] = (),
        backup: str | None = None,
    ) -> None:
        self.log_dir = log_dir
        self.restored: tuple[str, ...] = ()
        self._observe = ChangeWatch(observe)
        self._held = ExitStack()
        self._backup = (
            Backup(backup, command, log_dir, arguments, observe) if backup is not None else None
        )

    def __enter__(self) -> Self:
        with ExitStack() as held:
            if self.log_dir is not None:
                require_own_checkpoints(self.log_dir)
                # First the log directory, then the backup; `undo` takes them in the same order.
                held.enter_context(LogDirLock(self.log_dir, writes=True))
            if self._backup is not None:
                held.enter_context(self._backup)
                # Before anything is listed or planned: a half-changed partition would be judged as
                # it stands.
                self.restored = tuple(self._restore_unfinished(self._backup))
            self._held = held.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    @property
    def has_changed(self) -> bool:
        """Whether anything in the log directory is not as it was when the run began."""
        return self._observe.has_changed

    def is_done(self, partition: PartitionDir) -> bool:
        """Return whether an earlier run with this backup has finished the partition."""
        if self._backup is None:
            return False
        entry = self._backup.journal.partitions.get(os.path.realpath(partition.path))
        return entry is not None and entry.state == PartitionState.DONE

    def change_top(self, name: str, data: bytes | None) -> None:
        """Replace a file at the top of the log directory, or remove it; this needs a backup."""
        assert self.log_dir is not None, "it has a top"
        assert self._backup is not None, "for undo"
        top_files.change(self.log_dir, name, data, self._backup, self._observe)

    def forget_clean_shutdown(self) -> None:
        """Remove the clean shutdown mark, so that the next start of a broker scans."""
        _forget_clean_shutdown(self.log_dir, self._backup, self._observe)

    @contextmanager
    def partition(self, partition: PartitionDir, touched: Iterable[str]) -> Iterator[PartitionRun]:
        """Change one partition, which is not done.

        Args:
            touched: names of the files that will be removed, replaced or cut.

        Raises:
            What `Backup.begin` raises, before anything is changed.
        """
        offsets = PartitionOffsets(
            self.log_dir, partition.topic, partition.partition, self._observe
        )
        if self._backup is None:
            yield PartitionRun(self.log_dir, partition, offsets, self._observe)
            return
        assert not self.is_done(partition), "a continued run skips finished partitions"
        # Durable before the first change: whatever is changed afterwards can be restored.
        entry = self._backup.begin(partition, touched, offsets.all())
        try:
            yield PartitionRun(self.log_dir, partition, offsets, self._observe, self._backup)
            after = Listing.of(entry.path)
            # While the run can still be called aborted: a file that was touched but not kept is a
            # mistake of ours, and `done` would promise an undo.
            _require_kept(entry, after)
        except BaseException as error:  # raised again: the journal records Ctrl-C, too
            reason = f"{type(error).__name__}: {error}"
            self._backup.note(state_line(entry, PartitionState.ABORTED, reason=reason))
            raise
        self._backup.note(state_line(entry, PartitionState.DONE, after=after.to_json()))

    def _restore_unfinished(self, backup: Backup) -> Iterator[str]:
        journal = backup.journal
        entries = [entry for entry in journal.partitions.values() if entry.state in _UNFINISHED]
        # All of them first: if one has changed since, none is touched.
        for entry in entries:
            require_unchanged(entry, journal)
        for entry in entries:
            restore(entry, journal, backup.note, self._observe)
            yield entry.name


class PartitionRun:
    """The work on one partition: `changes` to its files, and its entries in checkpoints.

    `log_dir` is the log directory around it, if any.
    """

    def __init__(
        self,
        log_dir: str | None,
        partition: PartitionDir,
        offsets: PartitionOffsets,
        observe: Callable[[Step], None] | None,
        backup: Backup | None = None,
    ) -> None:
        self.log_dir = log_dir
        self._path = os.path.realpath(partition.path)
        self._offsets = offsets
        self._observe = observe
        self._backup = backup
        self.changes = Changes(partition.path, observe if backup is None else self._note_step)

    def forget_clean_shutdown(self) -> None:
        """Remove the clean shutdown mark, so that the next start of a broker scans."""
        _forget_clean_shutdown(self.log_dir, self._backup, self._observe)

    def set_offset(self, checkpoint: str, offset: int | None) -> None:
        """Put the partition's offset into a checkpoint of the log directory; None removes it.

        Nothing is done without a log directory. The other entries stay as they are.

        Raises:
            CorruptDataError: the checkpoint is malformed.
        """
        if self._backup is not None and self._offsets.get(checkpoint) != offset:
            fields = {"type": "offset", "path": self._path}
            # Before the entry changes: `undo` accepts only values that the journal announced.
            self._backup.note({**fields, "checkpoint": checkpoint, "offset": offset})
        self._offsets.set(checkpoint, offset)

    def _note_step(self, step: Step) -> None:
        """Record files that are created or cut before anything else is done to them."""
        assert self._backup is not None
        # A rename keeps size, time and owner, by which `undo` recognizes a file under any name.
        if step.kind in (StepKind.CREATE, StepKind.TRUNCATE, StepKind.LINK):
            status = FileStatus.of(file_system.status(step.new_path or step.path))
            self._backup.note(file_line(self._path, status))
        if self._observe is not None:
            self._observe(step)


def _forget_clean_shutdown(
    log_dir: str | None, backup: Backup | None, observe: Callable[[Step], None] | None
) -> None:
    if log_dir is None or not has_mark(log_dir):
        return
    if backup is not None:
        # Kept, then noted, then removed: at each crash point `undo` has the mark or needs none.
        keep_mark(log_dir, backup.path, observe)
        backup.note({"type": "mark", "state": MARK_REMOVED})
    remove_mark(log_dir, observe)


def _require_kept(entry: PartitionEntry, after: Listing) -> None:
    """Check that no other file has changed: `undo` could not restore it."""
    for name in set(entry.before.files) - set(entry.kept):
        assert after.files.get(name) == entry.before.files[name], f"{name} was not to be touched"


class Maintenance:
    """One run over a log directory or partition, which plans or changes it; a context manager.

    Within the block the log directory is locked, so that no broker can start on it. With a backup,
    partitions that an earlier run of the command did not finish are restored first, and noted.

    Args:
        path: path of the log directory or partition.
        in_place: whether it may be changed.
        backup: as for `Run`; only with `in_place`.
        of_log: whether the path may also be a `.log` file, which stands for its partition.
        topics, numbers, internal: which partitions are worked on, as for `selected`.
        arguments: those of the command, recorded in the journal.
        listener: receives everything reported besides the results.

    Attributes:
        target: the log directory or partition in its current state.
        named: the topics and the partitions that are named, which `Runs` requires.
        takes_all: whether no partition was left out by the arguments.
        log_dir: the log directory at or around it; None for a copied partition.
        home: the log directory of the node that holds the metadata log, if different and known when
            the block is entered.
        configs: the configs of its topics.

    Raises, when the block is entered:
        NotFoundError, UnreadableError, NotAKafkaFileError: the path cannot be opened.
        LogDirInUseError: a broker is using it.
        RefusedError: it would be changed but is the backup of a run, or a checkpoint is a link.
        UnwritableError: it would be changed but is read-only.
        Also the errors of `Run`.
    """

    target: LogDirListing | PartitionDir
    configs: LogDirConfigs

    def __init__(
        self,
        path: str | os.PathLike[str],
        command: str,
        sources: ConfigSources,
        *,
        in_place: bool = False,
        backup: str | None = None,
        of_log: bool = False,
        topics: Collection[str] | None = None,
        numbers: PartitionNumbers | None = None,
        internal: bool = True,
        arguments: Sequence[str] = (),
        listener: Listener | None = None,
    ) -> None:
        self._path = os.fspath(path)
        self._meant = partial(selected, topics=topics, numbers=numbers, internal=internal)
        self.named = topics, numbers
        self.takes_all = topics is None and numbers is None and internal
        self._command = command
        self._sources = sources
        self._in_place = in_place
        self._backup = backup
        self._of_log = of_log
        self._arguments = arguments
        self._listener = listener or Listener()
        self._held = ExitStack()
        self._run: Run | None = None
        self.log_dir: str | None = None
        self.home: str | None = None

    def __enter__(self) -> Self:
        with ExitStack() as held:
            self._hold(held)
            self._held = held.pop_all()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, *traceback: Any) -> None:
        self._held.__exit__(kind, error, *traceback)
        if isinstance(error, ShortageError) and self._run is not None and self._run.has_changed:
            raise PartlyDoneError(
                f"Something was changed before this: {error.message}",
                path=error.path,
                note=error.note,
                hint="Repeat the command.",
                is_temporary=error.is_temporary,
            ) from error

    @cached_property
    def first_listing(self) -> LogDirListing | PartitionDir:
        """What is at the path before it is locked, to find the lock; later it is listed again."""
        return target_at(self._path, of_log=self._of_log, topics=self.named[0])

    @property
    def is_plan(self) -> bool:
        """Whether the run only plans and cannot change anything."""
        return self._run is None

    @property
    def has_changed(self) -> bool:
        return self._run is not None and self._run.has_changed

    @property
    def is_one(self) -> bool:
        """Whether the path names a single partition."""
        return isinstance(self.target, PartitionDir)

    def _hold(self, held: ExitStack) -> None:
        self.log_dir = log_dir_around(self.first_listing)
        if self.log_dir is not None:
            require_own_checkpoints(self.log_dir)
        if self._in_place:
            require_no_backup(self.first_listing)
            self._run = held.enter_context(
                Run(
                    self.log_dir,
                    command=self._command,
                    arguments=self._arguments,
                    backup=self._backup,
                )
            )
            for name in self._run.restored:
                self._listener.hear(Note(f"{name} was restored to its state before the killed run"))
        elif self.log_dir is not None:
            held.enter_context(LogDirLock(self.log_dir))
        # Behind the lock, where nothing changes any more.
        self.target = target_at(self._path, of_log=self._of_log, topics=self.named[0])
        self._configure()

    def _configure(self) -> None:
        path = self.target.path
        if not isinstance(self.target, LogDirListing):
            path = os.path.normpath(os.path.join(path, os.pardir))
        self.configs = self._sources.in_log_dir(path, self.home)
        for event in self.configs.events():
            self._listener.hear(event)

    def _changing(self) -> Run:
        """Return the `Run` that changes logs; raise `UsageError` if this run only plans."""
        if self._run is None:
            raise UsageError("This run is only a plan.", hint="in_place=True changes logs.")
        return self._run

    def _fail(self, error: KafkaLogError) -> None:
        self._listener.hear(error)

    def _partitions(self) -> Iterator[PartitionDir]:
        """Yield the partitions to work on; note those that an earlier run finished."""
        targets = self._meant([self.target])
        for _, error in unlisted_of(targets):
            self._fail(error)
        for partition in partitions_of(targets):
            if self._run is not None and self._run.is_done(partition):
                words = f"{partition.path} is skipped: an earlier run with this backup finished it"
                self._listener.hear(Note(words))
            else:
                log_dirs = () if self.home is None else (self.home,)
                yield replace(partition, log_dirs=log_dirs)


def target_at(
    path: str, *, of_log: bool = False, topics: Collection[str] | None = None
) -> LogDirListing | PartitionDir:
    """Open the log directory or partition at a path; raises the same errors as `Maintenance`.

    Of a log directory, only the topics that are meant are listed, and internal ones.
    """
    require_local(path)
    target = open_one(path, topics)
    if isinstance(target, FileEntry):
        target = _partition_of(target, path, of_log=of_log)
    if isinstance(target, PartitionDir) and target.is_remote:
        raise UsageError(
            "The log is in remote storage, which only brokers change.", path=target.path
        )
    return target


def _partition_of(target: FileEntry, path: str, *, of_log: bool) -> PartitionDir:
    if not of_log:
        raise UsageError(
            "This is a file, not a partition or log directory.",
            path=path,
            hint="All segments of a partition are judged together.",
        )
    if (target.name.kind, target.name.state) != (FileKind.LOG, FileState.LIVE):
        raise UsageError(
            "This is neither a directory nor the log of a segment.",
            path=path,
            hint="Give a log directory, a partition directory, or a .log file.",
        )
    return open_partition(os.path.dirname(os.path.abspath(path)))


@contextmanager
def share_of(
    progress: Callable[[int], None] | None, size_bytes: int
) -> Iterator[Callable[[int], None] | None]:
    """Report progress on one piece of work; bytes not read are counted when it ends."""
    if progress is None:
        yield None
        return
    left = size_bytes

    def advance(done: int) -> None:
        nonlocal left
        done = min(done, left)
        left -= done
        progress(done)

    try:
        yield advance
    finally:
        progress(left)
