"""The names of what can be wrong: severity, meaning and next step of each reference.

`docs/defects.md` is generated from these tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalog.defects import batches, files, indexes, producers, starts
from kafkalog.model import Defect

if TYPE_CHECKING:
    from kafkalog.defects.reference import Reference

REFERENCES: Final[dict[str, Reference]] = {
    reference.name: reference
    for table in (batches, indexes, producers, files, starts)
    for reference in table.REFERENCES
}


def make_defect(
    name: str,
    path: str,
    detail: str,
    *,
    position: int | None = None,
    offset: int | None = None,
    size_bytes: int | None = None,
) -> Defect:
    """A defect of a known kind: severity and hint come from the table."""
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
