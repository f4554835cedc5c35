"""The catalogue of defects: severity, meaning and hint of each reference.

`docs/defects.md` is generated from its tables, which are loaded with the first defect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalog.errors import (
    BytesUnreadableError,
    ChangedSinceError,
    CorruptDataError,
    KafkaLogError,
    LimitExceededError,
    Listener,
    UnreadableError,
)
from kafkalog.model import Defect, Severity

if TYPE_CHECKING:
    from kafkalog.errors import Event

DELETED: Final = "deleted-while-reading"
UNREADABLE: Final = ("file-unreadable", "bytes-unreadable")
_ERRORS: Final[dict[str, type[KafkaLogError]]] = {
    DELETED: ChangedSinceError,
    "bytes-unreadable": BytesUnreadableError,
    "file-unreadable": UnreadableError,
    "limit-exceeded": LimitExceededError,
}
"""Error class of each defect that is not about the format of the data."""


def make_defect(
    name: str,
    path: str,
    detail: str,
    *,
    position: int | None = None,
    offset: int | None = None,
    size_bytes: int | None = None,
) -> Defect:
    """Make a defect of a known kind; severity and hint come from the table."""
    from kafkalog.log.defects.table import REFERENCES

    reference = REFERENCES[name]
    return Defect(
        reference=name,
        severity=reference.severity,
        path=path,
        detail=detail,
        position=position,
        offset=offset,
        hint=reference.hint,
        size_bytes=size_bytes,
    )


def kind_of(error: KafkaLogError) -> str:
    """Return the kind of defect that an error becomes."""
    from kafkalog.log.defects.table import REFERENCES

    return error.reference if error.reference in REFERENCES else "file-unreadable"


def corrupt_data(
    defect: Defect, *, note: str | None = None, hint: str | None = None
) -> CorruptDataError:
    """Return the error for work that a defect stops, with its own note and hint."""
    return CorruptDataError(
        defect.detail,
        reference=defect.reference,
        path=defect.path,
        position=defect.position,
        note=note,
        hint=hint,
    )


def raise_defect(defect: Defect) -> None:
    """Raise the error of a defect, unless it is a note or covers no bytes.

    Raises:
        ChangedSinceError: records were deleted before they were read.
        LimitExceededError, UnreadableError, CorruptDataError: the defect, with its path, position
            and hint. A `CorruptDataError` has the defect's reference.
    """
    is_slight = defect.severity == Severity.NOTE or defect.size_bytes == 0
    if is_slight and defect.reference != DELETED:
        return
    kind: type[KafkaLogError] | None = _ERRORS.get(defect.reference)
    if kind is not None:
        raise kind(defect.detail, path=defect.path, position=defect.position, hint=defect.hint)
    raise corrupt_data(defect, hint=defect.hint)


class Events(Listener):
    """Keeps the events that it hears of.

    Attributes:
        heard: the events, in order.
    """

    def __init__(self) -> None:
        self.heard: list[Event] = []

    def hear(self, event: Event) -> None:
        """Keep an event."""
        self.heard.append(event)

    @property
    def defects(self) -> list[Defect]:
        """The defects among them."""
        return [one for one in self.heard if isinstance(one, Defect)]


class Tolerant(Listener):
    """Raises errors and grave defects: what callers get that do not listen."""

    def hear(self, event: Event) -> None:
        """Raise an error, or what `raise_defect` raises."""
        if isinstance(event, Defect):
            raise_defect(event)
        else:
            super().hear(event)
