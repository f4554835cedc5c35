"""Brings values and arrays of one type into another one, which `merging` made for them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalog.log.typed.cells import CELLS_AT_ONCE, CELLS_MAX, COUNTER, cells_of_items
from kafkalog.log.typed.column_steps import UNFIT, TooManyError, offsets_of
from kafkalog.log.typed.lake_types import given_name
from kafkalog.log.typed.merging import fits, is_list, paired, refusal, sources
from kafkalog.log.typed.remarks import CONFLICT

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from kafkalog.log.typed.column_steps import Ints
    from kafkalog.log.typed.framing import SchemaId
    from kafkalog.log.typed.merging import Rule, Source
    from kafkalog.log.typed.model import Decoder
    from kafkalog.log.typed.remarks import Remark

    Change = Callable[[Any], Any]
    Count = Callable[[Any], Ints]


class _Ways(NamedTuple):
    """What `Placing` has for a part; `cells` also if the items of the target are not larger."""

    value: Change | None = None
    array: Change | None = None
    cells: Count | None = None


class Placing:
    """What brings values of a field into another one.

    Args:
        source: the `pyarrow.Field` of the values.
        target: the other one.
        rule: by which it was merged.

    Attributes:
        value: changes a value as `pyarrow.array` takes it; None to leave it as it is.
        array: likewise an array.
        cells: counts the cells of the items in each value of an array as the target has them; None
            if it has no larger items.
        paths: where the fields of the values, and what is in their lists and maps, are in the
            target, by where they are in the source; as in `Remark`.

    Raises:
        ValueError: there is no place for a field.
    """

    def __init__(self, source: Any, target: Any, rule: Rule) -> None:
        self._rule = rule
        self.paths: dict[str, str] = {}
        if not fits(target, source, rule):
            raise ValueError(refusal(target, source, ""))
        self._has_larger = False
        self.value, self.array, cells = self._of(source.type, target.type, "", "")
        self.cells = cells if self._has_larger else None
        self._kind = source.type

    def require_room(self, value: Any) -> None:
        """Raise `ValueError` if a value of the source has too many cells in the target."""
        if self.cells is None:
            return
        cells = 0
        with suppress(*UNFIT):  # raised again when it becomes an array of the target
            cells = int(self.cells(pa.array([value], self._kind))[0])
        COUNTER.cells = 0
        COUNTER.add(1, cells)

    def moved(self, remark: Remark) -> Remark:
        """Return a remark about the source as one about the target."""
        return replace(remark, path=self.paths.get(remark.path, remark.path))

    def _of(self, kind: Any, target: Any, path: str, to: str) -> _Ways:
        self.paths.setdefault(path, to)  # of several types the first
        if pa.types.is_struct(kind):
            return self._struct(kind, target, path, to)
        if is_list(kind):
            return self._list(kind, target, path, to)
        if pa.types.is_map(kind):
            value, array, cells = self._of(
                kind.item_type, target.item_type, f"{path}{{}}", f"{to}{{}}"
            )
            is_same = array is None and kind == target
            return _Ways(
                None if value is None else lambda one: _pairs(value, one),
                None if is_same else lambda one: _map_of(one, target, array),
                self._counted(kind, target, cells),
            )
        return _Ways(None, None if kind == target else lambda one: one.cast(target))

    def _list(self, kind: Any, target: Any, path: str, to: str) -> _Ways:
        value, array, cells = self._of(kind.value_type, target.value_type, f"{path}[]", f"{to}[]")
        is_same = array is None and kind == target
        return _Ways(
            None if value is None else lambda one: None if one is None else [*map(value, one)],
            None if is_same else lambda one: _list_of(one, target, array),
            self._counted(kind, target, cells),
        )

    def _counted(self, kind: Any, target: Any, inner: Count | None) -> Count:
        width = cells_of_items(target)
        self._has_larger |= width > cells_of_items(kind)

        def cells(array: Any) -> Ints:
            first, count, there = _bounds(array)
            offsets = there.to_numpy().astype(np.int64)
            found = np.diff(offsets) * width
            if inner is not None:
                items = array.items if pa.types.is_map(kind) else array.values
                found += np.diff(offsets_of(inner(items.slice(first, count)))[offsets])
            return cast("Ints", found)

        return cells

    def _struct(self, kind: Any, target: Any, path: str, to: str) -> _Ways:
        fields = list(target)
        given = sources(list(kind))
        places = paired(fields, given, self._rule)
        names = {one.name for one in fields}
        bases = {given_name(one): one for one in reversed(fields)}
        steps: list[tuple[Source, int, Change | None, Change | None]] = []
        counts: list[tuple[Source, Count]] = []
        # `pyarrow.array` takes fields by name: what is missing is null, others do not count.
        is_value_same = True
        for source, place in zip(given, places, strict=True):
            name = source.field.name
            inner = f"{path}.{name}".lstrip(".")
            if place is None:
                if given_name(source.field) in bases:
                    other = bases[given_name(source.field)]
                    raise ValueError(refusal(other, source.field, inner))
                is_value_same &= name not in names
                continue
            one = fields[place]
            there = f"{to}.{one.name}".lstrip(".")
            value, array, cells = self._of(source.field.type, one.type, inner, there)
            if cells is not None:
                counts.append((source, cells))
            steps.append((source, place, value, array))
            is_value_same &= source.part is None and value is None and one.name == name
        is_array_same = kind == target and all(
            source.part is None and source.place == place and array is None
            for source, place, _, array in steps
        )
        return _Ways(
            None if is_value_same else _value_steps(kind, fields, steps),
            None if is_array_same else _array_steps(target, fields, steps),
            _count_steps(counts) if counts else None,
        )


def _value_steps(
    kind: Any, fields: Sequence[Any], steps: Sequence[tuple[Source, int, Change | None, Any]]
) -> Change:
    ways = []
    for source, place, value, _ in steps:
        outer = kind[source.place]
        part = None if source.part is None else outer.type[source.part].name
        ways.append((outer.name, part, fields[place].name, value))

    def struct(value: Any) -> Any:
        if value is None:
            return None
        found = {}
        for name, part, to, change in ways:
            one = value.get(name)
            if part is not None and one is not None:
                one = one.get(part)
            if one is not None:
                found[to] = one if change is None else change(one)
        return found

    return struct


def _array_steps(
    target: Any, fields: Sequence[Any], steps: Sequence[tuple[Source, int, Any, Change | None]]
) -> Change:
    def struct(array: Any) -> Any:
        parts = array.flatten()
        found: dict[int, Any] = {}
        for source, place, _, change in steps:
            one = _part(parts, source)
            if change is not None:
                one = change(one)
            # Of several types, a value has one.
            found[place] = pc.coalesce(found[place], one) if place in found else one
        arrays = [
            found[i] if i in found else pa.nulls(len(array), one.type)
            for i, one in enumerate(fields)
        ]
        return pa.StructArray.from_arrays(arrays, fields=list(target), mask=array.is_null())

    return struct


def _part(parts: Sequence[Any], source: Source) -> Any:
    one = parts[source.place]
    return one if source.part is None else one.flatten()[source.part]


def _count_steps(counts: Sequence[tuple[Source, Count]]) -> Count:
    def cells(array: Any) -> Ints:
        parts = array.flatten()
        return sum(  # type: ignore[return-value] # never of nothing
            count(_part(parts, source)) for source, count in counts
        )

    return cells


def _pairs(change: Change, value: Any) -> Any:
    if value is None:
        return None
    pairs = value.items() if isinstance(value, dict) else value  # Arrow takes both
    return [(key, change(one)) for key, one in pairs]


def _list_of(array: Any, target: Any, change: Change | None) -> Any:
    first, count, offsets = _bounds(array)
    items = _changed(array.values.slice(first, count), target.value_type, change)
    made, size = (
        (pa.LargeListArray, pa.int64())
        if pa.types.is_large_list(target)
        else (pa.ListArray, pa.int32())
    )
    return made.from_arrays(offsets.cast(size), items, type=target, mask=array.is_null())


def _map_of(array: Any, target: Any, change: Change | None) -> Any:
    first, count, offsets = _bounds(array)
    keys = array.keys.slice(first, count).cast(target.key_type)
    items = _changed(array.items.slice(first, count), target.item_type, change)
    return pa.MapArray.from_arrays(offsets, keys, items, type=target, mask=array.is_null())


def _changed(array: Any, kind: Any, change: Change | None) -> Any:
    return array if change is None and array.type == kind else (change or _cast_to(kind))(array)


def _cast_to(kind: Any) -> Change:
    return lambda array: array.cast(kind)


def _bounds(array: Any) -> tuple[int, int, Any]:
    """Return where the items of an array begin, how many there are, and offsets from the first.

    A slice keeps offsets into the whole array.
    """
    offsets = array.offsets
    first = offsets[0].as_py()
    return first, offsets[-1].as_py() - first, pc.subtract(offsets, offsets[0])


# Decoders ----------------------------------------------------------------------------------------


class PlacedDecoder:
    """Decodes values of a field into another one.

    Args:
        decoder: decodes them.
        source: the `pyarrow.Field` of its type.
        target: the other one.
        rule: as for `Placing`.

    Raises:
        ValueError: as `Placing`.
    """

    def __init__(self, decoder: Decoder, source: Any, target: Any, rule: Rule) -> None:
        self._decoder = decoder
        self._placing = Placing(source, target, rule)
        self.type = target.type

    @property
    def remarks(self) -> list[Remark]:
        moved = [(one, self._placing.moved(one)) for one in self._decoder.remarks]
        # What is a conflict field of the source need not be one of the target, which says it then.
        return [new for one, new in moved if one.type != CONFLICT or one == new]

    @property
    def losses(self) -> Counter[str]:
        return self._decoder.losses

    def decode(self, data: bytes, schema_id: SchemaId | None = None) -> Any:
        value = self._decoder.decode(data, schema_id)
        self._placing.require_room(value)
        place = self._placing.value
        return value if place is None else place(value)

    def by_columns(self, schema_id: SchemaId | None) -> Any:
        """Return what decodes values of a schema by columns; None if that is impossible."""
        make = getattr(self._decoder, "by_columns", None)
        columns = None if make is None else make(schema_id)
        if columns is None or self._placing.array is None:
            return columns
        return PlacedColumns(columns, self._placing, self.type, self.losses)


class PlacedColumns:
    """Decodes values by columns, and changes the arrays to another type.

    Args:
        columns: decodes them.
        placing: changes the arrays.
        kind: the other type.
        losses: what `columns` counts.
    """

    def __init__(self, columns: Any, placing: Placing, kind: Any, losses: Counter[str]) -> None:
        assert placing.array is not None, "else nothing is to be changed"
        self._columns = columns
        self._change = placing.array
        self._cells = placing.cells
        self._type = kind
        self._losses = losses

    def decode(
        self, data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> tuple[Any, NDArray[np.bool_]]:
        """Return a `pyarrow.Array`, and which of its values are right, as `AvroColumns` does."""
        before = dict(self._losses)
        array, is_right = self._columns.decode(data, starts, ends)
        if self._cells is not None:
            cells = self._cells(array)
            is_right = is_right & (cells <= CELLS_MAX)
            if len(array) > 1 and cells[is_right].sum() > CELLS_AT_ONCE:
                raise TooManyError
            if not is_right.all():
                array = array.take(pa.array(np.arange(len(array)), mask=~is_right))
        try:
            return self._change(array), is_right
        except pa.ArrowInvalid:  # a number that the other type has not exactly: row by row
            for name in self._losses:
                self._losses[name] = before.get(name, 0)
            return pa.nulls(len(starts), self._type), np.zeros(len(starts), bool)
