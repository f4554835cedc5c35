"""Counts the keys and values that have the ids of known schemas."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kafkalog.log.typed import Framing, TypedColumn, TypedForm
from kafkalog.log.typed.framing import prefixes_of
from kafkalog.log.typed.prefixes import with_prefixes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kafkalog.log.typed.framing import SchemaId

_IN_HEADERS: Final = (Framing.APICURIO, Framing.CONFLUENT)  # of both the second counts


class KnownIds:
    """Ids of schemas, as keys and values have them: in a header, or before the data.

    Args:
        ids: numbers and UUIDs.
        guids: GUIDs and the numbers of the same schemas.
    """

    def __init__(self, ids: Iterable[SchemaId], guids: Iterable[tuple[str, int]] = ()) -> None:
        names = {prefix: one for one in ids for prefix in prefixes_of(one)}
        names |= {prefix: number for guid, number in guids for prefix in prefixes_of(guid)}
        ordered = sorted(names, key=len)
        self._by_size = [
            (size, {one: names[one] for one in some}) for size, some in groupby(ordered, len)
        ]

    def counted(self, source: str, data: Any, headers: Any) -> Iterator[tuple[SchemaId, int]]:
        """Yield ids, and how many of some keys or values have each; an id can come twice.

        Args:
            source: `key` or `value`.
            data: a `pyarrow.BinaryArray`.
            headers: those of the records, a `pyarrow.ListArray`.
        """
        size_max = max((size for size, _ in self._by_size), default=0)
        starts = pc.binary_slice(data, 0, size_max)
        for framing in _IN_HEADERS:
            column = TypedColumn(source, TypedForm.PROTOBUF, b"", framing=framing)
            starts = with_prefixes(column, starts, headers)
        for size, names in self._by_size:
            found = pc.binary_slice(starts, 0, size)
            known = found.filter(pc.is_in(found, pa.array(names, pa.binary())))
            for one in pc.value_counts(known).to_pylist():
                yield names[one["values"]], one["counts"]
