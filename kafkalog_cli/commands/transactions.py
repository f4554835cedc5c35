"""`kafkalog transactions`: transactional ids, open transactions, and those that hang."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kafkalog_cli import options as opt
from kafkalog_cli.output.writer import Format

if TYPE_CHECKING:
    from kafkalog.state.transactions import Transactions
    from kafkalog_cli.outcome import Outcome


def transactions(
    paths: opt.PathsArgument,
    transactional_id: Annotated[list[str] | None, typer.Option(
        "--transactional-id", metavar="ID", help="Only this transactional id; repeatable.",
    )] = None,
    producer_id: Annotated[list[int] | None, typer.Option(
        "--producer-id", metavar="N", help="Only this producer; repeatable.",
    )] = None,
    hanging: Annotated[bool, typer.Option(
        "--hanging", help="Only open transactions that their coordinator will not end.",
    )] = False,
    commands: Annotated[bool, typer.Option(
        "--commands", help="Print the command lines of Kafka's tool that abort what hangs.",
    )] = False,
    at: Annotated[str | None, typer.Option(
        "--at", metavar="TIME|P@OFFSET",
        help="Coordinators as of a time; or as of an offset of partition P of __transaction_state.",
    )] = None,
    form: opt.FormatOption = Format.TABLE,
    exact: opt.ExactOption = False,
    utc: opt.UtcOption = False,
    tz: opt.ZoneOption = "UTC",
    now: opt.NowOption = None,
    quiet: opt.QuietOption = False,
) -> int:  # fmt: skip
    """Show transactional ids, and the transactions that are open in the data.

    Give the log directories of all brokers: __transaction_state says who wrote, the producer states
    of all other partitions what is open. A transaction hangs if its data are open and its
    coordinator will not end it; read_committed consumers of the partition stop there. Status 1 if
    nothing is found, or partitions of __transaction_state are missing or damaged.


    \b
    kafkalog transactions /var/lib/kafka
    kafkalog transactions /var/lib/kafka --hanging --commands
    kafkalog transactions /var/lib/kafka --transactional-id payments-7 --format ndjson
    """
    from kafkalog.state.transactions import abort_commands, read_transactions
    from kafkalog_cli.outcome import Outcome
    from kafkalog_cli.output import transactions as show
    from kafkalog_cli.output.objects import Style
    from kafkalog_cli.output.progress import byte_progress
    from kafkalog_cli.output.writer import Writer

    zone = opt.parse_zone("UTC" if utc else tz)
    style = Style(exact, zone)
    outcome = Outcome()
    targets = outcome.open_all(paths)
    with byte_progress(targets, enabled=not quiet) as progress:
        found = read_transactions(
            targets,
            now_ms=opt.parse_time("-0s" if now is None else now),
            at=None if at is None else opt.parse_moment(at, now, zone),
            defects=outcome.defect,
            progress=progress,
        )
    _report_gaps(found, outcome)
    ids = [
        one
        for _, one in sorted(found.ids.items())
        if not hanging
        and (not transactional_id or one.name in transactional_id)
        and (not producer_id or one.producer_id in producer_id)
    ]
    opened = [
        one
        for one in found.open
        if (one.hanging or not (hanging or commands))
        and (not transactional_id or (one.owner is not None and one.owner.name in transactional_id))
        and (not producer_id or one.open.producer_id in producer_id)
    ]
    outcome.fail_if(not ids and not opened)
    if commands:
        for one in opened:
            newer, older = abort_commands(one, "HOST:PORT")
            typer.echo(newer)
            typer.echo(f"# before Kafka 2.8: {older}")
        return outcome.status
    with Writer(show.id_view(style), form, outcome.defect) as writer:
        for known in ids:
            writer.write(known)
        if form in (Format.NDJSON, Format.JSON):
            for one in opened:
                writer.write_row(show.OPEN_TRANSACTION.row(one))
    if opened and (form == Format.TABLE or (form == Format.CSV and not ids)):
        if ids:
            typer.echo()
        with Writer(show.open_view(style), form, outcome.defect) as table:
            for one in opened:
                table.write(one)
    return outcome.status


def _report_gaps(found: Transactions, outcome: Outcome) -> None:
    """Report what is not in the answer."""
    from kafkalog_cli.outcome import report_gaps

    report_gaps(outcome, found.topic, found.incomplete, found.undecoded)
    for error in found.errors:
        outcome.error(error)
