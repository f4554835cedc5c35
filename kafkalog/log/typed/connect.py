"""Decodes what Kafka Connect's JsonConverter writes: each message has its schema next to its data.

The schema is many times as long as the data, and the same in thousands of messages. So it is parsed
once, and what else begins with the same bytes is known to have it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from kafkalog.errors import UsageError
from kafkalog.io.jit.fast_path import kernels_work
from kafkalog.log.typed.column_steps import UNFIT, spread
from kafkalog.log.typed.connect_schema import connect_decoder
from kafkalog.log.typed.evolution import EvolvedDecoder
from kafkalog.log.typed.framing import VALUE_SIZE_MAX
from kafkalog.log.typed.schema_size import MALFORMED, NODES_MAX, brief

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from kafkalog.log.typed.column_steps import Ints
    from kafkalog.log.typed.framing import SchemaId
    from kafkalog.log.typed.json_schema import ShapeDecoder
    from kafkalog.log.typed.remarks import Remark

SCHEMAS_MAX: Final = 200
"""How many schemas a column is made of: those of further messages do not decode."""
_TEXTS_SIZE_MAX: Final = 4 << 20
"""And how many characters they have together: they go to each task, and to the manifest."""
# How often what many values begin with is looked for before each is looked at by itself.
_ROUNDS_MAX: Final = 16
_NO_ENVELOPE: Final = "it is not `schema` and `payload`, as Kafka Connect writes it"
_BLANKS: Final = r"[ \t\n\r]*"
_NAME: Final = rf'{_BLANKS}"(schema|payload)"{_BLANKS}:{_BLANKS}'
_FIRST: Final = re.compile(rf"\ufeff?{_BLANKS}\{{{_NAME}")
_SECOND: Final = re.compile(rf"{_BLANKS},{_NAME}")
_END: Final = re.compile(rf"{_BLANKS}\}}{_BLANKS}\Z")
_END_OF_BYTES: Final = re.compile(_END.pattern.encode())


def _refuse(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


# Only where a value ends counts: numbers are not made.
_PASS: Final = json.JSONDecoder(parse_float=len, parse_int=len, parse_constant=_refuse).raw_decode


class Envelope(NamedTuple):
    """A message as Kafka Connect writes it.

    Attributes:
        schema: the text of its schema.
        payload: its data, which may be no JSON.
        before: what stands before the data if that is last; else empty.
    """

    schema: str
    payload: bytes
    before: bytes


def opened(data: bytes) -> Envelope:
    """Return the parts of a message.

    Raises:
        ValueError: it has not a schema and a payload alone.
    """
    text = data.decode("utf-8")
    found: dict[str, tuple[int, int]] = {}
    at = 0
    try:
        for expected in (_FIRST, _SECOND):
            name = expected.match(text, at)
            if name is None or name[1] in found:
                raise ValueError(_NO_ENVELOPE)
            _, at = _PASS(text, name.end())
            found[name[1]] = name.end(), at
    except RecursionError as error:
        raise ValueError("too deep") from error
    if not _END.match(text, at):
        raise ValueError(_NO_ENVELOPE)
    start, end = found["payload"]
    is_last = end == at
    return Envelope(
        text[slice(*found["schema"])],
        text[start:end].encode(),
        text[:start].encode() if is_last else b"",
    )


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
        try:
            made = connect_decoder([text])
        except (*MALFORMED, UsageError):
            return False
        paths = self._paths.union(_paths(pa.field("", made.type)))
        is_one_more = len(self.decoders) < SCHEMAS_MAX and self._size + len(text) <= _TEXTS_SIZE_MAX
        if not is_one_more or len(paths) > NODES_MAX:
            self.is_full = True
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
        self._known: dict[bytes, str] = {}
        self.type = self._column.type

    @property
    def remarks(self) -> list[Remark]:
        return self._column.remarks

    @property
    def losses(self) -> Counter[str]:
        return self._column.losses

    def decode(self, data: bytes, schema_id: SchemaId | None = None) -> Any:  # noqa: ARG002 # it has the schema itself
        for before, schema in self._known.items():
            if data.startswith(before) and (end := _END_OF_BYTES.search(data)):
                try:
                    return self._payload(schema, data[len(before) : end.start()])
                except json.JSONDecodeError:
                    break
        one = opened(data)
        if one.before:
            if len(self._known) == _ROUNDS_MAX:
                del self._known[next(iter(self._known))]
            self._known[one.before] = one.schema
        return self._payload(one.schema, one.payload)

    def _payload(self, schema: str, payload: bytes) -> Any:
        number = self._numbers.get(schema)
        if number is None:
            raise ValueError(_why_not(schema))
        return self._column.decode(payload, number)

    def by_columns(self, schema_id: SchemaId | None) -> ConnectColumns | None:  # noqa: ARG002 # as above
        """Return what decodes many values at once; None if that is impossible."""
        return ConnectColumns(self._column, self._numbers) if kernels_work() else None


def _why_not(schema: str) -> str:
    """Return why messages with a schema do not decode, which the column has not."""
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
        places = np.concatenate(there)
        return pa.concat_arrays(parts).take(spread(places, len(starts))), is_right


class EachConnectDecoder:
    """Decodes each message by its own schema.

    Attributes:
        losses: how many of the values so far lost something, by what.
    """

    def __init__(self) -> None:
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
            one = opened(data)
            if not self._schemas.add(one.schema):
                if not self._schemas.is_full:
                    return None, _why_not(one.schema)
                self._forget()
                if not self._schemas.add(one.schema):
                    return None, "its schema describes too much"
            made = self._schemas.decoders[one.schema]
            return pa.array([made.decode(one.payload)], made.type), None
        except UNFIT as error:
            return None, brief(error)

    def _forget(self) -> None:
        self._lost = self.losses
        self._schemas = Schemas()
