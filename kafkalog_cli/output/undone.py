"""The output of `undo`: what is restored in each partition, and what is removed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog.wording import counted
from kafkalog_cli.maintenance import print_heading
from kafkalog_cli.output.objects import (
    ARRAY,
    BOOL,
    INT,
    SIZE,
    TEXT,
    TIME,
    Column,
    Field,
    ObjectType,
    topic_and_partition,
)

if TYPE_CHECKING:
    from kafkalog.journal import PartitionUndo, RecordedRun, Undo
    from kafkalog_cli.output.objects import Style, View


class Restored(NamedTuple):
    """A partition to restore, and whether it was."""

    undo: PartitionUndo
    performed: bool


def _changes(one: Restored) -> object:
    return [
        {"checkpoint": change.checkpoint, "offset": change.now, "restored_to": change.before}
        for change in one.undo.offsets
    ]


UNDO: Final = ObjectType[Restored](
    "undo",
    "`undo`",
    "A partition that is restored to its state before the run, or would be.",
    Field("path", TEXT, "the directory", "undo.path"),
    *topic_and_partition("undo."),
    Field("state", TEXT, "how far the run came with it: `done`, `in-progress`, `aborted`, or "
          "`undoing` where an earlier `undo` was interrupted", "undo.state"),
    Field("reason", TEXT | None, "why the run gave it up, if `aborted`; else null", "undo.reason"),
    Field("performed", BOOL, "whether it was performed; false in a plan"),
    Field("files_restored", INT, "files that are restored",
          "undo.files_restored"),
    Field("bytes_restored", SIZE, "their bytes", "undo.bytes_restored"),
    Field("files_removed", INT,
          "number of removed files, which the run had made", "undo.files_removed"),
    Field("bytes_removed", SIZE, "their bytes", "undo.bytes_removed"),
    Field("offsets", ARRAY, "entries in checkpoints that change: `checkpoint`, `offset` now, "
          "`restored_to`; null: no entry", _changes),
)  # fmt: skip


RECORDED_RUN: Final = ObjectType["RecordedRun"](
    "recorded_run",
    "`undo --list`",
    "A run with a backup.",
    Field("backup", TEXT, "the directory of its backup"),
    Field("begun", TIME, "when it began", "begun_ms"),
    Field("command", TEXT, "its command"),
    Field("log_dir", TEXT | None, "the log directory; null if it changed copied partitions"),
    Field("partitions", INT, "partitions that it changed and nobody has restored"),
    Field("finished", BOOL, "whether it finished each partition that it began", "is_finished"),
    Field("undoable", BOOL, "whether `undo` would restore something", "can_be_undone"),
    Field("refusal", TEXT | None, "why it cannot be undone now; null if it can, or if nothing is "
          "left to undo", lambda one: one.refusal and one.refusal.message),
)  # fmt: skip


def run_view(style: Style) -> View[RecordedRun]:

    def state(one: RecordedRun) -> str:
        if one.refusal is not None:
            return f"cannot be undone: {one.refusal.message}"
        if not one.partitions:
            return "nothing left to undo"
        return "can be undone" if one.is_finished else "interrupted; can be undone"

    return RECORDED_RUN.view(
        style,
        Column("BACKUP", "backup", fold=True),
        Column("BEGUN", "begun"),
        Column("COMMAND", "command"),
        Column("LOG DIRECTORY", "log_dir", fold=True),
        Column("PARTITIONS", "partitions"),
        Column("STATE", state, fold=True, below=True),
    )


def undo_view(style: Style) -> View[Restored]:
    """Return the view with a row per partition."""
    return UNDO.view(
        style,
        Column("PARTITION", lambda one: os.path.basename(one.undo.path), fold=True),
        Column("RUN", "state"),
        Column("RESTORED", "files_restored"),
        Column("SIZE", "bytes_restored"),
        Column("REMOVED", "files_removed"),
        Column("SIZE", "bytes_removed"),
        Column("OFFSETS", _offsets, fold=True),
    )


def print_totals(undo: Undo, *, is_done: bool, in_place: bool) -> None:
    """Print the lines below the table."""
    if not undo.partitions and not undo.files:
        print_heading(["nothing to undo: everything is already restored"])
        return
    partitions = what_of(undo)
    if is_done:
        lines = [f"{partitions} restored to the state before `{undo.command}`"]
    else:
        lines = [f"{partitions} would be restored to the state before `{undo.command}`"]
        lines.append("nothing was changed" + ("" if in_place else ": --in-place applies the plan"))
    print_heading(lines)


def what_of(undo: Undo) -> str:
    """Return what is restored, counted."""
    files = [counted(len(undo.files), "file") + " at the top"] if undo.files else []
    partitions = [counted(len(undo.partitions), "partition")] if undo.partitions else []
    return " and ".join(partitions + files)


def _offsets(one: Restored) -> str:
    changes = [
        f"{change.checkpoint.removesuffix('-offset-checkpoint')} {_text(change.before)}"
        for change in one.undo.offsets
    ]
    return ", ".join(changes) or "-"


def _text(offset: int | None) -> str:
    return "none" if offset is None else str(offset)
