"""What kernels are: the kinds of arrays they take, the modules that hold them, what they call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

ARRAYS: Final[dict[str, tuple[Any, int]]] = {
    "bytes": (np.uint8, 1),
    "flags": (np.bool_, 1),
    "ints32": (np.int32, 1),
    "ints": (np.int64, 1),
    "table": (np.int64, 2),
}
"""Kinds of arrays that kernels take: dtype and dimensions. A table's rows may lie further apart
than they are long; everything else is contiguous."""

MODULES: Final = (
    "columns.byte_kernels", "columns.kernels", "columns.legacy_kernels", "columns.fact_kernels",
    "compaction.kernels", "text.value_kernels", "text.kafka_kernels", "text.object_kernels",
    "roll.kernels",
)  # fmt: skip
"""The modules that hold kernels."""


class Declared(Protocol):
    """A kernel as it is declared.

    Attributes:
        function: the Python source.
        arguments: kinds of the arguments: names in `ARRAYS`, or `int`.
        results: how many ints it returns; a tuple where there are several.
    """

    function: Callable[..., Any]
    arguments: list[str]
    results: int


def inlined(function: Callable[..., Any]) -> Any:
    """Declare a function that kernels call."""
    function.is_inlined = True  # type: ignore[attr-defined] # a mark for the compiler
    return function
