"""How `undo` is shown: what comes back to each partition, and what goes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kafkalog_cli.output.configs import print_heading
from kafkalog_cli.output.objects import Column, View
from kafkalog_cli.output.text import counted, size_cell
from kafkalog_cli.output.writer import Format, Writer

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.journal import PartitionUndo, Undo
    from kafkalog.model import Defect
    from kafkalog_cli.output.objects import Row


class UndoWriter(Writer["PartitionUndo"]):
    """Writes the partitions that are brought back."""

    def __init__(self, form: Format, on_defect: Callable[[Defect], None], *, exact: bool) -> None:
        self._performed = False
        super().__init__(_view(lambda: self._performed, exact=exact), form, on_defect)

    def write_all(self, undo: Undo, *, is_done: bool) -> None:
        """Each partition of it."""
        self._performed = is_done
        for partition in undo.partitions:
            self.write(partition)


def print_totals(undo: Undo, *, is_done: bool, in_place: bool) -> None:
    """The lines below the table."""
    if not undo.partitions:
        print_heading(["nothing to undo: everything is already restored"])
        return
    partitions = counted(len(undo.partitions), "partition")
    if is_done:
        lines = [f"{partitions} restored to the state before `{undo.command}`"]
    else:
        lines = [f"{partitions} would be restored to the state before `{undo.command}`"]
        lines.append("nothing was changed" + ("" if in_place else ": --in-place does it"))
    print_heading(lines)


def _view(is_done: Callable[[], bool], *, exact: bool) -> View[PartitionUndo]:
    def size(number: int) -> str:
        return size_cell(number, exact=exact)

    return View(
        (
            Column("PARTITION", lambda row: os.path.basename(row.path), fold=True),
            Column("RUN", lambda row: row.state),
            Column("COME BACK", lambda row: row.files_restored, right=True),
            Column("SIZE", lambda row: size(row.bytes_restored), right=True),
            Column("GO", lambda row: row.files_removed, right=True),
            Column("SIZE", lambda row: size(row.bytes_removed), right=True),
            Column("OFFSETS", _offsets, fold=True),
        ),
        lambda row: _object(row, is_done=is_done()),
    )


def _offsets(row: PartitionUndo) -> str:
    changes = [
        f"{change.checkpoint.removesuffix('-offset-checkpoint')} {_text(change.before)}"
        for change in row.offsets
    ]
    return ", ".join(changes) or "-"


def _text(offset: int | None) -> str:
    return "none" if offset is None else str(offset)


def _object(row: PartitionUndo, *, is_done: bool) -> Row:
    return {
        "type": "undo",
        "path": row.path,
        "topic": row.topic,
        "partition": row.partition,
        "state": row.state,
        "performed": is_done,
        "files_restored": row.files_restored,
        "bytes_restored": row.bytes_restored,
        "files_removed": row.files_removed,
        "bytes_removed": row.bytes_removed,
        "offsets": [
            {"checkpoint": change.checkpoint, "offset": change.now, "restored_to": change.before}
            for change in row.offsets
        ],
    }
