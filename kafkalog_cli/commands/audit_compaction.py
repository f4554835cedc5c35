"""`kafkalog audit-compaction`: is this log correctly compacted?"""

from __future__ import annotations

from typing import Annotated

import typer

from kafkalog_cli.options import BytesOption, FormatOption, NowOption, parse_duration, parse_time
from kafkalog_cli.render.text import BytesFormat
from kafkalog_cli.render.writer import Format


def audit_compaction(
    path: Annotated[
        str, typer.Argument(metavar="DIR", help="Partition directory that was compacted.")
    ],
    original: Annotated[
        str | None,
        typer.Option("--original", metavar="DIR2", help="The partition before the cleaning."),
    ] = None,
    cleaner_offset: Annotated[
        int | None,
        typer.Option(
            "--cleaner-offset", metavar="N", min=0, help="Instead of the checkpoint's: its end."
        ),
    ] = None,
    first_dirty_offset: Annotated[
        int | None,
        typer.Option(
            "--first-dirty-offset",
            metavar="N",
            min=0,
            help="Where the cleanings began, if above the log start.",
        ),
    ] = None,
    now: NowOption = None,
    producer_expiration: Annotated[
        str,
        typer.Option(
            "--producer-expiration",
            metavar="TIME",
            help="The broker's producer.id.expiration.ms, such as 24h.",
        ),
    ] = "24h",
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, help="How many counter-examples.")
    ] = 1,
    form: FormatOption = Format.TABLE,
    bytes_: BytesOption = BytesFormat.AUTO,
) -> int:
    """Prove that a log is correctly compacted, or show the first counter-example.

    Below the cleaner offset no key may come twice, and each record has a key. With --original: no
    record was added or changed; the latest committed record of each key is there, or was a
    tombstone whose delete horizon had passed; markers were kept as long; what batches say of
    offsets, epochs, producers and transactions is what it was. Status 1 where that is not so.

    The original is the log as one cleaning found it, and --now the time of the cleaning or later.
    Memory: some 200 bytes a distinct key.

    \b
    kafkalog audit-compaction customers-0 --cleaner-offset 20
    kafkalog audit-compaction customers-0 --cleaner-offset 20 --original backup/customers-0
    """
    from kafkalog.audit import audit_compaction as audit
    from kafkalog.log_dir import open_partition
    from kafkalog_cli.outcome import Outcome
    from kafkalog_cli.render.audited import audit_row, finding_row, finding_view, print_audit
    from kafkalog_cli.render.writer import Writer

    outcome = Outcome()
    now_ms = parse_time(now if now is not None else "-0s")
    found = audit(
        open_partition(path),
        open_partition(original) if original is not None else None,
        now_ms=now_ms,
        cleaner_offset=cleaner_offset,
        first_dirty_offset=first_dirty_offset,
        producer_expiration_ms=round(parse_duration(producer_expiration) * 1000),
        findings_max=limit,
    )
    with Writer(finding_view(bytes_), form, outcome.defect) as writer:
        for finding in found.findings:
            if form == Format.TABLE:
                writer.write(finding)
            else:
                writer.write_row(finding_row(finding, bytes_))
        if form in (Format.NDJSON, Format.JSON):
            writer.write_row(audit_row(found))
    if form == Format.TABLE:
        print_audit(found)
    outcome.fail_if(bool(found.findings))
    return outcome.status
