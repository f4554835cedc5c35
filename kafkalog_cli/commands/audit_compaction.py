"""`kafkalog audit-compaction`: prove that a log is correctly compacted."""

from __future__ import annotations

from typing import Annotated

import typer

from kafkalog_cli import options as opt
from kafkalog_cli.outcome import Outcome, show_note
from kafkalog_cli.output.objects import Style
from kafkalog_cli.output.text import BytesFormat
from kafkalog_cli.output.writer import Format, Writer, write_all


def audit_compaction(
    path: Annotated[str, typer.Argument(
        metavar="DIR", help="The compacted partition, or a log directory.",
    )],
    original: Annotated[str | None, typer.Option(
        "--original", metavar="DIR2",
        help="The same partition or log directory before the cleaning.",
    )] = None,
    cleaner_offset: Annotated[int | None, typer.Option(
        "--cleaner-offset", metavar="N", min=0,
        help="End of the compacted part; overrides the checkpoint.",
    )] = None,
    first_dirty_offset: Annotated[int | None, typer.Option(
        "--first-dirty-offset", metavar="N", min=0,
        help="Start of the compacted part, if above the log start offset.",
    )] = None,
    now: opt.NowOption = None,
    producer_expiration: Annotated[str, typer.Option(
        "--producer-expiration", metavar="TIME",
        help="The broker's producer.id.expiration.ms, such as 24h.",
    )] = "24h",
    limit: Annotated[int, typer.Option(
        "--limit", metavar="N", min=1, help="Show at most N counterexamples.",
    )] = 1,
    form: opt.FormatOption = Format.TABLE,
    bytes_: opt.BytesOption = BytesFormat.AUTO,
) -> int:  # fmt: skip
    """Prove that a log was compacted correctly, or show the first counterexample.

    Below the cleaner offset no key may occur twice, and each record needs a key. With --original:
    no record was added or changed; the latest committed record of each key is there, or was a
    tombstone whose delete horizon had passed; markers were kept as long; offsets, epochs, producers
    and transactions in the batch headers are unchanged. Otherwise the exit status is 1. In a log
    directory, each partition with an entry in cleaner-offset-checkpoint is judged.

    The original is the log before one cleaning; --now is the time of that cleaning or later.
    Memory: 30 to 60 bytes per distinct key for a proof, 200 to find a counterexample.

    \b
    kafkalog audit-compaction customers-0 --cleaner-offset 20
    kafkalog audit-compaction customers-0 --cleaner-offset 20 --original backup
    """
    from kafkalog.change.audit.run import audit_compaction as audit
    from kafkalog.files.log_dir import LogDirListing, open_path
    from kafkalog_cli.output import compactions as show

    outcome, style = Outcome(), Style(bytes_form=bytes_)
    target = open_path(path)
    found = audit(
        target,
        original,
        now=opt.parse_time(now if now is not None else "-0s"),
        cleaner_offset=cleaner_offset,
        first_dirty_offset=first_dirty_offset,
        producer_expiration_ms=round(opt.parse_duration(producer_expiration) * 1000),
        findings_max=limit,
        on_event=outcome.hear,
    )
    is_log_dir = isinstance(target, LogDirListing)
    if not found and not outcome.errors:
        show_note(
            f"{path}: cleaner-offset-checkpoint has no entry of it, so it was not compacted; to "
            f"audit a partition anyway, name it and give --cleaner-offset N"
        )
    if form == Format.TABLE and is_log_dir:
        write_all(found, show.audit_view(style), form)
    with Writer(show.finding_view(style), form) as writer:
        for one in found:
            for finding in one.findings:
                writer.write(finding)
            writer.write_object(show.AUDIT.row(one))
    if form == Format.TABLE and found:
        if is_log_dir:
            show.print_audits(found)
        else:
            show.print_audit(found[0])
    outcome.fail_if(any(one.findings for one in found))
    return outcome.of_work(has_changed=False, is_concerned=bool(found))
