"""`kafkalog transactions`: transactional ids, open transactions, and those that hang."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from formats.late_classes import dataclass
from kafkalog.errors import NotFoundError
from kafkalog_cli import options as opt
from kafkalog_cli.option_sets import SELECT, SHOW
from kafkalog_cli.outcome import Outcome, report_gaps, show_note
from kafkalog_cli.output import groups as view
from kafkalog_cli.output.next_steps import put_command, words_of
from kafkalog_cli.output.progress import byte_progress
from kafkalog_cli.output.sections import write_sections
from kafkalog_cli.output.writer import Format
from kafkalog_cli.session import moment_of, now_ms, session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.files.log_dir import Target
    from kafkalog.node.state.coordinators import Coordinator
    from kafkalog.node.state.transactions import OpenData, TransactionalId, Transactions
    from kafkalog_cli.output.sections import Section


def transactions(
    paths: opt.PathsArgument,
    transactional_id: Annotated[list[str] | None, opt.option(
        SELECT, "--transactional-id", metavar="ID",
        help="Only this transactional id, with its coordinator; repeatable.",
    )] = None,
    producer_id: Annotated[list[int] | None, opt.option(
        SELECT, "--producer-id", metavar="N", help="Only what this producer wrote.",
    )] = None,
    hanging: Annotated[bool, opt.option(
        SELECT, "--hanging", help="Only open transactions that their coordinator will not end.",
    )] = False,
    commands: Annotated[bool, opt.option(
        SHOW, "--commands", help="The commands of Kafka's tool that abort what hangs.",
    )] = False,
    at: opt.AtOption = None,
    *,
    show: opt.Show,
) -> int:  # fmt: skip
    """Show transactional ids, and the transactions that are open in the data.

    Give the log directories of all brokers. A transaction is hanging if it is open in the data and
    its coordinator will not end it; read_committed consumers of the partition stop there.
    --transactional-id shows first which partition coordinates the id, even if it is unknown.

    \b
    kafkalog transactions /var/lib/kafka
    kafkalog transactions /var/lib/kafka --transactional-id checkout
    kafkalog transactions /var/lib/kafka --hanging
    """
    from kafkalog.node.state.transactions import read_transactions

    moment = moment_of(at)
    outcome = Outcome()
    if not (targets := outcome.open_all(paths)):
        return outcome.status
    coordinators = _coordinators(() if commands else transactional_id or (), targets)
    style = show.style()
    sections: list[Section] = [(view.coordinator_view(style), coordinators, "coordinator")]
    try:
        with byte_progress(targets, enabled=not session().is_quiet) as progress:
            found = read_transactions(
                targets,
                now_ms=now_ms(),
                at=moment,
                defects=outcome.defect,
                progress=progress,
                failed=outcome.hear,
            )
    except NotFoundError:
        if coordinators:
            write_sections(sections, show.format, show.limit)
        raise
    _report_gaps(found, outcome)
    if at is not None and not found.ids:
        show_note(f"There was no transactional id at {at}.")
    chosen = _Chosen(transactional_id, producer_id, only_hanging=hanging or commands)
    ids, opened = chosen.ids(found), chosen.opened(found)
    _report_unknown(transactional_id, producer_id, found, outcome)
    is_listing = not (hanging or commands)
    outcome.answers_no(is_listing and bool(transactional_id or producer_id) and not (ids or opened))
    if commands:
        _print_commands(opened[: show.limit])
        return outcome.status
    sections.append((view.id_view(style), ids, "transactional id"))
    sections.append((view.open_view(style), opened, "open transaction"))
    if show.format == Format.CSV:  # rows of one kind
        sections = sections[-2:-1] if ids else sections[-1:]
    write_sections(sections, show.format, show.limit)
    if show.format.is_screen and any(one.hanging for one in opened):
        words = [*words_of(paths), *chosen.words, *(() if at is None else ("--at", at))]
        put_command("next", "transactions", *words, "--commands")
    return outcome.status


def _print_commands(opened: Sequence[OpenData]) -> None:
    from kafkalog.node.state.transactions import abort_commands

    for one in opened:
        # Text for a shell: tools before 2.8 do not know `--start-offset`.
        newer, older = abort_commands(one, "HOST:PORT")
        typer.echo(f"{newer}\n# before Kafka 2.8: {older}")


def _coordinators(names: Sequence[str], targets: Sequence[Target]) -> list[Coordinator]:
    """Return where transactional ids are coordinated."""
    from formats.topic_names import TRANSACTION_STATE
    from kafkalog.node.state.coordinators import coordinators_of, internal_topic

    topic = internal_topic(TRANSACTION_STATE, targets)
    return [*coordinators_of("transactional-id", names, topic)]


@dataclass(frozen=True)
class _Chosen:
    """Which transactional ids and open transactions are wanted."""

    names: list[str] | None
    producers: list[int] | None
    only_hanging: bool

    @property
    def words(self) -> list[str]:
        """The options that choose them."""
        words = [word for name in self.names or () for word in ("--transactional-id", name)]
        return words + [f"--producer-id={one}" for one in self.producers or ()]

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


def _report_unknown(
    names: list[str] | None, producers: list[int] | None, found: Transactions, outcome: Outcome
) -> None:
    known = {one.producer_id for one in found.ids.values()}
    known.update(one.open.producer_id for one in found.open)
    for name in names or ():
        if name not in found.ids:
            outcome.miss(f"There is no transactional id {name!r}.", name, found.ids)
    for one in producers or ():
        if one not in known:
            outcome.miss(f"There is no producer {one}.")


def _report_gaps(found: Transactions, outcome: Outcome) -> None:
    report_gaps(outcome, found.topic, found.incomplete, found.undecoded)
    for error in found.errors:
        show_note(f"open transactions here are not shown: {error.path}")
        outcome.hear(error)
    outcome.leaves_out(found.cut, hint="")
