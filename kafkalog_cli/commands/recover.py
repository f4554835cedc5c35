"""`kafkalog recover`: predict or perform what a broker's unclean start does."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from kafkalog_cli import options as opt
from kafkalog_cli.output.writer import Format

if TYPE_CHECKING:
    from kafkalog.configs import ConfigValue, LogDirConfigs
    from kafkalog.errors import KafkaLogError
    from kafkalog.journal import Run
    from kafkalog.log_dir import LogDirListing, PartitionDir
    from kafkalog.recovery import Hosting, StartMode
    from kafkalog.repair import RecoveryDone, RecoveryPlan
    from kafkalog_cli.maintenance import Maintenance
    from kafkalog_cli.outcome import Outcome


class ScanFrom(StrEnum):
    """Where a scan starts."""

    CHECKPOINT = "checkpoint"
    START = "start"


def recover(
    path: opt.DirectoryArgument,
    check: Annotated[bool, typer.Option(
        "--check", help="Only show the plan, as without --in-place.",
    )] = False,
    in_place: opt.InPlaceOption = False,
    yes: opt.YesOption = False,
    backup: opt.BackupOption = None,
    scan_from: Annotated[ScanFrom, typer.Option(
        "--from", help="Scan from the recovery point, or everything.",
    )] = ScanFrom.CHECKPOINT,
    assume_clean: Annotated[bool, typer.Option(
        "--assume-clean", help="Scan nothing, as after a clean shutdown.",
    )] = False,
    force: Annotated[bool, typer.Option(
        "--force", help="Also truncate below the high watermark.",
    )] = False,
    rate: Annotated[str, typer.Option(
        "--scan-rate", metavar="SIZE", help="Assumed scan rate of a broker, per second.",
    )] = "200MiB",
    config: opt.ConfigOption = None,
    properties: opt.PropertiesOption = None,
    topic_first: opt.TopicFirstOption = False,
    metadata_dir: opt.MetadataDirOption = None,
    now: opt.NowOption = None,
    form: opt.FormatOption = Format.TABLE,
    exact: opt.ExactOption = False,
    quiet: opt.QuietOption = False,
) -> int:  # fmt: skip
    """Do what a broker does at an unclean start: finish swaps, truncate, rebuild indexes.

    Interrupted compactions and deletions are finished or rolled back. Segments from the recovery
    point on are scanned, and the log ends before the first batch that is not sound. Indexes,
    producer snapshots and leader epochs are rebuilt. Without --in-place only the plan is shown:
    what would change, how much a broker would scan, and how long that takes at the assumed --scan-
    rate. Records below the high watermark are truncated only with --force: another replica may
    still have them, so it is better to replicate the partition again, or to salvage what is sound
    after the damage.

    A leader-epoch-checkpoint that a broker cannot read is rebuilt from the batches. KRaft's own log
    and directories that await deletion are left to the broker. If one partition must not be
    recovered, none is changed: deal with it first, or name the others. If kafkalog itself fails on
    one (status 70), the others are recovered.

    The log directory is locked as a broker locks it. If it is killed at any point, another recovery
    or the start of a broker reaches the same result. A clean shutdown is never marked; the mark is
    removed before a scan changes anything. The exit status is 1 if something is left to do, or was
    lost.


    \b
    kafkalog recover /var/lib/kafka --check
    kafkalog recover orders-0 --from start --in-place --yes
    """
    from kafkalog.configs import ConfigSources
    from kafkalog.errors import InternalError, UsageError
    from kafkalog.plurals import counted
    from kafkalog.recovery import StartMode
    from kafkalog_cli.maintenance import (
        configs_at,
        consents,
        hosting_at,
        maintenance,
        require_consent,
    )
    from kafkalog_cli.outcome import Outcome, show_note
    from kafkalog_cli.output import repairs as show
    from kafkalog_cli.output.objects import Style
    from kafkalog_cli.output.writer import Writer

    require_consent(in_place=in_place, yes=yes, backup=backup)
    if force and not in_place:
        raise UsageError("--force requires --in-place.", hint="Without it only the plan is shown.")
    if check and in_place:
        raise UsageError("--check and --in-place exclude each other.", hint="Give one of them.")
    if assume_clean and scan_from != ScanFrom.CHECKPOINT:
        raise UsageError("--assume-clean and --from exclude each other.")
    mode = StartMode.FULL if scan_from == ScanFrom.START else StartMode.UNCLEAN
    mode = StartMode.CLEAN if assume_clean else mode
    sources = ConfigSources(
        opt.parse_configs(config), properties, topic_first=topic_first, metadata_dir=metadata_dir
    )
    now_ms = opt.parse_time(now if now is not None else "-0s")
    scan_rate, style = opt.parse_rate(rate), Style(exact)
    outcome = Outcome()
    done: dict[str, RecoveryDone] = {}
    with (
        maintenance(path, "recover", in_place=in_place, backup=backup, of_log=True) as held,
        Writer(show.recovery_view(style), form, outcome.defect) as out,
    ):
        configs_of = configs_at(held.target, sources, outcome)
        known = len(outcome.errors)
        hosting = hosting_at(held.log_dir, metadata_dir)
        planned = _plans(held, mode, configs_of, hosting, now_ms, outcome, quiet=quiet)
        plans = [plan for plan, _ in planned]
        refused = _refusals(plans, held.target, forced=force)
        if form == Format.TABLE:
            for plan in plans:
                out.write(show.Recovered(plan))
            out.flush()
            show.print_going(plans, outcome.defect, style)
            for name, stop in refused.items() if held.run is None else ():
                show_note(f"{name} would be refused: {stop.message}")
            _note_all(held.target, plans)
        if held.run is not None:
            for stop in refused.values():
                outcome.error(stop)
            count = sum(bool(plan.changes) for plan in plans)
            question = f"Change {counted(count, 'partition')} in {path}?"
            is_allowed = all(isinstance(one, InternalError) for one in outcome.errors[known:])
            if is_allowed and count and consents(question, yes=yes):
                done = _perform(held.run, plans, outcome, forced=force, quiet=quiet)
        if form != Format.TABLE:
            for plan, configs in planned:
                name = plan.partition.path
                why, result = refused.get(name), done.get(name)
                out.write(show.Recovered(plan, configs, why, result))
        summary = show.RecoverySummary(tuple(plans), len(refused), len(done), scan_rate, in_place)
        if form in (Format.NDJSON, Format.JSON):
            out.write_row(show.RECOVERY_SUMMARY.row(summary))
        has_changed = held.run is not None and held.run.has_changed
    if form == Format.TABLE and plans:
        show.print_recovery_summary(summary, style)
    outcome.fail_if(any(_is_found(plan, in_place=in_place) for plan in plans))
    outcome.fail_if(bool(refused))
    return outcome.of_work(has_changed=has_changed, is_concerned=summary.changed > 0)


def _plans(
    held: Maintenance, mode: StartMode, configs: LogDirConfigs, hosting: Hosting | None,
    now_ms: int, outcome: Outcome, *, quiet: bool,
) -> list[tuple[RecoveryPlan, tuple[ConfigValue, ...]]]:  # fmt: skip
    """Plan each partition; return the plans with the configs they depend on."""
    from kafkalog.recovery import start_config
    from kafkalog.repair import plan_recovery
    from kafkalog_cli.output.progress import byte_progress, share_of

    found = []
    partitions = list(held.partitions(outcome))
    with byte_progress(partitions, enabled=not quiet) as progress:
        for partition in partitions:
            with outcome.contained(partition.path):
                config, values = start_config(partition, configs.of_topic(partition.topic), now_ms)
                with share_of(progress, partition.size_bytes) as advance:
                    plan = plan_recovery(partition, mode, config, hosting=hosting, progress=advance)
                found.append((plan, values))
    return found


def _refusals(
    plans: list[RecoveryPlan], target: LogDirListing | PartitionDir, *, forced: bool
) -> dict[str, KafkaLogError]:
    """Return why partitions must not be recovered, by path.

    What is left to the broker is refused only if it was named.
    """
    from kafkalog.errors import KafkaLogError
    from kafkalog.log_dir import LogDirListing
    from kafkalog.recovery import Verdict
    from kafkalog.repair import require_performable

    found = {}
    for plan in plans:
        is_left = plan.untouched is not None and plan.is_loadable
        if is_left and (isinstance(target, LogDirListing) or plan.verdict == Verdict.NOTHING):
            continue
        try:
            require_performable(plan, forced=forced)
        except KafkaLogError as stop:
            found[plan.partition.path] = stop
    return found


def _perform(
    run: Run, plans: list[RecoveryPlan], outcome: Outcome, *, forced: bool, quiet: bool
) -> dict[str, RecoveryDone]:
    """Perform the plans; return those with changes that succeeded, by path."""
    from kafkalog.recovery import start_line
    from kafkalog.repair import recover as run_recovery
    from kafkalog_cli.outcome import show_note
    from kafkalog_cli.output.progress import byte_progress, share_of

    done = {}
    wanted = [plan for plan in plans if plan.changes]
    scanned_twice = [plan.partition for plan in wanted] * 2  # once to perform it, once to check it
    with byte_progress(scanned_twice, enabled=not quiet) as progress:
        for plan in wanted:
            with (
                outcome.contained(plan.partition.path),
                share_of(progress, 2 * plan.partition.size_bytes) as advance,
            ):
                done[plan.partition.path] = run_recovery(plan, run, forced=forced, progress=advance)
    for path, result in done.items():
        if not result.is_settled:
            show_note(f"{path}: the next start will {start_line(result.after)}")
    return done


def _note_all(target: LogDirListing | PartitionDir, plans: list[RecoveryPlan]) -> None:
    """Report each note once, however many partitions it concerns."""
    from kafkalog.log_dir import LogDirListing
    from kafkalog.plurals import counted
    from kafkalog.recovery import log_dir_refusals
    from kafkalog.recovery.model import refusal_line
    from kafkalog_cli.outcome import show_note

    places: dict[str, list[str]] = {}
    for plan in plans:
        for words in (*plan.predicted.notes, *plan.predicted.assumptions):
            places.setdefault(words, []).append(plan.partition.path)
    for words, paths in places.items():
        others = f" and {counted(len(paths) - 1, 'more partition')}" if len(paths) > 1 else ""
        show_note(f"{paths[0]}{others}: {words}")
    for refusal in log_dir_refusals(target) if isinstance(target, LogDirListing) else ():
        show_note(f"{target.path}: a start would {refusal_line(refusal)}")
    if any(plan.drops_mark for plan in plans):
        show_note("the mark of a clean shutdown is removed: the next start of a broker scans again")


def _is_found(plan: RecoveryPlan, *, in_place: bool) -> bool:
    """Return whether something is left to do, or is lost."""
    from kafkalog.recovery import Verdict

    if in_place:
        return (
            bool(plan.changes and plan.predicted.records_lost) or plan.predicted.stray is not None
        )
    return plan.verdict != Verdict.NOTHING
