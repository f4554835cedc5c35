"""The output of `undo`: what is restored in each partition, and what is removed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog.io.wording import counted
from kafkalog_cli.maintenance import STATUS, with_next_step
from kafkalog_cli.output import kinds as k
from kafkalog_cli.output.objects import Column, Field, ObjectType, topic_and_partition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.change.journal import PartitionUndo, RecordedRun, Undo
    from kafkalog_cli.output.objects import Style, View


class UndoSummary(NamedTuple):
    """The undoing of runs, how much of it was done, and the exit status of the command."""

    undone: Sequence[Undo]
    changed: int | None
    status: int


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
    Field("path", k.TEXT, "", "undo.path"),
    *topic_and_partition("undo."),
    Field("state", k.TEXT, "`done`, `in-progress`, `aborted`, or `undoing` (an interrupted `undo`)",
          "undo.state"),
    Field("reason", k.TEXT | None, "why it was `aborted`", "undo.reason"),
    Field("performed", k.BOOL, "false in a plan"),
    Field("restored_files", k.INT, "", "undo.restored_files"),
    Field("restored_bytes", k.SIZE, "", "undo.restored_bytes"),
    Field("removed_files", k.INT, "which the run had made", "undo.removed_files"),
    Field("removed_bytes", k.SIZE, "", "undo.removed_bytes"),
    Field("offsets", k.ARRAY, "checkpoint entries that change: `checkpoint`, `offset` now, "
                            "`restored_to`; null: no entry", _changes),
)  # fmt: skip

UNDO_SUMMARY: Final = ObjectType[UndoSummary](
    "undo_summary",
    "`undo`",
    "The last object: totals.",
    Field("command", k.TEXT, "which is undone; several with commas",
          lambda one: commands_of(one.undone)),
    Field("partitions", k.INT, "to restore", lambda one: _number_of(one.undone)[0]),
    Field("files", k.INT, "at the top of log directories, to restore",
          lambda one: _number_of(one.undone)[1]),
    STATUS,
    Field("changed", k.INT | None,
          "partitions and files that were restored; 0 in a plan; null if the work stopped"),
)  # fmt: skip

RECORDED_RUN: Final = ObjectType["RecordedRun"](
    "recorded_run",
    "`undo --list`",
    "A run with a backup.",
    Field("backup", k.TEXT, "its directory"),
    Field("start_timestamp", k.TIME, ""),
    Field("command", k.TEXT, ""),
    Field("log_dir", k.TEXT | None, "null if it changed copied partitions"),
    Field("partitions", k.INT, "changed and not yet restored"),
    Field("finished", k.BOOL, "each partition that it began", "is_finished"),
    Field("undoable", k.BOOL, "`undo` would restore something", "can_be_undone"),
    Field("refusal", k.TEXT | None, "why it cannot be undone now",
          lambda one: one.refusal and one.refusal.message),
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
        Column("BACKUP", "backup", least=12, keeps_end=True),
        Column("BEGUN", "start_timestamp"),
        Column("COMMAND", "command"),
        Column("LOG DIRECTORY", "log_dir", least=12, keeps_end=True),
        Column("PARTITIONS", "partitions"),
        Column("STATE", state, below=True),
    )


def undo_view(style: Style) -> View[Restored]:
    return UNDO.view(
        style,
        Column("PARTITION", lambda one: os.path.basename(one.undo.path), least=20, keeps_end=True),
        Column("RUN", "state"),
        Column("RESTORED", "restored_files"),
        Column("SIZE", "restored_bytes"),
        Column("REMOVED", "removed_files"),
        Column("SIZE", "removed_bytes"),
        Column("OFFSETS", _offsets, below=True),
    )


def undo_total(undone: Sequence[Undo], *, is_done: bool, is_plan: bool) -> str:
    if all(one.is_empty for one in undone):
        return "nothing to undo: everything is already restored"
    verb = "restored" if is_done else "would be restored"
    total = f"{what_of(undone)} {verb} to the state before `{commands_of(undone)}`"
    return with_next_step(total, is_plan=is_plan)


def what_of(undone: Sequence[Undo]) -> str:
    partitions, files = _number_of(undone)
    words = [counted(partitions, "partition")] if partitions else []
    words += [counted(files, "file") + " at the top"] if files else []
    return " and ".join(words)


def commands_of(undone: Sequence[Undo]) -> str:
    return ", ".join(dict.fromkeys(one.command for one in undone))


def _number_of(undone: Sequence[Undo]) -> tuple[int, int]:
    """Return how many partitions are restored, and how many files at the top."""
    return sum(len(one.partitions) for one in undone), sum(len(one.files) for one in undone)


def _offsets(one: Restored) -> str:
    changes = [
        f"{change.checkpoint.removesuffix('-offset-checkpoint')} {_text(change.before)}"
        for change in one.undo.offsets
    ]
    return ", ".join(changes) or "-"


def _text(offset: int | None) -> str:
    return "none" if offset is None else str(offset)
