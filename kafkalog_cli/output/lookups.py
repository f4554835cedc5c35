"""How answers of `lookup-offset` are shown, and how they were found."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from kafkalog_cli.output.objects import Column, View
from kafkalog_cli.output.rows import Row, lookup_row
from kafkalog_cli.output.text import BytesFormat, bytes_cell, printable, time_cell

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import tzinfo

    from kafkalog.lookup import Lookup
    from kafkalog.model import Record


def lookup_view(zone: tzinfo, *, exact: bool) -> View[Lookup]:
    """One row a query."""

    def time(timestamp_ms: int | None) -> str:
        return _dash(timestamp_ms) if exact else time_cell(timestamp_ms, zone)

    def query(found: Lookup) -> str:
        if found.by_timestamp and isinstance(found.query, int):
            return time(found.query)
        return str(found.query)

    def answer(found: Lookup) -> str:
        if found.found and found.offset is not None:
            return str(found.offset)
        return "none above" if found.found else "not found"

    def place(found: Lookup) -> str:
        if found.segment is None:
            return found.reason or ""
        return found.segment.rpartition("/")[2]

    return View(
        (
            Column("QUERY", query, fold=True),
            Column("OFFSET", answer, right=True),
            Column("TIME", lambda found: time(found.timestamp)),
            Column("EPOCH", lambda found: _dash(found.leader_epoch), right=True),
            Column("POSITION", lambda f: _dash(f.batch.position if f.batch else None), right=True),
            Column("SEGMENT", place, fold=True),
        ),
        lookup_row,
    )


def explain_rows(found: Lookup) -> Iterator[Row]:
    """An object for each step of a lookup."""
    for number, step in enumerate(found.steps):
        yield {
            "type": "step",
            "step": number,
            "action": step.action,
            "path": step.path,
            "detail": step.detail,
            "probes": [
                {"low": probe.low, "high": probe.high, **asdict(probe.entry)}
                for probe in step.probes
            ],
        }


def print_steps(found: Lookup) -> None:
    """The steps of a lookup, each probe of a binary search on a line of its own."""
    lines = []
    for step in found.steps:
        where = f" {step.path.rpartition('/')[2]}" if step.path else ""
        lines.append(f"  {step.action}{where}: {step.detail}")
        for probe in step.probes:
            values = ", ".join(f"{name} {value}" for name, value in asdict(probe.entry).items())
            lines.append(f"    [{probe.low}, {probe.high}): {values}")
    lines.append(f"  {found.bytes_read} bytes read")
    _put(lines)


def show_record(record: Record, form: BytesFormat, zone: tzinfo) -> None:
    """A record in full, for people."""
    lines = [
        f"  offset {record.offset}, {time_cell(record.timestamp, zone)} {record.timestamp_type}",
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


def _dash(value: object) -> str:
    return "-" if value is None else str(value)
