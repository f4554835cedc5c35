"""`kafkalog find`: find records in all partitions, show the life of a key, wait for new records."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kafkalog.errors import UsageError
from kafkalog.io.wording import counted
from kafkalog.log.typed import TypedColumn, TypedForm
from kafkalog.model import Defect, Isolation, LogView, Replicas
from kafkalog_cli import options as opt
from kafkalog_cli.outcome import Outcome, show_note, show_undecodable
from kafkalog_cli.output.objects import Style
from kafkalog_cli.output.progress import byte_progress
from kafkalog_cli.output.text import BytesFormat
from kafkalog_cli.output.writer import Format, Writer
from kafkalog_cli.schemas import (
    ValueFramingOption,
    ValueMessageOption,
    ValueSchemaOption,
    typed_columns,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.answers.search.run import Search
    from kafkalog.answers.search.scanning import Found
    from kafkalog.log.batches.selection import Selection


def find(
    paths: opt.PathsArgument,
    key: opt.KeyOption = None,
    key_regex: opt.KeyRegexOption = None,
    value_regex: opt.ValueRegexOption = None,
    header: opt.HeaderOption = None,
    where: opt.WhereOption = None,
    producer_id: Annotated[int | None, typer.Option(
        metavar="N", help="Only records of this producer, and its transaction markers.",
    )] = None,
    undecodable: Annotated[TypedForm | None, typer.Option(
        help="Only records whose value does not decode with --value-schema; shows the reason.",
    )] = None,
    value_schema: ValueSchemaOption = None,
    value_message: ValueMessageOption = None,
    value_framing: ValueFramingOption = "none",
    from_time: opt.FromTimeOption = None,
    to_time: opt.ToTimeOption = None,
    topic: opt.TopicsOption = None,
    last: Annotated[int | None, typer.Option(
        "--last", min=1, metavar="N", help="Show only the N records with the latest timestamps.",
    )] = None,
    limit: Annotated[int | None, typer.Option(
        "--limit", min=1, metavar="N", help="Stop after N records.",
    )] = None,
    history: Annotated[bool, typer.Option(
        "--history",
        help="With --key: show the value before and after each record, leftovers included.",
    )] = False,
    follow: Annotated[bool, typer.Option(
        "--follow", help="Keep waiting for new records until interrupted.",
    )] = False,
    read_committed: opt.ReadCommittedOption = False,
    replicas: opt.ReplicasOption = Replicas.BEST,
    view: opt.ViewOption = LogView.STARTED,
    form: opt.RowsFormatOption = opt.RowsFormat.TABLE,
    to: Annotated[str | None, typer.Option(
        "--to", metavar="FILE", help="New file to write, for --format parquet.",
    )] = None,
    bytes_form: opt.BytesOption = BytesFormat.AUTO,
    exact: opt.ExactOption = False,
    tz: opt.ZoneOption = "UTC",
    now: opt.NowOption = None,
    quiet: opt.QuietOption = False,
) -> int:  # fmt: skip
    """Find records in all partitions of all PATHs.

    If there are several copies of a partition, the most complete one is searched. If PATH has
    __transaction_state, records of transactions are shown with their transactional id. The exit
    status is 1 if nothing is found or something is damaged.

    \b
    kafkalog find /var/lib/kafka --key user-8 --last 3
    kafkalog find /var/lib/kafka --key user-8 --topic customers --history
    kafkalog find /var/lib/kafka --value-regex '"item":"tea"' --limit 5
    kafkalog find /var/lib/kafka --where 'value.cents > 100'
    kafkalog find /var/lib/kafka --producer-id 1 --format ndjson
    kafkalog find orders-0 --undecodable json --value-schema payment.json
    """
    from kafkalog.answers.search.run import Search
    from kafkalog.log.batches.selection import Selection
    from kafkalog_cli.output.found import found_view

    zone = opt.parse_zone(tz)
    selection = Selection(
        from_time=None if from_time is None else opt.parse_time(from_time, now, zone),
        to_time=None if to_time is None else opt.parse_time(to_time, now, zone),
        producer_id=producer_id,
        key=None if key is None else opt.parse_bytes(key),
        key_regex=opt.parse_regex(key_regex),
        value_regex=opt.parse_regex(value_regex),
        header=opt.parse_header(header),
        where=opt.parse_where(where),
        data=producer_id is None or undecodable is not None,  # markers have no value
        isolation=Isolation.READ_COMMITTED if read_committed else Isolation.LOG,
        view=view,
    )
    schema = typed_columns(
        "value", undecodable, value_schema, value_message, value_framing, option="--undecodable"
    )
    if last is not None and limit is not None:
        raise UsageError(
            "--last is about all records, --limit stops before they are read.",
            hint="Use one of them.",
        )
    _require_sense(selection, form, to, schema, history=history, follow=follow, last=last)
    outcome = Outcome()
    targets = outcome.open_all(paths, topics=topic)
    if outcome.errors and not targets:
        return outcome.status  # a wanted topic may be there
    style = Style(exact, zone, bytes_form, states=view == LogView.ALL)
    with byte_progress(targets, enabled=not quiet and not follow) as progress:
        search = Search(targets, selection, topic, replicas, outcome, progress)
        if history:
            _show_history(search, form, limit, style, outcome)
            return outcome.status
        found = _found(search, schema, outcome, last=last, follow=follow)
        if to is not None:
            _report(search, outcome, _write_file(found, to, limit, outcome))
        else:
            shown = found_view(style, directories=_is_several(search), reasons=bool(schema))
            _report(search, outcome, _write(shown, found, form, limit, outcome, at_once=follow))
    return outcome.status


def _require_sense(
    selection: Selection,
    form: opt.RowsFormat,
    to: str | None,
    schema: tuple[TypedColumn, ...],
    *,
    history: bool,
    follow: bool,
    last: int | None,
) -> None:
    wanted = (
        selection.key, selection.key_regex, selection.value_regex, selection.header,
        selection.where,
    )  # fmt: skip
    if not schema and selection.producer_id is None and all(one is None for one in wanted):
        raise UsageError(
            "Say what to find.",
            hint="--key, --key-regex, --value-regex, --header, --where, --producer-id "
            "or --undecodable.",
        )
    if history and (selection.key is None or selection.where or schema or last is not None):
        raise UsageError("--history is about one key, and has all of its life.", hint="--key K")
    if follow and (history or last is not None or to is not None):
        raise UsageError("--follow cannot be combined with --history, --last or --to.")
    if follow and selection.view != LogView.STARTED:
        raise UsageError("--follow reads what a broker serves: no --view.")
    if (form == opt.RowsFormat.PARQUET) != (to is not None) or to == "-":
        raise UsageError(
            "--format parquet is written to a file, other formats to stdout.",
            hint="--format parquet --to FILE",
        )
    if history and form == opt.RowsFormat.PARQUET:
        raise UsageError("A history is not written to a file.", hint="--format ndjson")


def _found(
    search: Search,
    schema: tuple[TypedColumn, ...],
    outcome: Outcome,
    *,
    last: int | None,
    follow: bool,
) -> Iterator[Found | Defect]:
    from kafkalog.answers.search.run import latest

    if follow:
        from kafkalog.answers.search.following import follow as following

        found = following(search)
    else:
        outcome.differs(target.difference for target in search.logs)
        found = search.found()
    if schema:
        from kafkalog.io.jit.fast_path import require_arrow

        require_arrow()
        from kafkalog.answers.search.table import undecodable

        found = undecodable(found, *schema)
    return found if last is None else latest(found, last)


def _is_several(search: Search) -> bool:
    import os

    from kafkalog.io.paths import file_system

    return len({os.path.dirname(file_system.absolute(one.listed.path)) for one in search.logs}) > 1


def _show_history(
    search: Search, form: opt.RowsFormat, limit: int | None, style: Style, outcome: Outcome
) -> None:
    from kafkalog.answers.search.history import history, wanted_for_history
    from kafkalog_cli.output.found import occurrence_view

    search = replace(search, selection=wanted_for_history(search.selection))
    view = occurrence_view(style, directories=_is_several(search))
    _report(search, outcome, _write(view, history(search), form, limit, outcome, at_once=False))


def _write(
    view: Any,
    found: Iterator[Any],
    form: opt.RowsFormat,
    limit: int | None,
    outcome: Outcome,
    *,
    at_once: bool,
) -> int:
    """Write rows and defects up to a limit of rows; return how many there were."""
    import sys

    rows = 0
    with Writer(view, Format(form)) as writer:
        for one in found:
            if isinstance(one, Defect):
                outcome.count(one)
                writer.defect(one)
            else:
                writer.write(one)
                rows += 1
            if at_once:
                writer.flush()
                sys.stdout.flush()  # or a reader of a pipe would wait for whole blocks
            if rows == limit:
                break
    return rows


def _report(search: Search, outcome: Outcome, rows: int) -> None:
    """Note what was left out, and if nothing was found, which is status 1."""
    from kafkalog.files.offsets import LeftOut

    for line in (*LeftOut(below_log_start=search.below_start).lines(), *search.beyond()):
        show_note(line)
    show_undecodable(search.selection.where)
    if not rows:
        if search.logs or not outcome.errors:
            show_note(f"nothing found in {counted(len(search.logs), 'partition')}")
        outcome.fail_if(True)


def _write_file(
    found: Iterator[Found | Defect], to: str, limit: int | None, outcome: Outcome
) -> int:
    """Write a Parquet file, unless it would be empty; return the number of its rows."""
    from itertools import islice

    from kafkalog.io.jit.fast_path import require_arrow
    from kafkalog.io.storage import NewFile

    require_arrow()
    from kafkalog.answers.search.table import write_parquet

    def records() -> Iterator[Found]:
        for one in found:
            if isinstance(one, Defect):
                outcome.hear(one)
            else:
                yield one

    with NewFile(to) as new:
        rows = write_parquet(new.file, islice(records(), limit))
        if not rows:
            new.discard()
    return rows
