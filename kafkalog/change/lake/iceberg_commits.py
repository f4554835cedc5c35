"""Commits to an Iceberg table, tried once and believed only after a look; what a commit notes."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, cast

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import CommitTableResponse
from pyiceberg.table.update import AddSnapshotUpdate

from kafkalog.log.defects import DELETED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table, Transaction
    from pyiceberg.table.update import TableRequirement, TableUpdate

    from kafkalog.change.lake.model import Increment
    from kafkalog.log.typed.remarks import Remark
    from kafkalog.model import Defect

COMMIT: Final = "kafkalog.commit"
"""The number of a run, in the snapshot that it has added."""
DEFECTS: Final = "kafkalog.defects"
LOSSES: Final = "kafkalog.losses"
REMARKS: Final = "kafkalog.remarks"
INCREMENT_PROPERTY: Final = "kafkalog.increment"
_NO_RETRIES: Final = {"commit.retry.num-retries": "0"}
_DEFECTS_SAID: Final = 1000


def once(table: Table) -> Transaction:
    """Begin a transaction that is tried once; pyiceberg would try again on top of other changes."""
    # In memory only: the properties of the stored table stay.
    table.metadata = table.metadata.model_copy(
        update={"properties": {**table.properties, **_NO_RETRIES}}
    )
    table.catalog = cast("Catalog", _DoubtingCatalog(table.catalog))
    return table.transaction()


class _DoubtingCatalog:
    """A catalog whose refusal of a commit counts only if the table lacks the snapshot.

    Clients of AWS, and gateways, repeat a call whose answer was lost. The second call is refused
    because of the first one, and pyiceberg would remove the manifests that the table has now.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> CommitTableResponse:  # fmt: skip
        try:
            return self._catalog.commit_table(table, requirements, updates)
        except CommitFailedException:
            now = self._catalog.load_table(table.name())
            added = [one.snapshot for one in updates if isinstance(one, AddSnapshotUpdate)]
            if not added or not all(now.snapshot_by_id(one.snapshot_id) for one in added):
                raise
            fields = {"metadata": now.metadata, "metadata-location": now.metadata_location}
            return CommitTableResponse.model_validate(fields)


def notes_of(increment: Increment, defects: Sequence[Defect]) -> dict[str, str]:
    """Return what a snapshot says about the run that has added it."""
    said = {COMMIT: str(increment.number), INCREMENT_PROPERTY: _json(asdict(increment))}
    if defects:
        # Deletions first: these offsets are missing between those of the increment.
        ordered = sorted(defects, key=lambda one: one.reference != DELETED)[:_DEFECTS_SAID]
        fields = [
            {name: value for name, value in asdict(one).items() if value is not None}
            for one in ordered
        ]
        said[DEFECTS] = _json(fields)
    return said


def notes_of_values(
    remarks: Sequence[Remark], losses: Mapping[str, Mapping[str, int]]
) -> dict[str, str]:
    """Return what a snapshot says about typed columns, if there is something."""
    said = {REMARKS: [asdict(one) for one in remarks[:_DEFECTS_SAID]], LOSSES: losses}
    return {name: _json(value) for name, value in said.items() if value}


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
