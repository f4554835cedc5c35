"""Counts in messages: singular for one, plural for any other number."""

from __future__ import annotations


def counted(number: int, what: str) -> str:
    """Return `1 segment`, `2 segments`, `2 batches`, `0 entries`, `2 keys`."""
    return f"{number} {what if number == 1 else _plural(what)}"


def _plural(what: str) -> str:
    if what.endswith("y") and not what.endswith(("ay", "ey", "oy")):
        return f"{what[:-1]}ies"
    return f"{what}es" if what.endswith(("ch", "x")) else f"{what}s"
