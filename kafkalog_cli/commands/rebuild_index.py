"""`kafkalog rebuild-index`: rebuild offset, time and transaction indexes from the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kafkalog_cli import options as opt
from kafkalog_cli.output.writer import Format

if TYPE_CHECKING:
    from collections.abc import Collection

    from kafkalog.configs import ConfigSources
    from kafkalog.journal import Run
    from kafkalog.log_dir import PartitionDir
    from kafkalog.recovery import StartConfig
    from kafkalog.repair import IndexComparison
    from kafkalog_cli.maintenance import Maintenance
    from kafkalog_cli.outcome import Outcome


def rebuild_index(
    path: Annotated[str, typer.Argument(
        metavar="PATH", help="Log directory, partition directory or .log file.",
    )],
    check: Annotated[bool, typer.Option(
        "--check", help="Only compare, as without --in-place.",
    )] = False,
    in_place: opt.InPlaceOption = False,
    yes: opt.YesOption = False,
    backup: opt.BackupOption = None,
    config: opt.ConfigOption = None,
    properties: opt.PropertiesOption = None,
    topic_first: opt.TopicFirstOption = False,
    metadata_dir: opt.MetadataDirOption = None,
    now: opt.NowOption = None,
    form: opt.FormatOption = Format.TABLE,
    exact: opt.ExactOption = False,
    quiet: opt.QuietOption = False,
) -> int:  # fmt: skip
    """Rebuild .index, .timeindex and .txnindex, as a broker does if one is missing.

    Without --in-place the existing indexes are compared with those that the log gives: `same`,
    `padded` (followed by the zeros a killed broker leaves), `different`, `missing`. An index that
    differs need not be wrong: a broker that appends writes other entries than one that scans, and
    the density is a config. The log directory is locked; new files are written next to the old
    ones, then renamed over them. A damaged log is refused; use recover or salvage. The exit status
    is 1 if an index is missing or differs and was not replaced.


    \b
    kafkalog rebuild-index orders-0 --check
    kafkalog rebuild-index orders-0 --in-place --yes
    """
    from kafkalog.configs import ConfigSources
    from kafkalog.errors import UsageError
    from kafkalog.plurals import counted
    from kafkalog_cli.maintenance import consents, maintenance, require_consent, segment_at
    from kafkalog_cli.outcome import Outcome
    from kafkalog_cli.output import repairs as show
    from kafkalog_cli.output.objects import Style
    from kafkalog_cli.output.writer import Writer

    require_consent(in_place=in_place, yes=yes, backup=backup)
    if check and in_place:
        raise UsageError("--check and --in-place exclude each other.", hint="Give one of them.")
    sources = ConfigSources(
        opt.parse_configs(config), properties, topic_first=topic_first, metadata_dir=metadata_dir
    )
    now_ms = opt.parse_time(now if now is not None else "-0s")
    outcome = Outcome()
    segment = segment_at(path)
    wanted = None if segment is None else (segment,)
    done: set[str] = set()
    with (
        maintenance(path, "rebuild-index", in_place=in_place, backup=backup, of_log=True) as held,
        Writer(show.index_view(Style(exact)), form, outcome.defect) as out,
    ):
        run = held.run
        with_configs = _with_configs(held, sources, now_ms, outcome)
        # One scan is enough if nobody looks at the plan.
        compared = _scanned(with_configs, wanted, outcome, run if yes else None, quiet=quiet)
        indexes = [index for _, _, found in compared for index in found]
        for index in indexes:
            out.write(index)
        out.flush()
        changed = [one for one in compared if any(index.is_changed for index in one[2])]
        if run is not None and not yes and changed:
            question = f"Rebuild indexes of {counted(len(changed), 'partition')} in {path}?"
            if consents(question, yes=yes):
                again = [(partition, config) for partition, config, _ in changed]
                changed = _scanned(again, wanted, outcome, run, quiet=quiet)
                done = {partition.path for partition, _, _ in changed}
        elif run is not None:
            done = {partition.path for partition, _, _ in compared}
        summary = show.index_summary(indexes, done)
        if form in (Format.NDJSON, Format.JSON):
            out.write_row(show.INDEX_SUMMARY.row(summary))
        has_changed = run is not None and run.has_changed
    if form == Format.TABLE:
        show.print_index_summary(summary, in_place=in_place)
    outcome.fail_if(summary.to_write > summary.written)
    return outcome.of_work(has_changed=has_changed, is_concerned=summary.to_write > 0)


def _with_configs(
    held: Maintenance, sources: ConfigSources, now_ms: int, outcome: Outcome
) -> list[tuple[PartitionDir, StartConfig]]:
    """Return each partition that has a log, with the configs of its topic."""
    from kafkalog.recovery import start_config
    from kafkalog_cli.maintenance import configs_at

    found = []
    configs = configs_at(held.target, sources, outcome)
    for partition in held.partitions(outcome):
        if not partition.segments:
            continue
        with outcome.contained(partition.path):
            config, _ = start_config(partition, configs.of_topic(partition.topic), now_ms)
            found.append((partition, config))
    return found


def _scanned(
    wanted: list[tuple[PartitionDir, StartConfig]],
    segments: Collection[int] | None,
    outcome: Outcome,
    run: Run | None,
    *,
    quiet: bool,
) -> list[tuple[PartitionDir, StartConfig, tuple[IndexComparison, ...]]]:
    """Compare the indexes of each partition; with a run, also rebuild them."""
    from kafkalog.repair import compare_indexes, rebuild_indexes
    from kafkalog_cli.output.progress import byte_progress, share_of

    found = []
    partitions = [partition for partition, _ in wanted]
    with byte_progress(partitions, enabled=not quiet) as progress:
        for partition, config in wanted:
            with (
                outcome.contained(partition.path),
                share_of(progress, partition.size_bytes) as advance,
            ):
                if run is None:
                    indexes = compare_indexes(partition, config, segments, advance)
                else:
                    indexes = rebuild_indexes(partition, run, config, segments, advance)
                found.append((partition, config, indexes))
    return found
