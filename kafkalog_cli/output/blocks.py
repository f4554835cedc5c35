"""Rows as blocks (`-x`): a heading, and each field on a line of its own; nothing is cut."""

from __future__ import annotations

import re
import sys
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kafkalog.io.wording import in_pieces, printable
from kafkalog_cli.output.objects import ABSENT
from kafkalog_cli.output.table import put
from kafkalog_cli.output.text import Tone, cell_width, has_colours, painted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kafkalog_cli.output.objects import Block, View

T = TypeVar("T")
_RULE_WIDTH: Final = 62
_GAP: Final = 3
_JSON_SIZE_MAX: Final = 1 << 20  # characters: a longer text is shown as it is
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[][{},:]|[^][{},:"\s]+')


def put_block(view: View[T], value: T) -> None:
    """Write a value as a block."""
    heading, rows = _block(view, value) if view.block is None else view.block(value)
    head = f"── {printable(heading)} "
    put(painted(head + "─" * max(2, _RULE_WIDTH - cell_width(head)), Tone.TITLE, sys.stdout) + "\n")
    indent = " " * (max((cell_width(printable(name)) for name, _ in rows), default=0) + _GAP)
    for name, text in rows:
        name = printable(name)
        put(name + indent[cell_width(name) :])
        _put_text(text, indent)


def _block(view: View[Any], value: Any) -> Block:
    """Return all fields of a value; its columns if no type declares fields."""
    rows: list[tuple[str, str]] = []
    for name, field in view.fields.items():
        if name != "type" and (found := field.getter()(value)) is not ABSENT:
            kind = field.kind
            text = None if found is None else (kind.full or kind.cell_of)(found, view.style)
            rows.append((name, "-" if text is None else str(text)))
    if not view.fields:
        rows = [(column.heading, column.text(value)) for column in view.columns]
    heading = view.columns[0].text(value)
    return f"{view.type_name} {heading}", rows


def _put_text(text: str | Sequence[str], indent: str) -> None:
    if not isinstance(text, str):
        lines = list(text)
    elif text == "-":
        lines = [painted(text, Tone.FAINT, sys.stdout)]
    elif (found := indent_json(text)) is not None:
        lines = found
    else:
        for piece in in_pieces(text):  # a value can take gigabytes
            put(printable(piece))
        put("\n")
        return
    put(f"\n{indent}".join(lines) + "\n")


def indent_json(text: str) -> list[str] | None:
    """Return printable lines of a JSON object or array, with its numbers and names as they are.

    Returns:
        None for any other text.
    """
    if len(text) > _JSON_SIZE_MAX or text[:1] not in ("{", "["):
        return None
    import json

    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return None
    return "".join(_indent_pieces(text)).split("\n")


def _indent_pieces(text: str) -> Iterator[str]:
    coloured = has_colours(sys.stdout)
    depth = 0
    parts = [match[0] for match in _TOKEN.finditer(text)]
    for part, after in pairwise([*parts, ""]):
        if part in "{[":
            depth += 1
            # An empty one stays on its line.
            yield part if after in "}]" else f"{part}\n{'  ' * depth}"
        elif part in "}]":
            depth -= 1
            yield part
        elif part == ",":
            yield f",\n{'  ' * depth}"
        elif part == ":":
            yield ": "
        else:
            shown = printable(part)
            tone = Tone.NAME if after == ":" else Tone.FAINT if part == "null" else None
            yield painted(shown, tone, sys.stdout) if coloured else shown
        if part not in "{[" and part and after and after in "}]":
            yield f"\n{'  ' * (depth - 1)}"
