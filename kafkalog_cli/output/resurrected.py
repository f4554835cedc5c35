"""The output of `resurrect`: the rows of its manifest, or its topics as a table."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from kafkalog.change.resurrection.model import (
    LeftOutDirectory,
    ResurrectedPartition,
    ResurrectedTopic,
    ResurrectSummary,
    manifest_object,
)
from kafkalog.io.wording import counted, printable
from kafkalog_cli.outcome import show_note
from kafkalog_cli.output.objects import Column, View
from kafkalog_cli.output.text import size_cell
from kafkalog_cli.output.writer import Format, Writer

if TYPE_CHECKING:
    from kafkalog.change.resurrection.model import Row as ManifestRow


class ResurrectWriter:
    """Takes rows as the library reports them, and writes them when all has gone well.

    All rows are objects; tables and CSV have the topics.
    """

    def __init__(self, form: Format) -> None:
        self._form = form
        self._rows: list[ManifestRow] = []

    def take(self, row: ManifestRow) -> None:
        self._rows.append(row)

    def write(self, summary: ResurrectSummary, status: int, destination: str | None = None) -> None:
        """Write the rows, then what they add up to; the command that starts Kafka comes last.

        Args:
            destination: the option that carries out a plan; None if that is asked next.
        """
        with Writer(_topic_view(), self._form) as writer:
            for row in self._rows:
                if isinstance(row, ResurrectedTopic):
                    writer.write(row)
                elif not isinstance(row, ResurrectSummary):
                    writer.write_object(manifest_object(row))
            changed = 0 if summary.dry_run else summary.partitions
            last = {**manifest_object(summary), "status": status, "changed": changed}
            writer.write_object(last)
        if not self._form.is_screen:
            return
        self._print_others()
        print_totals(summary, destination)

    def _print_others(self) -> None:
        for row in self._rows:
            if isinstance(row, ResurrectedPartition):
                for loser in row.losers:
                    offset = loser.differs_from
                    at = "" if offset is None else f", differs from offset {offset} on"
                    _print(f"not taken: {loser.path}: {loser.reason}{at}")
            elif isinstance(row, LeftOutDirectory):
                _print(f"left out: {row.path}: {row.reason}")


def _topic_view() -> View[ResurrectedTopic]:
    return View(
        (
            Column("TOPIC", lambda one: one.topic),
            Column("PARTITIONS", lambda one: one.partitions, right=True),
            Column("RECORDS", lambda one: one.records, right=True),
            Column("SIZE", lambda one: size_cell(one.size_bytes, exact=False), right=True),
            Column("START", lambda one: one.log_start_offset, right=True),
            Column("END", lambda one: one.log_end_offset, right=True),
            Column("FROM", lambda one: ", ".join(one.sources) or "-", below=True),
            Column("CONFIGS", _configs, below=True),
            Column("NOTES", _notes, below=True),
        ),
        manifest_object,
    )


def _configs(one: ResurrectedTopic) -> str:
    return " ".join(f"{name}={value}" for name, value in one.configs.items()) or "-"


def _notes(one: ResurrectedTopic) -> str:
    was = [f"{name} was {value}" for name, value in one.replaced.items()]
    renamed = [] if one.old_name == one.topic else [f"was called {one.old_name}"]
    return "; ".join([*renamed, *one.notes, *was]) or "-"


def print_totals(summary: ResurrectSummary, destination: str | None = None) -> None:
    is_in_place = bool(summary.log_dir) and summary.log_dir == os.path.realpath(summary.destination)
    verb = "would be written" if summary.dry_run else "written"
    what = f"{counted(summary.topics, 'topic')}, {counted(summary.partitions, 'partition')}"
    size = size_cell(summary.size_bytes, exact=False)
    records = counted(summary.records, "record")
    is_new = bool(summary.start_command)
    if is_new and is_in_place:
        total = f"{what}: {records}, {size}; metadata {verb} in {summary.destination}"
    else:
        where = os.path.join(summary.destination, "log") if is_new else summary.destination
        total = f"{what}: {records}, {size}, {verb} to {where}"
    if summary.missing_partitions:
        _print(f"without a directory: {counted(summary.missing_partitions, 'partition')}")
    if summary.dry_run and destination is not None:
        follows = f"; this then starts Kafka {summary.kafka} on it:" if is_new else ""
        total += f". Plan only: {destination} does it{follows}"
    _print(total)
    if is_new:
        _print(summary.start_command)


def _print(line: str) -> None:
    sys.stdout.buffer.write(f"{printable(line)}\n".encode())
    sys.stdout.buffer.flush()


def show_notes(summary: ResurrectSummary) -> None:
    if summary.left_over_removed:
        show_note("leftovers of a killed run next to the new directory were removed")
    for note in summary.notes:
        show_note(note)
