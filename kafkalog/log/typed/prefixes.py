"""What values begin with, by columns: the ids of their schemas, and which of its types they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalog.log.typed.framing import (
    MESSAGE_HEADER,
    PREFIX_MAX,
    Framing,
    delimited_name,
    prefix_size,
)
from kafkalog.log.typed.type_names import TypeName, TypeNames, names_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from kafkalog.log.typed.framing import SchemaId
    from kafkalog.log.typed.model import TypedColumn

# How many bytes after the id are looked at, of all values that begin alike at once; then each.
_INDEX_SIZES: Final = (1, 2, 4)


def with_prefixes(column: TypedColumn, data: Any, headers: Any) -> Any:
    """Return data with the schema ids before it that headers have, as `with_prefix` does."""
    pairs, records = headers.flatten(), pc.list_parent_indices(headers)
    for name, before in reversed(column.id_headers()):
        ids = _last_values(pairs, records, name, len(data))
        if ids.null_count == len(ids):
            continue
        message: Any = b""
        if column.has_message_header:
            named = _last_values(pairs, records, MESSAGE_HEADER, len(data)).dictionary_encode()
            texts = [delimited_name(one) for one in named.dictionary.to_pylist()]
            message = pc.fill_null(pa.array(texts, pa.binary()).take(named.indices), b"")
        encoded = ids.dictionary_encode()
        are_ids = pa.array(
            [column.is_id(one) for one in encoded.dictionary.to_pylist()], pa.bool_()
        )
        whole = pc.binary_join_element_wise(before, ids, message, data, b"")
        whole = pc.if_else(are_ids.take(encoded.indices), whole, b"")
        data = pc.if_else(pc.and_(ids.is_valid(), data.is_valid()), whole, data)
    return data


def schema_ids(column: TypedColumn, data: Any, headers: Any) -> Any:
    """Return the ids of the schemas that values were written with, as text; null without one.

    Args:
        column, data, headers: as for `typed_column`.
    """
    starts = pc.binary_slice(data, 0, PREFIX_MAX)
    if headers is not None:
        starts = with_prefixes(column, starts, headers)
    ids, places = ids_of(column, starts)
    texts = pa.array([None if one is None else str(one) for one in ids], pa.string())
    return texts.take(pa.array(places, mask=places == len(ids)))


def ids_of(column: TypedColumn, starts: Any) -> tuple[list[SchemaId | None], NDArray[np.int64]]:
    """Return ids, and for each value the index of its own; for null their number.

    Args:
        starts: a `pyarrow.BinaryArray` of values, or only of what these begin with.
    """
    starts = pc.binary_slice(starts, 0, PREFIX_MAX)
    if column.framing in (Framing.CONFLUENT, Framing.APICURIO, Framing.APICURIO4):
        # As short as can be: few of them differ, of which each is looked at.
        short = pc.binary_slice(starts, 0, prefix_size(column.framing))
        starts = pc.if_else(pc.equal(pc.binary_slice(starts, 0, 1), b"\0"), short, starts)
    found = starts.dictionary_encode()
    ids = [column.split(one)[0] for one in found.dictionary.to_pylist()]
    return ids, found.indices.fill_null(len(ids)).to_numpy(zero_copy_only=False).astype(np.int64)


def _last_values(pairs: Any, records: Any, name: str, count: int) -> Any:
    """Return the last value of a header for each of some records; null without one."""
    values = pairs.field("value")
    which = pc.and_(values.is_valid(), pc.equal(pairs.field("key"), name))
    found = values.filter(which)
    places = np.full(count, -1)
    places[records.filter(which).to_numpy()] = np.arange(len(found))  # of equal places the last
    return found.take(pa.array(places, mask=places < 0))


class TypedRows(NamedTuple):
    """The types of some values.

    Attributes:
        types: the types.
        rows: for each value the index of its type; -1 if nothing known says it.
        ids: the ids of schemas; None for what has no id.
        places: for each value the index of its id; for null their number.
    """

    types: list[TypeName]
    rows: NDArray[np.int64]
    ids: list[SchemaId | None]
    places: NDArray[np.int64]


def typed_rows(column: TypedColumn, names: TypeNames, data: Any, headers: Any = None) -> TypedRows:
    """Return the types of values.

    Args:
        column, data, headers: as for `typed_column`.
    """
    starts = pc.binary_slice(data, 0, PREFIX_MAX + max(_INDEX_SIZES))
    if headers is not None:
        starts = with_prefixes(column, starts, headers)
    ids, places = ids_of(column, starts)
    found: dict[TypeName, int] = {}
    each = np.full(len(ids) + 1, -1)  # the last is of what has no id
    rows = np.full(len(data), -1)
    for place, one in enumerate(ids):
        if one is not None and names.has_index(one):
            chosen = (places == place).nonzero()[0]
            some = [None if part is None else part.take(pa.array(chosen)) for part in
                    (data, starts, headers)]  # fmt: skip
            rows[chosen] = _by_index(column, names, one, some, found)
        elif one is not None and (all_of := names.all_of(one)):
            each[place] = found.setdefault(all_of[0], len(found))
    return TypedRows([*found], np.where(rows < 0, each[places], rows), ids, places)


def _by_index(
    column: TypedColumn, names: TypeNames, schema_id: SchemaId, some: Sequence[Any],
    found: dict[TypeName, int],
) -> NDArray[np.int64]:  # fmt: skip
    """Return what `typed_rows` does for values of one schema whose types the data tells."""
    data, starts, headers = some
    rows = np.full(len(data), -1)
    left = np.arange(len(data))
    sizes = _INDEX_SIZES if column.framing != Framing.GLUE else ()  # it may be compressed
    for size in sizes:
        if not len(left):
            break
        _, before = column.split(starts[int(left[0])].as_py())
        encoded = pc.binary_slice(starts.take(pa.array(left)), 0, before + size).dictionary_encode()
        each = [
            _index(names, schema_id, one[before:], found)
            for one in encoded.dictionary.to_pylist()
        ]  # fmt: skip
        rows[left] = np.array(each)[encoded.indices.to_numpy()]
        left = (rows < 0).nonzero()[0]
    if len(left):
        whole = data.take(pa.array(left))
        if headers is not None:
            whole = with_prefixes(column, whole, headers.take(pa.array(left)))
        for row, one in zip(left, whole.to_pylist(), strict=True):
            try:
                rows[row] = _index(names, schema_id, column.unframed(one)[0], found)
            except ValueError:  # it does not decode either
                rows[row] = -1
    return rows


def _index(names: TypeNames, schema_id: SchemaId, data: bytes, found: dict[TypeName, int]) -> int:
    try:
        return found.setdefault(names.of(schema_id, data), len(found))
    except ValueError:
        return -1


def type_names(column: TypedColumn, data: Any, headers: Any) -> Any:
    """Return the full names of the types of values; null for what has no known schema.

    Args:
        column, data, headers: as for `typed_column`.
    """
    found, rows, *_ = typed_rows(column, names_of(column), data, headers)
    names = pa.array([one.name for one in found], pa.string())
    return names.take(pa.array(rows, mask=rows < 0))
