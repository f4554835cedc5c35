"""`kafkalog recover`: predict or perform what a broker's start does to its logs."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from kafkalog.errors import UsageError
from kafkalog.io.wording import counted
from kafkalog_cli import options as opt
from kafkalog_cli.outcome import Outcome, show_note
from kafkalog_cli.output.objects import Style
from kafkalog_cli.output.progress import byte_progress
from kafkalog_cli.output.writer import Format, Writer
from kafkalog_cli.standard_streams import put_work_first

if TYPE_CHECKING:
    from kafkalog.change.repair.run import Recovery


class ScanFrom(StrEnum):
    """Where a scan starts."""

    CHECKPOINT = "checkpoint"
    START = "start"


def recover(
    paths: opt.DirectoriesArgument,
    check: Annotated[bool, typer.Option(
        "--check", help="Only show the plan, as without --in-place.",
    )] = False,
    in_place: opt.InPlaceOption = False,
    yes: opt.YesOption = False,
    backup: opt.BackupOption = None,
    scan_from: Annotated[ScanFrom | None, typer.Option(
        "--from", help="Scan from there, whatever the mark says.",
    )] = None,
    assume_clean: Annotated[bool, typer.Option(
        "--assume-clean", help="Scan nothing, as after a clean shutdown.",
    )] = False,
    force: Annotated[bool, typer.Option(
        "--force", help="Also truncate records below the high watermark.",
    )] = False,
    rate: Annotated[str, typer.Option(
        "--scan-rate", metavar="SIZE", help="Assumed scan rate of a broker, per second.",
    )] = "200MiB",
    config: opt.ConfigOption = None,
    properties: opt.PropertiesOption = None,
    metadata_dir: opt.MetadataDirOption = None,
    now: opt.NowOption = None,
    form: opt.FormatOption = Format.TABLE,
    exact: opt.ExactOption = False,
    quiet: opt.QuietOption = False,
) -> int:  # fmt: skip
    """Recover logs as a broker does when it starts: finish swaps, truncate, rebuild indexes.

    Without the mark of a clean shutdown, segments from the recovery point on are scanned, and the
    log ends before the first batch that is not sound. Interrupted compactions and deletions are
    finished or rolled back. Without --in-place only the plan is shown. Records below the high
    watermark are truncated only with --force: it is better to replicate the partition again, or to
    salvage what is sound.

    A leader-epoch-checkpoint that a broker cannot read is rebuilt from the batches, a missing
    partition.metadata from the cluster's. KRaft's own log and directories that await deletion are
    left to the broker. If one partition must not be recovered, none is changed: name the others.

    Give all log directories of a node, to see what keeps it from starting. They are locked as a
    broker locks them. After a kill, another recovery or the start of a broker reaches the same
    result. The exit status is 1 if a start would fail or lose something.

    \b
    kafkalog recover /var/lib/kafka
    kafkalog recover orders-0 --from start --in-place --yes
    """
    from kafkalog.change.repair.run import Recovery
    from kafkalog.node.configs import ConfigSources
    from kafkalog.node.recovery import StartMode
    from kafkalog_cli.maintenance import require_consent
    from kafkalog_cli.output import repairs as show

    require_consent(in_place=in_place, yes=yes, backup=backup)
    if force and not in_place:
        raise UsageError("--force requires --in-place.", hint="Without it only the plan is shown.")
    if check and in_place:
        raise UsageError("--check and --in-place exclude each other.", hint="Give one of them.")
    if assume_clean and scan_from is not None:
        raise UsageError("--assume-clean and --from exclude each other.")
    modes = {ScanFrom.CHECKPOINT: StartMode.UNCLEAN, ScanFrom.START: StartMode.FULL}
    mode = None if scan_from is None else modes[scan_from]
    sources = ConfigSources(opt.parse_configs(config), properties, metadata_dir=metadata_dir)
    outcome = Outcome()
    run = Recovery(
        paths,
        StartMode.CLEAN if assume_clean else mode,
        sources,
        now_ms=opt.parse_time(now if now is not None else "-0s"),
        in_place=in_place,
        backup=backup,
        forced=force,
        metadata_dir=metadata_dir,
        arguments=sys.argv[1:],
        listener=outcome,
    )
    scan_rate, style = opt.parse_rate(rate), Style(exact)
    if in_place:
        put_work_first()
    with run, Writer(show.recovery_view(style), form) as out:
        with byte_progress(run.partitions, enabled=not quiet) as progress:
            run.plan(progress)
        if form == Format.TABLE:
            for one in run.results:
                out.write(one)
            out.flush()
            show.print_going(run.plans, style)
            for name, stop in run.refused.items() if run.is_plan else ():
                show_note(f"{name} would be refused: {stop.message}")
            show.note_recovery(run.asked, run.plans)
        # A table shows the plan before consent; objects also say what was done, so they come after
        # it.
        if not run.is_plan:
            for stop in run.refused.values():
                outcome.hear(stop)
            _apply(run, paths, yes=yes, quiet=quiet)
        if form != Format.TABLE:
            for one in run.results:
                out.write(one)
        performed = sum(one.done is not None for one in run.results)
        summary = show.RecoverySummary(
            tuple(run.plans), tuple(run.asked), len(run.refused), performed, scan_rate, in_place
        )
        out.write_object(show.RECOVERY_SUMMARY.row(summary))
    if form == Format.TABLE and run.plans:
        show.print_recovery_summary(summary, style)
    outcome.fail_if(run.has_losses or bool(run.refused))
    # A plan answers what a start would do, where nothing is an answer, too.
    is_concerned = run.is_plan or summary.changed_partitions > 0
    return outcome.of_work(has_changed=run.has_changed, is_concerned=is_concerned)


def _apply(run: Recovery, paths: list[str], *, yes: bool, quiet: bool) -> None:
    from kafkalog_cli.maintenance import consents

    wanted = [plan.partition for plan in run.wanted]
    question = f"Change {counted(len(wanted), 'partition')} in {', '.join(paths)}?"
    if run.may_apply and wanted and consents(question, yes=yes):
        # Scanned to perform it, and to check it.
        with byte_progress(wanted * 2, enabled=not quiet) as progress:
            run.apply(progress)
