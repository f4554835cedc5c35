"""Objects as lines of JSON or CSV, in pieces: no text of all of a large value is in memory."""

from __future__ import annotations

import csv
import io
import json
import re
from typing import TYPE_CHECKING, Final

from kafkalog_cli.output.text import UNSAFE, in_pieces, is_long, json_escape

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator


def dumps(value: object) -> str:
    """JSON on one line, with what a terminal could act on escaped."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    text = text.replace("\x7f", "\\u007f")
    return text if text.isascii() else UNSAFE.sub(json_escape, text)


def json_pieces(value: object) -> Iterator[bytes]:
    """What `dumps` makes of a value; names in it are strings."""
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
    """A line of CSV, with its end."""
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
    """A line as the `csv` module writes it."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()


def csv_text(value: object) -> str:
    """A value as a cell behind another: an empty one that stands alone would be quoted."""
    return csv_line(("", _csv_cell(value)))[1:-1]


def _csv_cell(value: object) -> object:
    if isinstance(value, str):
        return _csv_escaped(value)
    if isinstance(value, list | dict):
        return dumps(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return value


# JSON's short escapes, and what stands here: a quoted field may hold line ends, tabs and quotes.
_CSV_ESCAPES: Final = {
    "\n": ("\\n", "\n"),
    "\t": ("\\t", "\t"),
    '"': ('\\"', '"'),
    "\b": ("\\b", "\\u0008"),
    "\f": ("\\f", "\\u000c"),
    "\r": ("\\r", "\\u000d"),
}
_UNSAFE_BEYOND_ASCII: Final = re.compile(UNSAFE.pattern.replace("\x00-\x1f\x7f-\x9f", "\x80-\x9f"))


def _csv_escaped(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    # JSON's encoder is many times as fast as whatever else replaces control characters, and a value
    # that has nothing else is no rarity.
    replaced = [pair for character, pair in _CSV_ESCAPES.items() if character in text]
    parts = json.dumps(text, ensure_ascii=False)[1:-1].split("\\\\")
    for escape, meant in replaced:
        parts = [part.replace(escape, meant) for part in parts]
    text = "\\".join(parts).replace("\x7f", "\\u007f")
    return text if text.isascii() else _UNSAFE_BEYOND_ASCII.sub(json_escape, text)
