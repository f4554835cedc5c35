"""`kafkalog simulate-roll`: predict where segments would end under given configs."""

from __future__ import annotations

from typing import Annotated

import typer

from kafkalog_cli import options as opt
from kafkalog_cli.outcome import Outcome
from kafkalog_cli.output.objects import Style
from kafkalog_cli.output.progress import advancing, byte_progress
from kafkalog_cli.output.writer import Format, Writer


def simulate_roll(
    partition_dir: opt.PartitionArgument,
    config: opt.ConfigOption = None,
    properties: opt.PropertiesOption = None,
    metadata_dir: opt.MetadataDirOption = None,
    seed: Annotated[int, typer.Option(
        "--seed", metavar="N", help="Seed of the random segment.jitter.ms.",
    )] = 0,
    form: opt.FormatOption = Format.TABLE,
    exact: opt.ExactOption = False,
    quiet: opt.QuietOption = False,
    tz: opt.ZoneOption = "UTC",
) -> int:  # fmt: skip
    """Replay a partition's batches to show where segments would end, why, and which files result.

    With --config or --properties, both the present and the proposed configs are replayed. Each
    batch counts as one append. Nothing is written.

    \b
    kafkalog simulate-roll orders-0
    kafkalog simulate-roll orders-0 --config segment.bytes=16KiB
    """
    from kafkalog.change.roll.simulate import simulate_roll as simulate
    from kafkalog.files.log_dir import open_partition
    from kafkalog.node.configs import ConfigSources
    from kafkalog_cli.output import rolls as show
    from kafkalog_cli.output.writer import print_lines

    style = Style(exact, opt.parse_zone(tz))
    given = ConfigSources(opt.parse_configs(config), properties, metadata_dir=metadata_dir)
    outcome = Outcome()
    partition = open_partition(partition_dir)
    with byte_progress([partition], enabled=not quiet) as progress:
        trials = simulate(
            partition,
            configs=given,
            seed=seed,
            on_event=advancing(progress, outcome.hear),
        )
    with Writer(show.segment_view(style), form) as writer:
        for defect in trials[0].replay.defects:
            outcome.count(defect)
            writer.defect(defect)
        for trial in trials:
            for segment in show.trial_segments(trial):
                writer.write(segment)
            writer.write_object(show.ROLL_SUMMARY.row(trial))
    if form == Format.TABLE:
        for trial in trials:
            print_lines(show.trial_lines(trial, style))
    return outcome.status
