"""`kafkalog rebuild-index`: rebuild offset, time and transaction indexes from the log."""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import islice
from typing import Annotated

import typer

from kafkalog_cli import options as opt
from kafkalog_cli.completion import places
from kafkalog_cli.outcome import Outcome
from kafkalog_cli.output.progress import byte_progress
from kafkalog_cli.output.writer import Writer
from kafkalog_cli.session import now_ms, session


def rebuild_index(
    paths: Annotated[list[str], typer.Argument(
        metavar="PATH...", help="Log directory, partition directory or .log file.",
        show_default=False, autocompletion=places,
    )],
    *,
    partitions: opt.AllPartitions,
    change: opt.Change,
    configs: opt.Configs,
    show: opt.Show,
) -> int:  # fmt: skip
    """Rebuild .index, .timeindex and .txnindex, as a broker does if one is missing.

    The plan compares the indexes with those that the log gives: `same`, `padded` (followed by the
    zeros that a killed broker leaves), `different`, `missing`. One that differs need not be wrong:
    a broker that appends writes other entries than one that scans. A damaged log is refused: use
    recover or salvage. Log directories are locked.

    \b
    kafkalog rebuild-index orders-0
    kafkalog rebuild-index orders-0 --apply -y
    """
    from kafkalog.change.repair.rebuild import index_runs
    from kafkalog_cli.maintenance import asks, consents_to, will_apply
    from kafkalog_cli.output import repairs as out

    is_applied = will_apply(change, backup=change.backup)
    style, quiet = show.style(), session().is_quiet
    outcome = Outcome()
    run = index_runs(
        paths,
        sources=configs.sources(),
        now_ms=now_ms(),
        in_place=is_applied,
        backup=change.backup if is_applied else None,
        arguments=sys.argv[1:],
        listener=outcome,
        **partitions.chosen,
    )
    # One scan is enough if nobody looks at the plan.
    is_one_scan = is_applied and not asks(change)
    with run, Writer(out.index_view(style), show.format) as writer:
        with byte_progress(run.wanted, enabled=not quiet) as progress:
            (run.apply if is_one_scan else run.plan)(progress)
        for index in islice((index for one in run.results for index in one.indexes), show.limit):
            writer.write(index)
        writer.end_rows()
        is_asked = is_applied and not is_one_scan and bool(run.wanted)
        if is_asked and consents_to(change, len(run.wanted), run.where):
            with byte_progress(run.wanted, enabled=not quiet) as progress:
                run.apply(progress)
        summary = out.index_summary(run.results)
        status = outcome.of_work(
            has_changed=run.has_changed,
            has_plan=not is_applied and bool(run.results),
            check=change.check,
            is_concerned=summary.to_write > 0,
        )
        writer.write_object(out.INDEX_SUMMARY.row(replace(summary, status=status)))
        writer.total(out.index_total(summary, is_plan=not is_applied))
    return status
