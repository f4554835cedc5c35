"""`kafkalog salvage`: copy every sound batch past any damage into a new log."""

from __future__ import annotations

from typing import Annotated

import typer

from kafkalog_cli.options import FormatOption, QuietOption
from kafkalog_cli.outcome import Outcome, show_note
from kafkalog_cli.output.progress import byte_progress
from kafkalog_cli.output.writer import Format
from kafkalog_cli.standard_streams import put_work_first


def salvage(
    paths: Annotated[list[str], typer.Argument(
        metavar="PATH...", help="Log directory, partition directory or .log file.",
    )],
    to: Annotated[str, typer.Option(
        "--to", metavar="DIR", help="The new directory; it must be missing or empty.",
    )],
    from_tier: Annotated[list[str] | None, typer.Option(
        "--from-tier", metavar="TIER",
        help="Also copy what this tier has of the logs, as local segments; repeatable.",
    )] = None,
    dry_run: Annotated[bool, typer.Option(
        "--dry-run", help="Only show the plan; write nothing.",
    )] = False,
    form: FormatOption = Format.TABLE,
    quiet: QuietOption = False,
) -> int:  # fmt: skip
    """Copy every sound batch, even past damage, into a new log, and account for the rest.

    The source is only read, and no broker may run on it. DIR/log gets the partitions, with rebuilt
    indexes, producer snapshots and leader epochs; DIR/lost+found gets all other bytes;
    DIR/manifest.ndjson states where each byte went, and which offsets are lost. DIR appears when
    all of it is written, read back and checked. The exit status is 1 if anything is lost.

    A directory that awaits deletion is copied under a name that ends in -stray, which brokers leave
    alone. If all segments of a partition are .deleted, they are copied; next to live segments they
    are left out, and counted.

    Batches are copied byte for byte. One is left out if it is damaged, or if more batches around it
    contradict its offsets or leader epoch; a wrong header is corrected where its checksum or these
    batches prove what is right. Of several copies of a partition, each batch comes from one where
    it is sound. A partition that cannot be processed is left out, which the exit status shows. If
    the disk is failing, image it first and salvage the image.

    With --from-tier the result has the whole log of each partition, and of a log directory also
    the partitions that only the tier has.

    \b
    kafkalog salvage /var/lib/kafka --to rescued
    kafkalog salvage orders-0 --to rescued --dry-run
    """
    from kafkalog.change.rescue import salvage as run_salvage
    from kafkalog.files.log_dir import open_path
    from kafkalog.io.paths.uris import require_local
    from kafkalog_cli.output import salvaged as show

    outcome = Outcome()
    for one in paths:
        require_local(one)
    if not dry_run:
        put_work_first()
    targets = [open_path(path) for path in paths]
    passes = 1 if dry_run else 2  # the copies are read back
    with show.SalvageWriter(form) as writer:
        with byte_progress(targets * passes, enabled=not quiet) as progress:
            tell = writer.take if dry_run else None
            summary = run_salvage(
                targets[0], to, dry_run=dry_run, tell=tell, failed=outcome.hear, progress=progress,
                from_tier=from_tier or (), copies=targets[1:],
            )  # fmt: skip
        if not dry_run and summary.partitions:
            for row in show.read_manifest(to):
                writer.write(row)
    if summary.left_over_removed:
        show_note("leftovers of a killed run next to the new directory were removed")
    if form == Format.TABLE:
        show.print_totals(summary)
        show.note_unfinished(writer.unfinished if summary.lost_ranges else ())
    outcome.fail_if(summary.has_losses)
    is_concerned = summary.partitions > 0
    return outcome.of_work(has_changed=is_concerned and not dry_run, is_concerned=is_concerned)
