"""Counts the keys and values that have the ids of known schemas."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kafkalog.log.typed import Framing, TypedColumn, TypedForm
from kafkalog.log.typed.framing import GUID_SIZE, PREFIX_MAX, prefix_size, prefixes_of, split
from kafkalog.log.typed.prefixes import with_prefixes
from kafkalog.log.typed.remote_registry import registry_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kafkalog.log.typed.framing import SchemaId

_BY_NUMBER: Final = (Framing.CONFLUENT, Framing.APICURIO)
_IN_HEADERS: Final = (Framing.APICURIO, Framing.CONFLUENT)  # of both the second counts


class KnownIds:
    """Ids of schemas, as keys and values have them: in a header, or before the data.

    Args:
        ids: numbers and UUIDs.
        guids: GUIDs and the numbers of the same schemas.
        place: of a registry that knows further ones, as in `TypedColumn`.
    """

    def __init__(
        self,
        ids: Iterable[SchemaId],
        guids: Iterable[tuple[str, int]] = (),
        place: str | None = None,
    ) -> None:
        self._place = place
        names = {prefix: one for one in ids for prefix in prefixes_of(one)}
        names |= {prefix: number for guid, number in guids for prefix in prefixes_of(guid)}
        ordered = sorted(names, key=len)
        self._by_size = [
            (size, {one: names[one] for one in some}) for size, some in groupby(ordered, len)
        ]

    def counted(
        self, source: str, data: Any, headers: Any
    ) -> Iterator[tuple[SchemaId | None, int]]:
        """Yield ids, and how many of some keys or values have each; an id can come twice.

        None stands for those that the registry was not asked for, after too many in vain.

        Args:
            source: `key` or `value`.
            data: a `pyarrow.BinaryArray`.
            headers: those of the records, a `pyarrow.ListArray`.

        Raises:
            KafkaLogError: the registry does not answer.
        """
        starts = pc.binary_slice(data, 0, PREFIX_MAX)
        for framing in _IN_HEADERS:
            column = TypedColumn(source, TypedForm.PROTOBUF, b"", framing=framing)
            starts = with_prefixes(column, starts, headers)
        for size, names in self._by_size:
            found = pc.binary_slice(starts, 0, size)
            known = found.filter(pc.is_in(found, pa.array(names, pa.binary())))
            for one in pc.value_counts(known).to_pylist():
                yield names[one["values"]], one["counts"]
        if self._place is not None:
            yield from _of_registry(starts, self._place)


def _of_registry(starts: Any, place: str) -> Iterator[tuple[SchemaId | None, int]]:
    """Yield the ids that a registry has of what data begins with, and how many have each."""
    registry = registry_at(place)
    first = pc.binary_slice(starts, 0, 1)
    sizes = {(framing, prefix_size(framing)) for framing in _BY_NUMBER}
    for magic, ways in ((b"\0", sizes), (b"\1", {(Framing.CONFLUENT, GUID_SIZE)})):
        some = starts.filter(pc.equal(first, magic))
        for framing, size in ways:
            for one in pc.value_counts(pc.binary_slice(some, 0, size)).to_pylist():
                # One more byte, as of the data: without any a prefix is none.
                schema_id, _ = split(framing, one["values"] + b"\0"[: len(one["values"]) == size])
                if schema_id is None:
                    continue
                if schema_id in registry.by_id:
                    number = registry.number_of(schema_id) if isinstance(schema_id, str) else None
                    yield schema_id if number is None else number, one["counts"]
                elif not registry.lacks(schema_id):
                    yield None, one["counts"]
