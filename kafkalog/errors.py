"""What can stop the work: one class per reason, each with a reference and an exit status.

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
"""Exit status: a command that writes or audits found nothing that concerns it."""
INTERNAL_ERROR: Final = 70
"""Exit status: kafkalog itself failed; it says nothing about the data."""

on_failure: list[Callable[[Exception], None]] = []
"""Called, in any thread, with each exception not raised on purpose that became a finding."""


class KafkaLogError(Exception):
    """Root of all errors that kafkalog raises on purpose.

    Args:
        message: what happened, one sentence.
        path: the file or directory concerned.
        position: byte position in that file.
        note: something worth knowing besides the message.
        hint: what to do next, ideally a command.
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
    ) -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        self.position = position
        self.note = note
        self.hint = hint

    def __str__(self) -> str:
        """Return the message and where it happened: the text that a traceback shows."""
        return self.message if self.context is None else f"{self.message} [{self.context}]"

    @property
    def context(self) -> str | None:
        """Where it happened: `path`, or `path, position N`."""
        if self.path is None:
            return None
        return self.path if self.position is None else f"{self.path}, position {self.position}"


class UsageError(KafkaLogError):
    """An option, argument or combination that makes no sense."""

    reference = "usage"
    exit_code = 2


class NotFoundError(KafkaLogError):
    """The path does not exist."""

    reference = "path-not-found"


class UnreadableError(KafkaLogError):
    """The path exists but cannot be read: permissions, an I/O error, a loop of links."""

    reference = "path-unreadable"


class FileChangedError(UnreadableError):
    """A file became shorter while it was being read: what was listed is not there any more."""


class BytesUnreadableError(UnreadableError):
    """The disk does not give some bytes of a file, though the file can be opened."""

    reference = "bytes-unreadable"


class NotAKafkaFileError(KafkaLogError):
    """The path is no file or directory that Kafka writes."""

    reference = "not-a-kafka-file"


class DestinationExistsError(KafkaLogError):
    """What was to be created is there already; nothing was changed."""

    reference = "destination-exists"
    exit_code = 4


class UnwritableError(KafkaLogError):
    """What was to be created cannot be written: permissions, a full disk, an I/O error."""

    reference = "path-unwritable"
    exit_code = 4


class LogDirInUseError(KafkaLogError):
    """A broker, or another kafkalog, has the log directory; nothing was changed."""

    reference = "log-dir-in-use"
    exit_code = 4


class RefusedError(KafkaLogError):
    """The work could lose data, or is not known to be wanted; nothing was changed."""

    reference = "refused"
    exit_code = 4


class ChangedSinceError(KafkaLogError):
    """A partition is not as the run to undo left it: going back would lose what came since."""

    reference = "changed-since"
    exit_code = 4


class UnsupportedError(KafkaLogError):
    """A version, codec or part that is not available where it would be needed."""

    reference = "unsupported"
    exit_code = 5


class CorruptDataError(KafkaLogError):
    """Bytes that do not follow the format, where the work needs them to."""

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


class LimitExceededError(KafkaLogError):
    """A limit on memory or on decompressed size was hit."""

    reference = "limit-exceeded"
    exit_code = 7


class EngineError(KafkaLogError):
    """Spark could not do the work: it does not answer, or a part of it failed or was lost."""

    reference = "engine-failed"


class InternalError(KafkaLogError):
    """internal error: a bug, or not enough memory. It says nothing about the data."""

    reference = "internal-error"
    exit_code = INTERNAL_ERROR


def as_internal_error(raised: BaseException, path: str | None = None) -> InternalError:
    """Return the error that stands for an exception which kafkalog did not raise on purpose.

    Args:
        raised: the exception, the cause of the new error.
        path: what was being worked on.
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


@contextmanager
def contained(path: str, failed: Callable[[KafkaLogError], None]) -> Iterator[None]:
    """Let what stops the work on one thing cost only that.

    Args:
        path: what is worked on in the block.
        failed: called with the error that the block raised; with an `InternalError` for an
            exception that was not raised on purpose.

    Raises:
        MemoryError: passed on, since the rest would run out of memory as well.
    """
    try:
        yield
    except MemoryError:
        raise
    except KafkaLogError as error:
        failed(error)
    except Exception as raised:  # noqa: BLE001 # any failure costs this part only
        failed(as_internal_error(raised, path))
