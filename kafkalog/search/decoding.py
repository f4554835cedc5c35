"""Records whose value does not decode by a schema: what a consumer stumbles over."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kafkalog.model import Defect
from kafkalog.typed.columns import failure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.search.model import Found
    from kafkalog.typed import TypedColumn


def undecodable(found: Iterator[Found | Defect], column: TypedColumn) -> Iterator[Found | Defect]:
    """Yield the records whose value does not decode, with the reason, and all defects.

    A null value decodes: it is a tombstone. `export` with the same schema leaves the same values
    null.

    Raises:
        UsageError: the schema is malformed.
        UnsupportedError: a package is missing.
    """
    decoder = column.decoder()
    for one in found:
        if isinstance(one, Defect):
            yield one
        elif (reason := failure(column, decoder, one.record.value)) is not None:
            yield replace(one, reason=reason)
