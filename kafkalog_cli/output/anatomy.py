"""The output of `anatomy`: bytes on the left, what they mean on the right."""

from __future__ import annotations

import sys
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final

from kafkalog.anatomy.model import Field as Bytes
from kafkalog.anatomy.model import Structure
from kafkalog.anatomy.writes import SegmentWrites
from kafkalog.defects import REFERENCES
from kafkalog.model import Severity
from kafkalog.wording import counted
from kafkalog_cli.output.objects import (
    ARRAY,
    INT,
    SIZE,
    TEXT,
    Column,
    Field,
    Kind,
    ObjectType,
    Style,
)
from kafkalog_cli.output.text import (
    BytesFormat,
    bytes_cell,
    bytes_value,
    printable,
    wrapped,
)
from kafkalog_cli.output.tones import Tone, coloured, painted
from kafkalog_cli.output.writer import cell_width, terminal_width

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kafkalog.anatomy.model import Item
    from kafkalog_cli.outcome import Outcome
    from kafkalog_cli.output.objects import View

_VALUE: Final = Kind(
    "integer, string, object or null",
    to_json=lambda value, style: bytes_value(value, style.bytes_form)
    if isinstance(value, bytes) else value,
)  # fmt: skip
_LEVEL: Final = "0: bytes of the file; 1: of what a batch holds compressed"

STRUCTURE: Final = ObjectType[Structure](
    "anatomy_structure",
    "`anatomy`",
    "A batch, record, entry or line: the fields that follow belong to it.",
    Field("path", TEXT, "the file"),
    Field("level", INT, _LEVEL),
    Field("position", INT, "position of its first byte, at its level"),
    Field("length", INT, "number of its bytes"),
    Field("name", TEXT, "precedes the names of its fields"),
    Field("meaning", TEXT, "what it is, in words"),
    Field("damage", TEXT | None, "kind of defect, or null"),
)
FIELD: Final = ObjectType[Bytes](
    "anatomy_field",
    "`anatomy`",
    "A field. Those of level 0 tile the file: each byte belongs to exactly one of them. Those of "
    "level 1 tile what the batch before them holds compressed.",
    Field("path", TEXT, "the file"),
    Field("level", INT, _LEVEL),
    Field("position", INT, "position of its first byte, at its level"),
    Field("length", INT, "number of its bytes"),
    Field("name", TEXT, "names and ordinals of its structures, and its own; the last is "
          "`left_out` for bytes that the limit leaves out"),
    Field("value", _VALUE, "bytes are strings, or `{\"base64\": …}` if they are not UTF-8"),
    Field("meaning", TEXT, "what the value says, in words"),
    Field("details", ARRAY, "how the value comes from the bytes: bits, groups of 7 bits"),
    Field("damage", TEXT | None, "kind of defect, or null"),
)  # fmt: skip
WRITES: Final = ObjectType[SegmentWrites](
    "anatomy_segment",
    "`anatomy PARTITION_DIR`",
    "How a segment was written.",
    Field("path", TEXT, "its `.log`"),
    Field("base_offset", INT, "the offset in its name"),
    Field("size", SIZE, "bytes of its `.log`", "size_bytes"),
    Field("batches", INT, "number of batches"),
    Field("in_order", INT, "batches whose offsets are above those of the batch before"),
    Field("in_time", INT, "batches whose largest timestamp is not below that of the batch before: "
          "clients set it unless the topic has LogAppendTime"),
    Field("bytes_without_batch", SIZE, "bytes in which there is no batch: damage, or preallocated"),
    Field("extents", INT | None, "pieces of the disk that the file lies in; null if the file "
          "system does not say"),
    Field("damage", TEXT | None, "kind of the first defect, or null"),
)  # fmt: skip

_ROW_BYTES: Final = 8
_HEX_WIDTH: Final = 3 * _ROW_BYTES - 1
_ROWS_MAX: Final = 4
_NAME_WIDTH: Final = 22
_VALUE_WIDTH: Final = 13
_TEXT_MAX: Final = 48  # characters
_INLINE_WIDTH: Final = 110  # of a terminal where the meaning has room after the value
_COLORS: Final = ("36", "32", "33", "35", "34")
"""Colours that tell a field from its neighbours."""


def field_view() -> View[Bytes]:
    """Return the view with an object per field."""
    return FIELD.view(Style())


def writes_view(style: Style) -> View[SegmentWrites]:
    """Return the view with a row per segment."""

    def share(part: int, whole: int) -> str:
        return f"{100 * part / whole:.4g}%" if whole else "-"

    return WRITES.view(
        style,
        Column("SEGMENT", "base_offset"),
        Column("SIZE", "size"),
        Column("BATCHES", "batches"),
        Column("IN ORDER", lambda one: share(one.in_order, one.batches), right=True),
        Column("IN TIME", lambda one: share(one.in_time, one.batches), right=True),
        Column("NO BATCH", "bytes_without_batch"),
        Column("EXTENTS", "extents"),
        Column("DAMAGE", "damage"),
    )


def count_damage(item: Item | SegmentWrites, outcome: Outcome) -> None:
    """Record damage in the exit status; what is only worth a note is none."""
    if item.damage is not None:
        found = REFERENCES.get(item.damage)
        outcome.fail_if(found is None or found.severity != Severity.NOTE)


def value_text(value: Any, width: int = _TEXT_MAX) -> str:
    """Return the cell of a value, cut if it is longer than the width."""
    if isinstance(value, bool | int | float):
        return str(value)
    if value is None:
        return ""
    part = value[: 4 * _TEXT_MAX]
    cell = printable(part if isinstance(part, str) else bytes_cell(part, BytesFormat.AUTO))
    if cell_width(cell) <= width and len(value) == len(part):
        return cell
    from rich.cells import set_cell_size

    return f"{set_cell_size(cell, min(width - 1, cell_width(cell))).rstrip()}…"


def own_name(field: Bytes, structure: str) -> str:
    """Return the name of a field without that of its structure."""
    return field.name.removeprefix(f"{structure}.")


def hex_rows(field: Bytes) -> list[str]:
    """Return the first bytes of a field in hexadecimal, row by row."""
    shown = b"" if field.is_left_out else field.raw[: _ROW_BYTES * _ROWS_MAX]
    rows = [shown[at : at + _ROW_BYTES].hex(" ") for at in range(0, len(shown), _ROW_BYTES)]
    if left := field.length - len(shown):
        rows.append(f"… {left} more" if shown else f"… {counted(left, 'byte')}")
    return rows


def print_items(items: Iterable[Item], outcome: Outcome) -> None:
    """Print structures and fields, coloured by field on a terminal."""
    width = terminal_width()
    structure = ""
    for number, item in enumerate(items):
        count_damage(item, outcome)
        if isinstance(item, Structure):
            structure = item.name
            style = Tone.BAD if item.damage else Tone.TITLE
            for line in wrapped(_structure_line(item), first=_indent(item), width=width, hanging=2):
                _put([(line, style)])
        else:
            color = _COLORS[number % len(_COLORS)]
            for segments in _field_lines(item, structure, color, width):
                _put(segments)


_Line = list[tuple[str, str | Tone]]
"""Pieces of a line, each with a tone or the code of a colour."""


def _indent(item: Item) -> str:
    return "┊ " * item.level


def _structure_line(item: Structure) -> str:
    words = [item.name, f"{counted(item.length, 'byte')} from position {item.position}"]
    words += [printable(text) for text in (item.meaning,) if text]
    if item.damage:
        words.append(f"! {item.damage}")
    return " · ".join(words)


def _field_lines(field: Bytes, structure: str, color: str, width: int | None) -> Iterator[_Line]:
    style = Tone.BAD if field.damage else Tone.FAINT if field.is_left_out else color
    rows = hex_rows(field)
    texts = _texts(field, structure, style, width)
    for number, (row, text) in enumerate(zip_longest(rows, texts, fillvalue=None)):
        position = str(field.position + number * _ROW_BYTES) if number < len(rows) else ""
        line: _Line = [(f"{_indent(field)}{position if not number else '':>8}  ", "")]
        line.append((row or "", style))
        if text is not None:
            line.append((" " * (_HEX_WIDTH - len(row or "") + 2), ""))
            line += text
        yield line


def _texts(field: Bytes, structure: str, style: str | Tone, width: int | None) -> list[_Line]:
    """Return the lines beside the bytes: name, value and meaning, then how the value comes."""
    start = len(_indent(field)) + 8 + 2 + _HEX_WIDTH + 2
    name, meaning = printable(own_name(field, structure)), printable(field.meaning)
    if field.damage:
        meaning = f"{meaning} ! {field.damage}".strip()
    room = _TEXT_MAX
    if width is not None and width < _INLINE_WIDTH:
        room = max(width - start - max(len(name), _NAME_WIDTH) - 2, 1)
    value = value_text(field.value, min(room, _TEXT_MAX))
    head: _Line = [(f"{name:<{_NAME_WIDTH}}", style), ("  " + _filled(value), Tone.TITLE)]
    used = start + sum(cell_width(text) for text, _ in head) + 2
    details = [printable(one) for one in field.details]
    if width is None:
        lines: list[_Line] = [[*head, (f"  {meaning}", "")] if meaning else head]
        lines += [[(f"  {one}", Tone.FAINT)] for one in details]
        return lines
    if width >= _INLINE_WIDTH and width - used >= 30:
        first, *rest = wrapped(meaning, first="", width=width - used)
        lines = [[*head, (f"  {first}", "")]]
        lines += [[(" " * (used - start) + one, "")] for one in rest]
    else:
        lines = [head]
        for one in [meaning] if meaning else []:
            lines += [[(row, "")] for row in wrapped(one, first="  ", width=width - start)]
    for one in details:
        lines += [[(row, Tone.FAINT)] for row in wrapped(one, first="  ", width=width - start)]
    return lines


def _filled(value: str) -> str:
    return value + " " * (_VALUE_WIDTH - cell_width(value))


def _put(line: _Line) -> None:
    while line and not line[-1][0].strip():
        line = line[:-1]
    if line:
        text, style = line[-1]
        line = [*line[:-1], (text.rstrip(), style)]
    text = "".join(_painted(*piece) for piece in line)
    sys.stdout.buffer.write(f"{text}\n".encode())


def _painted(text: str, style: str | Tone) -> str:
    if isinstance(style, Tone):
        return painted(text, style, sys.stdout)
    return coloured(text, style, sys.stdout) if style else text
