"""Decodes what Kafka Connect's JsonConverter writes: each message has its schema next to its data.

The schema is many times as long as the data, and the same in thousands of messages. So it is parsed
once, and what else begins with the same bytes is known to have it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from kafkalog.errors import UsageError
from kafkalog.io.jit.fast_path import kernels_work
from kafkalog.log.typed.column_steps import UNFIT, spread
from kafkalog.log.typed.connect_schema import connect_decoder
from kafkalog.log.typed.evolution import EvolvedDecoder
from kafkalog.log.typed.framing import VALUE_SIZE_MAX
from kafkalog.log.typed.schema_size import MALFORMED, brief

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from kafkalog.log.typed.column_steps import Ints
    from kafkalog.log.typed.framing import SchemaId
    from kafkalog.log.typed.json_schema import ShapeDecoder
    from kafkalog.log.typed.model import Decoder
    from kafkalog.log.typed.remarks import Remark

SCHEMAS_MAX: Final = 100
"""How many schemas a column is made of: those of further messages do not decode."""
_TEXTS_SIZE_MAX: Final = 4 << 20
"""And how many characters they have together: they go to each task, and to the manifest."""
_TEXT_SIZE_MAX: Final = 2 << 20
NO_SCHEMA: Final = "null"
"""The text in the place of the schema of data that has none, and of nulls."""
# How many fields all have, times how many schemas: the work of merging them.
_WORK_MAX: Final = 400_000
# How often what many values begin with is looked for before each is looked at by itself.
_ROUNDS_MAX: Final = 16
_NO_ENVELOPE: Final = "it is not `schema` and `payload`, as Kafka Connect writes it"
_BLANKS: Final = " \t\n\r"
_NAME: Final = rf'[{_BLANKS}]*"(schema|payload)"[{_BLANKS}]*:[{_BLANKS}]*'
_FIRST: Final = re.compile(rf"\ufeff?[{_BLANKS}]*\{{{_NAME}")
_SECOND: Final = re.compile(rf"[{_BLANKS}]*,{_NAME}")


def _refuse(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


# Only where a value ends counts: numbers are not made.
_PASS: Final = json.JSONDecoder(parse_float=len, parse_int=len, parse_constant=_refuse).raw_decode


class Envelope(NamedTuple):
    """A message as Kafka Connect writes it.

    Attributes:
        schema: the text of its schema.
        payload: what stands in the place of its data, which may be anything.
        before: what stands before that if it is last; else empty.
    """

    schema: str
    payload: bytes
    before: bytes


def opened(data: bytes) -> Envelope:
    """Return the parts of a message.

    Raises:
        ValueError: it has not a schema and a payload.
    """
    text = data.decode("utf-8")
    first = _FIRST.match(text)
    if first is None:
        raise ValueError(_NO_ENVELOPE)
    try:
        _, end = _PASS(text, first.end())
    except RecursionError as error:
        raise ValueError("too deep") from error
    second = _SECOND.match(text, end)
    if second is None or second[1] == first[1]:
        raise ValueError(_NO_ENVELOPE)
    head = text[first.end() : end].encode()
    before = text[: second.end()].encode()
    tail = _until_end(data, len(before))
    if first[1] == "schema":
        return Envelope(head.decode(), tail, before)
    return Envelope(tail.decode().rstrip(_BLANKS), head, b"")


def _until_end(data: bytes, start: int) -> bytes:
    """Return what stands before the brace that is last."""
    whole = data[start:].rstrip(_BLANKS.encode())
    if not whole.endswith(b"}"):
        raise ValueError(_NO_ENVELOPE)
    return whole[:-1]


class _Opener:
    """Opens messages one by one; knows what the last ones began with."""

    def __init__(self) -> None:
        self._known: dict[bytes, str] = {}

    def parts(self, data: bytes) -> tuple[str, bytes]:
        """Return the text of the schema and the payload. Raises as `opened`."""
        for before, schema in self._known.items():
            if data.startswith(before):
                return schema, _until_end(data, len(before))
        one = opened(data)
        if one.before:
            if len(self._known) == _ROUNDS_MAX:
                del self._known[next(iter(self._known))]
            self._known[one.before] = one.schema
        return one.schema, one.payload


def _value(decoder: Decoder, payload: bytes, schema_id: SchemaId | None = None) -> Any:
    try:
        return decoder.decode(payload, schema_id)
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":  # members after the payload, or more after the message
            raise ValueError(_NO_ENVELOPE) from error
        raise


class Group(NamedTuple):
    """Values that begin alike.

    Attributes:
        schema: the text of their schema.
        size: how many bytes stand before the data of each.
        rows: which ones they are.
    """

    schema: str
    size: int
    rows: Ints


def groups(data: NDArray[np.uint8], starts: Ints, ends: Ints) -> Iterator[Group]:
    """Yield values of the same schema together; some, and what is no message, are in no group.

    Args:
        data: the bytes, not empty.
        starts, ends: where the values begin and end, in ascending order.
    """
    if not len(starts):
        return
    base = int(starts[0])
    content = data[base : int(ends[-1])].tobytes()
    starts, sizes = starts - base, ends - starts
    left = np.ones(len(starts), bool)
    for _ in range(_ROUNDS_MAX):
        if not left.any():
            return
        row = int(left.argmax())
        left[row] = False
        try:
            one = opened(content[starts[row] : starts[row] + sizes[row]])
        except ValueError:
            continue
        if not one.before:
            continue
        left[row] = True
        maybe = (left & (sizes > len(one.before))).nonzero()[0]
        is_alike = [content.startswith(one.before, at) for at in starts[maybe].tolist()]
        rows = maybe[np.array(is_alike, bool)]
        left[rows] = False
        yield Group(one.schema, len(one.before), rows)


class Schemas:
    """The schemas of messages so far, a bounded number of them.

    Attributes:
        decoders: what decodes payloads, by the text of the schema.
        is_full: whether there were more than are kept.
    """

    def __init__(self) -> None:
        self.decoders: dict[str, ShapeDecoder] = {}
        self.is_full = False
        self._size = 0
        self._paths: set[str] = set()

    def add(self, text: str) -> bool:
        """Add a schema; return whether it is kept, or was already.

        What is no schema is not, nor what would be too many, or too many fields in all.
        """
        if text in self.decoders:
            return True
        if len(text) > _TEXT_SIZE_MAX:
            return False
        try:
            made = connect_decoder([text])
        except (*MALFORMED, UsageError):
            return False
        paths = self._paths.union(_paths(pa.field("", made.type)))
        count = len(self.decoders) + 1
        self.is_full = (
            count > SCHEMAS_MAX
            or self._size + len(text) > _TEXTS_SIZE_MAX
            or count * len(paths) > _WORK_MAX
        )
        if self.is_full:
            return False
        self.decoders[text] = made
        self._paths = paths
        self._size += len(text)
        return True


def _paths(field: Any) -> Iterator[str]:
    """Yield where the fields of a type are."""
    waiting = [("", field.type)]
    while waiting:
        path, kind = waiting.pop()
        yield path
        parts = [kind.field(i) for i in range(kind.num_fields)]
        waiting += [(f"{path}.{one.name}", one.type) for one in parts]


class ConnectDecoder:
    """Decodes messages into one column, which has the fields of several schemas.

    Args:
        writers: the schemas, as `TypedColumn` has them.
        versions: likewise.

    Raises:
        UsageError: there is no schema.
    """

    def __init__(
        self,
        writers: Sequence[tuple[SchemaId, tuple[str, ...]]],
        versions: Sequence[SchemaId],
    ) -> None:
        self._numbers = {text: number for number, (text,) in writers}
        self._column = EvolvedDecoder(connect_decoder, dict(writers), versions)
        self._opener = _Opener()
        self.type = self._column.type

    @property
    def remarks(self) -> list[Remark]:
        return self._column.remarks

    @property
    def losses(self) -> Counter[str]:
        return self._column.losses

    def decode(self, data: bytes, schema_id: SchemaId | None = None) -> Any:  # noqa: ARG002 # it has the schema itself
        schema, payload = self._opener.parts(data)
        number = self._numbers.get(schema)
        if number is None:
            if schema == NO_SCHEMA and payload.strip() == NO_SCHEMA.encode():
                return None
            raise ValueError(_why_not(schema))
        return _value(self._column, payload, number)

    def by_columns(self, schema_id: SchemaId | None) -> ConnectColumns | None:  # noqa: ARG002 # as above
        """Return what decodes many values at once; None if that is impossible."""
        return ConnectColumns(self._column, self._numbers) if kernels_work() else None


@lru_cache(_ROUNDS_MAX)
def _why_not(schema: str) -> str:
    """Return why messages with a schema do not decode, which the column has not."""
    if schema == NO_SCHEMA:
        return "it has no schema, and others have"
    if len(schema) > _TEXT_SIZE_MAX:
        return f"its schema is longer than {_TEXT_SIZE_MAX} characters"
    try:
        connect_decoder([schema])
    except (*MALFORMED, UsageError) as error:
        return f"its schema is none: {brief(error).rstrip('.')}"
    return f"its schema is not among the {SCHEMAS_MAX} at most that the column is made of"


class ConnectColumns:
    """Decodes many messages at once.

    Args:
        column: decodes payloads.
        numbers: which schema they have, by its text.
    """

    def __init__(self, column: EvolvedDecoder, numbers: dict[str, SchemaId]) -> None:
        self._column = column
        self._numbers = numbers

    def decode(
        self, data: NDArray[np.uint8], starts: Ints, ends: Ints
    ) -> tuple[Any, NDArray[np.bool_]]:
        """Return a `pyarrow.Array`, and which values are right, as `ValueColumns` does."""
        parts: list[Any] = []
        there: list[Ints] = []
        is_right = np.zeros(len(starts), bool)
        for schema, size, rows in groups(data, starts, ends):
            rows = rows[data[ends[rows] - 1] == ord("}")]
            number = self._numbers.get(schema)
            columns = None if number is None else self._column.by_columns(number)
            if columns is None or not len(rows):
                continue
            array, is_own = columns.decode(data, starts[rows] + size, ends[rows] - 1)
            parts.append(array)
            there.append(rows)
            is_right[rows] = is_own
        if not parts:
            return pa.nulls(len(starts), self._column.type), is_right
        if len(there[0]) == len(starts):
            return parts[0], is_right
        places = np.concatenate(there)
        return pa.concat_arrays(parts).take(spread(places, len(starts))), is_right


class EachConnectDecoder:
    """Decodes each message by its own schema.

    Attributes:
        losses: how many of the values so far lost something, by what.
    """

    def __init__(self) -> None:
        self._opener = _Opener()
        self._schemas = Schemas()
        self._lost: Counter[str] = Counter()

    @property
    def remarks(self) -> list[Remark]:
        """What the last schemas have no type for."""
        every = [one for made in self._schemas.decoders.values() for one in made.remarks]
        return [*dict.fromkeys(every)]

    @property
    def losses(self) -> Counter[str]:
        return sum((one.losses for one in self._schemas.decoders.values()), self._lost)

    def decode(self, data: bytes) -> tuple[Any, str | None]:
        """Return what bytes decode to, an Arrow array of one value, and why they do not decode."""
        if len(data) > VALUE_SIZE_MAX:
            return None, f"larger than {VALUE_SIZE_MAX} bytes"
        try:
            schema, payload = self._opener.parts(data)
            made = self._decoder(schema)
            return pa.array([_value(made, payload)], made.type), None
        except UNFIT as error:
            return None, brief(error)

    def _decoder(self, schema: str) -> ShapeDecoder:
        if not self._schemas.add(schema):
            if not self._schemas.is_full:
                raise ValueError(_why_not(schema))
            self._lost = self.losses
            self._schemas = Schemas()
            if not self._schemas.add(schema):
                raise ValueError("its schema describes too much")
        return self._schemas.decoders[schema]
