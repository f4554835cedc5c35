"""Values as text, in colours by meaning: cells, JSON and CSV; nothing reaches a terminal raw."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime, tzinfo
from enum import StrEnum
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final, Self, TextIO

from kafkalog.io.wording import UNSAFE, bytes_text, counted, in_pieces, is_long, printable
from kafkalog_cli.session import session

if TYPE_CHECKING:
    import json
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from kafkalog.model import Batch
    from kafkalog_cli.output.objects import Style


class Tone(StrEnum):
    """What a text means; the value is the SGR code of its colour.

    BAD is damaged or lost; DOUBTFUL a warning, or what will be changed or deleted; SOUND sound or
    kept; NAME a name to copy; FAINT null, a unit, unchanged.
    """

    BAD = "1;31"
    DOUBTFUL = "33"
    SOUND = "32"
    NAME = "36"
    FAINT = "2"
    TITLE = "1"


_TONES: Final = {
    "damage": Tone.BAD,
    "index": Tone.DOUBTFUL,
    "warning": Tone.DOUBTFUL,
    "note": Tone.FAINT,
    "error": Tone.BAD,
    "removed": Tone.DOUBTFUL,
    "changed": Tone.DOUBTFUL,
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


class ColourChoice(StrEnum):
    """When there are colours: on a terminal, or as the option says."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


def has_colours(stream: TextIO) -> bool:
    """Return whether a stream has colours: by the option, else the environment, else a terminal."""
    if session().colours != ColourChoice.AUTO:
        return session().colours == ColourChoice.ALWAYS
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    is_plain = os.environ.get("CLICOLOR") == "0" or os.environ.get("TERM") == "dumb"
    return stream.isatty() and not is_plain


def painted(text: str, tone: Tone | None, stream: TextIO) -> str:
    return text if tone is None else coloured(text, tone, stream)


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
    TEXT = "text"
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
    if form == BytesFormat.TEXT:
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
    if form == BytesFormat.TEXT:
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
    lines = fold(text, max(width - len(first), _LEGIBLE_WIDTH), hanging)
    return [first + lines[0], *(" " * len(first) + line for line in lines[1:])]


def fold(text: str, room: int, hanging: int = 0) -> list[str]:
    """Return lines of at most `room` cells; see `wrapped`."""
    from textwrap import wrap

    more = " " * hanging
    if text.isascii() or is_long(text):
        return wrap(text, room, subsequent_indent=more, break_on_hyphens=False) or [""]
    return _wrapped_cells(text, room, more)


def cell_width(cell: str) -> int:
    if cell.isascii() or is_long(cell):  # nothing is aligned with such a long cell
        return len(cell)
    from rich.cells import cell_len

    return cell_len(cell)


def cut(cell: str, width: int, *, keeps_end: bool = False) -> str:
    """Return a cell of at most `width` cells: `…` is for the rest of a longer one."""
    if cell_width(cell) <= width:
        return cell
    end = _first(cell[::-1], (width - 1) // 2)[::-1] if keeps_end else ""
    return f"{_first(cell, width - 1 - cell_width(end))}…{end}"


def _first(text: str, width: int) -> str:
    """Return the letters that have room."""
    if text.isascii():
        return text[:width]
    from rich.cells import set_cell_size

    # It fills up with a blank where half a letter would have room.
    return set_cell_size(text[: 8 * width], width).rstrip()


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


def time_column(timestamp_ms: int, style: Style) -> str:
    """Return the cell of a time in a column whose title names the zone.

    It always has milliseconds, its letters 19 to 22, for `trim_times`.
    """
    if style.exact:
        return str(timestamp_ms)
    if timestamp_ms == -1:
        return "-"
    second, ms = divmod(timestamp_ms, 1000)
    try:
        time, offset = second_cell(second, style.zone)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    return f"{time}.{ms:03}{offset}"


def record_time_column(timestamp_ms: int, style: Style) -> str:
    """Return the cell of a record's timestamp, with `odd_mark`."""
    cell = time_column(timestamp_ms, style)
    return cell if style.exact or cell == "-" else cell + odd_mark(timestamp_ms)


def odd_mark(timestamp_ms: int) -> str:
    """Return what marks a record's timestamp if hardly any clock shows such a time."""
    return "" if timestamp_ms in PLAIN_TIMES else " odd"


def clocks_ahead(zone: tzinfo, length_s: int, number: int) -> int | None:
    """Return what the clocks of a zone are ahead of UTC in a stretch of time, in seconds.

    Args:
        length_s: of the stretch: the clocks are set at none but the beginning of one.
        number: the stretches since 1970 before it.

    Returns:
        None if they show its times twice.
    """
    if second_cell(length_s * number, zone)[1]:
        return None
    ahead = datetime.fromtimestamp(length_s * number, zone).utcoffset()
    return None if ahead is None else int(ahead.total_seconds())


def trim_times(cells: Sequence[str]) -> Sequence[str]:
    """Return cells of times without milliseconds, if no time has any."""
    if not {cell[19:23] for cell in cells} <= {".000", ""}:
        return cells
    trimmed = [cell[:19] + cell[23:] for cell in cells]
    pairs = zip(trimmed, cells, strict=True)
    return [Toned(new, old.tone) if isinstance(old, Toned) else new for new, old in pairs]


def zone_name(zone: tzinfo) -> str:
    return "UTC" if zone is UTC else str(zone)


PLAIN_TIMES: Final = range(946_684_800_000, 4_133_980_800_000)
"""From 2000 to 2100, in ms."""


@lru_cache(maxsize=64)
def second_cell(second: int, zone: tzinfo) -> tuple[str, str]:
    """Return a time, and its offset if the zone's clocks show the time twice."""
    moment = datetime.fromtimestamp(second, zone)
    text = moment.isoformat(sep=" ")
    is_twice = zone is not UTC and moment.replace(fold=1 - moment.fold).timestamp() != second
    return text[:_SECOND_WIDTH], text[_SECOND_WIDTH:] if is_twice else ""


def short_time(timestamp_ms: int, style: Style) -> str:
    """Return a time in words that do not name its zone."""
    return time_column(timestamp_ms, style).replace(".000", "")


def zoned_time(timestamp_ms: int, style: Style) -> str:
    """Return a time with its zone."""
    cell = short_time(timestamp_ms, style)
    is_plain = style.exact or "-" not in cell[1:]  # none, or outside the calendar
    return cell if is_plain else f"{cell} {zone_name(style.zone)}"


def full_time(timestamp_ms: int, style: Style) -> str:
    """Return a time with its zone and how long ago it is."""
    text = zoned_time(timestamp_ms, style)
    return f"{text} ({age_text(timestamp_ms, style)})" if " " in text else text


def age_text(timestamp_ms: int, style: Style) -> str:
    """Return how long ago a time is: `2 years ago`."""
    from datetime import timedelta
    from time import time

    from humanize import naturaltime

    now = style.layout.now_ms
    ago = (time() * 1000 if now is None else now) - timestamp_ms
    return naturaltime(timedelta(milliseconds=ago))


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
    text = _encoder().encode(value).replace("\x7f", "\\u007f")  # which JSON need not escape
    return text if text.isascii() else UNSAFE.sub(json_escape, text)


@cache
def _encoder() -> json.JSONEncoder:
    import json

    return json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


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
    if not isinstance(value, dict | list):
        return False
    for one in value.values() if isinstance(value, dict) else value:
        # Most of a row are numbers and short texts.
        if isinstance(one, str):
            if is_long(one):
                return True
        elif isinstance(one, _PARTED) and _is_large(one):
            return True
    return False


_PARTED: Final = (dict, list)


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
