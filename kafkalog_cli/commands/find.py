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
from kafkalog_cli.outcome import Outcome, show_note
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
    undecodable: Annotated[bool, opt.option(
        SELECT, "--undecodable",
        help="Only records whose value does not decode, with the reason.",
    )] = False,
    last: opt.LastOption = None,
    history: Annotated[bool, opt.option(
        SHOW, "--history", help="The life of a key: the value before and after each record.",
    )] = False,
    to: opt.ToOption = None,
    follow: opt.FollowOption = False,
    *,
    partitions: opt.Partitions,
    records: opt.Records,
    bounds: opt.LogBounds,
    decode: opt.Decode,
    show: opt.Show,
    pace: opt.Pace,  # noqa: ARG001 # it surrounds the command
) -> int:  # fmt: skip
    """Find records in all partitions of all PATHs.

    If there are several copies of a partition, the most complete one is searched. If PATH has
    __transaction_state, records of transactions are shown with their transactional id. Status 1: a
    search that was complete has found nothing.

    \b
    kafkalog find /var/lib/kafka -k user-8 --last 3
    kafkalog find /var/lib/kafka -t customers -k user-8 --history
    kafkalog find /var/lib/kafka --value-regex '"item":"tea"' -n 5
    kafkalog find /var/lib/kafka --producer-id 1 -o ndjson
    kafkalog find orders-0 --value-format json --undecodable
    """
    from kafkalog.answers.search.run import Search
    from kafkalog_cli.output.found import found_view
    from kafkalog_cli.output.new_file import form_of
    from kafkalog_cli.schemas import decoders

    form = show.format.value if to is None else form_of(to, show.format)
    selection = records.selection(
        data=records.producer_id is None or undecodable,  # markers have no value
        isolation=bounds.isolation,
        view=bounds.view,
    )
    ways = Ways(last, undecodable=undecodable, history=history, follow=follow)
    _require_sense(selection, form, ways, to, show.limit)
    outcome = Outcome()
    targets, every = _wanted(paths, partitions, bounds.view, outcome)
    if outcome.errors and not every:
        return outcome.status  # a wanted topic may be there
    key, value = decode.payloads
    decoded = decoders((key, value), partitions_of(targets))
    style = show.style(
        key_form=key.form, value_form=value.form, states=bounds.view == LogView.ALL,
        decoded={} if undecodable else decoded,
    )  # fmt: skip
    shows_progress = not session().is_quiet and not follow
    with byte_progress(targets, enabled=shows_progress) as progress, text_to(to if to and form not in COLUMNAR else None):
        search = Search(
            targets, selection, replicas=bounds.replicas, listener=outcome, progress=progress,
            around=every,
        )  # fmt: skip
        if history:
            _show_history(search, Format(form), show.limit, style, outcome)
        else:
            found = _found(search, decoded.get("value") if undecodable else None, outcome, ways)
            if form in COLUMNAR:
                _report(search, outcome, _write_file(found, to, form, show.limit, outcome))
            else:
                shown = found_view(style, directories=_is_several(search), reasons=undecodable)
                rows = _write(shown, found, Format(form), show.limit, outcome, at_once=follow)
                _report(search, outcome, rows)
    for one in style.decoded.values():
        one.report(outcome)
    return outcome.status


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
