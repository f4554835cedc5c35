"""The errors that stop the work: one class per reason, each with a reference and an exit status.

Damage found in data is a `kafkalog.model.Defect`, a value; an error here means that the work could
not go on. The exit statuses are those of the command line's contract (`docs/exit-codes.md`).
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PARTLY_DONE: Final = 8
"""Exit status: something was changed or written, and something else failed or was refused."""
NOTHING_TO_DO: Final = 9
"""Exit status: a command that writes or audits found nothing to work on."""
INTERNAL_ERROR: Final = 70
"""Exit status: kafkalog itself failed, which says nothing about the data."""

on_failure: list[Callable[[Exception], None]] = []
"""Callbacks, called in any thread with each unexpected exception that was turned into a finding."""


class KafkaLogError(Exception):
    """Root of all errors that kafkalog raises on purpose.

    Args:
        message: what happened, in one sentence.
        path: the file or directory concerned.
        position: byte position in that file.
        note: something worth knowing besides the message.
        hint: what to do next, ideally a command.
        is_temporary: whether the same may succeed a little later, because something was busy.
    """

    reference: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 3

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
        self.is_temporary = is_temporary
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


class UsageError(KafkaLogError):
    """An option, an argument or a combination of them makes no sense."""

    reference = "usage"
    exit_code = 2


class NotFoundError(KafkaLogError):
    """The path does not exist."""

    reference = "path-not-found"


class UnreadableError(KafkaLogError):
    """The path exists but cannot be read: permissions, an I/O error, a loop of links."""

    reference = "path-unreadable"


class FileChangedError(UnreadableError):
    """A file was truncated, replaced or renamed while it was being read."""


class BytesUnreadableError(UnreadableError):
    """The disk does not return some bytes of a file that can be opened."""

    reference = "bytes-unreadable"


class NotAKafkaFileError(KafkaLogError):
    """The path is not a file or directory that Kafka writes."""

    reference = "not-a-kafka-file"


class DestinationExistsError(KafkaLogError):
    """The destination exists already; nothing was changed."""

    reference = "destination-exists"
    exit_code = 4


class UnwritableError(KafkaLogError):
    """The destination cannot be written: permissions, a full disk, an I/O error."""

    reference = "path-unwritable"
    exit_code = 4


class LogDirInUseError(KafkaLogError):
    """A broker or another kafkalog is using the log directory; nothing was changed."""

    reference = "log-dir-in-use"
    exit_code = 4


class RefusedError(KafkaLogError):
    """The operation could lose data or needs confirmation; nothing was changed."""

    reference = "refused"
    exit_code = 4


class ChangedSinceError(KafkaLogError):
    """A partition changed since the run that is to be undone; undoing would lose those changes."""

    reference = "changed-since"
    exit_code = 4


class PartlyDoneError(KafkaLogError):
    """Something was changed or written before something else failed or was refused."""

    reference = "partly-done"
    exit_code = PARTLY_DONE


class UnsupportedError(KafkaLogError):
    """A version, codec or optional part is needed but not available."""

    reference = "unsupported"
    exit_code = 5


class CorruptDataError(KafkaLogError):
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


class LimitExceededError(KafkaLogError):
    """A limit on memory or on decompressed size was exceeded."""

    reference = "limit-exceeded"
    exit_code = 7


class RequestsExceededError(LimitExceededError):
    """A run needs more requests to object stores than `--max-requests` allows."""

    reference = "requests-exceeded"


class EngineError(KafkaLogError):
    """Spark failed: it does not answer, or a task failed or was lost."""

    reference = "engine-failed"


class ClusterError(KafkaLogError):
    """A cluster cannot be reached, or does not do what it is asked."""

    reference = "cluster-failed"


class InternalError(KafkaLogError):
    """internal error: a bug, or not enough memory. It says nothing about the data."""

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


def raised(error: KafkaLogError) -> None:
    """Raise an error: what callers get that take no errors."""
    raise error


@contextmanager
def contained(path: str, failed: Callable[[KafkaLogError], None]) -> Iterator[None]:
    """Confine an error to the item that is being worked on.

    Args:
        path: the path that the block works on.
        failed: called with the error that the block raised; an unexpected exception is first
            wrapped in an `InternalError`.

    Raises:
        MemoryError, RequestsExceededError: passed on, since the other items would meet it as well.
    """
    try:
        yield
    except (MemoryError, RequestsExceededError):
        raise
    except KafkaLogError as error:
        failed(error)
    except Exception as raised:  # noqa: BLE001 # a bug on one item: the others go on
        failed(as_internal_error(raised, path))
