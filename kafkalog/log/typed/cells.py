"""Counts the room that values take in a column, in cells, and bounds it.

A few bytes of a value can stand for any number of fields: each item of a list has all fields of its
type, also those that are null or have a default. So items are counted before they are made.

A cell is a field of an item: 8 bytes of a column, or 16, and some 40 as a Python object. Text that
a value gets from its schema, such as a symbol of an enum, has a cell more for each 16 bytes; and so
has the name of a field, which every item has again as JSON.
"""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

CELLS_MAX: Final = 4 << 20
"""Of the items in a value: at most 64 MiB of a column, and 160 MiB of Python objects. A message of
one megabyte, the most that brokers take by default, has one for each quarter of a byte.
"""
CELLS_AT_ONCE: Final = 2 << 20
"""Of values that are decoded together, at most; a value of more is alone."""
_TEXT_OF_CELL: Final = 16


class _Counter(threading.local):
    """Counts the cells of the value that this thread decodes.

    Attributes:
        cells: how many there are so far; to be set to zero before each value.
    """

    cells = 0

    def add(self, items: int, width: int) -> None:
        """Count items of `width` cells each; raise `ValueError` if a value has too many."""
        self.cells += items * width
        if self.cells > CELLS_MAX:
            raise ValueError(f"{items} items of {width} cells each: more than {CELLS_MAX} cells")

    def add_text(self, text: str) -> str:
        """Count text that the bytes of a value have not, and return it. Raises as `add`."""
        if len(text) >= _TEXT_OF_CELL:
            self.add(1, cells_of_text(len(text)))
        return text


COUNTER: Final = _Counter()


def cells_of_text(size: int) -> int:
    """Return how many cells some bytes of text add to those of their field."""
    return size // _TEXT_OF_CELL


@lru_cache(256)
def cells_of(kind: Any) -> int:
    """Return how many cells a value of an Arrow type has, but for items of lists and maps."""
    return _cells_of(kind)


def _cells_of(kind: Any) -> int:
    if pa.types.is_struct(kind):
        return 1 + sum(_cells_of(one.type) + cells_of_text(len(one.name)) for one in kind)
    return 2 if pa.types.is_decimal(kind) else 1


def cells_of_items(kind: Any) -> int:
    """Return how many cells each item of a list or of a map has, given its Arrow type."""
    if pa.types.is_map(kind):
        return cells_of(kind.key_type) + cells_of(kind.item_type)
    return cells_of(kind.value_type)
