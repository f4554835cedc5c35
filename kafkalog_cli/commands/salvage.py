"""`kafkalog salvage`: copy every sound batch past any damage into a new log."""

from __future__ import annotations

from typing import Annotated

import typer

from kafkalog.errors import UsageError
from kafkalog_cli import options as opt
from kafkalog_cli.completion import places
from kafkalog_cli.outcome import Outcome, show_note
from kafkalog_cli.output.progress import byte_progress
from kafkalog_cli.session import session
from kafkalog_cli.standard_streams import put_work_first


def salvage(
    paths: Annotated[list[str], typer.Argument(
        metavar="PATH...", help="Log directory, partition directory or .log file.",
        autocompletion=places,
    )],
    to: opt.NewDirectoryOption = None,
    from_tier: opt.FromTierOption = None,
    dry_run: opt.DryRunOption = False,
    *,
    partitions: opt.AllPartitions,
    pace: opt.Pace,  # noqa: ARG001 # it holds around the command
    shown: opt.Form,
) -> int:  # fmt: skip
    """Copy every sound batch, even past damage, into a new log, and account for the rest.

    The source is only read; no broker may run on it. NEW/log gets the partitions, batches byte for
    byte, with rebuilt indexes; NEW/lost+found gets all other bytes; NEW/manifest.ndjson says where
    each byte went, and which offsets are lost. NEW appears when all of it is read back and checked.
    Of several copies of a partition, each batch comes from one where it is sound. A partition that
    cannot be read is left out, and named.

    \b
    kafkalog salvage /var/lib/kafka
    kafkalog salvage /var/lib/kafka --to rescued
    """
    form = shown.format
    from kafkalog.change.rescue import salvage as run_salvage
    from kafkalog.files.log_dir import open_one
    from kafkalog.io.paths.uris import require_local
    from kafkalog.node.targets import require_named, selected
    from kafkalog_cli.output import salvaged as out

    outcome = Outcome()
    for one in paths:
        require_local(one)
    is_applied = to is not None and not dry_run
    if is_applied:
        put_work_first()
    targets = [open_one(path, partitions.topics) for path in paths]
    require_named(targets, partitions.topics, partitions.numbers)
    targets = selected(targets, **partitions.chosen)
    if not targets:
        raise UsageError("No partition of these is meant.", hint="Leave out -p or --no-internal.")
    passes = 2 if is_applied else 1  # the copies are read back
    with out.SalvageWriter(form) as writer:
        with byte_progress(targets * passes, enabled=not session().is_quiet) as progress:
            tell = None if is_applied else writer.take
            summary = run_salvage(
                targets[0], to, dry_run=dry_run, tell=tell, failed=outcome.hear, progress=progress,
                from_tier=from_tier or (), copies=targets[1:],
            )  # fmt: skip
        if to is not None and is_applied and summary.partitions:
            for row in out.read_manifest(to):
                writer.write(row)
        outcome.lacks(is_applied and summary.has_losses)
        status = outcome.of_work(
            has_changed=is_applied and summary.partitions > 0,
            has_plan=not is_applied and summary.partitions > 0,
        )
        writer.write_object(out.summary_row(summary, status))
        writer.total(*out.salvage_lines(summary))
    if summary.left_over_removed:
        show_note("leftovers of a killed run next to the new directory were removed")
    if form.is_screen:
        out.note_unfinished(writer.unfinished if summary.lost_ranges else ())
    return status
