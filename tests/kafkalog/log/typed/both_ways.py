"""What a column has by columns, and value by value, in a form that is equal only bit for bit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalog.log.typed import Framing
from kafkalog.log.typed.columns import typed_column

if TYPE_CHECKING:
    from collections import Counter

    from kafkalog.log.typed import TypedColumn


class Said(NamedTuple):
    """A column, its rejects in the order of rows, and how many values lost something."""

    values: str
    failures: list[Any]
    losses: Counter[str]


def both(column: TypedColumn, array: Any) -> tuple[Said, Said, int]:
    """Return what both ways say, by columns first; and how many values are read by columns."""
    decoder, slow = column.decoder(), column.decoder()
    slow.by_columns = lambda *_: None  # type: ignore[attr-defined]
    found, wanted = (_said(typed_column(column, one, array)) for one in (decoder, slow))
    rows = 0
    if column.framing == Framing.NONE:
        fast = decoder.by_columns(None)  # type: ignore[attr-defined]
        content = [one or b"" for one in array.to_pylist()]
        sizes = np.array([len(one) for one in content])
        ends = 1 + sizes.cumsum()
        data = np.frombuffer(b"\0" + b"".join(content), np.uint8)
        rows = 0 if fast is None else int(fast.decode(data, ends - sizes, ends)[1].sum())
    return found, wanted, rows


def _said(found: Any) -> Said:
    found.array.validate(full=True)
    # As text, a NaN is equal to itself, and -0.0 is not to 0.0.
    values = repr(_plain(found.array).to_pylist())
    return Said(values, sorted(found.failures, key=lambda one: one.row), found.losses)


def _plain(array: Any) -> Any:
    """Return an array with times as numbers: Python has none for some."""
    kind = array.type
    if pa.types.is_timestamp(kind):
        return array.view(pa.int64())
    if pa.types.is_struct(kind):
        arrays = [_plain(one) for one in (array.field(i) for i in range(kind.num_fields))]
        names = [one.name for one in kind]
        return pa.StructArray.from_arrays(arrays, names, mask=array.is_null())
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(array.offsets, _plain(array.values), mask=array.is_null())
    if pa.types.is_map(kind):
        pairs = pa.StructArray.from_arrays([array.keys, _plain(array.items)], ["key", "value"])
        return pa.ListArray.from_arrays(array.offsets, pairs, mask=pc.is_null(array))
    return array
