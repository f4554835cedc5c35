"""Values as text, in colours by meaning: cells, JSON and CSV; nothing reaches a terminal raw."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime, tzinfo
from enum import StrEnum
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final, Self, TextIO

from kafkalog.io.wording import UNSAFE, bytes_text, counted, in_pieces, is_long, printable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from kafkalog.model import Batch
    from kafkalog_cli.output.objects import Style


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
        made = super().__new__(cls, text)
        made.tone = tone
        return made


def tone_of(word: str) -> Tone | None:
    """Return the tone of a severity or of a kind of change; None for any other word."""
    return _TONES.get(word)


def has_colours(stream: TextIO) -> bool:
    return (
        stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "") != "dumb"
    )


def painted(text: str, tone: Tone | None, stream: TextIO) -> str:
    return text if tone is None else coloured(text, _CODES[tone], stream)


def coloured(text: str, code: str, stream: TextIO) -> str:
    """Return a printable text in a colour that has no meaning of its own, by its SGR code."""
    return f"\x1b[{code}m{text}\x1b[0m" if text and has_colours(stream) else text


def compression_name(batch: Batch) -> str:
    return batch.codec_name


_SECOND_WIDTH = len("2026-11-21T04:00:00")
_LEGIBLE_WIDTH = 16  # if less than this is left for the text, lines may be too long


class BytesFormat(StrEnum):
    """The form of keys, values and header values."""

    AUTO = "auto"
    UTF8 = "utf8"
    HEX = "hex"
    BASE64 = "base64"


def json_escape(match: re.Match[str]) -> str:
    """Return the JSON escape of a character: a surrogate pair if it is above U+FFFF."""
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def bytes_cell(data: bytes | None, form: BytesFormat) -> str:
    """Return a cell: text if it is printable, else `0x…`; null is `null`, empty `""`.

    Text that reads like one of these two is quoted, or hexadecimal.
    """
    if data is None:
        return "null"
    if not data:
        return '""'
    if form == BytesFormat.HEX:
        return data.hex()
    if form == BytesFormat.BASE64:
        return _base64(data)
    if form == BytesFormat.UTF8:
        return printable(data.decode("utf-8", "replace"))
    return bytes_text(data)


def bytes_value(data: bytes | None, form: BytesFormat) -> object:
    """Return bytes for JSON: a string, or `{"base64": …}` if `auto` meets invalid UTF-8."""
    if data is None:
        return None
    if form == BytesFormat.HEX:
        return data.hex()
    if form == BytesFormat.BASE64:
        return _base64(data)
    if form == BytesFormat.UTF8:
        return data.decode("utf-8", "replace")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": _base64(data)}


def _base64(data: bytes) -> str:
    from base64 import b64encode

    return b64encode(data).decode("ascii")


def wrapped(text: str, *, first: str, width: int | None, hanging: int = 0) -> list[str]:
    """Return lines of at most `width` cells (None: one line); `first` precedes the first.

    The other lines begin `hanging` cells further right. `text` must be printable. A word that is
    longer than a line is broken: nothing is cut off.
    """
    if width is None:
        return [first + text]
    from textwrap import wrap

    room = max(width - len(first), _LEGIBLE_WIDTH)
    more = " " * hanging
    if text.isascii() or is_long(text):
        lines = wrap(text, room, subsequent_indent=more, break_on_hyphens=False) or [""]
    else:
        lines = _wrapped_cells(text, room, more)
    return [first + lines[0], *(" " * len(first) + line for line in lines[1:])]


def _wrapped_cells(text: str, room: int, more: str) -> list[str]:
    """Do what `textwrap.wrap` does, for letters that take up two cells, or none."""
    from rich.cells import cell_len, chop_cells

    lines, line, left = [], "", room
    for word in re.findall(" +|[^ ]+", text):
        if cell_len(word) > left and line.strip():
            lines.append(line.rstrip())
            line, left = more, room - len(more)
        if word.startswith(" ") and not line.strip():
            continue
        *whole, last = chop_cells(word, left) if cell_len(word) > left else [word]
        for piece in whole:
            lines.append(line + piece)
            line, left = more, room - len(more)
        line, left = line + last, left - cell_len(last)
    return [*lines, line.rstrip()]


def time_cell(timestamp_ms: int | None, zone: tzinfo = UTC) -> str:
    """Return the cell of a time: ISO 8601 with milliseconds; `-` for none.

    A time outside the calendar is shown as a number.
    """
    if timestamp_ms is None or timestamp_ms == -1:
        return "-"
    second, ms = divmod(timestamp_ms, 1000)
    try:
        time, offset = _second_text(second, zone)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    return f"{time}.{ms:03}{offset}"


@lru_cache(maxsize=64)  # neighbouring rows are often of one second
def _second_text(second: int, zone: tzinfo) -> tuple[str, str]:
    text = datetime.fromtimestamp(second, zone).isoformat().replace("+00:00", "Z")
    return text[:_SECOND_WIDTH], text[_SECOND_WIDTH:]


def left_overs_text(number: int, *, is_done: bool) -> str:
    """Return what happens to files that a broker has marked as deleted and not removed yet."""
    verb = "removed" if is_done else "would be removed"
    return (
        f"{counted(number, '.deleted file')} left by earlier deletions {verb}, as when a broker "
        f"starts"
    )


def file_cell(path: str) -> str:
    """Return the cell of a file: its directory's name and its own."""
    from kafkalog.io.paths import file_system

    directory = os.path.basename(os.path.dirname(file_system.absolute(path)))
    return os.path.join(directory, os.path.basename(path))


def size_cell(size_bytes: int, *, exact: bool) -> str:
    if exact:
        return str(size_bytes)
    import humanize

    return humanize.naturalsize(size_bytes, gnu=True)


def time_text(timestamp_ms: int | None, style: Style) -> str:
    if style.exact:
        return "-" if timestamp_ms is None else str(timestamp_ms)
    return time_cell(timestamp_ms, style.zone)


def size_text(size_bytes: int, style: Style) -> str:
    return size_cell(size_bytes, exact=style.exact)


def duration_text(duration_ms: int) -> str:
    """Return a duration in words: `7 days`, `1 minute and 30 seconds`."""
    from datetime import timedelta

    from humanize import precisedelta

    try:
        duration = timedelta(milliseconds=duration_ms)
    except OverflowError:
        return f"{duration_ms} ms"
    # Months and years have no fixed length: 31 days would be a month and 12 hours.
    long = ["months", "years"]
    return precisedelta(duration, minimum_unit="milliseconds", suppress=long, format="%d")


def with_durations(text: str) -> str:
    return re.sub(r"\b(\d+) ms\b", lambda found: duration_text(int(found[1])), text)


def dumps(value: object) -> str:
    """Return JSON on one line, with everything escaped on which a terminal could act."""
    import json

    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    text = text.replace("\x7f", "\\u007f")  # which JSON need not escape
    return text if text.isascii() else UNSAFE.sub(json_escape, text)


def json_pieces(value: object) -> Iterator[bytes]:
    """Yield the pieces of a value's `dumps`; names in it are strings."""
    if not _is_large(value):
        yield dumps(value).encode()
    elif isinstance(value, str):
        yield b'"'
        for piece in in_pieces(value):
            yield dumps(piece)[1:-1].encode()
        yield b'"'
    elif isinstance(value, dict):
        for i, (name, one) in enumerate(value.items()):
            yield f"{',' if i else '{'}{dumps(name)}:".encode()
            yield from json_pieces(one)
        yield b"}"
    elif isinstance(value, list):
        for i, one in enumerate(value):
            yield b"," if i else b"["
            yield from json_pieces(one)
        yield b"]"


def _is_large(value: object) -> bool:
    if isinstance(value, str):
        return is_long(value)
    if isinstance(value, dict):
        return any(map(_is_large, value.values()))
    return isinstance(value, list) and any(map(_is_large, value))


def csv_pieces(values: Collection[object]) -> Iterator[bytes]:
    if not any(map(_is_large, values)):
        yield csv_line([_csv_cell(value) for value in values]).encode()
        return
    for i, value in enumerate(values):
        if i:
            yield b","
        if not _is_large(value):
            yield csv_text(value).encode()
            continue
        pieces, quote = json_pieces(value), b'"'
        if isinstance(value, str):
            pieces = (_csv_escaped(piece).encode() for piece in in_pieces(value))
            quote = b'"' if any(one in value for one in ',"\n') else b""
        yield quote
        for piece in pieces:
            yield piece.replace(b'"', b'""')
        yield quote
    yield b"\n"


def csv_line(cells: Iterable[object]) -> str:
    """Return a line as the `csv` module writes it."""
    import csv
    import io

    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()


def csv_text(value: object) -> str:
    """Return a value as a cell after another: an empty one that stands alone would be quoted."""
    return csv_line(("", _csv_cell(value)))[1:-1]


def _csv_cell(value: object) -> object:
    if isinstance(value, str):
        return _csv_escaped(value)
    if isinstance(value, list | dict):
        return dumps(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return value


# JSON's short escapes, and what they stand for here: a quoted field may hold line ends, tabs and
# quotes.
_CSV_ESCAPES: Final = {
    "\n": ("\\n", "\n"),
    "\t": ("\\t", "\t"),
    '"': ('\\"', '"'),
    "\b": ("\\b", "\\u0008"),
    "\f": ("\\f", "\\u000c"),
    "\r": ("\\r", "\\u000d"),
}


@cache
def _unsafe_beyond_ascii() -> re.Pattern[str]:
    return re.compile(UNSAFE.pattern.replace("\x00-\x1f\x7f-\x9f", "\x80-\x9f"))


def _csv_escaped(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    import json

    # JSON's encoder replaces control characters many times faster than anything else, and values
    # without other unsafe characters are common.
    replaced = [pair for character, pair in _CSV_ESCAPES.items() if character in text]
    # Without `\\`, whose second half would begin a wrong escape.
    parts = json.dumps(text, ensure_ascii=False)[1:-1].split("\\\\")
    for escape, meant in replaced:
        parts = [part.replace(escape, meant) for part in parts]
    text = "\\".join(parts).replace("\x7f", "\\u007f")
    return text if text.isascii() else _unsafe_beyond_ascii().sub(json_escape, text)
