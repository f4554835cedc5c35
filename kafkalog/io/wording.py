"""How values read in messages: counts with their nouns, times, and text that is safe to show."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from formats.late_patterns import pattern

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Iterator, Sequence


def counted(number: int, what: str) -> str:
    """Return `1 segment`, `2 segments`, `2 batches`, `0 entries`, `2 keys`."""
    return f"{number} {what if number == 1 else _plural(what)}"


def _plural(what: str) -> str:
    if what.endswith("y") and not what.endswith(("ay", "ey", "oy")):
        return f"{what[:-1]}ies"
    return f"{what}es" if what.endswith(("ch", "x")) else f"{what}s"


def some_of(names: Sequence[str], most: int = 5) -> str:
    """Join the first few names."""
    return ", ".join(names[:most]) + (", …" if len(names) > most else "")


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """Return `Did you mean a or b? ` of the names like a word; empty if there are none."""
    from difflib import get_close_matches

    alike = get_close_matches(word, list(names), cutoff=0.65)
    return f"Did you mean {' or '.join(alike)}? " if alike else ""


def utc_text(timestamp_ms: int) -> str:
    """Return a time as text; one outside the calendar as a number."""
    try:
        moment = datetime.fromtimestamp(timestamp_ms // 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    text = moment.replace(microsecond=timestamp_ms % 1000 * 1000).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


# Control characters (C0, DEL, C1), bidirectional and invisible formatting, line and paragraph
# separators, the byte order mark, and surrogates (bytes of file names that are not UTF-8).
UNSAFE = pattern(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff"
    "\ufff9-\ufffb\U000e0000-\U000e007f]"
)

_PIECE_SIZE = 1 << 16  # characters


def printable(text: str) -> str:
    r"""Return the text with everything on which a terminal could act written as \xNN or \uNNNN."""
    if text.isprintable():  # Python's own idea of it leaves out more, and is quick
        return text
    if is_long(text):  # the replacement takes a list of strings meanwhile
        return "".join(map(printable, in_pieces(text)))
    return UNSAFE.sub(_escape, text)


def bytes_text(data: bytes) -> str:
    """Return bytes as text if they are printable, else as `0x…`; empty ones as `""`.

    The text `null` is quoted, and what would look like these two is `0x…`.
    """
    if not data:
        return '""'
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return "0x" + data.hex()
    if data == b"null":
        return '"null"'
    is_plain = text.isprintable() or UNSAFE.search(text) is None
    is_plain = is_plain and data not in (b'""', b'"null"')
    return text if is_plain else "0x" + data.hex()


def is_long(text: str) -> bool:
    """Return whether a text is so long that it is treated in pieces."""
    return len(text) > _PIECE_SIZE


def in_pieces(text: str) -> Iterator[str]:
    """Return the text in pieces that are not long."""
    return (text[at : at + _PIECE_SIZE] for at in range(0, len(text), _PIECE_SIZE))


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x100:
        return {9: r"\t", 10: r"\n", 13: r"\r"}.get(code, f"\\x{code:02x}")
    # A byte of a file name that is not UTF-8, as `surrogateescape` has it.
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
