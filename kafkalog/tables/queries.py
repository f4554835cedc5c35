"""Queries over the tables: what a statement names, and what an engine answers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a query.

    Attributes:
        names: names of the columns, in order; not necessarily unique.
        numeric: for each column whether it holds numbers.
        rows: values of each row: None, numbers, text, bytes, times (UTC, with a zone or none),
            lists, and dicts for structs and maps. They are fetched on demand.
    """

    names: tuple[str, ...]
    numeric: tuple[bool, ...]
    rows: Iterator[tuple[Any, ...]]


def is_named(query: str, name: str) -> bool:
    """Return whether a query may name a table or a column."""
    return re.search(rf"\b{name}\b", query, re.IGNORECASE) is not None


def columns_for(query: str, usual: Sequence[str], others: Iterable[str]) -> list[str]:
    """Return the columns that `*` stands for: the usual ones, and what else the query may name."""
    return [*usual, *(name for name in others if name not in usual and is_named(query, name))]
