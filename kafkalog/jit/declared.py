"""How kernels are declared: kinds of arrays, the modules that hold them, and what they call."""

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
"""Kinds of arrays that kernels take: dtype and dimensions. The rows of a table may be farther apart
than they are long; everything else is contiguous.
"""

MODULES: Final = (
    "columns.byte_kernels", "columns.kernels", "columns.legacy_kernels", "columns.fact_kernels",
    "compaction.kernels", "text.value_kernels", "text.kafka_kernels", "text.object_kernels",
    "roll.kernels",
)  # fmt: skip
"""The modules that hold kernels."""


class Declared(Protocol):
    """A kernel's declaration.

    Attributes:
        function: the Python source.
        arguments: kinds of the arguments: names in `ARRAYS`, or `int`.
        results: number of ints it returns; several are returned as a tuple.
    """

    function: Callable[..., Any]
    arguments: list[str]
    results: int


def inlined(function: Callable[..., Any]) -> Any:
    """Declare a function that kernels call."""
    function.is_inlined = True  # type: ignore[attr-defined] # a mark for the compiler
    return function
