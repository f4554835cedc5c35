"""Rows of several kinds, one kind after another."""

from __future__ import annotations

from itertools import chain, islice, repeat
from typing import TYPE_CHECKING, Any

import typer

from kafkalog_cli.output.writer import Format, Writer, write_all

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kafkalog_cli.output.objects import View

    Section = tuple[View[Any], Iterable[Any]]


def write_sections(sections: Sequence[Section], form: Format, limit: int | None = None) -> None:
    """Write rows of each kind: as a table of their own, or as objects of one stream.

    Args:
        limit: how many rows are written in all.
    """
    left = repeat(None) if limit is None else repeat(None, limit)
    if form in (Format.NDJSON, Format.JSON):
        with Writer(sections[0][0], form) as writer:
            for view, values in sections:
                for value, _ in zip(values, left, strict=False):
                    writer.write_row(view.row(value))
        return
    has_written = False
    for view, values in sections:
        rows = (value for value, _ in zip(values, left, strict=False))
        if first := list(islice(rows, 1)):
            if has_written:
                typer.echo()
            write_all(chain(first, rows), view, form)
            has_written = True
