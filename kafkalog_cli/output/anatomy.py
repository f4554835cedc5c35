"""The output of `anatomy`: bytes on the left, what they mean on the right; or one page of HTML."""

from __future__ import annotations

import sys
from html import escape
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final

from kafkalog.answers.anatomy.model import Field as Bytes
from kafkalog.answers.anatomy.model import Item, Structure
from kafkalog.answers.anatomy.writes import SegmentWrites
from kafkalog.io.storage import NewFile
from kafkalog.io.wording import counted, printable
from kafkalog.log.defects.table import REFERENCES
from kafkalog.model import Severity
from kafkalog_cli.output import kinds as k
from kafkalog_cli.output.objects import Column, Field, ObjectType, Style
from kafkalog_cli.output.table import terminal_width
from kafkalog_cli.output.text import (
    BytesFormat,
    Tone,
    bytes_cell,
    bytes_value,
    cell_width,
    coloured,
    painted,
    wrapped,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kafkalog_cli.outcome import Outcome
    from kafkalog_cli.output.objects import View

_VALUE: Final = k.Kind(
    "integer, string, object or null",
    to_json=lambda value, style: bytes_value(value, style.value_form)
    if isinstance(value, bytes) else value,
)  # fmt: skip
_LEVEL: Final = "0: bytes of the file; 1: of what a batch holds compressed"

STRUCTURE: Final = ObjectType[Structure](
    "anatomy_structure",
    "`anatomy`",
    "A batch, record, entry or line: the fields that follow belong to it.",
    Field("path", k.TEXT, ""),
    Field("level", k.INT, _LEVEL),
    Field("position", k.INT, "of its first byte, at its level"),
    Field("size_bytes", k.INT, ""),
    Field("name", k.TEXT, "precedes the names of its fields"),
    Field("meaning", k.TEXT, "in words"),
    Field("damage", k.TEXT | None, "kind of defect"),
)
FIELD: Final = ObjectType[Bytes](
    "anatomy_field",
    "`anatomy`",
    "A field. Those of level 0 tile the file; those of level 1, what the batch before them "
    "holds compressed.",
    Field("path", k.TEXT, ""),
    Field("level", k.INT, _LEVEL),
    Field("position", k.INT, "of its first byte, at its level"),
    Field("size_bytes", k.INT, ""),
    Field("name", k.TEXT, "names and ordinals of its structures, then its own; `left_out` for "
                        "bytes beyond the limit"),
    Field("value", _VALUE, "bytes as with `--bytes auto`"),
    Field("meaning", k.TEXT, "what the value says"),
    Field("details", k.ARRAY, "how bits make the value"),
    Field("damage", k.TEXT | None, "kind of defect"),
)  # fmt: skip
WRITES: Final = ObjectType[SegmentWrites](
    "anatomy_segment",
    "`anatomy PARTITION_DIR`",
    "How a segment was written.",
    Field("path", k.TEXT, "its `.log`"),
    Field("base_offset", k.INT, "in the file's name"),
    Field("size_bytes", k.SIZE, "of the `.log`"),
    Field("batches", k.INT, ""),
    Field("batches_in_order", k.INT, "those with offsets above the batch before"),
    Field("batches_in_time", k.INT, "those whose largest timestamp is not below the batch before"),
    Field("unframed_bytes", k.SIZE, "damaged or preallocated"),
    Field("extents", k.INT | None, "on disk; null if the file system does not say"),
    Field("damage", k.TEXT | None, "kind of the first defect"),
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
    return FIELD.view(Style())


def writes_view(style: Style) -> View[SegmentWrites]:
    def share(part: int, whole: int) -> str:
        return f"{100 * part / whole:.4g}%" if whole else "-"

    return WRITES.view(
        style,
        Column("SEGMENT", "base_offset"),
        Column("SIZE", "size_bytes"),
        Column("BATCHES", "batches"),
        Column("IN ORDER", lambda one: share(one.batches_in_order, one.batches), right=True),
        Column("IN TIME", lambda one: share(one.batches_in_time, one.batches), right=True),
        Column("NO BATCH", "unframed_bytes"),
        Column("EXTENTS", "extents"),
        Column("DAMAGE", "damage"),
    )


def count_damage(item: Item | SegmentWrites, outcome: Outcome) -> None:
    """Record damage in the exit status; what is only worth a note is none."""
    if item.damage is not None:
        found = REFERENCES.get(item.damage)
        outcome.lacks(found is None or found.severity != Severity.NOTE)


def value_text(value: Any, width: int = _TEXT_MAX) -> str:
    """Return the cell of a value, cut if it is longer than the width."""
    if isinstance(value, bool | int | float):
        return str(value)
    if value is None:
        return ""
    part = value[: 4 * _TEXT_MAX]  # enough to fill the cell: a value may have megabytes
    cell = printable(part if isinstance(part, str) else bytes_cell(part, BytesFormat.AUTO))
    if cell_width(cell) <= width and len(value) == len(part):
        return cell
    from rich.cells import set_cell_size

    return f"{set_cell_size(cell, min(width - 1, cell_width(cell))).rstrip()}…"


def own_name(field: Bytes, structure: str) -> str:
    return field.name.removeprefix(f"{structure}.")


def hex_rows(field: Bytes) -> list[str]:
    shown = b"" if field.is_left_out else field.raw[: _ROW_BYTES * _ROWS_MAX]
    rows = [shown[at : at + _ROW_BYTES].hex(" ") for at in range(0, len(shown), _ROW_BYTES)]
    if left := field.size_bytes - len(shown):
        rows.append(f"… {left} more" if shown else f"… {counted(left, 'byte')}")
    return rows


def print_items(items: Iterable[Item], outcome: Outcome) -> None:
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
    words = [item.name, f"{counted(item.size_bytes, 'byte')} from position {item.position}"]
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


_PAGE_COLORS: Final = 6
_STYLE: Final = """
:root { color-scheme: light; --ink: #1c2430; --paper: #fff; --soft: #5b6675; --bad: #b3261e;
        --edge: #8886; --inner: #88888814 }
@media screen and (prefers-color-scheme: dark) {
  :root { color-scheme: dark; --ink: #e4e9f0; --paper: #12171e; --soft: #a3aebd; --bad: #ff9b92 }
}
body { font: 14px/1.45 system-ui, sans-serif; margin: 1.5rem auto; max-width: 82rem;
       padding: 0 1rem; color: var(--ink); background: var(--paper) }
h1 { font-size: 1.15rem; overflow-wrap: anywhere }
table { border-collapse: collapse; width: 100% }
th { text-align: left; font-weight: 600; border-bottom: 1px solid var(--edge) }
td, th { padding: .2rem .6rem; vertical-align: top }
td:first-child { text-align: right }
td:first-child, .hex, .value { font-family: ui-monospace, monospace; white-space: pre }
.value { white-space: pre-wrap; overflow-wrap: anywhere; max-width: 18rem; min-width: 8rem }
.hex { border-left: 6px solid var(--edge) }
tr.s td { font-weight: 600; padding-top: .8rem; text-align: left; font-family: inherit;
          white-space: normal; overflow-wrap: anywhere; border-bottom: 1px solid var(--edge) }
tr.inner { background: var(--inner) }
tr:hover { background: #8883 }
.d { display: block; color: var(--soft); font-size: .85em }
.bad { background: #c0202026; outline: 1px solid #c02020 }
.bad b { color: var(--bad) }
.c0 { border-color: #1f77b4; background: #1f77b422 } .c1 { border-color: #2ca02c;
background: #2ca02c22 } .c2 { border-color: #d9a400; background: #d9a40022 }
.c3 { border-color: #9467bd; background: #9467bd22 } .c4 { border-color: #e07b39;
background: #e07b3922 } .c5 { border-color: #17a2a2; background: #17a2a222 }
@media screen and (max-width: 640px) {
  thead { display: none }
  table, tbody { display: block }
  tr { display: grid; grid-template-columns: 4rem 1fr; padding: .3rem 0 }
  td { grid-column: 2; padding: 0 .4rem; overflow-wrap: anywhere }
  td:first-child { grid-column: 1 }
  tr.s td { grid-column: 1 / 3 }
}
@media print {
  @page { size: A4 landscape; margin: 12mm }
  body { margin: 0; padding: 0; max-width: none; font-size: 10.5px }
  tr { break-inside: avoid }
  tr.s { break-after: avoid }
  td { print-color-adjust: exact; -webkit-print-color-adjust: exact }
}
"""
_HEAD: Final = (
    '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
    '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
    "style-src 'unsafe-inline'\">\n"
)
_COLUMNS: Final = ("Position", "Bytes", "Field", "Value", "Meaning")


def write_page(path: str, what: str, items: Iterable[Item], outcome: Outcome) -> None:
    """Write the page; `what` is its title.

    Raises:
        DestinationExistsError: the file exists.
    """
    title = _text(f"kafkalog anatomy {what}")
    with NewFile(path) as new:

        def put(text: str) -> None:
            new.file.write(text.encode())

        put(f"{_HEAD}<title>{title}</title>\n<style>{_STYLE}</style></head><body>\n")
        put(f"<main><h1>{title}</h1>\n<table><thead><tr>")
        put("".join(f"<th>{one}</th>" for one in _COLUMNS) + "</tr></thead><tbody>\n")
        structure = ""
        for number, item in enumerate(items):
            count_damage(item, outcome)
            if isinstance(item, Structure):
                structure = item.name
                put(_structure_row(item))
            else:
                put(_field_row(item, structure, number % _PAGE_COLORS))
        put("</tbody></table></main>\n</body></html>\n")


def _text(text: str) -> str:
    return escape(printable(text))


def _damage(reference: str | None) -> str:
    return "" if reference is None else f" <b>{_text(reference)}</b>"


def _row_class(item: Item, name: str) -> str:
    names = [name, "inner" if item.level else "", "bad" if item.damage else ""]
    return " ".join(filter(None, names))


def _structure_row(item: Structure) -> str:
    words = f"{_text(item.name)} · {item.size_bytes} bytes from position {item.position}"
    meaning = f" · {_text(item.meaning)}" if item.meaning else ""
    return (
        f'<tr class="{_row_class(item, "s")}"><td colspan="5">{words}{meaning}'
        f"{_damage(item.damage)}</td></tr>\n"
    )


def _field_row(field: Bytes, structure: str, color: int) -> str:
    details = "".join(f'<span class="d">{_text(one)}</span>' for one in field.details)
    cells = (
        f"<td>{field.position}</td>"
        f'<td class="hex c{color}">{chr(10).join(hex_rows(field))}</td>'
        f"<td>{_text(own_name(field, structure))}</td>"
        f'<td class="value">{escape(value_text(field.value))}</td>'
        f"<td>{_text(field.meaning)}{_damage(field.damage)}{details}</td>"
    )
    return f'<tr class="{_row_class(field, "f")}">{cells}</tr>\n'
