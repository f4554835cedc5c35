"""What a typed column has another type for than one may expect, and what its values lost."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from formats.late_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LOST_DIGITS: Final = "lost digits"
"""Values that a column has with fewer digits than their bytes, such as nanoseconds."""
LOCAL_AS_UTC: Final = "times without a zone, taken as UTC"
UNKNOWN_FIELDS: Final = "fields that the schema lacks"
"""Values with these, which are dropped: often the sign of a wrong schema."""
CONFLICT: Final = "conflict column"
"""The type of a remark about a field for values of another type than those of a field has."""
OLD_NAME: Final = "the old name"
"""The type of a remark about a field of a table whose schema calls it otherwise now."""

NEW_NAME: Final = "renamed"
"""The type of a remark about such a field that gets the new name, in a table that can do that."""


@dataclass(frozen=True, slots=True)
class Remark:
    """A part of a schema for which a column has another type than one may expect.

    Attributes:
        path: where it is in the column: names of fields with `.` between them, `[]` after a list
            and `{}` after a map, as in `orders[].prices{}.amount`; empty for the whole column.
        type: `json`, `omitted` if the column lacks it, `CONFLICT`, `OLD_NAME` or `NEW_NAME`.
        reason: why, as in `a union of several types`.
    """

    path: str
    type: str
    reason: str


def placed(remarks: Mapping[str, Iterable[Remark]]) -> tuple[Remark, ...]:
    """Return the remarks about some columns, by name, with the column before each path."""
    return tuple(
        replace(one, path=f"{name}{'.' if one.path[:1] not in ('', '[', '{') else ''}{one.path}")
        for name, some in remarks.items()
        for one in some
    )
