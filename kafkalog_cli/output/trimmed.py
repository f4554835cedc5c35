"""How `apply-retention` is shown: what goes from each partition, and what is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog_cli.output.configs import print_heading
from kafkalog_cli.output.text import counted, left_overs_text, size_cell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.retention.apply import TrimPlan
    from kafkalog_cli.output.objects import Row


def trim_row(plan: TrimPlan, *, is_done: bool) -> Row:
    """The object for a partition."""
    return {
        "type": "retention_applied",
        "path": plan.partition.path,
        "topic": plan.partition.topic,
        "partition": plan.partition.partition,
        "performed": is_done,
        "segments_deleted": len(plan.segments),
        "bytes_freed": plan.bytes_freed,
        "side_bytes_freed": plan.side_bytes_freed,
        "files": [name for group in plan.files for name in group],
        "keep_deleted": plan.keeps_deleted,
        "left_overs": list(plan.left_overs),
        "active_stays": plan.active_stays,
        "log_start_offset": plan.log_start_offset,
        "log_start_checkpoint": plan.log_start_checkpoint,
        "log_end_offset": plan.found.log.log_end_offset,
        "leader_epochs": [[one.epoch, one.start_offset] for one in plan.leader_epochs],
    }


def print_trims(
    plans: Sequence[TrimPlan], done: Sequence[TrimPlan], *, exact: bool, in_place: bool
) -> None:
    """The lines below the tables."""
    lines = [] if plans else ["nothing to do: retention applies to no segment"]
    for plan in plans:
        name = plan.partition.path
        if plan.active_stays:
            lines.append(
                f"{name}: everything but the active segment would be deleted; a broker "
                f"rolls that first"
            )
        if plan.is_empty:
            lines.append(f"{name}: nothing to do, the log starts at {plan.log_start_offset}")
            continue
        verb = "removed" if plan in done else "would be removed"
        files = sum(map(len, plan.files))
        freed = size_cell(plan.bytes_freed + plan.side_bytes_freed, exact=exact)
        what = f"{counted(len(plan.segments), 'segment')} in {counted(files, 'file')}, {freed}"
        lines.append(f"{name}: {what}, {verb}; the log starts at {plan.log_start_offset}")
        if plan.left_overs:
            lines.append(f"{name}: {left_overs_text(len(plan.left_overs), is_done=plan in done)}")
    if not in_place and any(not plan.is_empty for plan in plans):
        lines.append("nothing was changed; --in-place applies the plan")
    elif plans and not done:
        lines.append("nothing was changed")
    print_heading(lines)
