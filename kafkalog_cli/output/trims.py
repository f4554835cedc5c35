"""The output of `retention` about what it deletes itself, and what is left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalog.io.wording import counted
from kafkalog_cli.output import kinds as k
from kafkalog_cli.output.objects import Field, ObjectType, topic_and_partition
from kafkalog_cli.output.text import left_overs_text, size_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkalog.change.retention.run import TrimmedPartition
    from kafkalog.files.log_dir import PartitionDir
    from kafkalog_cli.output.objects import Style

RETENTION_APPLIED: Final = ObjectType["TrimmedPartition"](
    "retention_applied",
    "`retention`",
    "What is deleted from a partition, after its segments. The active segment stays, whatever "
    "its `retention` row says.",
    Field("path", k.TEXT, "", "plan.partition.path"),
    *topic_and_partition("plan.partition."),
    Field("performed", k.BOOL, "false in a plan", "is_done"),
    Field("deleted_segments", k.INT, "", lambda one: len(one.plan.segments)),
    Field("freed_bytes", k.INT, "their `.log` files", "plan.freed_bytes"),
    Field("freed_side_bytes", k.INT, "their indexes and producer snapshots",
          "plan.freed_side_bytes"),
    Field("deleted_files", k.ARRAY, "in deletion order",
          lambda one: [name for group in one.plan.files for name in group]),
    Field("keep_deleted", k.BOOL, "they stay as `.deleted`", "plan.keeps_deleted"),
    Field("left_overs", k.ARRAY, "files of interrupted deletions, which go too", "plan.left_overs"),
    Field("active_stays", k.BOOL, "a broker would roll the log and delete all of it",
          "plan.active_stays"),
    Field("log_start_offset", k.INT, "afterwards", "plan.log_start_offset"),
    Field("log_start_checkpoint", k.INT | None,
          "in `log-start-offset-checkpoint` afterwards", "plan.log_start_checkpoint"),
    Field("log_end_offset", k.INT, "before and after", "plan.found.log.log_end_offset"),
    Field("leader_epochs", k.ARRAY, "afterwards: `leader_epoch`, `start_offset`",
          "plan.leader_epochs"),
)  # fmt: skip


def trim_lines(
    trimmed: Sequence[TrimmedPartition], name: Callable[[PartitionDir], str], style: Style
) -> list[str]:
    """Return what is deleted from each partition, and why less than a broker deletes."""
    lines = []
    for one in trimmed:
        plan, called = one.plan, name(one.plan.partition)
        if plan.active_stays:
            lines.append(f"{called}: the active segment stays: only a broker rolls it")
        if plan.is_empty:
            continue
        verb = "removed" if one.is_done else "would be removed"
        files = sum(map(len, plan.files))
        freed = size_text(plan.freed_bytes + plan.freed_side_bytes, style)
        what = f"{counted(len(plan.segments), 'segment')} in {counted(files, 'file')}, {freed}"
        lines.append(f"{called}: {what}, {verb}; the log starts at {plan.log_start_offset}")
        if plan.left_overs:
            lines.append(f"{called}: {left_overs_text(len(plan.left_overs), is_done=one.is_done)}")
    return lines


def trimmed_total(trimmed: Sequence[TrimmedPartition], style: Style) -> str:
    """Return what was deleted in all."""
    wanted = [one for one in trimmed if not one.plan.is_empty]
    if not wanted:
        return "nothing to do"
    done = [one.plan for one in wanted if one.is_done]
    segments = counted(sum(len(one.segments) for one in done), "segment")
    freed = size_text(sum(one.freed_bytes for one in done), style)
    changed = f"{len(done)} of {counted(len(wanted), 'partition')} changed"
    return f"{changed}, {segments}, {freed} deleted"
