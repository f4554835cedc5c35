"""`kafkalog transactions`: transactional ids, open transactions, and those that hang."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from formats.late_classes import dataclass
from kafkalog_cli import options as opt
from kafkalog_cli.outcome import Outcome, report_gaps, show_note
from kafkalog_cli.output import groups as show
from kafkalog_cli.output.objects import Style
from kafkalog_cli.output.progress import byte_progress
from kafkalog_cli.output.writer import Format, Writer, write_all

if TYPE_CHECKING:
    from kafkalog.node.state.transactions import OpenData, TransactionalId, Transactions


def transactions(
    paths: opt.PathsArgument,
    transactional_id: Annotated[list[str] | None, typer.Option(
        "--transactional-id", metavar="ID", help="Show only this transactional id; repeatable.",
    )] = None,
    producer_id: Annotated[list[int] | None, typer.Option(
        "--producer-id", metavar="N", help="Show only this producer; repeatable.",
    )] = None,
    hanging: Annotated[bool, typer.Option(
        "--hanging", help="Show only open transactions that their coordinator will not end.",
    )] = False,
    commands: Annotated[bool, typer.Option(
        "--commands", help="Print the commands of Kafka's tool that abort hanging transactions.",
    )] = False,
    at: Annotated[str | None, typer.Option(
        "--at", metavar="TIME|P@OFFSET",
        help="Show coordinators at a time, or at an offset of partition P of __transaction_state.",
    )] = None,
    form: opt.FormatOption = Format.TABLE,
    exact: opt.ExactOption = False,
    tz: opt.ZoneOption = "UTC",
    now: opt.NowOption = None,
    quiet: opt.QuietOption = False,
) -> int:  # fmt: skip
    """Show transactional ids, and the transactions that are open in the data.

    Give the log directories of all brokers. A transaction is hanging if it is open in the data and
    its coordinator will not end it; read_committed consumers of the partition stop there. The exit
    status is 1 if a name is unknown, or if partitions of __transaction_state are missing or
    damaged.

    \b
    kafkalog transactions /var/lib/kafka
    kafkalog transactions /var/lib/kafka --transactional-id checkout
    kafkalog transactions /var/lib/kafka --hanging
    """
    from kafkalog.node.state.transactions import abort_commands, read_transactions

    zone = opt.parse_zone(tz)
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
            failed=outcome.hear,
        )
    _report_gaps(found, outcome)
    if at is not None and not found.ids:
        show_note(f"There was no transactional id at {at}.")
    chosen = _Chosen(transactional_id, producer_id, only_hanging=hanging or commands)
    ids, opened = chosen.ids(found), chosen.opened(found)
    _report_unknown(transactional_id, producer_id, found, outcome)
    is_listing = not (hanging or commands)
    outcome.fail_if(is_listing and bool(transactional_id or producer_id) and not (ids or opened))
    if commands:
        for one in opened:
            # Text for a shell: tools before 2.8 do not know `--start-offset`.
            newer, older = abort_commands(one, "HOST:PORT")
            typer.echo(f"{newer}\n# before Kafka 2.8: {older}")
        return outcome.status
    _write(ids, opened, form, style)
    return outcome.status


@dataclass(frozen=True)
class _Chosen:
    """Which transactional ids and open transactions are wanted."""

    names: list[str] | None
    producers: list[int] | None
    only_hanging: bool

    def ids(self, found: Transactions) -> list[TransactionalId]:
        return [
            one
            for _, one in sorted(found.ids.items())
            if not self.only_hanging and self._has(one, one.producer_id)
        ]

    def opened(self, found: Transactions) -> list[OpenData]:
        return [
            one
            for one in found.open
            if (one.hanging or not self.only_hanging) and self._has(one.owner, one.open.producer_id)
        ]

    def _has(self, owner: TransactionalId | None, producer_id: int) -> bool:
        is_named = not self.names or (owner is not None and owner.name in self.names)
        return is_named and (not self.producers or producer_id in self.producers)


def _write(
    ids: list[TransactionalId],
    opened: list[OpenData],
    form: Format,
    style: Style,
) -> None:
    """Write transactional ids, then open transactions; CSV has rows of one kind."""
    with Writer(show.id_view(style), form) as writer:
        for one in ids:
            writer.write(one)
        for other in opened:
            writer.write_object(show.OPEN_TRANSACTION.row(other))
    if opened and (form == Format.TABLE or (form == Format.CSV and not ids)):
        if ids:
            typer.echo()
        write_all(opened, show.open_view(style), form)


def _report_unknown(
    names: list[str] | None, producers: list[int] | None, found: Transactions, outcome: Outcome
) -> None:
    known = {one.producer_id for one in found.ids.values()}
    known.update(one.open.producer_id for one in found.open)
    unknown = [f"transactional id {name!r}" for name in names or () if name not in found.ids]
    unknown += [f"producer {one}" for one in producers or () if one not in known]
    for one in unknown:
        outcome.warn(f"There is no {one}.")


def _report_gaps(found: Transactions, outcome: Outcome) -> None:
    report_gaps(outcome, found.topic, found.incomplete, found.undecoded)
    for error in found.errors:
        show_note(f"open transactions here are not shown: {error.path}")
        outcome.hear(error)
    outcome.leaves_out(found.cut, hint="")
