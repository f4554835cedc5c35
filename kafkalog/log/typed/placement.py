"""Places what one version of a schema describes in a column with the fields of several."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def placed(array: Any, kind: Any) -> Any:
    """Return an array with the type of a column: fields that it lacks are null, numbers widen.

    Raises:
        pyarrow.ArrowInvalid: the type has not all digits of a number.
    """
    if array.type == kind:
        return array
    if pa.types.is_struct(kind):
        names = [field.name for field in array.type]
        fields = array.flatten()
        parts = [
            placed(fields[names.index(one.name)], one.type)
            if one.name in names
            else pa.nulls(len(array), one.type)
            for one in kind
        ]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=mask)
    if array.offset and pa.types.is_nested(kind):
        array = array.take(pa.array(range(len(array))))  # lists of a slice have no mask
    mask = array.is_null() if array.null_count else None
    if pa.types.is_list(kind):
        items = placed(array.values, kind.value_type)
        return pa.ListArray.from_arrays(array.offsets, items, type=kind, mask=mask)
    if pa.types.is_map(kind):
        keys, items = placed(array.keys, kind.key_type), placed(array.items, kind.item_type)
        return pa.MapArray.from_arrays(array.offsets, keys, items, type=kind, mask=mask)
    return pc.cast(array, kind)
