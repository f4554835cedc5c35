"""The rejects of an Iceberg table, in a table next to it whose name ends with `_rejects`.

The snapshot of the table itself decides. It names the run that has added it, and the files with the
rejects of that run. A snapshot of the rejects follows, and names the run, too: the next run adds it
if it is missing. If the table was rolled back to before a run, the rejects of that run are rolled
back, too.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.table.snapshots import ancestors_of
from pyiceberg.table.update.snapshot import ManageSnapshots

from kafkalog.change.lake.iceberg import TRIES, WAIT_S, IcebergTable
from kafkalog.change.lake.iceberg_commits import COMMIT, once
from kafkalog.change.lake.iceberg_files import data_file
from kafkalog.change.lake.model import REJECTS
from kafkalog.change.lake.rejects import table_schema
from kafkalog.errors import (
    ChangedSinceError,
    CorruptDataError,
    DestinationExistsError,
    UnwritableError,
)
from kafkalog.io.documents import Anything, Fields, Items, Number, read_document

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyiceberg.table import Table, Transaction
    from pyiceberg.table.snapshots import Snapshot

_RUN: Final = "kafkalog.run"
_FILES: Final = "kafkalog.rejects"
_NOTED: Final = Fields({"spec": Number(), "files": Items(Anything())})


def have_rejects(table: Table | None) -> bool:
    """Return whether runs have noted rejects in an Iceberg table."""
    if table is None:
        return False
    noted = [table.properties, *(_noted(one) for one in table.metadata.snapshots)]
    return any(_FILES in one for one in noted)


class RejectsTable:
    """The rejects of a table, in a table which may not exist yet.

    Args:
        of: the table.
        properties: the catalog's, as for `IcebergTable`.
    """

    def __init__(self, of: IcebergTable, properties: Mapping[str, str]) -> None:
        self._of = of
        self._own = IcebergTable(f"{of.shown}{REJECTS}", properties)
        self.shown = self._own.shown
        self.close = self._own.close
        self.require_files = self._own.require_files
        self.remove = self._own.remove

    def of_tasks(self) -> dict[str, Any]:
        """Create the table unless it exists; return what `write_data_files` must know about it.

        Raises:
            DestinationExistsError: it has other columns than tables of rejects.
            UnwritableError: it cannot be created.
        """
        self._create()
        changes = self._own.evolve(table_schema()).changes
        if changes.added or changes.widened:
            raise DestinationExistsError(
                f"This is not a table of rejects: it lacks {', '.join(changes.added)}."
                if changes.added
                else "This is not a table of rejects: its columns have other types.",
                path=self.shown,
                hint="Rename it.",
            )
        return self._own.of_tasks()

    def notes(self, run: str, files: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        """Return what the snapshot of the table says about a run and its rejects."""
        if self._own.table is None:
            return {_RUN: run}
        spec = self._own.table.spec().spec_id
        noted = json.dumps({"spec": spec, "files": list(files)}, separators=(",", ":"))
        return {_RUN: run, _FILES: noted}

    def settle(self) -> None:
        """Give the rejects the runs that the table has: add the last one, set back what it lacks.

        On disk after a crash: the rejects before, or after one of these.

        Raises:
            ChangedSinceError: other programs change the rejects all the time.
            CorruptDataError: the table was set back, and the rejects cannot be.
            UncertainError: the catalog did not say whether a commit has succeeded.
        """
        failed = 0
        for _ in range(TRIES):
            time.sleep(WAIT_S * failed)
            # In this order: a run is in the table before its rejects are in theirs.
            self._own.load()
            self._of.load()
            with self._own.failing(UnwritableError, "changed"):
                change = self._change()
            if change is None:
                return
            failed += not self._own.is_made(*change)
        raise ChangedSinceError(
            "Other programs change the table all the time.",
            path=self.shown,
            hint="Repeat the command.",
            is_temporary=True,
        )

    def _create(self) -> None:
        """Create the table unless it exists, with a first snapshot to which it can be set back."""
        if self._own.table is None:
            self._own.create(table_schema())
        table = self._own.table
        assert table is not None, "it was created"
        if table.current_snapshot() is None:
            with self._own.failing(UnwritableError, "created"):
                change = once(table)
                first = change.update_snapshot().fast_append()
                first.commit()
            self._own.is_made(change, first.snapshot_id)  # if not, another run has just done it
            self._own.load()

    def _change(self) -> tuple[Transaction, int] | None:
        """Return a change that is missing, and the snapshot that it leads to; None if none is."""
        if self._of.table is None:
            return None
        last, runs = _last(self._of.table), _Runs(self._of.table)
        spec, files = (0, []) if runs.lack(last) else self._files(last)
        if self._own.table is None and files:
            self._create()
        table = self._own.table
        if table is None:
            return None
        known = list(ancestors_of(table.current_snapshot(), table.metadata))
        void = [at for at, one in enumerate(known) if runs.lack(_noted(one))]
        if void:
            return self._set_back(table, known[void[-1] + 1 :])
        present = {table.properties.get(_RUN), *(_noted(one).get(_RUN) for one in known)}
        if not files or last[_RUN] in present:
            return None
        if table.spec().spec_id != spec:
            raise ChangedSinceError(
                "The partitions of the table were changed before the last rejects came into it.",
                path=self.shown,
                hint=f"Drop it: the property {_FILES} of {self._of.shown} names their files.",
            )
        change = once(table)
        noted = {_RUN: last[_RUN], COMMIT: last[COMMIT]}
        adding = change.update_snapshot(snapshot_properties=noted).fast_append()
        for one in files:
            adding.append_data_file(data_file(one, spec))
        adding.commit()
        change.set_properties({_RUN: last[_RUN]})
        return change, adding.snapshot_id

    def _files(self, last: Mapping[str, str]) -> tuple[int, list[dict[str, Any]]]:
        """Return the partitions and the files of the last run's rejects."""
        if not last.get(_FILES) or _RUN not in last or COMMIT not in last:
            return 0, []
        found = read_document(last[_FILES], _NOTED, self._of.shown, "what an export notes")
        return found["spec"], found["files"]

    def _set_back(self, table: Table, kept: Sequence[Snapshot]) -> tuple[Transaction, int]:
        """Return a change that makes the first of these snapshots the present one."""
        if not kept:
            raise CorruptDataError(
                f"{self._of.shown} was set back, and the snapshot before its last rejects has "
                "expired.",
                path=self.shown,
                hint="Drop the table of rejects.",
            )
        runs = [_noted(one)[_RUN] for one in kept if _RUN in _noted(one)]
        change = once(table)
        ManageSnapshots(change).rollback_to_snapshot(kept[0].snapshot_id)
        change.set_properties({_RUN: runs[0] if runs else ""})
        return change, kept[0].snapshot_id


class _Runs:
    """The runs that a table has had, by what its snapshots say."""

    def __init__(self, table: Table) -> None:
        history = ancestors_of(table.current_snapshot(), table.metadata)
        self._has = _runs_of(history)
        self._had = _runs_of(table.metadata.snapshots)
        self._number = int(_last(table).get(COMMIT, "-1"))

    def lack(self, noted: Mapping[str, str]) -> bool:
        """Return whether the table was rolled back to before a run that has left this note."""
        run = noted.get(_RUN)
        if run is None or run in self._has:
            return False
        return run in self._had or int(noted.get(COMMIT, "0")) > self._number


def _runs_of(snapshots: Iterable[Snapshot]) -> set[str]:
    return {noted[_RUN] for one in snapshots if _RUN in (noted := _noted(one))}


def _last(table: Table) -> Mapping[str, str]:
    """Return what the last run has noted, in its snapshot, or in the properties if that expired."""
    for one in ancestors_of(table.current_snapshot(), table.metadata):
        if COMMIT in _noted(one):
            return _noted(one)
    return table.properties


def _noted(snapshot: Snapshot) -> Mapping[str, str]:
    return {} if snapshot.summary is None else snapshot.summary.additional_properties
