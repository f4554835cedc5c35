"""`kafkalog recover`: predict or perform what a broker's start does to its logs."""

from __future__ import annotations

import sys
from dataclasses import replace
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from kafkalog_cli import options as opt
from kafkalog_cli.outcome import Outcome, show_note
from kafkalog_cli.output.progress import byte_progress
from kafkalog_cli.output.writer import Writer
from kafkalog_cli.session import now_ms, session
from kafkalog_cli.values import parse_rate

if TYPE_CHECKING:
    from kafkalog.change.repair.run import Recovery
    from kafkalog_cli.output.objects import Style
    from kafkalog_cli.output.repairs import RecoverySummary


class Scan(StrEnum):
    """Where a scan starts."""

    CHECKPOINT = "checkpoint"
    START = "start"
    NONE = "none"


def recover(
    paths: opt.DirectoriesArgument,
    scan: Annotated[Scan | None, typer.Option(
        "--scan", show_default=False,
        help="From the recovery point, from the start, or nothing, as after a clean shutdown; "
        "without it what the mark of a clean shutdown calls for.",
    )] = None,
    rate: Annotated[str, typer.Option(
        "--scan-rate", metavar="SIZE", help="Assumed scan rate of a broker, per second.",
    )] = "200MiB",
    allow_loss: opt.AllowLossOption = False,
    *,
    partitions: opt.AllPartitions,
    change: opt.Change,
    configs: opt.Configs,
    show: opt.Show,
) -> int:  # fmt: skip
    """Recover logs as a broker does when it starts: finish swaps, truncate, rebuild indexes.

    The log ends before the first batch that is not sound. Records below the high watermark are
    truncated only with --allow-loss: it is better to replicate the partition again, or to salvage
    what is sound. If one partition must not be recovered, none is changed: choose with -t and -p.
    Give all log directories of a node, to see what keeps it from starting. After a kill, another
    recovery or the start of a broker reaches the same result.

    \b
    kafkalog recover /var/lib/kafka
    kafkalog recover orders-0 --scan start --apply -y
    """
    from kafkalog.change.repair.run import Recovery
    from kafkalog.node.recovery import StartMode
    from kafkalog_cli.maintenance import consents_to, will_apply
    from kafkalog_cli.output import repairs as out

    is_applied = will_apply(change, backup=change.backup)
    modes = {
        Scan.CHECKPOINT: StartMode.UNCLEAN,
        Scan.START: StartMode.FULL,
        Scan.NONE: StartMode.CLEAN,
    }
    outcome = Outcome()
    run = Recovery(
        paths,
        None if scan is None else modes[scan],
        configs.sources(),
        now_ms=now_ms(),
        in_place=is_applied,
        backup=change.backup if is_applied else None,
        forced=allow_loss,
        metadata_dir=configs.metadata_dir,
        arguments=sys.argv[1:],
        listener=outcome,
        **partitions.chosen,
    )
    scan_rate, style, quiet = parse_rate(rate), show.style(), session().is_quiet
    with run, Writer(out.recovery_view(style), show.format) as writer:
        with byte_progress(run.partitions, enabled=not quiet) as progress:
            run.plan(progress)
        if show.format.is_screen:
            for one in islice(run.results, show.limit):
                writer.write(one)
            writer.end_rows()
            _show_plan(run, style)
        # A table shows the plan before consent; objects also say what was done, so they come after
        # it.
        if is_applied:
            for stop in run.refused.values():
                outcome.hear(stop)
            wanted = [plan.partition for plan in run.wanted]
            may_apply = bool(run.may_apply and wanted)
            if may_apply and consents_to(change, len(wanted), run.where):
                # Scanned to perform it, and to check it.
                with byte_progress(wanted * 2, enabled=not quiet) as progress:
                    run.apply(progress)
        if not show.format.is_screen:
            for one in islice(run.results, show.limit):
                writer.write(one)
        done = sum(one.done is not None for one in run.results)
        summary = out.RecoverySummary(
            tuple(run.plans), tuple(run.asked), len(run.refused), done, scan_rate, not is_applied
        )
        status = _status(run, summary, outcome, check=change.check)
        writer.write_object(out.RECOVERY_SUMMARY.row(replace(summary, status=status)))
        if run.plans:
            writer.total(*out.recovery_lines(summary, style))
    return status


def _show_plan(run: Recovery, style: Style) -> None:
    from kafkalog_cli.output import repairs as out

    out.print_going(run.plans, style)
    hint = None
    for name, stop in run.refused.items() if run.is_plan else ():
        show_note(f"{name} would be refused: {stop.message}")
        hint = stop.hint
    if hint is not None:  # one is enough: they differ in the path
        show_note(hint)
    out.note_recovery(run.asked, run.plans)


def _status(run: Recovery, summary: RecoverySummary, outcome: Outcome, *, check: bool) -> int:
    """Return the status: what was agreed to is done; what a start still refuses is not.

    A plan lacks what even a recovery leaves refused; loss only needs consent.
    """
    is_refused = any(plan.predicted.refusal is not None for plan in run.plans)
    remains = summary.strays or summary.absent or summary.node_refusals
    outcome.lacks(bool(summary.node_refusals or is_refused if run.is_plan else remains))
    return outcome.of_work(
        has_changed=run.has_changed,
        has_plan=run.is_plan and bool(run.results),
        check=check,
        is_concerned=bool(summary.to_change or summary.unloadable or remains),
    )
