"""A table of one type of a topic: its columns, and the records that it gets.

Each record is in one such table: that of its type, or the one of the records without a type. These
are tombstones, and values that no known schema says a type of, which are rejects.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import numpy as np
import pyarrow as pa

from kafkalog.change.lake.plan import make_plan
from kafkalog.log.typed.columns import typed_column
from kafkalog.log.typed.prefixes import typed_rows, with_prefixes
from kafkalog.log.typed.type_names import names_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalog.change.lake.model import ExportRequest, Increment
    from kafkalog.change.lake.plan import Plan
    from kafkalog.errors import Listener
    from kafkalog.log.typed import TypedColumn
    from kafkalog.log.typed.columns import Undecoded
    from kafkalog.log.typed.several_types import SeveralTypes

NO_TYPE: Final = ""
"""In place of the field of a type: the records that have none."""


@dataclass(frozen=True)
class Turn:
    """What the tables of all types of a topic have in common in a run.

    Attributes:
        plan: the plan of the table of records without a type: the others read the same.
        last: the last increment of that table, before which no record has a type that is new.
    """

    plan: Plan
    last: Increment | None


def planned_in(
    turn: Turn | None, asked: ExportRequest, listener: Listener, last: Increment | None
) -> Plan:
    """Return the plan of an appending run. Raises as `make_plan`.

    Args:
        turn: None if it is not about one type; else it ends where that does.
        last: the last increment of the table; None for a new one.
    """
    if turn is None:
        return make_plan(asked, listener, last)
    if last is None and turn.last is not None:
        last = replace(turn.last, number=-1)  # the first commit has the number 0
    increment = turn.plan.increment
    return make_plan(asked, listener, last, None if increment is None else increment.end)


def columns_of(typed: Iterable[TypedColumn], of_type: str | None) -> tuple[TypedColumn, ...]:
    """Return the typed columns of a table.

    Args:
        typed: those of the topic.
        of_type: as `ExportRequest.of_type`: the fields of the type are columns, if it has any.
    """
    if of_type is None:
        return tuple(typed)
    found = []
    for one in typed:
        if one.source != "value":
            found.append(one)
        elif (of_value := dict(one.types).get(of_type)) is not None:
            has_fields = pa.types.is_struct(of_value.decoder().type)
            found.append(replace(of_value, is_flat=has_fields))
    return tuple(found)


class Chosen(NamedTuple):
    """The records of a batch that a table gets.

    Attributes:
        batch: the `pyarrow.RecordBatch` of them.
        values: their values as the decoder of the type takes them, with prefixes; None if they are
            those of the batch, with what their headers say.
        undecoded: the values without a type that are no tombstones.
    """

    batch: Any
    values: Any = None
    undecoded: tuple[Undecoded, ...] = ()


class RecordsOfType:
    """Chooses the records of a table.

    Args:
        typed: the typed columns of the topic.
        of_type: as `ExportRequest.of_type`.

    Attributes:
        column: the column of values of several types; None if the table gets all records.
    """

    def __init__(self, typed: Iterable[TypedColumn], of_type: str | None) -> None:
        self.column: TypedColumn | None = None
        if of_type is not None:
            [self.column] = [one for one in typed if one.source == "value"]
            self._decoder = cast("SeveralTypes", self.column.decoder())
            fields = [field for field, _ in self.column.types]
            self._place = fields.index(of_type) if of_type != NO_TYPE else None

    def among(self, batch: Any) -> Chosen:
        """Return those of a batch that has the raw columns of records."""
        if self.column is None:
            return Chosen(batch)
        whole = with_prefixes(self.column, batch.column("value"), batch.column("headers"))
        names, rows, *_ = typed_rows(self.column, names_of(self.column), whole)
        # The last is of values whose type nothing says.
        places = [*map(self._decoder.place, names), None]
        are_own = np.array([place == self._place for place in places])[rows]
        own = pa.array(are_own)
        batch = batch.filter(own)
        if self._place is not None:
            of_type, _ = self._decoder.parts[self._place]
            return Chosen(batch, self._decoder.of_types(of_type, whole.filter(own)))
        found = typed_column(
            self.column, self._decoder, batch.column("value"), batch.column("headers")
        )
        return Chosen(batch, undecoded=tuple(found.failures))
