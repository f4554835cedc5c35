"""The page of `anatomy --html`: one file without scripts, in which every byte is data."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

from kafkalog.anatomy.model import Structure
from kafkalog.storage import NewFile
from kafkalog_cli.output.anatomy import count_damage, hex_rows, own_name, value_text
from kafkalog_cli.output.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalog.anatomy.model import Field, Item
    from kafkalog_cli.outcome import Outcome

_COLORS: Final = 6
_STYLE: Final = """
:root { color-scheme: light dark; --edge: #8886; --quiet: #8888881a }
body { font: 14px/1.45 system-ui, sans-serif; margin: 1.5rem auto; max-width: 82rem;
       padding: 0 1rem }
h1 { font-size: 1.15rem; overflow-wrap: anywhere }
table { border-collapse: collapse; width: 100% }
th { text-align: left; font-weight: 600; border-bottom: 1px solid var(--edge) }
td, th { padding: .2rem .6rem; vertical-align: top }
td:first-child { text-align: right }
td:first-child, .hex, .value { font-family: ui-monospace, monospace; white-space: pre }
.value { white-space: pre-wrap; overflow-wrap: anywhere; max-width: 18rem }
.hex { border-left: 6px solid var(--edge) }
tr.s td { font-weight: 600; padding-top: .8rem; text-align: left; font-family: inherit;
          white-space: normal; border-bottom: 1px solid var(--edge) }
tr.inner { background: var(--quiet) }
tr:hover { background: #8883 }
.d { display: block; color: #888; font-size: .85em }
.bad { background: #c0202033; outline: 1px solid #c02020 }
.bad b { color: #e04040 }
.c0 { border-color: #1f77b4; background: #1f77b422 } .c1 { border-color: #2ca02c;
background: #2ca02c22 } .c2 { border-color: #d9a400; background: #d9a40022 }
.c3 { border-color: #9467bd; background: #9467bd22 } .c4 { border-color: #e07b39;
background: #e07b3922 } .c5 { border-color: #17a2a2; background: #17a2a222 }
@media print { tr { break-inside: avoid } }
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
        put(f"<h1>{title}</h1>\n<table><thead><tr>")
        put("".join(f"<th>{one}</th>" for one in _COLUMNS) + "</tr></thead><tbody>\n")
        structure = ""
        for number, item in enumerate(items):
            count_damage(item, outcome)
            if isinstance(item, Structure):
                structure = item.name
                put(_structure_row(item))
            else:
                put(_field_row(item, structure, number % _COLORS))
        put("</tbody></table>\n</body></html>\n")


def _text(text: str) -> str:
    return escape(printable(text))


def _damage(reference: str | None) -> str:
    return "" if reference is None else f" <b>{_text(reference)}</b>"


def _row_class(item: Item, name: str) -> str:
    names = [name, "inner" if item.level else "", "bad" if item.damage else ""]
    return " ".join(filter(None, names))


def _structure_row(item: Structure) -> str:
    words = f"{_text(item.name)} · {item.length} bytes from position {item.position}"
    meaning = f" · {_text(item.meaning)}" if item.meaning else ""
    return (
        f'<tr class="{_row_class(item, "s")}"><td colspan="5">{words}{meaning}'
        f"{_damage(item.damage)}</td></tr>\n"
    )


def _field_row(field: Field, structure: str, color: int) -> str:
    details = "".join(f'<span class="d">{_text(one)}</span>' for one in field.details)
    cells = (
        f"<td>{field.position}</td>"
        f'<td class="hex c{color}">{chr(10).join(hex_rows(field))}</td>'
        f"<td>{_text(own_name(field, structure))}</td>"
        f'<td class="value">{escape(value_text(field.value))}</td>'
        f"<td>{_text(field.meaning)}{_damage(field.damage)}{details}</td>"
    )
    return f'<tr class="{_row_class(field, "f")}">{cells}</tr>\n'
