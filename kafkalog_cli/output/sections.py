"""Rows of several kinds, one kind after another."""

from __future__ import annotations

from itertools import chain, islice, repeat
from typing import TYPE_CHECKING, Any

import typer

from kafkalog.io.wording import counted
from kafkalog_cli.output.writer import Format, Writer, limited, print_lines, write_all

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kafkalog_cli.output.objects import View

    Section = tuple[View[Any], Iterable[Any], str]


def write_sections(sections: Sequence[Section], form: Format, limit: int | None = None) -> None:
    """Write rows of each kind: as a table of their own, or as objects of one stream.

    Args:
        sections: the view of each kind, its values, and what the total calls one of them.
        limit: how many rows are written in all.
    """
    left = repeat(None) if limit is None else repeat(None, limit)
    if form in (Format.NDJSON, Format.JSON):
        with Writer(sections[0][0], form) as writer:
            for view, values, _ in sections:
                for value, _ in zip(values, left, strict=False):
                    writer.write_row(view.row(value))
        return
    numbers: dict[str, int] = {}
    for view, values, what in sections:
        rows = (value for value, _ in zip(values, left, strict=False))
        if first := list(islice(rows, 1)):
            if numbers:
                typer.echo()
            numbers[what] = write_all(chain(first, rows), view, form)
    if form.is_screen:
        total = ", ".join(counted(number, what) for what, number in numbers.items())
        print_lines([limited(total or counted(0, sections[-1][2]), sum(numbers.values()), limit)])
