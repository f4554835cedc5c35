"""The order in which Java goes through a map of producers, and so that of a producer snapshot.

Follows `java.util.HashMap` of JDK 17 with keys of `Long`: bucket by bucket, in each by time of
insertion. Where a bucket has more than eight keys, which consecutive producer ids never give, Java
makes a tree of it: then the order may be another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_CAPACITY_MIN = 16


def hash_order(keys: Iterable[int], count_max: int) -> list[int]:
    """The keys in the order in which Java goes through them.

    Args:
        keys: of 64 bits, in the order of insertion.
        count_max: how many the map has held at most; it never shrinks.
    """
    capacity = _CAPACITY_MIN
    while count_max > capacity * 3 // 4:
        capacity *= 2
    return sorted(keys, key=lambda key: _spread(key) & (capacity - 1))


def _spread(key: int) -> int:
    hashed = (key ^ (key >> 32 & 0xFFFFFFFF)) & 0xFFFFFFFF
    return hashed ^ (hashed >> 16)
