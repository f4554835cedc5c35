"""`kafkalog find`: find records in all partitions, show the life of a key, wait for new records."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from formats.late_classes import dataclass
from kafkalog.errors import UsageError
from kafkalog.io.wording import counted
from kafkalog.model import Defect, LogView
from kafkalog.node.targets import partitions_of, selected
from kafkalog_cli import options as opt
from kafkalog_cli.option_sets import SELECT, SHOW
from kafkalog_cli.outcome import Outcome, show_note
from kafkalog_cli.output.new_file import COLUMNAR
from kafkalog_cli.output.progress import byte_progress
from kafkalog_cli.output.writer import Format, Writer
from kafkalog_cli.session import session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.answers.search.run import Search
    from kafkalog.answers.search.scanning import Found
    from kafkalog.answers.search.table import Decode
    from kafkalog.log.batches.selection import Selection
    from kafkalog.node.targets import Target
    from kafkalog_cli.output.objects import Style


@dataclass(frozen=True)
class Ways:
    """What a search shows besides what it selects.

    Attributes:
        last: how many records, those with the latest timestamps; None for all.
        undecodable: whether only values that do not decode.
        history: whether the life of a key.
        follow: whether it waits for more.
    """

    last: int | None
    undecodable: bool
    history: bool
    follow: bool


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
    kafkalog find /var/lib/kafka --where 'value.cents > 100'
    kafkalog find /var/lib/kafka --producer-id 1 -o ndjson
    kafkalog find orders-0 -k user-8 --value-format json -o ndjson
    """
    from kafkalog.answers.search.run import Search
    from kafkalog_cli.output.found import found_view
    from kafkalog_cli.output.new_file import form_of
    from kafkalog_cli.schemas import decoders, value_decoder

    form = show.format.value if to is None else form_of(to, show.form)
    select = partial(
        records.selection,
        data=records.producer_id is None or undecodable,  # markers have no value
        isolation=bounds.isolation,
        view=bounds.view,
    )
    selection, ways = select(), Ways(last, undecodable, history, follow)
    _require_sense(selection, form, ways, to, show.limit)
    outcome = Outcome()
    targets = outcome.open_all(paths, topics=partitions.topics)
    if outcome.errors and not targets:
        return outcome.status  # a wanted topic may be there
    _note_internal(targets, partitions)
    key, value = decode.payloads
    if undecodable and value.typed is None and (value.registry is None or not value.is_auto):
        raise UsageError(
            "--undecodable requires the format that values should have.",
            hint="--value-format json, or --registry PLACE",
        )
    within = selected(targets, partitions.topics, partitions.numbers, internal=partitions.internal)
    logs = [*partitions_of(within)]
    decoded = {} if undecodable else decoders((key, value), logs)
    selection = select(decoded) if decoded else selection
    style = show.style(
        key_form=key.form, value_form=value.form, states=bounds.view == LogView.ALL,
        decoded=decoded,
    )  # fmt: skip
    shows_progress = not session().is_quiet and not follow
    with byte_progress(targets, enabled=shows_progress) as progress:
        search = Search(
            targets, selection, partitions.topics, partitions.numbers, partitions.internal,
            bounds.replicas, outcome, progress,
        )  # fmt: skip
        if history:
            _show_history(search, form, show.limit, style, outcome, to)
        else:
            tried = value_decoder(value, logs) if undecodable else None
            found = _found(search, tried, outcome, ways)
            if to is not None and form in COLUMNAR:
                rows = _write_file(found, to, form, show.limit, outcome)
            else:
                view = found_view(style, directories=_is_several(search), reasons=undecodable)
                rows = _write(view, found, form, show.limit, outcome, to, at_once=follow)
            _report(search, outcome, rows)
    for one in style.decoded.values():
        one.report(outcome)
    return outcome.status


def _note_internal(targets: list[Target], partitions: opt.Partitions) -> None:
    from kafkalog.node.targets import choose_logs

    _, left_out = choose_logs(
        targets, partitions.topics, partitions.numbers, internal=partitions.internal, dead=False
    )
    if left_out:
        what = counted(left_out, "internal partition")
        show_note(f"{what} left out; --internal includes them")


def _require_sense(
    selection: Selection, form: str, ways: Ways, to: str | None, limit: int | None
) -> None:
    wanted = (
        selection.key, selection.key_regex, selection.value_regex, selection.header,
        selection.where,
    )  # fmt: skip
    is_selected = selection.producer_id is not None or any(one is not None for one in wanted)
    if not (ways.undecodable or is_selected):
        raise UsageError(
            "Say what to find.",
            hint="--key, --key-regex, --value-regex, --header, --where, --producer-id "
            "or --undecodable.",
        )
    if ways.last is not None and limit is not None:
        raise UsageError(
            "--last is about all records, --limit stops before they are read.",
            hint="Use one of them.",
        )
    if ways.history and (
        selection.key is None or selection.where or ways.undecodable or ways.last is not None
    ):
        raise UsageError("--history is about one key, and has all of its life.", hint="--key K")
    if ways.follow and (ways.history or ways.last is not None or to is not None):
        raise UsageError("--follow cannot be combined with --history, --last or --to.")
    if ways.follow and selection.view != LogView.RECOVERED:
        raise UsageError("--follow reads what a broker serves: no --view.")
    if ways.history and form in COLUMNAR:
        raise UsageError(f"A history is not written as {form}.", hint="--to FILE.ndjson")


def _found(
    search: Search, decode: Decode | None, outcome: Outcome, ways: Ways
) -> Iterator[Found | Defect]:
    from kafkalog.answers.search.run import latest

    if ways.follow:
        from kafkalog.answers.search.following import follow as following

        found = following(search)
    else:
        outcome.differs(target.difference for target in search.logs)
        found = search.found()
    if decode is not None:
        from kafkalog.answers.search.table import undecodable

        found = undecodable(found, decode)
    return found if ways.last is None else latest(found, ways.last)


def _is_several(search: Search) -> bool:
    import os

    from kafkalog.io.paths import file_system

    return len({os.path.dirname(file_system.absolute(one.listed.path)) for one in search.logs}) > 1


def _show_history(
    search: Search, form: str, limit: int | None, style: Style, outcome: Outcome, to: str | None
) -> None:
    from kafkalog.answers.search.history import history, wanted_for_history
    from kafkalog_cli.output.found import occurrence_view

    search = replace(search, selection=wanted_for_history(search.selection))
    view = occurrence_view(style, directories=_is_several(search))
    rows = _write(view, history(search), form, limit, outcome, to, at_once=False)
    _report(search, outcome, rows)


def _write(
    view: Any,
    found: Iterator[Any],
    form: str,
    limit: int | None,
    outcome: Outcome,
    to: str | None,
    *,
    at_once: bool,
) -> int:
    """Write rows and defects up to a limit of rows; return how many there were."""
    import sys

    from kafkalog_cli.output.new_file import text_to

    rows = 0
    with text_to(to), Writer(view, Format(form)) as writer:
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

    left_out = LeftOut(below_log_start=search.below_start, below_watermark=search.below_watermark())
    outcome.lacks(left_out.is_lacking)
    for line in (*left_out.lines(), *search.beyond()):
        show_note(line)
    outcome.leaves_undecoded(search.selection.where, is_empty=not rows)
    if not rows:
        if search.logs or not outcome.errors:
            show_note(f"nothing found in {counted(len(search.logs), 'partition')}")
        outcome.answers_no()


def _write_file(
    found: Iterator[Found | Defect], to: str, form: str, limit: int | None, outcome: Outcome
) -> int:
    """Write a file of columns, unless it would be empty; return the number of its rows."""
    from itertools import islice

    from kafkalog.io.jit.fast_path import require_arrow
    from kafkalog.io.storage import NewFile

    require_arrow()
    from kafkalog.answers.search.table import write_columns

    def records() -> Iterator[Found]:
        for one in found:
            if isinstance(one, Defect):
                outcome.hear(one)
            else:
                yield one

    with NewFile(to) as new:
        rows = write_columns(new.file, form, islice(records(), limit))
        if not rows:
            new.discard()
    return rows
