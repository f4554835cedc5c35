"""A table that grows: each run commits what is new in the logs, exactly once.

The state of the table is its last commit: a file in `_kafkalog/commits`, which also states for each
partition where the next run begins. In a Delta table the commit is that of the table itself, and
the file follows. A run that was killed is continued by the next one, or its files are removed.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Self

from kafkalog.change.lake.delta_log import (
    append_delta,
    delta_commit,
    delta_schema,
    require_fitting,
)
from kafkalog.change.lake.evolution import Evolution, schema_from, schema_text
from kafkalog.change.lake.increments import with_damage
from kafkalog.change.lake.model import (
    COMMITS,
    MANIFEST,
    PLAN,
    SUCCESS,
    ColumnChanges,
    Increment,
    TableFormat,
    commit_name,
)
from kafkalog.change.lake.of_type import columns_of, planned_in
from kafkalog.change.lake.options import require_same_options, stored_columns
from kafkalog.change.lake.part import rows_schema
from kafkalog.change.lake.plan import (
    INCREMENT,
    SCHEMA_TEXT,
    Plan,
    require_own,
    require_unchanged,
)
from kafkalog.change.lake.rejects import commit_rejects
from kafkalog.change.lake.run import Export
from kafkalog.change.lake.run_types import TableColumns, decoded_names, with_types
from kafkalog.errors import (
    ChangedSinceError,
    CorruptDataError,
    DestinationExistsError,
    NotFoundError,
    RefusedError,
    UnreadableError,
)
from kafkalog.io.documents import Anything, Fields, read_document
from kafkalog.log.defects import DELETED
from kafkalog.tables.model import LossReason

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kafkalog.change.lake.model import Accepted, ExportedPart, Gap
    from kafkalog.log.typed import TypedColumn

_COMMIT = Fields(
    {"options": Anything(), "increment": INCREMENT, "schema": SCHEMA_TEXT}, others=Anything()
)
_SHOWN_MAX = 5
_MOVED = "If a broker moved the partition, also name the log directory that has it now."
_ALLOW = "With --accept {} the run goes on after them, and the commit names them."
_REPAIR = "Repeat it with a sound replica as one more PATH, or once the log is repaired."


class Append(Export):
    """A run that adds to a table what is new since its last commit; use it as a context manager.

    Args:
        to: as for `Export`.
        fail_fast: as for `Export`.
        accepted: what each commit may lack; it names that.
        listener: as for `Export`; the next commit continues a partition that cannot be read.
        turn: as for `Export`.

    Attributes:
        last, is_continued: as for `Export`.

    Raises:
        RefusedError: offsets are missing, without `allow_gaps`, or damage hides them, without
            `allow_damage`. Nothing was committed.
        as `Export`.

    On disk after a crash: the last commit with its files, the plan of the next one and some of its
    files, each whole or not at all.
    """

    def __enter__(self) -> Self:
        self._look_back()
        return super().__enter__()

    def planned(self) -> Plan:
        """Return the plan of what is new; nothing is written."""
        self._look_back()
        return super().planned()

    def _look_back(self) -> None:
        self.last: Increment | None = None
        self._before: Any = None
        self._typed: tuple[TypedColumn, ...] = ()
        self.last = self._last_commit()

    # The table -------------------------------------------------------------------------------

    def _plan(self) -> Plan:
        plan = planned_in(self._turn, self._asked, self._listener, self.last)
        self._asked, plan = with_types(self._asked, plan, self._typed, self._target.shown)
        schema = rows_schema(self._asked, plan.columns)
        if self._before is not None:
            # Readers of plain files take the types from one of them; for Delta see there.
            columns = columns_of(self._asked.typed, self._asked.of_type)
            decoded = decoded_names(columns)
            evolution = Evolution(
                self._before, schema, self._target.shown, widens=False, decoded=decoded
            )
            schema, self._columns = evolution.schema, evolution.changes
            remarks = TableColumns(self._asked.typed, schema, self._asked.of_type).remarks
            plan = replace(plan, remarks=(*remarks, *evolution.remarks))
        plan = replace(plan, schema=schema_text(schema))
        if self._asked.table_format == TableFormat.DELTA:
            place = self._target.shown
            require_fitting(place, delta_schema(place, self._table_schema(plan)))
        return plan

    def _file_schema(self, plan: Plan) -> Any:
        return schema_from(plan.schema or "", f"{self._target.shown}/{PLAN}")

    def _last_commit(self) -> Increment | None:
        """Read the last commit.

        Raises:
            DestinationExistsError: it was made with other options, or is no table that grows.
            CorruptDataError: it is no commit, or is missing in a Delta table.
        """
        sizes = self._target.sizes()
        if MANIFEST in sizes:
            raise DestinationExistsError(
                "The directory holds an export that was made without --append.",
                path=self._target.shown,
                hint="Choose another directory.",
            )
        names = [name for name in sizes if name.startswith(f"{COMMITS}/")]
        if not names:
            return None
        name = commit_name(len(names) - 1)
        place = f"{self._target.shown}/{name}"
        if set(names) != {commit_name(number) for number in range(len(names))}:
            raise CorruptDataError("Commits of the table are missing.", path=place)
        fields = read_document(
            self._target.read(name) or b"", _COMMIT, place, "a commit of an export"
        )
        require_same_options(fields["options"], self._asked, self._target.shown)
        self._before = schema_from(fields["schema"], place)
        self._typed = stored_columns(fields["options"])
        return Increment.from_json(fields["increment"])

    def _take_up(self, now: Plan) -> None:
        """Continue an interrupted run if possible; else begin what is new."""
        self._swept = self._target.sweep()
        # The plan was made before the lock was held.
        if self._last_commit() != self.last:
            raise ChangedSinceError(
                "Another run has added to the table meanwhile.",
                path=self._target.shown,
                hint="Repeat the command.",
                is_temporary=True,
            )
        sizes = self._target.sizes()
        if PLAN not in sizes:
            self._clear_up(sizes)
        elif self._continues(now, sizes):
            self._stop_at_known_damage()
            return
        assert now.increment is not None, "it was asked for"
        # `_conclude` removes the plan after the commit file: without one, Delta cannot be ahead.
        if self._is_in_delta(now.increment.number):
            raise self._is_at_another_commit(now.increment.number)
        last = self.last
        if last is not None and now.increment.end == last.end and not now.increment.gaps:
            self.plan = now
            self._is_complete = self._was_complete = True
            self._mark_complete()
            return
        require_accepted(self._accepted, now.increment, (), self._target.shown)
        # A job that waits for `_SUCCESS` must not take files of an open run for rows of the table.
        self._target.remove(SUCCESS)
        self._begin(now)

    def _continues(self, now: Plan, sizes: dict[str, int]) -> bool:
        """Continue the plan of an interrupted run; if that is impossible, remove its files."""
        place = f"{self._target.shown}/{PLAN}"
        plan = Plan.from_bytes(self._target.read(PLAN) or b"", place)
        number = 0 if self.last is None else self.last.number + 1
        if plan.increment is None or plan.increment.number not in (number - 1, number):
            raise CorruptDataError("This is not the plan of the next commit.", path=place)
        if plan.increment.number < number:  # it was committed, and nothing was left but clearing up
            self._clear_up(sizes)
            return False
        require_same_options(plan.options, self._asked, self._target.shown)
        is_same = (plan.columns, plan.schema) == (now.columns, now.schema)
        # Below, the plan is discarded for this, unless Delta has already taken its files.
        if not is_same:
            now, self._columns = replace(now, columns=plan.columns), ColumnChanges()
        require_own(plan, now, self._asked.writing.suffix, place)
        self.plan = plan
        is_committed = self._is_in_delta(number)
        is_asked = is_same and plan.options["paths"] == list(self._asked.paths)
        if is_committed or (is_asked and _can_be_read(plan)):
            # Delta's log names the files of this plan, so no other plan can take its place.
            self._take_entries(sizes)
            if is_committed and self.missing:
                raise CorruptDataError(
                    "Files of the last commit of the Delta table are missing.",
                    path=f"{self._target.shown}/{self.missing[0].file}",
                )
            self.is_continued = True
            return True
        self._discard(plan)
        return False

    def _is_in_delta(self, number: int) -> bool:
        """Return whether the Delta table already has this commit.

        Raises:
            CorruptDataError: it is at another commit.
        """
        if self._delta is None:
            return False
        found = delta_commit(self._target.shown)
        if found not in (number, number - 1 if number else None):
            raise self._is_at_another_commit(found)
        return found == number

    def _is_at_another_commit(self, found: int | None) -> CorruptDataError:
        here = "none" if self.last is None else self.last.number
        return CorruptDataError(
            f"The last commit of the Delta table is {'none' if found is None else found}, "
            f"and that in {COMMITS} is {here}.",
            path=self._target.shown,
            hint="Was one of them restored? Export into another directory.",
        )

    def _can_discard(self) -> bool:
        assert self.plan.increment is not None, "it was asked for"
        return not self._is_in_delta(self.plan.increment.number)

    def _discard(self, plan: Plan) -> None:
        super()._discard(plan)
        # The commits before are whole again.
        if self.last is not None:
            self._mark_complete()

    # The work --------------------------------------------------------------------------------

    def _finish(self) -> None:
        increment = self.plan.increment
        assert increment is not None, "it was asked for"
        parts = self.summary().parts
        increment = with_damage(increment, parts, self.plan.parts)
        # Once Delta's log names the files, readers may have them: they are not taken back.
        if self._can_discard():
            try:
                require_accepted(self._accepted, increment, parts, self._target.shown)
            except RefusedError:
                self._discard(self.plan)
                raise
        self._require_all_parts()
        self.plan = replace(self.plan, increment=increment)
        # Delta first, the commit file last: a run that finds no commit file asks Delta's log
        # whether this step was done, and repeats only what it lacks.
        if self._delta is not None:
            if not self._is_in_delta(increment.number):
                append_delta(self._target.shown, self._delta, parts, increment)
            commit_rejects(self._target.shown, parts, increment)
        more = {"increment": asdict(increment), "schema": self.plan.schema}
        self._conclude(commit_name(increment.number), more)


def require_accepted(
    accepted: Accepted, increment: Increment, parts: Iterable[ExportedPart], place: str
) -> None:
    """Check that a table lacks nothing else with an increment, and the parts read so far.

    Raises:
        RefusedError: it does.
    """
    if not accepted.gaps:
        _refuse_gaps([one for one in increment.gaps if not one.is_damage], place)
        for defect in (one for part in parts for one in part.defects):
            if defect.reference == DELETED:  # between the plan and the reading
                raise RefusedError(defect.detail, path=defect.path, hint=_ALLOW.format("gaps"))
    if not accepted.damage:
        _refuse_damage([one for one in increment.gaps if one.is_damage], place)


def _refuse_gaps(gaps: Sequence[Gap], place: str) -> None:
    if gaps:
        hint = _ALLOW.format("gaps")
        raise RefusedError(
            f"Records are gone that no run has exported. {_shown(gaps)}",
            path=place,
            hint=f"{_MOVED} {hint}" if any(one.reason == LossReason.GONE for one in gaps) else hint,
        )


def _refuse_damage(gaps: Sequence[Gap], place: str) -> None:
    if gaps:
        raise RefusedError(
            f"Damage hides records that no run has exported. {_shown(gaps)}",
            path=place,
            hint=f"{_REPAIR} {_ALLOW.format('damage')}",
        )


def _shown(gaps: Sequence[Gap]) -> str:
    shown = [
        f"{one.topic}-{one.partition}"
        + (f", offsets {one.offsets}: " if one.is_damage else ": ")
        + one.detail
        for one in gaps[:_SHOWN_MAX]
    ]
    more = len(gaps) - len(shown)
    return " ".join([*shown, f"And {more} more."] if more else shown)


def _can_be_read(plan: Plan) -> bool:
    """Return whether the rows of a plan can still be read: files may grow, or be replaced."""
    seen = [split.seen for part in plan.parts for split in part.splits]
    try:
        # A split that notes what it saw may be read from a file that has grown or was replaced.
        if any(one is None for one in seen):
            require_unchanged(plan)
        for one in seen:
            if one is not None:
                one.require()
    except (ChangedSinceError, NotFoundError, UnreadableError):
        return False
    return True
