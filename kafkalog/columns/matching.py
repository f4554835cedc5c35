"""Which byte strings of a column match a regular expression.

Most expressions have a text that every match contains. Searching for that in all of the bytes at
once is much faster than trying the expression on each string; only strings with it are tried.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_PLAIN: Final = re.compile(rb"[\w \"':;,=<>@#%&!~/-]+")
"""Bytes that stand for themselves."""
_STRUCTURE: Final = re.compile(rb"[()\[\]|]")
"""Signs after which a text may be one of several, or is none."""
_REPEATS: Final = (b"*", b"?", b"{")
_NUMBERS: Final = re.compile(rb"[\d,]+")
_TEXT_SIZE_MIN: Final = 2


@lru_cache(16)
def text_in(pattern: re.Pattern[bytes]) -> re.Pattern[bytes] | None:
    """Return the expression for a text that is in everything a pattern matches, or None."""
    if pattern.flags & (re.IGNORECASE | re.VERBOSE) or _STRUCTURE.search(pattern.pattern):
        return None
    texts = []
    for match in _PLAIN.finditer(pattern.pattern):
        text = match[0]
        if _NUMBERS.fullmatch(text) and pattern.pattern[: match.start()].endswith(b"{"):
            continue  # how often something is repeated
        if pattern.pattern[: match.start()].endswith(b"\\"):
            text = text[1:] if text[:1] not in b"xuUN0123456789" else b""
        if pattern.pattern[match.end() : match.end() + 1] in _REPEATS:
            text = text[:-1]
        texts.append(text)
    longest = max(texts, key=len, default=b"")
    return re.compile(re.escape(longest)) if len(longest) >= _TEXT_SIZE_MIN else None


def keep_matching(
    arena: NDArray[np.uint8],
    positions: NDArray[np.int64],
    sizes: NDArray[np.int64],
    pattern: re.Pattern[bytes],
    chosen: NDArray[np.bool_],
) -> None:
    """Unset `chosen` for the byte strings that are null or empty, or in which nothing matches."""
    chosen &= sizes > 0
    text = text_in(pattern)
    if text is not None and chosen.any() and bool((positions[1:] >= positions[:-1]).all()):
        chosen &= _with_text(arena, positions, sizes, text)
    view = arena.data
    for i in np.flatnonzero(chosen).tolist():
        at = int(positions[i])
        chosen[i] = bool(pattern.search(view[at : at + int(sizes[i])]))


def _with_text(
    arena: NDArray[np.uint8],
    positions: NDArray[np.int64],
    sizes: NDArray[np.int64],
    text: re.Pattern[bytes],
) -> NDArray[np.bool_]:
    """Return which of the byte strings, in the order of their positions, have a text."""
    found = np.zeros(len(positions), np.bool_)
    ends = positions + np.maximum(sizes, 0)
    view, at, end = arena.data, int(positions[0]), int(ends.max())
    while (match := text.search(view, at, end)) is not None:
        i = int(np.searchsorted(positions, match.start(), "right")) - 1
        found[i] |= match.end() <= ends[i]
        at = max(match.start() + 1, int(ends[i]) if found[i] else 0)
    return found
