"""`kafkalog undo`: restore what a run changed, from its backup."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kafkalog.errors import KafkaLogError, UsageError
from kafkalog_cli import options as opt
from kafkalog_cli.outcome import Outcome, show_note
from kafkalog_cli.output.objects import Style
from kafkalog_cli.output.writer import Format, write_all
from kafkalog_cli.standard_streams import put_work_first

if TYPE_CHECKING:
    from kafkalog.change.journal import Undo
    from kafkalog.io.storage import ChangeWatch


def undo(
    path: Annotated[str, typer.Argument(
        metavar="DIR", help="The --backup of the run, or the journal in it.",
    )],
    lists: Annotated[bool, typer.Option(
        "--list", help="List the runs whose backup is DIR or is inside it.",
    )] = False,
    in_place: opt.InPlaceOption = False,
    yes: opt.YesOption = False,
    form: opt.FormatOption = Format.TABLE,
    exact: opt.ExactOption = False,
) -> int:  # fmt: skip
    """Restore what a run with --backup changed: bytes, owners and times of all files.

    Without --in-place only the plan is shown. Each partition must be as the run left it, finished
    or interrupted: once a broker has started on it, undo changes nothing. The log directory is
    locked as a broker locks it. Each partition is exchanged in one step; after a kill repeat the
    command. Entries in checkpoints and the mark of a clean shutdown are restored too.

    \b
    kafkalog undo --list /backups
    kafkalog undo /backups/before-compaction
    kafkalog undo /backups/before-compaction --in-place --yes
    """
    from kafkalog.io.storage import ChangeWatch
    from kafkalog_cli.maintenance import consents, require_consent
    from kafkalog_cli.output import undone as show

    require_consent(in_place=in_place, yes=yes)
    outcome = Outcome()
    if lists:
        if in_place:
            raise UsageError("--list changes nothing.", hint="Leave out --in-place.")
        return _list(path, form, Style(exact), outcome)
    watch = ChangeWatch()
    is_done = in_place and yes
    if in_place:
        put_work_first()
    planned = _undo(path, watch, outcome, in_place=is_done)
    if planned is None:
        return outcome.of_work(has_changed=True, is_concerned=True)
    restored = [show.Restored(one, is_done) for one in planned.partitions]
    write_all(restored, show.undo_view(Style(exact)), form)
    if in_place and not yes and (planned.partitions or planned.files):
        question = f"Restore {show.what_of(planned)}?"
        is_done = consents(question, yes=yes)
        if is_done and _undo(path, watch, outcome, in_place=True) is None:
            return outcome.of_work(has_changed=True, is_concerned=True)
    if form == Format.TABLE:
        show.print_totals(planned, is_done=is_done, in_place=in_place)
    return outcome.of_work(
        has_changed=is_done, is_concerned=bool(planned.partitions or planned.files)
    )


def _list(path: str, form: Format, style: Style, outcome: Outcome) -> int:
    from kafkalog.change.journal import recorded_runs
    from kafkalog_cli.output import undone as show

    found = recorded_runs(path, failed=outcome.hear)
    write_all(found, show.run_view(style), form)
    if not found and not outcome.errors:
        show_note(f"{path} has no backup of a run")
    return outcome.of_work(has_changed=False, is_concerned=any(one.can_be_undone for one in found))


def _undo(path: str, watch: ChangeWatch, outcome: Outcome, *, in_place: bool) -> Undo | None:
    """Plan or perform the undo; report an error, and return None, if it came after a change."""
    from kafkalog.change.journal import undo as run_undo

    try:
        return run_undo(path, in_place=in_place, observe=watch)
    except KafkaLogError as stop:
        if not watch.has_changed:
            raise
        outcome.hear(stop)
        show_note("partly restored; repeat the command to continue")
        return None
