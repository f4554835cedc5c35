"""Columns of what Kafka Connect wrote: the schemas in the data decide their types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from kafkalog.errors import Deaf, UsageError
from kafkalog.log.typed import Framing, TypedColumn, TypedForm
from kafkalog.log.typed.framing import VALUE_SIZE_MAX
from kafkalog.tables.model import TableName
from kafkalog.tables.reading import read_split
from kafkalog.tables.schemas import table_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kafkalog.log.typed.connect import Schemas
    from kafkalog.tables.model import Split


@dataclass(frozen=True)
class ConnectByData:
    """A typed column with the fields of all schemas that keys or values have.

    Where two give a field different types, that counts which came last.

    Attributes:
        source: `key` or `value`.
    """

    source: str
    form: ClassVar[TypedForm] = TypedForm.CONNECT
    framing: ClassVar[Framing] = Framing.NONE

    @property
    def name(self) -> str:
        """The column's name."""
        return f"{self.source}_decoded"

    def decided(
        self,
        splits: Sequence[Split],
        *,
        of_each: bool,  # noqa: ARG002 # any record can have another schema
        takes_each: bool = False,  # noqa: ARG002 # a schema has no name to split by
    ) -> TypedColumn | None:
        """Return the column; None if there is nothing but nulls.

        Args:
            splits: of the table of records.
            of_each, takes_each: not used: all records are read, up to as many schemas as a column
                can have, and a schema has no name by which to split.

        Raises:
            UsageError: nothing has a schema.
            UnsupportedError: a package is missing.
            KafkaLogError: as `read_split` with a listener.
        """
        from kafkalog.log.typed.connect import NO_SCHEMA, Schemas

        schemas = Schemas()
        firsts: dict[str, tuple[int, int]] = {}  # when each came first, and after how many others
        is_empty = True
        for data, times in self._batches(splits):
            is_empty &= len(data) == data.null_count
            for text, row in _schemas(data, schemas):
                number = firsts.get(text, (0, len(firsts)))[1]
                here = (int(times[row]), number)
                firsts[text] = min(here, firsts.get(text, here))
            if schemas.is_full:
                break
        if is_empty and not firsts:
            return None
        if not firsts:
            raise self.nothing()
        if len(firsts) > 1:
            firsts.pop(NO_SCHEMA, None)  # it would make JSON text of all others
        ordered = sorted(firsts, key=firsts.__getitem__)
        writers = tuple((number, (text,)) for number, text in enumerate(ordered, 1))
        versions = tuple(number for number, _ in reversed(writers))
        return TypedColumn(self.source, TypedForm.CONNECT, b"", writers=writers, versions=versions)

    def of_topic(self, topic: str) -> ConnectByData:  # noqa: ARG002 # the data has the schemas
        """See `ByData`."""
        return self

    def nothing(self) -> UsageError:
        """Return the error of data without a schema."""
        return UsageError(
            f"No {self.source} is JSON with a schema and a payload, as Kafka Connect writes it "
            "with schemas.enable=true.",
            hint=f"--{self.source}-format json takes any JSON.",
        )

    def _batches(self, splits: Sequence[Split]) -> Iterator[tuple[Any, Any]]:
        schema = table_schema(TableName.RECORDS, [self.source, "timestamp_ms"])
        for split in splits:
            # What is wrong with the data is said when it is read for the table.
            for batch in read_split(split, schema, Deaf(), threads=None):
                yield batch.column(self.source), batch.column("timestamp_ms").to_numpy()


def _schemas(data: Any, schemas: Schemas) -> Iterator[tuple[str, int]]:
    """Yield the schemas that some messages have, each with the first row that it is found in."""
    from kafkalog.log.typed.connect import groups, opened

    rows = data.is_valid().to_numpy(zero_copy_only=False).nonzero()[0]
    _, offsets, raw = data.buffers()
    if raw is None or not raw.size:
        return
    bounds = np.frombuffer(offsets, np.int32)[data.offset : data.offset + len(data) + 1]
    bounds = bounds.astype(np.int64)
    rows = rows[np.diff(bounds)[rows] <= VALUE_SIZE_MAX]
    is_left = np.ones(len(rows), bool)
    content = np.frombuffer(raw, np.uint8)
    for group in groups(content, bounds[:-1][rows], bounds[1:][rows]):
        is_left[group.rows] = False
        if schemas.add(group.schema):
            yield group.schema, int(rows[group.rows[0]])
    for row in rows[is_left].tolist():
        try:
            text = opened(data[row].as_py()).schema
        except ValueError:
            continue
        if schemas.add(text):
            yield text, row
        if schemas.is_full:
            return
