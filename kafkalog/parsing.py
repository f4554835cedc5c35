"""Turns construct's errors into ours, in one place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalog.errors import CorruptDataError

if TYPE_CHECKING:
    from construct import ConstructError


def parse(schema: Any, data: bytes, path: str, *, reference: str = "file-malformed") -> Any:
    """Parse a file's bytes with a schema.

    Raises:
        CorruptDataError: the bytes do not follow the schema.
    """
    from construct import ConstructError

    try:
        return schema.parse(data)
    except ConstructError as error:
        raise CorruptDataError(
            f"The content cannot be parsed: {reason(error)}.", reference=reference, path=path
        ) from error


def reason(error: ConstructError) -> str:
    """Return construct's message without its path inside the schema."""
    return str(error).rpartition("\n")[2]
