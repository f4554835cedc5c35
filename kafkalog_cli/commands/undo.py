"""`kafkalog undo`: restore what a run changed, from its backup."""

from __future__ import annotations

from itertools import islice
from typing import Annotated

import typer

from kafkalog.errors import KafkaLogError, UsageError
from kafkalog.io.wording import counted
from kafkalog_cli import options as opt
from kafkalog_cli.outcome import Outcome, show_note
from kafkalog_cli.output.next_steps import words_of
from kafkalog_cli.output.writer import Writer, limited


def undo(
    paths: Annotated[list[str], typer.Argument(
        metavar="DIR...", help="The --backup of the run, or the journal in it.",
        show_default=False,
    )],
    lists: Annotated[bool, typer.Option(
        "--list", help="List the runs whose backup is DIR or is inside it.",
    )] = False,
    *,
    change: opt.Plan,
    show: opt.Show,
) -> int:  # fmt: skip
    """Restore what a run with --backup changed: bytes, owners and times of all files.

    Each partition must be as the run left it, finished or interrupted: once a broker has started on
    it, undo changes nothing. The log directory is locked as a broker locks it. Each partition is
    exchanged in one step; after a kill repeat the command. Entries in checkpoints and the mark of a
    clean shutdown are restored too. A run over several log directories has a backup for each: name
    them all.

    \b
    kafkalog undo --list /backups
    kafkalog undo /backups/before-compaction
    kafkalog undo /backups/before-compaction --apply -y
    """
    from kafkalog.change.journal import undo as run_undo
    from kafkalog_cli.maintenance import asks, consents, will_apply
    from kafkalog_cli.output import undone as out

    if lists and change.apply:
        raise UsageError("--list changes nothing.", hint="Leave out --apply.")
    is_applied = will_apply(change)
    outcome = Outcome()
    if lists:
        return _list(paths, show, outcome, check=change.check)
    # All before the first change: if one must not be undone, none is.
    planned = [run_undo(path) for path in paths]
    count = sum(one.count for one in planned)
    is_shown_first, is_done = is_applied and asks(change), False
    with Writer(out.undo_view(show.style()), show.format) as writer:

        def write() -> None:
            found = (partition for one in planned for partition in one.partitions)
            for partition in islice(found, show.limit):
                writer.write(out.Restored(partition, is_done))
            writer.end_rows()

        if is_shown_first:
            write()
        is_wanted = is_applied and count > 0
        if is_wanted and consents(change, f"Restore {out.what_of(planned)}?"):
            is_done = _perform(paths, outcome)
        if not is_shown_first:
            write()
        status = outcome.of_work(
            has_changed=is_done,
            has_plan=not is_applied,
            check=change.check,
            is_concerned=count > 0,
        )
        is_partly = not is_done and outcome.has_changed
        changed = None if is_partly else is_done * count
        writer.write_object(out.UNDO_SUMMARY.row(out.UndoSummary(planned, changed, status)))
        if not is_partly:
            writer.total(out.undo_total(planned, is_done=is_done, is_plan=not is_applied))
    return status


def _list(paths: list[str], show: opt.Show, outcome: Outcome, *, check: bool) -> int:
    from kafkalog.change.journal import recorded_runs
    from kafkalog_cli.output import undone as out

    found = [one for path in paths for one in recorded_runs(path, failed=outcome.hear)]
    with Writer(out.run_view(show.style()), show.format) as writer:
        for one in found[: show.limit]:
            writer.write(one)
        writer.total(limited(counted(len(found[: show.limit]), "run"), len(found), show.limit))
        if undoable := [one.backup for one in found if one.can_be_undone]:  # the latest first
            writer.next("undo", *words_of(undoable[:1]))
    if not found and not outcome.errors:
        show_note(f"{', '.join(paths)} has no backup of a run")
    return outcome.of_work(
        has_changed=False,
        has_plan=bool(found),
        check=check,
        is_concerned=any(one.can_be_undone for one in found),
    )


def _perform(paths: list[str], outcome: Outcome) -> bool:
    """Perform the undo; report an error, and return False, if it came after a change."""
    from kafkalog.change.journal import undo as run_undo
    from kafkalog.io.storage import ChangeWatch

    watch = ChangeWatch()
    try:
        for path in paths:
            run_undo(path, in_place=True, observe=watch)
    except KafkaLogError as stop:
        if not watch.has_changed:
            raise
        outcome.has_changed = True
        outcome.hear(stop)
        show_note("partly restored; repeat the command to continue")
        return False
    return True
