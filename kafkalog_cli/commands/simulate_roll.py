"""`kafkalog simulate-roll`: predict where segments would end under given configs."""

from __future__ import annotations

from itertools import chain, islice

from kafkalog_cli import options as opt
from kafkalog_cli.outcome import Outcome
from kafkalog_cli.output.progress import advancing, byte_progress
from kafkalog_cli.output.writer import Writer
from kafkalog_cli.session import session


def simulate_roll(
    partition_dir: opt.PartitionArgument,
    seed: opt.SeedOption = None,
    *,
    configs: opt.Configs,
    show: opt.Show,
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
    from kafkalog_cli.output import rolls as out

    style = show.style()
    outcome = Outcome()
    partition = open_partition(partition_dir)
    with byte_progress([partition], enabled=not session().is_quiet) as progress:
        trials = simulate(
            partition,
            configs=configs.sources(),
            seed=seed or 0,
            on_event=advancing(progress, outcome.hear),
        )
    with Writer(out.segment_view(style), show.format) as writer:
        for defect in trials[0].replay.defects:
            outcome.count(defect)
            writer.defect(defect)
        segments = chain.from_iterable(map(out.trial_segments, trials))
        for segment in islice(segments, show.limit):
            writer.write(segment)
        for trial in trials:
            writer.write_object(out.ROLL_SUMMARY.row(trial))
        writer.total(*(line for trial in trials for line in out.trial_lines(trial, style)))
    return outcome.status
