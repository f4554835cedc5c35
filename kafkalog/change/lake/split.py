"""An export with a table for each type of a topic's values.

Each table is an export of its own, of the records of its type: it has its own columns, commits and
rejects, and is continued by itself. The table `null`, of the records without a type, binds them:
its plan says where all of them end, its types are theirs, and it is committed last. Until then a
run that was stopped is repeated; each table goes on where it ends. A type that is new has no
records before the last commit of `null`: there its table begins.
"""

from __future__ import annotations

import re
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeAlias

from kafkalog.change.lake.model import (
    MANIFEST,
    NOTHING_ACCEPTED,
    PLAN,
    ColumnChanges,
    ExportSummary,
    Increment,
    TableFormat,
    commit_name,
)
from kafkalog.change.lake.of_type import NO_TYPE, Turn
from kafkalog.change.lake.options import stored_columns
from kafkalog.change.lake.plan import make_plan
from kafkalog.change.lake.rejects import require_few
from kafkalog.change.lake.run_types import with_types
from kafkalog.change.lake.table_run import table_run
from kafkalog.change.lake.targets import directory_of, open_target
from kafkalog.errors import (
    DestinationExistsError,
    Listener,
    PartlyDoneError,
    RefusedError,
    UsageError,
)
from kafkalog.files.offsets import LeftOut
from kafkalog.io.paths.file_system import absolute
from kafkalog.io.paths.uris import is_object
from kafkalog.log.typed import TypedForm
from kafkalog.tables.planning import find_targets

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kafkalog.change.lake.append import Append
    from kafkalog.change.lake.iceberg_append import IcebergAppend
    from kafkalog.change.lake.model import Accepted, ExportedPart, ExportRequest
    from kafkalog.change.lake.plan import Part, Plan
    from kafkalog.change.lake.run import Export
    from kafkalog.errors import Event
    from kafkalog.io.engine import Engine

    Run: TypeAlias = "Export | Append | IcebergAppend"

NULL: Final = "null"
"""The table of the records without a type."""
_NOT_IN_NAMES: Final = re.compile(r"[^\w-]")
"""What names of tables have as `_`: titles of JSON Schemas can be any text."""


class SplitExport:
    """A run that writes a table for each type of some topics; use it as a context manager.

    Args:
        asked: the request, with a column of values whose types the data decides.
        to: the directory around the tables, or `CATALOG.NAMESPACE`.
        fail_fast, accepted, listener: as for `Export`; rejects count together.
        catalog: as for `table_run`.

    Raises:
        UsageError: the values have no schemas, or two types would have the same table.
        DestinationExistsError: the directory is an export.
        as `table_run`.

    On disk after a crash: each table before, or after its commit, as its run leaves it;
    that of the records without a type is the last one to be committed.
    """

    has_ended = False
    """Only the tables know."""

    def __init__(
        self, asked: ExportRequest, to: str, *, fail_fast: bool = False,
        accepted: Accepted = NOTHING_ACCEPTED, catalog: Mapping[str, str] | None = None,
        listener: Listener | None = None,
    ) -> None:  # fmt: skip
        require_types(asked)
        listener = _Once(listener or Listener())
        self._asked = asked
        self._to = to
        self.destination = to
        if asked.table_format != TableFormat.ICEBERG:
            target = open_target(to)
            self.destination = target.shown
            if any(map(target.has, (MANIFEST, PLAN, commit_name(0)))):
                raise DestinationExistsError(
                    "The directory is a table of all types.",
                    path=target.shown,
                    hint="Choose another directory for the tables of each type.",
                )
        self._opened = partial(
            table_run, fail_fast=fail_fast, accepted=accepted, catalog=catalog, listener=listener
        )
        self._topics = [_Topic(self, one, accepted.rejects) for one in requests_of(asked, listener)]

    def __enter__(self) -> Self:
        with ExitStack() as held:
            for one in self._topics:
                held.enter_context(one)
            self._held = held.pop_all()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._held.__exit__(*raised)

    @property
    def is_continued(self) -> bool:
        """Whether this run completes an interrupted one; then another run adds what has come."""
        return any(one.null.is_continued for one in self._topics)

    @property
    def missing(self) -> list[Part]:
        """What the tables may lack."""
        return [part for one in self._topics for part in one.null.plan.parts]

    def planned(self) -> Plan:
        """Return the plan of all topics with the files of all tables; nothing is written."""
        return _plan_of_all([one.planned() for one in self._topics])

    def run(self, engine: Engine | None) -> None:
        """Write the files of all tables, then commit them one by one, topic by topic.

        Raises:
            PartlyDoneError: what another topic has is refused once one is committed.
            as `Export.run`.
        """
        done: list[str] = []
        for number, one in enumerate(self._topics):
            try:
                one.run(engine)
            except RefusedError as error:
                for other in self._topics[number + 1 :]:
                    other.null.discard()
                if not done:
                    raise
                words = f"The tables of {', '.join(done)} are committed; then: {error.message}"
                raise PartlyDoneError(words, path=error.path, hint=error.hint) from error
            if not one.null.is_idle:
                done.append(one.name)

    def summary(self) -> ExportSummary:
        """Return what the tables of all topics have together."""
        tables = [table for one in self._topics for table in one.tables()]
        return _together(self.destination, tables, self._asked.table_format)

    def table(self, asked: ExportRequest, topic: str, field: str, turn: Turn | None = None) -> Run:
        """Return the run of the table of a type.

        Args:
            asked: the request for the topic.
            field: that of the type among all types; empty for the records without one.
            turn: what it has in common with the others; None for the records without a type.
        """
        place = place_of(self._to, topic, field, asked.table_format)
        asked = replace(asked, of_type=field)
        return self._opened(asked, place, turn=turn)


class _Topic:
    """The tables of one topic."""

    def __init__(self, split: SplitExport, asked: ExportRequest, max_rejects: int) -> None:
        self.name = _topic_of(asked)
        self._split = split
        self._asked = asked
        self._max_rejects = max_rejects
        self._done: list[tuple[str, ExportSummary]] = []

    def __enter__(self) -> Self:
        self.null = self._split.table(self._asked, self.name, NO_TYPE)
        with ExitStack() as held:
            held.enter_context(self.null)
            self._fields = _fields_of(self.null.plan, self.name)
            self._held = held.pop_all()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._held.__exit__(*raised)

    def planned(self) -> Plan:
        plan = self._split.table(self._asked, self.name, NO_TYPE).planned()
        return _plan_with_tables(plan, self.name, _fields_of(plan, self.name))

    def run(self, engine: Engine | None) -> None:
        if self.null.is_idle:  # it was committed after all others
            self._done = [(NO_TYPE, self.null.summary())]
            return
        turn = Turn(self.null.plan, self.null.last)
        asked = replace(self._asked, typed=stored_columns(self.null.plan.options), by_data=())
        runs: dict[str, Run] = {}
        with ExitStack() as held:
            try:
                for field in self._fields:
                    runs[field] = self._begun(held, asked, field, turn, engine)
                runs[NO_TYPE] = self.null  # the last one
                for one in runs.values():
                    one.write(engine)
                parts = [part for one in runs.values() for part in one.summary().parts]
                require_few(parts, self._max_rejects)
                for field, one in runs.items():
                    one.finish()
                    self._done.append((field, one.summary()))
            except RefusedError:
                for one in (*runs.values(), self.null):
                    one.discard()
                raise

    def _begun(
        self, held: ExitStack, asked: ExportRequest, field: str, turn: Turn, engine: Engine | None
    ) -> Run:
        """Return the entered run of a table that ends where the run of `null` does."""
        while True:
            run = self._split.table(asked, self.name, field, turn)
            with ExitStack() as entered:
                entered.enter_context(run)
                now, wanted = run.plan.increment, turn.plan.increment
                if not run.is_continued or (now and now.end) == (wanted and wanted.end):
                    held.push(entered.pop_all())
                    return run
                run.run(engine)  # it was stopped in an earlier run, which ended elsewhere

    def tables(self) -> Iterator[Done]:
        """Yield what became of each table."""
        for field, summary in self._done:
            yield Done(self.name, field, summary)


class Done(NamedTuple):
    """What became of the table of a type."""

    topic: str
    field: str
    summary: ExportSummary


class _Once(Listener):
    """Passes on what is heard for the first time: each table of a topic hears the same."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._heard: set[tuple[str, ...]] = set()

    def hear(self, event: Event) -> None:
        name = type(event).__name__, str(event), str(getattr(event, "path", ""))
        if name not in self._heard:
            self._heard.add(name)
            self._listener.hear(event)


# Requests and places -----------------------------------------------------------------------------


def require_types(asked: ExportRequest) -> None:
    """Raise `UsageError` unless the data decides the types of values."""
    by_data = [one for one in asked.by_data if one.source == "value"]
    if not any(one.form != TypedForm.CONNECT for one in by_data):
        raise UsageError(
            "--split-by-type is about the types that the schemas of values have.",
            hint="Add --registry PLACE, and leave out --value-schema.",
        )


def requests_of(asked: ExportRequest, listener: Listener) -> Iterator[ExportRequest]:
    """Yield the request for each topic. Raises `UsageError` without one, and as `find_targets`."""
    bounds = asked.request.bounds
    paths = [absolute(path) for path in asked.paths]
    logs = find_targets(paths, asked.request, listener)
    if not logs:
        raise UsageError("There is no topic here whose types could be split.")
    for topic in sorted({one.listed.topic for one in logs}):
        of_topic = replace(bounds, topics=(topic,))
        named = None if asked.request.named is None else of_topic
        yield replace(
            asked,
            request=replace(asked.request, bounds=of_topic, named=named),
            by_data=tuple(one.of_topic(topic) for one in asked.by_data),
            flat=False,  # they are columns in any case
        )


def _topic_of(asked: ExportRequest) -> str:
    [topic] = asked.request.bounds.topics or ()
    return topic


def place_of(to: str, topic: str, field: str, table_format: TableFormat) -> str:
    """Return where the table of a type is.

    Args:
        to: the directory around the tables, or `CATALOG.NAMESPACE`.
        field: that of the type among all types; empty for the records without one.
    """
    name = _table_name(field)
    table = f"{topic}.{_NOT_IN_NAMES.sub('_', name)}"
    if table_format == TableFormat.ICEBERG:
        return f"{to}.{table}"
    is_delta = table_format == TableFormat.DELTA
    below = table if is_delta else f"{directory_of('topic', topic)}/{directory_of('type', name)}"
    place, mark, options = to.partition("?") if is_object(to) else (to, "", "")
    return f"{place.rstrip('/')}/{below}{mark}{options}"


def _table_name(field: str) -> str:
    if field == NO_TYPE:
        return NULL
    return f"{field}_" if field.rstrip("_").casefold() == NULL else field


def plan_anywhere(asked: ExportRequest, listener: Listener) -> Plan:
    """Return the plan of a first run, wherever it goes. Raises as `SplitExport`."""
    require_types(asked)
    plans = []
    for one in requests_of(replace(asked, append=False), listener):
        wanted = replace(one, of_type=NO_TYPE)
        _, plan = with_types(wanted, make_plan(wanted, listener), (), "")
        topic = _topic_of(one)
        plans.append(_plan_with_tables(plan, topic, _fields_of(plan, topic)))
    return _plan_of_all(plans)


def _plan_of_all(plans: Sequence[Plan]) -> Plan:
    return replace(
        plans[0],
        parts=tuple(part for one in plans for part in one.parts),
        ends=tuple(end for one in plans for end in one.ends),
        lacking=tuple(name for one in plans for name in one.lacking),
        remarks=tuple(remark for one in plans for remark in one.remarks),
    )


def _fields_of(plan: Plan, topic: str) -> list[str]:
    """Return the fields of all types. Raises `UsageError` if two would have one table."""
    [column] = [one for one in stored_columns(plan.options) if one.source == "value"]
    fields = [field for field, _ in column.types]
    form = TableFormat(plan.options["table_format"])
    places: dict[str, str] = {}
    for one in (NO_TYPE, *fields):
        place = place_of("", topic, one, form).casefold()
        if place in places:
            raise UsageError(f"The types {places[place]} and {one} would have the same table.")
        places[place] = one
    return fields


def _plan_with_tables(plan: Plan, topic: str, fields: Iterable[str]) -> Plan:
    """Return the plan of a topic's records without a type with the files of all tables."""
    asked = TableFormat(plan.options["table_format"])
    parts = [
        replace(part, file=_below(topic, field, asked, part.file))
        for field in (*fields, NO_TYPE)
        for part in plan.parts
    ]
    return replace(plan, parts=tuple(parts))


# Results -----------------------------------------------------------------------------------------


def _below(topic: str, field: str, table_format: TableFormat, file: str) -> str:
    """Return the path of a file of a table relative to the directory around all tables."""
    if table_format == TableFormat.ICEBERG:
        return file
    return place_of("", topic, field, table_format).removeprefix("/") + f"/{file}"


def _together(destination: str, tables: Sequence[Done], table_format: TableFormat) -> ExportSummary:
    """Return what tables have together; defects count once, as those of the tables `null`."""
    nulls = [one.summary for one in tables if one.field == NO_TYPE]
    names = [f"{one.topic}.{_table_name(one.field)}" for one in tables]
    ends = tuple(end for one in nulls for end in one.ends)

    def all_of(kind: str) -> tuple[str, ...]:
        return tuple(
            f"{name}.{column}"
            for name, one in zip(names, tables, strict=True)
            for column in getattr(one.summary.columns, kind)
        )

    return ExportSummary(
        destination,
        tuple(_part_below(one, part, table_format) for one in tables for part in one.summary.parts),
        sum(one.summary.written_files for one in tables),
        all(one.summary.was_complete for one in tables),
        sum(one.summary.swept for one in tables),
        LeftOut.by(ends),
        _increments([one.increment for one in nulls if one.increment is not None]),
        ColumnChanges(all_of("added"), all_of("widened"), all_of("absent")),
        ", ".join(one.summary.rejects_at for one in tables if one.summary.rejects),
        ends,
        sum(one.summary.log_bytes for one in tables),
        tuple(
            replace(remark, path=f"{name}.{remark.path}")
            for name, one in zip(names, tables, strict=True)
            for remark in one.summary.remarks
        ),
        {name: one.summary.rows for name, one in zip(names, tables, strict=True)},
    )


def _part_below(table: Done, part: ExportedPart, table_format: TableFormat) -> ExportedPart:
    def below(file: str) -> str:
        return _below(table.topic, table.field, table_format, file)

    if part.file is not None:
        part = replace(part, file=below(part.file))
    if part.rejects is not None:
        part = replace(part, rejects=replace(part.rejects, file=below(part.rejects.file)))
    if table.field != NO_TYPE:
        part = replace(part, defect_count=0, defects=(), without_answer=0)
    return part


def _increments(found: Sequence[Increment]) -> Increment | None:
    """Return the increments of several topics as one; None without any."""
    if not found:
        return None
    return Increment(
        max(one.number for one in found),
        {key: position for one in found for key, position in one.start.items()},
        {key: position for one in found for key, position in one.end.items()},
        tuple(gap for one in found for gap in one.gaps),
        tuple(key for one in found for key in one.gone),
    )
