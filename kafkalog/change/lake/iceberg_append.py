"""A run that adds to an Iceberg table: its files are written, then named by one commit."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

from kafkalog.change.lake.append import require_accepted
from kafkalog.change.lake.iceberg import IcebergTable
from kafkalog.change.lake.iceberg_columns import iceberg_schema
from kafkalog.change.lake.iceberg_commits import notes_of_values
from kafkalog.change.lake.iceberg_files import write_data_files
from kafkalog.change.lake.iceberg_rejects import RejectsTable, have_rejects
from kafkalog.change.lake.increments import with_damage
from kafkalog.change.lake.model import NOTHING_ACCEPTED, ColumnChanges, ExportedPart, ExportSummary
from kafkalog.change.lake.of_type import columns_of, planned_in
from kafkalog.change.lake.part import rows_schema, with_path_columns
from kafkalog.change.lake.plan import tasks_of
from kafkalog.change.lake.rejects import require_few
from kafkalog.change.lake.run_types import TableColumns, decoded_names, with_types
from kafkalog.errors import Listener
from kafkalog.io.engine import told_error
from kafkalog.io.paths.file_system import absolute
from kafkalog.io.paths.uris import is_object
from kafkalog.io.storage import require_outside

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalog.change.lake.model import Accepted, ExportRequest
    from kafkalog.change.lake.of_type import Turn
    from kafkalog.change.lake.plan import Plan
    from kafkalog.io.engine import Engine


class IcebergAppend:
    """A run that adds to an Iceberg table what is new in the logs; use it as a context manager.

    Args:
        to: `CATALOG.NAMESPACE.TABLE`.
        fail_fast: as for `Export`.
        allow_gaps, allow_damage: as for `Append`.
        catalog: properties of the catalog, as for `IcebergTable`.
        max_rejects: how many records may not decode; they go to the table of rejects.
        listener, turn: as for `Append`.

    Attributes:
        last: the last increment of the table, once it is entered; None without one.
        schema: the `pyarrow.Schema` of the rows, once it is entered.
        is_continued: False: there is nothing of a killed run to continue.

    Raises:
        RefusedError: as `Append`.
        ChangedSinceError: another run has added to the table.
        as `IcebergTable` and `make_plan`.

    On disk after a crash: the table before, or after the commit; and perhaps files that are in no
    snapshot, and that no reader sees.
    """

    is_continued = False

    def __init__(
        self, asked: ExportRequest, to: str, *, fail_fast: bool = False,
        accepted: Accepted = NOTHING_ACCEPTED, catalog: Mapping[str, str] | None = None,
        listener: Listener | None = None, turn: Turn | None = None,
    ) -> None:  # fmt: skip
        self._asked = replace(asked, paths=tuple(absolute(path) for path in asked.paths))
        self._fail_fast = fail_fast
        self._accepted = accepted
        self._listener = listener or Listener()
        self._turn = turn
        self._table = IcebergTable(to, catalog or {})
        self._catalog = catalog or {}
        self._rejects: RejectsTable | None = None
        self._parts: list[ExportedPart] = []
        self._files: list[dict[str, Any]] = []
        self._rejected: list[dict[str, Any]] = []
        self._was_complete = False
        self._columns = ColumnChanges()

    def __enter__(self) -> Self:
        sources = [path for path in self._asked.paths if not is_object(path)]
        if self._table.place is not None:
            require_outside(self._table.place, sources)
        if self._asked.sources or have_rejects(self._table.table):
            self._rejects = RejectsTable(self._table, self._catalog)
            self._rejects.settle()
        self.last = self._table.last(self._asked)
        self.plan = self._planned()
        now = self.plan.increment
        assert now is not None, "it was asked for"
        rows = rows_schema(self._asked, self.plan.columns)
        self.schema = with_path_columns(self._asked, rows)
        iceberg_schema(self.schema)
        if self._table.table is not None:
            typed, of_type = self._asked.typed, self._asked.of_type
            decoded = decoded_names(columns_of(typed, of_type))
            evolution = self._table.evolve(self.schema, decoded)
            self._columns = evolution.changes
            remarks = TableColumns(typed, evolution.schema, of_type).remarks
            self.plan = replace(self.plan, remarks=(*remarks, *evolution.remarks))
        if self.last is not None and now.end == self.last.end and not now.gaps:
            self._was_complete = True
        else:
            require_accepted(self._accepted, now, (), self._table.shown)
        return self

    def planned(self) -> Plan:
        """Return the plan of what is new; nothing is written."""
        try:
            self.last = self._table.last(self._asked)
            return self._planned()
        finally:
            self._table.close()

    def _planned(self) -> Plan:
        plan = planned_in(self._turn, self._asked, self._listener, self.last)
        before = self._table.typed_columns()
        self._asked, plan = with_types(self._asked, plan, before, self._table.shown)
        return plan

    def __exit__(self, *_: object) -> None:
        """Remove files that are in no snapshot, and end the connections; no lock is held."""
        self.discard()  # readers never see them, but disks do
        self._table.close()
        if self._rejects is not None:
            self._rejects.close()

    def run(self, engine: Engine | None) -> None:
        """Write the files, then commit them.

        Raises:
            as `Export.run`.
        """
        self.write(engine)
        self.finish()

    def write(self, engine: Engine | None) -> None:
        """Write the files. Arguments and errors are those of `run`."""
        if self._was_complete:
            return
        if self._table.table is None:
            self._table.create(self.schema)
            self._table.evolve(self.schema)
        increment = self.plan.increment
        assert increment is not None, "it was asked for"
        self._run = f"commit{increment.number:08d}-{uuid4().hex[:8]}"
        self._write(engine)
        increment = with_damage(increment, self._parts, self.plan.parts)
        require_accepted(self._accepted, increment, self._parts, self._table.shown)
        require_few(self._parts, self._accepted.rejects)
        self.plan = replace(self.plan, increment=increment)

    def finish(self) -> None:
        """Commit the files that are written. Raises as `run`."""
        if self._was_complete:
            return
        increment = self.plan.increment
        assert increment is not None, "it was asked for"
        self._require_files()
        defects = [one for part in self._parts for one in part.defects]
        notes = {} if self._rejects is None else self._rejects.notes(self._run, self._rejected)
        notes |= notes_of_values(self.plan.remarks, self.summary().losses)
        self._table.commit(self._files, self._asked, self.last, increment, defects, notes)
        if self._rejects is not None:
            self._rejects.settle()

    def discard(self) -> None:
        """Remove the files of the run, unless a snapshot may name them."""
        if self._table.may_have_committed:
            return
        self._table.remove([one["file_path"] for one in self._files])
        if self._rejects is not None:
            self._rejects.remove([one["file_path"] for one in self._rejected])

    def _require_files(self) -> None:
        """Raise unless this process sees the files that tasks have written."""
        self._table.require_files(map(_sized, self._files))
        if self._rejects is not None and self._rejected:
            self._rejects.require_files(map(_sized, self._rejected))

    def _write(self, engine: Engine | None) -> None:
        common = {
            **self._table.of_tasks(),
            "name": self._run,
            "rejects": {**self._rejects.of_tasks(), "name": self._run}
            if self._rejects is not None and self._accepted.rejects
            else None,
            "columns": list(self.plan.columns),
            "typed": self.plan.options["typed"],
            "of_type": self._asked.of_type,
            "writing": json.loads(json.dumps(self.plan.options["writing"])),
            "fail_fast": self._fail_fast,
            "max_rejects": self._accepted.rejects,
        }
        typed = json.loads(json.dumps(common["typed"]))
        split_bytes = self._asked.request.split_bytes
        tasks = tasks_of(self.plan.parts, split_bytes, {**common, "typed": typed})
        failures = []
        if tasks:
            assert engine is not None, "something is new"
            for _, result in engine.run(write_data_files, tasks):
                self._files += result["files"]
                self._rejected += result["rejects"]
                self._parts += [ExportedPart.from_json(one) for one in result["parts"]]
                failures += result["failures"]
        self._parts.sort(key=lambda part: (part.number, part.file or ""))
        if failures:
            error = told_error(failures[0])
            error.note = f"{len(failures)} of {len(self.plan.parts)} parts failed: no commit."
            raise error

    def summary(self) -> ExportSummary:
        parts = tuple(self._parts)
        return ExportSummary(
            self._table.shown, parts, len(parts), self._was_complete, 0, self.plan.left_out,
            self.plan.increment, ColumnChanges() if self._was_complete else self._columns,
            "" if self._rejects is None else self._rejects.shown, self.plan.ends,
            self.plan.size_bytes, self.plan.remarks,
        )  # fmt: skip

    @property
    def is_idle(self) -> bool:
        """Whether nothing is new."""
        return self._was_complete

    @property
    def destination(self) -> str:
        """`iceberg://CATALOG/NAMESPACE.TABLE`."""
        catalog, _, table = self._table.shown.partition(".")
        return f"iceberg://{catalog}/{table}"


def _sized(file: Mapping[str, Any]) -> tuple[str, int]:
    return file["file_path"], file["file_size_in_bytes"]
