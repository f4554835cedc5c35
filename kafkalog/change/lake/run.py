"""An export from its plan to its manifest; an interrupted export resumes where it stopped."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Self

from kafkalog.change.lake.delta_log import commit_delta, delta_schema
from kafkalog.change.lake.evolution import schema_text
from kafkalog.change.lake.model import (
    MANIFEST,
    NOTHING_ACCEPTED,
    OWN,
    PARTS,
    PLAN,
    SUCCESS,
    ColumnChanges,
    ExportedPart,
    ExportRequest,
    ExportSummary,
    TableFormat,
    commit_name,
)
from kafkalog.change.lake.options import options_of, require_same_options
from kafkalog.change.lake.part import column_types, rows_schema, with_path_columns, write_parts
from kafkalog.change.lake.plan import Plan, make_plan, require_own, require_unchanged, tasks_of
from kafkalog.change.lake.rejects import (
    commit_rejects,
    outputs,
    rejects_name,
    rejects_place,
    require_few,
)
from kafkalog.change.lake.run_types import with_types
from kafkalog.change.lake.targets import LocalTarget, open_target
from kafkalog.errors import (
    ChangedSinceError,
    CorruptDataError,
    DestinationExistsError,
    Listener,
    RefusedError,
    UnreadableError,
    UsageError,
)
from kafkalog.io.documents import Anything, Fields, Items, Text, read_document, schema_of
from kafkalog.io.engine import told_error
from kafkalog.io.paths.file_system import absolute, portable
from kafkalog.io.paths.uris import is_object
from kafkalog.io.storage import require_outside
from kafkalog.log.defects import corrupt_data
from kafkalog.tables import announced
from kafkalog.tables.listeners import COPIED, MISSING

if TYPE_CHECKING:
    from kafkalog.change.lake.model import Accepted, ExportRequest, Increment
    from kafkalog.change.lake.of_type import Turn
    from kafkalog.change.lake.plan import Part
    from kafkalog.io.engine import Engine

PART = schema_of(ExportedPart, optional=("rejects",))
_ENTRY = Fields({"plan": Text(), "parts": Items(PART)})
_MANIFEST = Fields(
    {"options": Anything(), "parts": Items(PART), "plan": Text()}, others=Anything()
)  # the rest is for readers


class Export:
    """An export into a destination; use it as a context manager, which excludes other runs.

    Args:
        to: a local directory, or a URI of an object store.
        fail_fast: whether damage ends the export; otherwise it is skipped and reported.
        accepted: what the table may lack.
        listener: hears of views that differ from files, of offsets that are missing between
            segments, and of partitions that cannot be read: the export is written without these,
            and is not complete.
        turn: what it has in common with the tables of other types of a topic.

    Attributes:
        plan: the plan; an interrupted export keeps the plan that it started with.
        missing: the parts still to be written.
        last: of an appending run the last increment of the table, once it is entered.
        is_continued: whether an appending run completes the plan of an interrupted one; then
            another run adds what has come since.

    Raises:
        DestinationExistsError: something else is there, or another run is writing it.
        ChangedSinceError: the logs changed since the export was started, or finished.
        CorruptDataError: with `fail_fast`, an earlier run has skipped damage.
        UsageError: as `make_plan`, or the destination lies in a source.
        UnwritableError, UnreadableError: the destination cannot be written or read.

    On disk after a crash: files of the plan, each whole or not at all, and below `_kafkalog` the
    plan and entries of files; the manifest and `_SUCCESS`, in that order, once all files
    exist. The next run removes half-written files.
    """

    last: Increment | None = None
    is_continued = False

    def __init__(
        self, asked: ExportRequest, to: str, *, fail_fast: bool = False,
        accepted: Accepted = NOTHING_ACCEPTED, listener: Listener | None = None,
        turn: Turn | None = None,
    ) -> None:  # fmt: skip
        sources = [absolute(path) for path in asked.paths]
        self._asked = replace(asked, paths=tuple(sources))
        self._to = portable(to)  # tasks have other working directories
        self._fail_fast = fail_fast
        self._accepted = accepted
        self._listener = listener or Listener()
        self._turn = turn
        self._target = open_target(to)
        if isinstance(self._target, LocalTarget):
            require_outside(self._target.shown, (path for path in sources if not is_object(path)))
        elif asked.table_format == TableFormat.DELTA:
            raise UsageError(
                "Delta tables are written to local directories.",
                path=self._target.shown,
                hint="Write it locally and copy it, _delta_log last.",
            )
        elif any(f"{self._target.shown}/".startswith(f"{path}/") for path in sources):
            raise UsageError(
                "The destination lies inside the source.",
                path=self._target.shown,
                hint="Choose another prefix.",
            )
        self._delta: Any = None
        self._columns = ColumnChanges()
        self._swept = 0
        self._written = 0
        self._was_complete = False
        self._found: dict[int, ExportedPart] = {}
        self._is_complete = False

    def __enter__(self) -> Self:
        self._refuse_what_is_not_ours()
        now = self._plan()
        if self._asked.table_format == TableFormat.DELTA:
            # What deltalake refuses is refused before anything is written.
            self._delta = delta_schema(self._target.shown, self._table_schema(now))
        with ExitStack() as held:
            held.enter_context(self._target.locked())
            self._take_up(now)
            self._held = held.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def planned(self) -> Plan:
        """Return the plan that a run would make now; nothing is written. Raises as the run."""
        self._refuse_what_is_not_ours()
        return self._plan()

    @property
    def has_ended(self) -> bool:
        """Whether an export is complete there, as far as that is known without a plan."""
        return self._target.has(SUCCESS)

    @property
    def missing(self) -> list[Part]:
        return [part for part in self.plan.parts if part.number not in self._found]

    def run(self, engine: Engine | None) -> None:
        """Write the missing parts, then the manifest.

        Args:
            engine: runs the tasks; None if nothing is missing.

        Raises:
            CorruptDataError: something is damaged, with `fail_fast`.
            RefusedError: too many records do not decode. The files of the run are removed.
            InternalError: kafkalog itself failed on some parts; the others are written.
            KafkaLogError: raised by `write_parts`.
        """
        self.write(engine)
        self.finish()

    def write(self, engine: Engine | None) -> None:
        """Write the missing parts. Arguments and errors are those of `run`."""
        if self._is_complete:
            return
        try:
            self._write(engine)
        except RefusedError:
            self.discard()
            raise

    def finish(self) -> None:
        """Make what is written the table, or part of it. Raises as `run`."""
        if not self._is_complete:
            self._finish()

    def discard(self) -> None:
        """Remove the files of the run, unless a reader was promised them."""
        if not self._is_complete and self._can_discard():
            self._discard(self.plan)

    def _write(self, engine: Engine | None) -> None:
        tasks = self._tasks()
        if tasks:
            assert engine is not None, "something is missing"
            failures = []
            splits = [split for part in self.missing for split in part.splits]
            with announced(splits if engine.is_here else ()):
                for _, result in engine.run(write_parts, tasks):
                    for fields in result["parts"]:
                        part = ExportedPart.from_json(fields)
                        self._found[part.number] = part
                        self._written += 1
                    failures += result["failures"]
            if failures:
                error = told_error(failures[0])
                error.note = (
                    f"{len(failures)} of {len(self.plan.parts)} parts failed, the others are "
                    "written. Given again, the export writes what is missing."
                )
                raise error
        if self._can_discard():
            require_few(self._found.values(), self._accepted.rejects)

    def summary(self) -> ExportSummary:
        parts = tuple(self._found[number] for number in sorted(self._found))
        return ExportSummary(
            self._target.shown, parts, self._written, self._was_complete, self._swept,
            self.plan.left_out, self.plan.increment,
            ColumnChanges() if self._was_complete else self._columns,
            rejects_place(self._target.shown), self.plan.ends, self.plan.size_bytes,
            self.plan.remarks,
        )  # fmt: skip

    @property
    def is_idle(self) -> bool:
        """Whether it is an appending run for which nothing is new."""
        return self._asked.append and self._was_complete

    @property
    def destination(self) -> str:
        """The destination, without credentials."""
        return self._target.shown

    @property
    def schema(self) -> Any:
        """The `pyarrow.Schema` of the table, with topic and partition last."""
        return self._table_schema(self.plan)

    # The destination -------------------------------------------------------------------------

    def _plan(self) -> Plan:
        if self._turn is None:
            plan = make_plan(self._asked, self._listener)
        else:
            plan = replace(self._turn.plan, options=options_of(self._asked))
        self._asked, plan = with_types(self._asked, plan, (), self._target.shown)
        return plan

    def _file_schema(self, plan: Plan) -> Any:
        return rows_schema(self._asked, plan.columns)

    def _table_schema(self, plan: Plan) -> Any:
        """Return that of the whole table, with the columns in paths last."""
        return with_path_columns(self._asked, self._file_schema(plan))

    def _refuse_what_is_not_ours(self) -> None:
        """Raise unless the destination is empty, or holds an export of this kind."""
        names = self._target.sizes()
        if names and not any(name.startswith(f"{OWN}/") for name in names):
            raise self._is_something_else()
        if (commit_name(0) in names) > self._asked.append:
            raise DestinationExistsError(
                "The directory holds a table that grows run by run.",
                path=self._target.shown,
                hint="Add what is new with --append, or choose another directory.",
            )

    def _is_something_else(self) -> DestinationExistsError:
        return DestinationExistsError(
            "It exists, and is not an export of kafkalog.",
            path=self._target.shown,
            hint="Choose another directory, or empty it.",
        )

    def _take_up(self, now: Plan) -> None:
        """Examine the destination; write the plan if it is missing."""
        self._swept = self._target.sweep()
        sizes = self._target.sizes()
        # With a plan and without `_SUCCESS`, a run died between the manifest and the end: its plan
        # completes it.
        if MANIFEST in sizes and (SUCCESS in sizes or PLAN not in sizes):
            self._take_complete(now, sizes)
        elif PLAN in sizes:
            self._take_interrupted(now, sizes)
        elif any(not name.startswith(f"{OWN}/") for name in sizes):
            raise self._is_something_else()
        else:
            self._begin(now)
        self._stop_at_known_damage()

    def _begin(self, plan: Plan) -> None:
        self.plan = plan
        with self._target.create(PLAN) as file:
            file.write(plan.as_bytes())

    def _take_interrupted(self, now: Plan, sizes: dict[str, int]) -> None:
        """Resume the existing plan, after the parts that are complete."""
        place = f"{self._target.shown}/{PLAN}"
        self.plan = Plan.from_bytes(self._target.read(PLAN) or b"", place)
        require_same_options(self.plan.options, self._asked, self._target.shown)
        require_own(self.plan, now, self._asked.writing.suffix, place)
        require_unchanged(self.plan)
        if self.plan.lacking and self.plan.lacking != now.lacking:
            self._discard(self.plan)
            self._begin(now)
        self._take_entries(sizes)

    def _take_entries(self, sizes: dict[str, int]) -> None:
        for name in sizes:
            if name.startswith(f"{PARTS}/"):
                for one in self._entry(name):
                    if self._is_there(one, sizes):
                        self._found[one.number] = one

    def _take_complete(self, now: Plan, sizes: dict[str, int]) -> None:
        """Verify a complete export, and write removed files again."""
        place = f"{self._target.shown}/{MANIFEST}"
        manifest = read_document(
            self._target.read(MANIFEST) or b"", _MANIFEST, place, "a manifest of an export"
        )
        require_same_options(manifest["options"], self._asked, self._target.shown)
        parts = [ExportedPart.from_json(one) for one in manifest["parts"]]
        if manifest["plan"] != now.id:
            raise ChangedSinceError(
                "The logs have changed since this export was made.",
                path=self._target.shown,
                hint="Export them into another directory; with --from-offset what is new: the "
                f"last offsets are in {MANIFEST}.",
            )
        self.plan = now
        files = {part.number: part.file for part in now.parts}
        self._found = {
            part.number: part
            for part in parts
            if part.number in files
            and part.file in (None, files[part.number])
            and all(sizes.get(name) == size for name, size, _ in outputs(part))
        }
        self._is_complete = self._was_complete = SUCCESS in sizes and not self.missing
        if self._is_complete:
            self._clear_up(sizes)  # a crash after `_SUCCESS` leaves the plan
        else:
            # Files are missing that it promises.
            self._target.remove(SUCCESS)

    def _entry(self, name: str) -> list[ExportedPart]:
        """Return the parts of an entry of this plan; none if it has to be written again."""
        try:
            data = self._target.read(name) or b""
            fields = read_document(data, _ENTRY, name, "an entry of an export")
        except CorruptDataError:
            return []
        is_own = fields["plan"] == self.plan.id
        return [ExportedPart.from_json(one) for one in fields["parts"] if is_own]

    def _is_there(self, entry: ExportedPart, sizes: dict[str, int]) -> bool:
        """Return whether a part of the plan has its files, as they were written."""
        if not 0 <= entry.number < len(self.plan.parts):
            return False
        part = self.plan.parts[entry.number]
        if entry.file not in (None, part.file):
            return False
        rejects = rejects_name(part, self._asked.writing)
        if entry.rejects is not None and entry.rejects.file != rejects:
            return False
        return all(
            # None: a store keeps objects whole.
            sizes.get(name) == size and self._target.checksum(name) in (None, crc)
            for name, size, crc in outputs(entry)
        )

    def _stop_at_known_damage(self) -> None:
        if not self._fail_fast:
            return
        for part in self._found.values():
            for defect in part.defects:
                if defect.reference in (COPIED, *MISSING):
                    continue
                raise corrupt_data(defect, note="An earlier run without --fail-fast skipped it.")

    # The work --------------------------------------------------------------------------------

    def _can_discard(self) -> bool:
        """Return whether no reader has been promised these files."""
        return not (self._target.has(MANIFEST) or self._target.has("_delta_log"))

    def _discard(self, plan: Plan) -> None:
        """Remove the files of a plan that is not completed."""
        self._found = {}
        for part in plan.parts:
            self._target.remove(part.file)
            self._target.remove(rejects_name(part, self._asked.writing))
        # The plan goes last: until then it names what is still to be removed.
        self._clear_up(self._target.sizes())

    def _tasks(self) -> list[dict[str, Any]]:
        common = {
            "to": self._to,
            "plan": self.plan.id,
            "columns": list(self.plan.columns),
            "typed": self.plan.options["typed"],
            "of_type": self._asked.of_type,
            "writing": self.plan.options["writing"],
            "schema": schema_text(self._file_schema(self.plan)),
            "fail_fast": self._fail_fast,
            "max_rejects": self._accepted.rejects,
        }
        return tasks_of(self.missing, self._asked.request.split_bytes, common)

    def _finish(self) -> None:
        self._require_all_parts()
        # Before the manifest: a run that finds no manifest finds this table made, and keeps it.
        if self._delta is not None:
            commit_delta(self._target.shown, self._delta, self.summary().parts)
            commit_rejects(self._target.shown, self.summary().parts)
        self._conclude(MANIFEST, {})

    def _conclude(self, name: str, more: dict[str, Any]) -> None:
        """Write what makes the files an export, and remove the plan."""
        summary = self.summary()
        manifest = {
            "version": 1,
            "plan": self.plan.id,
            "table": self.plan.table,
            "columns": column_types(self._asked, self._file_schema(self.plan)),
            "options": self.plan.options,
            **more,
            **({"lacking": self.plan.lacking} if self.plan.lacking else {}),
            "sources": self.plan.sources,
            "rows": summary.rows,
            "size_bytes": summary.size_bytes,
            "undecoded_keys": summary.undecoded_keys,
            "undecoded_values": summary.undecoded_values,
            "rejects": summary.rejects,
            "defects": summary.defect_count,
            "remarks": [asdict(one) for one in summary.remarks],
            "losses": summary.losses,
            **asdict(summary.left_out),
            "parts": [part.as_json() for part in summary.parts],
        }
        # The manifest first: it is complete once `_SUCCESS` is there.
        with self._target.create(name) as file:
            file.write(json.dumps(manifest, indent=1).encode() + b"\n")
        if self.plan.increment is not None or not self.plan.lacking:
            self._mark_complete()
        self._is_complete = True
        self._clear_up(self._target.sizes())

    def _mark_complete(self) -> None:
        with self._target.create(SUCCESS):
            pass

    def _require_all_parts(self) -> None:
        """Raise unless each file is here with the bytes that a task wrote.

        Raises:
            UnreadableError: one is not, for example because a task wrote to its own machine's
                directory.
        """
        sizes = self._target.sizes()
        for name, written, crc in (one for part in self._found.values() for one in outputs(part)):
            size = sizes.get(name)
            if size == written:
                checksum = self._target.checksum(name)
                if checksum in (None, crc):
                    continue
                found = f"its CRC-32C is {checksum:#010x}, not {crc:#010x}"
            else:
                found = "it is missing" if size is None else f"it has {size}"
            raise UnreadableError(
                f"A task wrote {written} bytes, but {found}.",
                path=f"{self._target.shown}/{name}",
                hint="All workers and the driver must see the same directory at this path.",
            )

    def _clear_up(self, sizes: dict[str, int]) -> None:
        """Remove the plan and the entries, whose content is in the manifest."""
        for name in sizes:
            if name == PLAN or name.startswith(f"{PARTS}/"):
                self._target.remove(name)
        self._target.sweep()
