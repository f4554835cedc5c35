"""Colours by meaning, on a terminal only; `NO_COLOR` and `TERM=dumb` turn them off."""

from __future__ import annotations

import os
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from typing import TextIO


class Tone(StrEnum):
    """What a text means; the value is rich's name of its colour."""

    BAD = "bold red"
    DOUBTFUL = "yellow"
    ADDED = "green"
    REMOVED = "red"
    CHANGED = "cyan"
    FAINT = "dim"
    TITLE = "bold"


_CODES: Final = {
    Tone.BAD: "1;31",
    Tone.DOUBTFUL: "33",
    Tone.ADDED: "32",
    Tone.REMOVED: "31",
    Tone.CHANGED: "36",
    Tone.FAINT: "2",
    Tone.TITLE: "1",
}
_TONES: Final = {
    "damage": Tone.BAD,
    "index": Tone.DOUBTFUL,
    "warning": Tone.DOUBTFUL,
    "note": Tone.FAINT,
    "error": Tone.BAD,
    "added": Tone.ADDED,
    "removed": Tone.REMOVED,
    "changed": Tone.CHANGED,
}


class Toned(str):
    """A text with its tone; without it, text like any other."""

    __slots__ = ("tone",)
    tone: Tone

    def __new__(cls, text: str, tone: Tone) -> Self:
        """Make a text of a tone."""
        made = super().__new__(cls, text)
        made.tone = tone
        return made


def tone_of(word: str) -> Tone | None:
    """Return the tone of a severity or of a kind of change; None for any other word."""
    return _TONES.get(word)


def has_colours(stream: TextIO) -> bool:
    """Return whether texts on a stream are coloured."""
    return (
        stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "") != "dumb"
    )


def painted(text: str, tone: Tone | None, stream: TextIO) -> str:
    """Return a printable text as it goes to a stream."""
    return text if tone is None else coloured(text, _CODES[tone], stream)


def coloured(text: str, code: str, stream: TextIO) -> str:
    """Return a printable text in a colour that has no meaning of its own, by its SGR code."""
    return f"\x1b[{code}m{text}\x1b[0m" if text and has_colours(stream) else text
