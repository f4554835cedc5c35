"""Records and batches as lines of JSON or CSV, in blocks that are written unchanged.

The caller defines the form of a line: a template of literal texts and names of fields.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from formats import constants as c
from formats.late_classes import dataclass
from kafkalog.log.columns import kernels as k
from kafkalog.log.columns.restored import record_of
from kafkalog.log.text import object_kernels as o
from kafkalog.log.text import value_kernels as v
from kafkalog.log.text.blocks import TextFormat, size_of_bytes, whole
from kafkalog.model import Batch, Record, TimestampType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from kafkalog.log.columns.chunks import Chunk, Rows
    from kafkalog.log.columns.scan_steps import Part


_BATCH_FIELDS: Final = {
    "size_bytes": k.SIZE,
    "base_offset": k.BASE_OFFSET,
    "last_offset": k.LAST_OFFSET,
    "records": k.COUNT,
    "magic": k.MAGIC,
    "compression": o.COMPRESSION,
    "timestamp_type": o.TIMESTAMP_TYPE,
    "base_timestamp": k.BASE_TIMESTAMP,
    "max_timestamp": k.MAX_TIMESTAMP,
    "delete_horizon_timestamp": o.DELETE_HORIZON,
    "producer_id": k.PRODUCER_ID,
    "producer_epoch": k.PRODUCER_EPOCH,
    "base_sequence": k.BASE_SEQUENCE,
    "last_sequence": o.LAST_SEQUENCE,
    "leader_epoch": k.EPOCH,
    "is_transactional": o.TRANSACTIONAL,
    "is_control": o.CONTROL,
    "crc": k.CRC,
    "crc_valid": o.CRC_VALID,
    "position": k.POSITION,
    "batch_position": k.POSITION,
    "batch_base_offset": k.BASE_OFFSET,
}
_RECORD_FIELDS: Final = {
    "offset": o.OFFSET,
    "timestamp": o.TIMESTAMP,
    "key": o.KEY,
    "value": o.VALUE,
    "key_size_bytes": o.KEY_SIZE,
    "value_size_bytes": o.VALUE_SIZE,
    "headers": o.HEADERS,
    "sequence": o.SEQUENCE,
}
FIELDS: Final = _BATCH_FIELDS | _RECORD_FIELDS
"""The fields that the kernels can write, by name."""
_FORMS: Final = {"auto": v.AUTO, "text": v.UTF8, "hex": v.HEX, "base64": v.BASE64}
_COPY_MARGIN: Final = 2 * o.COPY_SIZE


@dataclass(frozen=True, slots=True)
class Template:
    """The form of a line.

    Attributes:
        parts: literal text, then the name of the field that follows it, None after the last text.
        null: the text for null.
        quote: the quote around names of codecs and types of timestamps.
        bytes_form: `auto`, `text`, `hex` or `base64`.
        csv: whether texts are quoted as in CSV rather than as in JSON.
    """

    parts: Sequence[tuple[bytes, str | None]]
    null: bytes
    quote: bytes
    bytes_form: str
    csv: bool


class _Program:
    """A template in the form for the kernels."""

    def __init__(self, template: Template) -> None:
        codes = [o.NOTHING if name is None else FIELDS[name] for _, name in template.parts]
        ends = np.cumsum([0, *(len(text) for text, _ in template.parts)])
        of_records = [code for code in codes if code >= o.OFFSET]
        self.table = np.zeros((o.PROGRAM_ROWS, len(codes)), np.int64)
        self.table[o.FIELD] = codes
        self.table[o.TEXT_START], self.table[o.TEXT_END] = ends[:-1], ends[1:]
        self.table[o.RUN_FIELD, : len(of_records)] = of_records
        self.texts = _bytes_array(b"".join(text for text, _ in template.parts))
        names = [*(str(member) for member in _TIMESTAMP_TYPES), *c.COMPRESSION_NAMES,
                 *(f"unknown({i})" for i in range(len(c.COMPRESSION_NAMES), 8))]  # fmt: skip
        quoted = [template.quote + name.encode() + template.quote for name in names]
        words = [template.null, b"false", b"true", *quoted]
        self.words = _bytes_array(b"".join(words))
        self.starts = np.cumsum([0, *map(len, words)])
        self.size_max = len(self.texts) + (max(map(len, words)) + v.NUMBER_SIZE_MAX) * len(codes)
        self.form = _FORMS[template.bytes_form]
        self.csv = template.csv


# In the order of the kernels' words.
_TIMESTAMP_TYPES: Final = (
    TimestampType.CREATE_TIME,
    TimestampType.LOG_APPEND_TIME,
    TimestampType.NO_TIMESTAMP_TYPE,
)


def _bytes_array(data: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(bytearray(data), np.uint8)


class _Templates:
    """The programs of the files so far: the path is a part of their texts."""

    def __init__(self, template_of: Callable[[str], Template]) -> None:
        self._template_of = template_of
        self._programs: dict[str, _Program] = {}

    def program(self, path: str) -> _Program:
        found = self._programs.get(path)
        if found is None:
            found = self._programs[path] = _Program(self._template_of(path))
        return found


class RecordLines(TextFormat):
    """A format that writes records as lines.

    Args:
        template_of: returns the template for the file of that path.
        line_of: returns the line of a record that no kernel can format.
    """

    rows_max = 32768

    def __init__(
        self, template_of: Callable[[str], Template], line_of: Callable[[Record], bytes]
    ) -> None:
        super().__init__()
        self._templates = _Templates(template_of)
        self._line_of = line_of

    def left_over(self, _headers: NDArray[np.int64]) -> None:
        """See `scan_steps.RecordFormat`."""
        return

    def of_rows(self, rows: Rows, chunk: Chunk) -> Iterator[Part]:
        """See `scan_steps.RecordFormat`."""
        program = self._templates.program(chunk.path)
        table, headers = whole(rows.table), whole(chunk.headers)
        count = rows.table.shape[1]
        scratch = np.empty(program.size_max + _COPY_MARGIN, np.uint8)
        fields = program.table.copy()  # where the kernel notes the lengths of a batch's texts

        def kernel(
            state: NDArray[np.int64], ends: NDArray[np.int64], out: NDArray[np.uint8]
        ) -> int:
            why: int = o.format_records(
                rows.arena, table, count, headers, fields, program.texts, program.words,
                program.starts, program.form, program.csv, state, scratch, ends, out,
            )  # fmt: skip
            return why

        yield from self._fill(
            0, count, kernel, lambda row: self._line_of(record_of(rows, chunk, row)),
            program.size_max * count + 2 * size_of_bytes(rows.table),
        )  # fmt: skip

    def of_records(self, records: list[Record], *, begins: bool) -> Iterator[Part]:  # noqa: ARG002
        """See `scan_steps.RecordFormat`."""
        yield self._lines([self._line_of(record) for record in records])


class BatchLines(TextFormat):
    """A format that writes batches as lines; the arguments are those of `RecordLines`."""

    rows_max = 1

    def __init__(
        self, template_of: Callable[[str], Template], line_of: Callable[[Batch], bytes]
    ) -> None:
        super().__init__()
        self._templates = _Templates(template_of)
        self._line_of = line_of

    def of_batches(
        self, chunk: Chunk, first: int, last: int, chosen: NDArray[np.bool_]
    ) -> Iterator[Part]:
        """See `scan_steps.BatchFormat`."""
        program = self._templates.program(chunk.path)
        headers = whole(chunk.headers)
        ordinals = np.flatnonzero(chosen[first:last]) + first
        fields = program.table.copy()

        def kernel(
            state: NDArray[np.int64], ends: NDArray[np.int64], out: NDArray[np.uint8]
        ) -> int:
            why: int = o.format_batches(
                headers, ordinals, chunk.crc_valid, fields, program.texts, program.words,
                program.starts, program.size_max, state, ends, out,
            )  # fmt: skip
            return why

        yield from self._fill(
            0, len(ordinals), kernel, lambda i: self._line_of(chunk.batch(int(ordinals[i]))),
            program.size_max * len(ordinals),
        )  # fmt: skip

    def of_batch(self, batch: Batch) -> Part:
        """See `scan_steps.BatchFormat`."""
        return self._lines([self._line_of(batch)])
