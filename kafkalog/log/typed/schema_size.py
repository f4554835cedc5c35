"""Bounds what a schema may describe, and quotes libraries' errors about malformed schemas."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from kafkalog.errors import UnsupportedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.log.typed.framing import TypedForm

MALFORMED: Final = (
    ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError,
    MemoryError, NotImplementedError, AssertionError,
)  # fmt: skip
"""What the libraries raise for malformed schemas, besides errors of their own."""
DEPTH_MAX: Final = 64
NODES_MAX: Final = 10_000


def brief(error: Exception) -> str:
    """Quote a library's error on one line; it can hold the whole schema."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def missing_package(form: TypedForm, error: ModuleNotFoundError) -> UnsupportedError:
    """Return the error of data that cannot be decoded without a package."""
    return UnsupportedError(
        f"To decode {form} needs a package that is missing: {error.name}.",
        hint="pip install 'kafkalog[schemas]'",
    )


class SchemaSize:
    """Bounds the type that a schema describes: a few bytes can describe a type without end."""

    def __init__(self) -> None:
        self._nodes = self._depth = 0

    @contextmanager
    def inside(self, place: str) -> Iterator[None]:
        """Enter a part of the schema.

        Raises:
            UsageError: the schema is nested too deeply, or has too many parts.
        """
        self._nodes += 1
        if self._depth == DEPTH_MAX:
            raise UsageError(f"The schema is nested more than {DEPTH_MAX} levels deep: {place}.")
        if self._nodes > NODES_MAX:
            raise UsageError(f"The schema describes more than {NODES_MAX} fields: {place}.")
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
