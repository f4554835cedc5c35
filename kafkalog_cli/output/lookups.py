"""The output of `lookup-offset`: answers, and how they were found."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from kafkalog.plurals import counted
from kafkalog_cli.output.objects import (
    ARRAY,
    BOOL,
    INT,
    OBJECT,
    TEXT,
    TIME,
    Column,
    Field,
    ObjectType,
    time_text,
)
from kafkalog_cli.output.text import bytes_cell, printable, time_cell

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.batches.lookup import Lookup, Step
    from kafkalog.model import Record
    from kafkalog_cli.output.objects import Style, View


def _query(found: Lookup) -> object:
    name = "offset"
    if found.by_timestamp:
        name = "timestamp" if isinstance(found.query, int) else "special"
    return {name: found.query}


def _of_batch(attribute: str) -> Callable[[Lookup], object]:
    return lambda found: found.batch and getattr(found.batch, attribute)


LOOKUP: Final[ObjectType[Lookup]] = ObjectType(
    "lookup",
    "`lookup-offset`",
    "The answer to one query. Anything that was not found is null.",
    Field("query", OBJECT, '`{"offset": N}`, `{"timestamp": MS}` or `{"special": NAME}`', _query),
    Field("found", BOOL, "whether there is an answer"),
    Field("segment", TEXT | None, "the `.log` that contains it"),
    Field("position", INT | None, "byte position of the batch", _of_batch("position")),
    Field("size", INT | None, "bytes of the batch", _of_batch("size_bytes")),
    Field("batch_base_offset", INT | None, "base offset of the batch", _of_batch("base_offset")),
    Field("batch_last_offset", INT | None, "last offset of the batch", _of_batch("last_offset")),
    Field("offset", INT | None, "offset of the first record that answers the query"),
    Field("timestamp", TIME | None, "its timestamp; −1 for `earliest` and `latest`"),
    Field("leader_epoch", INT | None,
          "leader epoch of the batch, or of the log for `earliest` and `latest`"),
    Field("bytes_read", INT, "bytes of headers, batches and index entries that were read"),
    Field("reason", TEXT | None, "why nothing was found"),
)  # fmt: skip
STEP: Final[ObjectType[tuple[int, Step]]] = ObjectType(
    "step",
    "`lookup-offset --explain`",
    "A step of the preceding lookup.",
    Field("step", INT, "ordinal, from 0", lambda one: one[0]),
    Field("action", TEXT, "`segment`, `time-index`, `offset-index`, `scan` …",
          lambda one: one[1].action),
    Field("path", TEXT | None, "the file that was examined", lambda one: one[1].path),
    Field("detail", TEXT, "the result, as text", lambda one: one[1].detail),
    Field("probes", ARRAY,
          "steps of the binary search: bounds `low` (inclusive) and `high` (exclusive), and the "
          "fields of the entry between them",
          lambda one: [
              {"low": probe.low, "high": probe.high, **asdict(probe.entry)}
              for probe in one[1].probes
          ]),
)  # fmt: skip


def lookup_view(style: Style) -> View[Lookup]:
    """Return the view with a row per query."""

    def query(found: Lookup) -> str:
        if found.by_timestamp and isinstance(found.query, int):
            return time_text(found.query, style)
        return str(found.query)

    def answer(found: Lookup) -> str:
        if found.found and found.offset is not None:
            return str(found.offset)
        return "none above" if found.found else "not found"

    def place(found: Lookup) -> str:
        if found.segment is None:
            return found.reason or ""
        return found.segment.rpartition("/")[2]

    return LOOKUP.view(
        style,
        Column("QUERY", query, fold=True),
        Column("OFFSET", answer, right=True),
        Column("TIME", "timestamp"),
        Column("EPOCH", "leader_epoch"),
        Column("POSITION", "position"),
        Column("SEGMENT", place, fold=True),
    )


def print_steps(found: Lookup) -> None:
    """Print the steps of a lookup, each probe of a binary search on a line of its own."""
    lines = []
    for step in found.steps:
        where = f" {step.path.rpartition('/')[2]}" if step.path else ""
        lines.append(f"  {step.action}{where}: {step.detail}")
        for probe in step.probes:
            values = ", ".join(f"{name} {value}" for name, value in asdict(probe.entry).items())
            lines.append(f"    [{probe.low}, {probe.high}): {values}")
    lines.append(f"  {counted(found.bytes_read, 'byte')} read")
    _put(lines)


def print_record(record: Record, style: Style) -> None:
    """Print a record in full, for people."""
    form, time = style.bytes_form, time_cell(record.timestamp, style.zone)
    lines = [
        f"  offset {record.offset}, {time} {record.timestamp_type}",
        f"  key    {bytes_cell(record.key, form)}",
        f"  value  {bytes_cell(record.value, form)}",
    ]
    for header in record.headers:
        name = header.key.decode("utf-8", "replace")
        lines.append(f"  header {name} = {bytes_cell(header.value, form)}")
    _put(lines)


def _put(lines: list[str]) -> None:
    text = "".join(printable(line) + "\n" for line in lines)
    sys.stdout.buffer.write(text.encode("utf-8"))
