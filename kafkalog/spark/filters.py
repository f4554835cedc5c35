"""Filters of a query as bounds of what has to be read; Spark still applies them to the rows."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafkalog.tables import Bounds

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def bounds_of(filters: Iterable[Any], bounds: Bounds) -> Bounds:
    """The bounds, narrowed by what filters of `pyspark.sql.datasource` say.

    All of them hold. Those about columns or of kinds that nothing can be told from change nothing.
    """
    for one in filters:
        column = one.attribute[0] if len(getattr(one, "attribute", ())) == 1 else None
        if column in ("topic", "partition"):
            bounds = _of_names(one, column, bounds)
        elif column == "offset" and isinstance(getattr(one, "value", None), int):
            bounds = _of_numbers(one, one.value, "offset", bounds)
        elif column == "timestamp_ms" and isinstance(getattr(one, "value", None), int):
            bounds = _of_numbers(one, one.value, "time", bounds)
        elif column == "timestamp" and isinstance(getattr(one, "value", None), datetime):
            bounds = _of_times(one, bounds)
    return bounds


def _of_names(one: Any, column: str, bounds: Bounds) -> Bounds:
    if isinstance(one, EqualTo):
        wanted = {one.value}
    elif isinstance(one, In):
        wanted = set(one.value)
    else:
        return bounds
    if column == "topic":
        topics = wanted if bounds.topics is None else wanted & bounds.topics
        return replace(bounds, topics=frozenset(topics))
    partitions = wanted if bounds.partitions is None else wanted & bounds.partitions
    return replace(bounds, partitions=frozenset(partitions))


def _of_numbers(one: Any, value: int, what: str, bounds: Bounds) -> Bounds:
    """A whole number: from it on, or up to it."""
    lower = upper = None
    if isinstance(one, EqualTo):
        lower, upper = value, value + 1
    elif isinstance(one, GreaterThan):
        lower = value + 1
    elif isinstance(one, GreaterThanOrEqual):
        lower = value
    elif isinstance(one, LessThan):
        upper = value
    elif isinstance(one, LessThanOrEqual):
        upper = value + 1
    return _narrowed(bounds, what, lower, upper)


def _of_times(one: Any, bounds: Bounds) -> Bounds:
    """A time, to the microsecond; records have milliseconds."""
    value: datetime = one.value
    if value.tzinfo is None:
        value = value.astimezone()
    whole = (value - _EPOCH) // _MILLISECOND  # the millisecond it is in
    is_whole = whole * _MILLISECOND + _EPOCH == value
    lower = upper = None
    if isinstance(one, EqualTo):
        lower, upper = whole, whole + 1
    elif isinstance(one, GreaterThan):
        lower = whole + 1
    elif isinstance(one, GreaterThanOrEqual):
        lower = whole if is_whole else whole + 1
    elif isinstance(one, LessThan):
        upper = whole if is_whole else whole + 1
    elif isinstance(one, LessThanOrEqual):
        upper = whole + 1
    return _narrowed(bounds, "time", lower, upper)


def _narrowed(bounds: Bounds, what: str, lower: int | None, upper: int | None) -> Bounds:
    if what == "offset":
        first, last = _inner(bounds.from_offset, lower, max), _inner(bounds.to_offset, upper, min)
        return replace(bounds, from_offset=first, to_offset=last)
    first, last = _inner(bounds.from_time, lower, max), _inner(bounds.to_time, upper, min)
    return replace(bounds, from_time=first, to_time=last)


def _inner(one: int | None, other: int | None, choose: Callable[[int, int], int]) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return choose(one, other)
