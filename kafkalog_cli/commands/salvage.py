"""`kafkalog salvage`: every sound batch past any damage, in a new log."""

from __future__ import annotations

from typing import Annotated

import typer

from kafkalog_cli.options import FormatOption, QuietOption
from kafkalog_cli.render.writer import Format


def salvage(
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="Log directory, partition directory or .log file.")
    ],
    to: Annotated[
        str,
        typer.Option(
            "--to", metavar="DIR", help="The new directory: nothing of that name, or an empty one."
        ),
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be done; write nothing.")
    ] = False,
    form: FormatOption = Format.TABLE,
    quiet: QuietOption = False,
) -> int:
    """Copy every sound batch past any damage into a new log, and account for the rest.

    The source is only read, and no broker may run on it. DIR/log gets the partitions under their
    names, with indexes, producer snapshots and leader epochs made anew: a log directory for a
    broker, or partitions to move into one. DIR/lost+found gets the bytes that are not there,
    DIR/manifest.ndjson says where each byte of each log went and which offsets are lost. DIR
    appears when all of it is written, read back and checked. The status is 1 where anything is
    lost.

    A directory that awaits its deletion is copied under a name in -stray: brokers leave that alone.
    If all segments of a partition are .deleted, these are copied; beside live ones they are left
    out, and counted.

    Batches are copied byte for byte, in the segments they were in. Left out are those whose bytes
    or records are damaged, and those whose offsets or leader epoch more batches around them
    contradict. A broker that starts on DIR/log scans it once, as after a crash. If a disk fails
    while it is read, image it first and salvage the image.

    \b
    kafkalog salvage /var/lib/kafka --to rescued
    kafkalog salvage orders-0 --to rescued --dry-run
    """
    from kafkalog.log_dir import open_path
    from kafkalog.places import require_local
    from kafkalog.salvage import salvage as run_salvage
    from kafkalog_cli.outcome import Outcome
    from kafkalog_cli.render.diagnostics import show_note
    from kafkalog_cli.render.progress import byte_progress
    from kafkalog_cli.render.salvaged import SalvageWriter, print_totals, read_manifest
    from kafkalog_cli.standard_streams import put_work_first

    outcome = Outcome()
    require_local(path)
    if not dry_run:
        put_work_first()
    target = open_path(path)
    passes = 1 if dry_run else 2  # the copies are read again
    with SalvageWriter(form, outcome.defect) as writer:
        with byte_progress([target] * passes, enabled=not quiet) as progress:
            tell = writer.tell if dry_run else None
            summary = run_salvage(target, to, dry_run=dry_run, tell=tell, progress=progress)
        if not dry_run and summary.partitions:
            for row in read_manifest(to):
                writer.write(row)
    if summary.left_over_removed:
        show_note("an earlier run was killed; what it left beside the new directory was removed")
    if form == Format.TABLE:
        print_totals(summary)
        for row in writer.unfinished if summary.lost_ranges else ():
            show_note(
                f"{row['to']}: nothing ends the transaction that begins at offset "
                f"{row['first_unstable_offset']}; read_committed consumers stop there"
            )
    outcome.fail_if(summary.has_losses)
    is_concerned = summary.partitions > 0
    return outcome.of_work(has_changed=is_concerned and not dry_run, is_concerned=is_concerned)
