"""The errors that stop the work: one class per reason, each with a reference and an exit status.

They have two branches: a `DataError` is about what is read, a `RunError` about the run that reads.
Damage found in data is a `kafkalog.model.Defect`, a value; an error here means that the work could
not go on. The exit statuses are those of the command line's contract (`docs/exit-codes.md`).
"""

from __future__ import annotations

from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafkalog.files.log_dir import PartitionDir
    from kafkalog.files.offsets import PartitionOffsets
    from kafkalog.model import Defect
    from kafkalog.node.outcome import Difference
    from kafkalog.node.state.model import Groups
    from kafkalog.tables.model import Loss

NO: Final = 1
"""Exit status: the answer is no, and it is sure."""
INCOMPLETE: Final = 8
"""Exit status: done, but damaged, unreadable or refused parts are left out; each is named."""
INTERNAL_ERROR: Final = 70
"""Exit status: kafkalog itself failed, which says nothing about the data."""


class EventKind(StrEnum):
    """What an event is about: the `kind` of each."""

    PROGRESS = "progress"
    """Bytes were read."""
    DEFECT = "defect"
    """Something is wrong, or could not be read."""
    NOTE = "note"
    """Something is worth knowing."""
    DONE = "done"
    """A part of the work is done."""


on_failure: list[Callable[[Exception], None]] = []
"""Callbacks, called in any thread with each unexpected exception that was turned into a finding."""
on_left_out: list[Callable[[str], None]] = []
"""Callbacks, called with a line that names directories left out of what is read."""


class KafkaLogError(Exception):
    """Root of all errors that kafkalog raises on purpose.

    Args:
        message: what happened, in one sentence.
        path: the file or directory concerned.
        position: byte position in that file.
        note: something worth knowing besides the message.
        hint: what to do next, ideally a command.
        is_temporary: whether a later round of the same run may succeed, because something was busy.

    Attributes:
        partition: the partition that cannot be read, if a planner goes on without it.
    """

    reference: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 3
    kind: ClassVar[EventKind] = EventKind.DEFECT
    is_temporary: bool = False
    partition: PartitionDir | None = None

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        position: int | None = None,
        note: str | None = None,
        hint: str | None = None,
        is_temporary: bool = False,
    ) -> None:
        super().__init__(message)
        self.is_temporary |= is_temporary
        self.message = message
        self.path = path
        self.position = position
        self.note = note
        self.hint = hint

    def __str__(self) -> str:
        """Return the message and its context, as a traceback shows them."""
        return self.message if self.context is None else f"{self.message} [{self.context}]"

    @property
    def context(self) -> str | None:
        """Where it happened: `path`, or `path, position N`."""
        if self.path is None:
            return None
        return self.path if self.position is None else f"{self.path}, position {self.position}"


class DataError(KafkaLogError):
    """What is on the disk, or is not: a reader may pass over it, and go on with the rest."""


class RunError(KafkaLogError):
    """What says nothing about the data: no reader may take it for damage, or for an answer."""


class ShortageError(RunError):
    """Something is lacking that every other file needs as well, so that the run cannot go on."""


class TemporaryError(ShortageError):
    """A disk or a store does not answer for now, or too many files are open. It is no damage.

    Attributes:
        after_s: in how many seconds the store wants to be asked again.
    """

    reference = "temporary"
    is_temporary = True
    after_s = 0.0


class OutOfMemoryError(ShortageError):
    """Memory ran out. It is no damage, and no answer of the run is complete."""

    reference = "limit-exceeded"
    exit_code = 7

    def __init__(
        self,
        message: str = "Memory ran out.",
        *,
        path: str | None = None,
        position: int | None = None,
        note: str | None = "This is no damage: nothing is known of the data that was being read.",
        hint: str | None = "Give the process more memory.",
    ) -> None:
        super().__init__(message, path=path, position=position, note=note, hint=hint)


class UsageError(RunError):
    """An option, an argument or a combination of them makes no sense."""

    reference = "usage"
    exit_code = 2


class NothingFoundError(RunError):
    """What was named, such as a topic or an offset, is not in what was read."""

    reference = "nothing-found"
    exit_code = NO


class NotFoundError(DataError):
    """The path does not exist."""

    reference = "path-not-found"
    exit_code = 2


class UnreadableError(DataError):
    """The path exists but cannot be read: permissions, an I/O error, a loop of links."""

    reference = "path-unreadable"


class FileChangedError(UnreadableError):
    """A file was truncated, replaced or renamed while it was being read."""


class GoneError(NotFoundError):
    """A partition is in none of the log directories of its node any more."""

    exit_code = 3


class ReplacedError(FileChangedError):
    """A partition belongs to another topic of its name than before, or to none."""


class BytesUnreadableError(UnreadableError):
    """The disk does not return some bytes of a file that can be opened."""

    reference = "bytes-unreadable"


class NotAKafkaFileError(DataError):
    """The path is not a file or directory that Kafka writes."""

    reference = "not-a-kafka-file"


class DestinationExistsError(RunError):
    """The destination exists already; nothing was changed."""

    reference = "destination-exists"
    exit_code = 4


class UnwritableError(RunError):
    """The destination cannot be written: permissions, a full disk, an I/O error."""

    reference = "path-unwritable"
    exit_code = 4


class LogDirInUseError(RunError):
    """A broker or another kafkalog is using the log directory; nothing was changed."""

    reference = "log-dir-in-use"
    exit_code = 4


class RefusedError(RunError):
    """The operation could lose data or needs confirmation; nothing was changed."""

    reference = "refused"
    exit_code = 4


class ChangedSinceError(RunError):
    """A partition changed since the run that is to be undone; undoing would lose those changes."""

    reference = "changed-since"
    exit_code = 4


class PartlyDoneError(RunError):
    """Something was changed or written before something else failed or was refused."""

    reference = "partly-done"
    exit_code = INCOMPLETE


class UnsupportedError(RunError):
    """An optional part is needed but not available."""

    reference = "unsupported"
    exit_code = 5


class UnsupportedDataError(DataError):
    """The data have a version, a layout or a key that cannot be read."""

    reference = "unsupported"
    exit_code = 5


class CorruptDataError(DataError):
    """Bytes do not follow the format, and the work cannot go on without them."""

    reference = "corrupt-data"
    exit_code = 6

    def __init__(
        self,
        message: str,
        *,
        reference: str = "corrupt-data",
        path: str | None = None,
        position: int | None = None,
        note: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, path=path, position=position, note=note, hint=hint)
        self.reference = reference  # type: ignore[misc] # damage has many names, one exit status


class OffsetsMissingError(CorruptDataError):
    """Offsets are missing between the segments of a log, and no compaction explains it."""

    reference = "offsets-missing"

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        position: int | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, reference=self.reference, path=path, position=position, hint=hint)


class LimitExceededError(DataError):
    """A batch or a file is larger than the limit for its kind."""

    reference = "limit-exceeded"
    exit_code = 7


class RequestsExceededError(ShortageError):
    """A run needs more requests to object stores than `--max-requests` allows."""

    reference = "requests-exceeded"
    exit_code = 7


class EngineError(RunError):
    """Spark failed: it does not answer, or a task failed or was lost."""

    reference = "engine-failed"


class ClusterError(RunError):
    """A cluster cannot be reached, or does not do what it is asked."""

    reference = "cluster-failed"


class InternalError(RunError):
    """internal error: a bug. It says nothing about the data."""

    reference = "internal-error"
    exit_code = INTERNAL_ERROR


def as_internal_error(raised: BaseException, path: str | None = None) -> InternalError:
    """Wrap an unexpected exception in an `InternalError`.

    Args:
        raised: the exception, which becomes the cause of the new error.
        path: the path that was being worked on.
    """
    words = " ".join(f"{type(raised).__name__}: {raised}".split()).rstrip(": .")
    error = InternalError(
        f"internal error: {words}.",
        path=path,
        note="This is not about the data; no answer of this run is complete.",
        hint="Please report it with the traceback that `kafkalog --debug …` shows.",
    )
    error.__cause__ = raised
    return error


def raised(event: Event) -> None:
    """Raise an error: what callers get that hear nothing."""
    if isinstance(event, KafkaLogError):
        raise event


@contextmanager
def contained(path: str, failed: Callable[[KafkaLogError], object]) -> Iterator[None]:
    """Confine an error to the item that is being worked on.

    Args:
        path: the path that the block works on.
        failed: called with the error that the block raised; an unexpected exception is first
            wrapped in an `InternalError`.

    Raises:
        MemoryError, ShortageError, UnsupportedError: passed on, since the other items would meet
            it as well.
    """
    try:
        yield
    except (MemoryError, ShortageError, UnsupportedError):
        raise
    except KafkaLogError as error:
        failed(error)
    except Exception as raised:  # noqa: BLE001 # a bug on one item: the others go on
        failed(as_internal_error(raised, path))


class Note(NamedTuple):
    """One line worth knowing; a warning is one that somebody should act on."""

    text: str
    is_warning: bool = False

    @property
    def kind(self) -> EventKind:
        """What it is as an event."""
        return EventKind.NOTE


class Progress(NamedTuple):
    """The number of bytes read since the last one."""

    size_bytes: int

    @property
    def kind(self) -> EventKind:
        """What it is as an event."""
        return EventKind.PROGRESS


class Done(NamedTuple):
    """A part of the work is done: a row of what was copied, a step on the disk."""

    result: object

    @property
    def kind(self) -> EventKind:
        """What it is as an event."""
        return EventKind.DONE


Event: TypeAlias = (
    "KafkaLogError | Defect | Note | Difference | PartitionOffsets | Loss | Groups"
    " | Progress | Done"
)
"""What a run reports besides its results; each has a `kind`.

What stops the work on one thing, damage, notes, how the view of a partition differs from its files,
which bounds decide where its records end, offsets that a reader of a growing log never gets, the
groups that an answer was made from, and how far the work is.
"""
OnEvent: TypeAlias = "Callable[[Event], object]"
"""A function of a caller that each event is passed to; without one, grave ones are raised."""


class Listener:
    """Hears what a run reports besides its results; subclasses override what they need."""

    def hear(self, event: Event) -> None:
        """Handle an event; by default raise an error, and so stop the run."""
        raised(event)


class Deaf(Listener):
    """Ignores all events, which another listener reports."""

    def hear(self, event: Event) -> None:
        """Ignore an event."""
