"""Protobuf by columns: a kernel finds the fields of thousands of messages at once.

To make a message of Google's library of each value, and a Python object of each field, takes many
times as long as all the rest of an export. Messages that are odd in any way are left to that
library, so that it alone says what does not decode; and, in all messages, the parts that become
JSON or have a rare meaning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf import message, message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto

from kafkalog.log.columns.arrow import binary
from kafkalog.log.typed import proto_kernels
from kafkalog.log.typed.cells import cells_of_items, cells_of_text
from kafkalog.log.typed.column_steps import (
    PARTS_MAX,
    UnsupportedSchemaError,
    ValueColumns,
    offsets_of,
    repeated_keys,
    require_few,
    spread,
    where_present,
)
from kafkalog.log.typed.lake_types import PRESENT, TIMESTAMP
from kafkalog.log.typed.proto_columns import is_complete, symbols
from kafkalog.log.typed.proto_known import (
    FIRST_SECOND,
    LAST_SECOND,
    NANOS,
    is_wrapper,
)
from kafkalog.log.typed.remarks import LOST_DIGITS, UNKNOWN_FIELDS

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable

    from numpy.typing import NDArray

    from kafkalog.log.typed.column_steps import Ints, Step, Values
    from kafkalog.log.typed.proto_columns import MessageColumns

_FIELD: Final = FieldDescriptorProto
_VARINT, _FIXED64, _SIZED, _FIXED32 = 0, 1, 2, 5
_REPEATED: Final = 8
_WIRE_TYPES: Final = {
    **dict.fromkeys((_FIELD.TYPE_FIXED64, _FIELD.TYPE_SFIXED64, _FIELD.TYPE_DOUBLE), _FIXED64),
    **dict.fromkeys((_FIELD.TYPE_FIXED32, _FIELD.TYPE_SFIXED32, _FIELD.TYPE_FLOAT), _FIXED32),
    **dict.fromkeys((_FIELD.TYPE_STRING, _FIELD.TYPE_BYTES, _FIELD.TYPE_MESSAGE), _SIZED),
}
_ZIGZAG: Final = (_FIELD.TYPE_SINT32, _FIELD.TYPE_SINT64)
_SIGNED32: Final = (_FIELD.TYPE_INT32, _FIELD.TYPE_SFIXED32, _FIELD.TYPE_ENUM)
_UNSIGNED32: Final = (_FIELD.TYPE_UINT32, _FIELD.TYPE_FIXED32, _FIELD.TYPE_SINT32)
_LOW_32: Final = (1 << 32) - 1
# Google's library reads messages in messages down to 100; each takes two bytes at least.
_DEPTH_MAX: Final = 90
# Of how many messages of other types the first bytes are looked at.
_PREFIXES_MAX: Final = 16


class ProtobufColumns(ValueColumns):
    """Decodes many messages of one type.

    Args:
        descriptor: of the message.
        kind: the type of its column.
        columns: made that type.
        has_required: whether a message can lack what is required.
        split: returns the name of the message that data is of, and its bytes; None if nothing
            before these names it.
        losses: counts values that lose something.

    Raises:
        UnsupportedSchemaError: the message has too many fields, or a form that no kernel reads.
    """

    def __init__(
        self,
        descriptor: Any,
        kind: Any,
        columns: MessageColumns,
        losses: Counter[str],
        *,
        has_required: bool,
        split: Callable[[bytes], tuple[str, bytes]] | None,
    ) -> None:
        steps = _Steps(columns, has_required=has_required)
        super().__init__(steps.message(descriptor, kind, None, 1), kind, losses)
        self._name = descriptor.full_name
        self._split = split

    def decode(
        self, data: NDArray[np.uint8], starts: Ints, ends: Ints
    ) -> tuple[Any, NDArray[np.bool_]]:
        if self._split is None:
            return super().decode(data, starts, ends)
        sizes = np.full(len(starts), -1)
        left = ends > starts
        for _ in range(_PREFIXES_MAX):
            if not left.any():
                break
            one = int(left.argmax())
            content = data[starts[one] : ends[one]].tobytes()
            try:
                name, rest = self._split(content)
            except ValueError:
                left[one] = False
                continue
            size = len(content) - len(rest)
            is_alike = left & (ends - starts >= size)
            for i in range(size):
                is_alike &= data.take(starts + i, mode="clip") == data[starts[one] + i]
            left &= ~is_alike
            if name == self._name:
                sizes[is_alike] = size
        there = (sizes >= 0).nonzero()[0]
        found, some = super().decode(data, (starts + sizes)[there], ends[there])
        is_right = np.zeros(len(starts), bool)
        is_right[there] = some
        return found.take(spread(there, len(starts))), is_right


class _Slot(NamedTuple):
    """A field of a message.

    Attributes:
        number: the field's.
        form: its wire type; with `_REPEATED` if it is repeated.
        read: reads its values; one of each message, or all items of all messages.
        kind: the type of its column.
        is_required: whether each message needs it.
        oneof: the name of the oneof that it is a member of; None without one.
    """

    number: int
    form: int
    read: Step
    kind: Any
    is_required: bool = False
    oneof: str | None = None


class _Fields:
    """Reads fields of messages.

    Args:
        slots: the fields, in the order of their columns.
    """

    def __init__(self, slots: list[_Slot]) -> None:
        self._order = sorted(range(len(slots)), key=lambda place: slots[place].number)
        self._slots = [slots[place] for place in self._order]
        self._numbers = np.array([one.number for one in self._slots], np.int64)
        self._forms = np.array([one.form for one in self._slots], np.int64)
        self._repeated = (self._forms >= _REPEATED).nonzero()[0]
        self._widths = np.array(
            [cells_of_items(self._slots[i].kind) for i in self._repeated], np.int64
        )
        self._required = [i for i, one in enumerate(self._slots) if one.is_required]
        names = {one.oneof for one in slots} - {None}
        oneofs = [[i for i, one in enumerate(self._slots) if one.oneof == name] for name in names]
        self._oneofs = [some for some in oneofs if len(some) > 1]

    def read(self, values: Values, rows: Ints, starts: Ints, sizes: Ints) -> list[Any]:
        """Return the arrays of the columns."""
        count = len(self._slots)
        require_few(count, len(rows))
        shape = (max(count, 1), len(rows))
        numbers, there = np.zeros(shape, np.int64), np.full(shape, -1)
        there[self._repeated] = 0
        offsets, items = np.zeros(1, np.int64), np.zeros((2, 0), np.int64)
        for has_places in (False, True):
            proto_kernels.read_fields(
                values.data, starts, starts + sizes, rows, values.odd, values.lost[UNKNOWN_FIELDS],
                self._numbers, self._forms, has_places, numbers, there, items,
            )  # fmt: skip
            if has_places or not len(self._repeated):
                break
            values.spend(rows, self._widths @ there[self._repeated])
            counts = np.where(values.odd[rows], 0, there[self._repeated])
            offsets = offsets_of(counts.reshape(-1))
            numbers[self._repeated] = offsets[:-1].reshape(counts.shape)
            items = np.zeros((2, int(offsets[-1])), np.int64)
        for i in self._required:
            values.odd[rows[there[i] < 0]] = True
        for members in self._oneofs:
            values.odd[rows[(there[members] >= 0).sum(0) > 1]] = True
        found: dict[int, Any] = {}
        first = 0
        for place, one, some, is_there in zip(
            self._order, self._slots, numbers, there, strict=False
        ):
            if one.form < _REPEATED:
                found[place] = one.read(values, rows, some, is_there)
                continue
            own = offsets[first : first + len(rows) + 1]
            first += len(rows)
            inside = slice(int(own[0]), int(own[-1]))
            owners = np.repeat(rows, np.diff(own))
            array = one.read(values, owners, *items[:, inside])
            found[place] = _lists(values, rows, own - own[0], array, one.kind)
        return [found[place] for place in range(count)]


def _lists(values: Values, rows: Ints, offsets: Ints, items: Any, kind: Any) -> Any:
    """Return the lists or maps of some items."""
    if not pa.types.is_map(kind):
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), items, type=kind)
    keys, there = items.flatten()
    values.odd[rows[repeated_keys(offsets, keys)]] = True
    # Sorted by the key, as Google's library leaves the order open.
    owners = np.repeat(np.arange(len(rows)), np.diff(offsets))
    plain = keys.cast(pa.binary()) if pa.types.is_string(keys.type) else keys
    table = pa.table({"owner": owners, "key": plain})
    order = pc.sort_indices(table, sort_keys=[("owner", "ascending"), ("key", "ascending")])
    return pa.MapArray.from_arrays(
        pa.array(offsets, pa.int32()), keys.take(order), there.take(order), type=kind
    )


class _Steps:
    """Makes what reads a message, and its fields."""

    def __init__(self, columns: MessageColumns, *, has_required: bool) -> None:
        self._columns = columns
        self._has_required = has_required
        self._count = 0

    def message(self, descriptor: Any, kind: Any, holder: Any, depth: int) -> Step:
        """Return what reads messages into a column; they are null where they are not there.

        Args:
            kind: the type of the column.
            holder: the field that holds them.
            depth: in how many messages they are, with themselves.
        """
        self._count += 1
        is_set = descriptor.GetOptions().message_set_wire_format
        if self._count > PARTS_MAX or depth > _DEPTH_MAX or is_set:
            raise UnsupportedSchemaError
        known = self._columns.known(descriptor, holder)
        if known is not None and is_wrapper(known):
            read = self._wrapper(descriptor.fields[0], kind)
        elif known is not None and kind == TIMESTAMP:
            read = _timestamps()
        elif known is None and pa.types.is_struct(kind):
            read = self._struct(descriptor, kind, depth)
        else:
            read = self._by_google(descriptor, kind, holder, depth)
        return where_present(kind, read)

    def _struct(self, descriptor: Any, kind: Any, depth: int) -> Step:
        columns = {one.name: one.type for one in kind}
        fields = _Fields([
            self._slot(field, columns[name], depth)
            for name, field in self._columns.named(descriptor)
        ])  # fmt: skip
        names = list(kind)
        is_empty = [one.name for one in names] == [PRESENT] and not len(descriptor.fields)

        def struct(values: Values, rows: Ints, starts: Ints, sizes: Ints) -> Any:
            arrays = fields.read(values, rows, starts, sizes)
            if is_empty:
                arrays = [pa.array(np.ones(len(rows), bool))]
            return pa.StructArray.from_arrays(arrays, fields=names)

        return struct

    def _slot(self, field: Any, kind: Any, depth: int) -> _Slot:
        inner = field.message_type
        oneof = field.containing_oneof
        name = None if oneof is None else oneof.name
        if field.type == _FIELD.TYPE_GROUP:  # never read: a group makes a message odd
            absent = _empty(kind) if field.is_repeated else _nulls(kind)
            return _Slot(field.number, _SIZED, absent, kind, field.is_required, name)
        if not field.is_repeated:
            read = self._value(field, kind, depth)
            return _Slot(field.number, _wire_type(field), read, kind, field.is_required, name)
        if inner is not None and inner.GetOptions().map_entry:
            read = self._entries(inner, kind, depth + 1)
        else:
            read = self._value(field, kind.value_type, depth)
        return _Slot(field.number, _wire_type(field) + _REPEATED, read, kind)

    def _value(self, field: Any, kind: Any, depth: int, *, has_default: bool = False) -> Step:
        """Return what reads one value of a field.

        Args:
            has_default: whether it has the default where it is not there.
        """
        self._count += 1
        if field.message_type is not None:
            read = self.message(field.message_type, kind, field, depth + 1)
            if not has_default:
                return read
            return lambda values, rows, starts, sizes: read(
                values, rows, starts, np.maximum(sizes, 0)
            )
        is_nullable = field.has_presence and not field.is_repeated and not has_default
        return _scalar(field, kind, is_nullable=is_nullable)

    def _entries(self, entry: Any, kind: Any, depth: int) -> Step:
        parts = (("key", kind.key_type), ("value", kind.item_type))
        slots = []
        for name, one in parts:
            field = entry.fields_by_name[name]
            read = self._value(field, one, depth, has_default=True)
            slots.append(_Slot(field.number, _wire_type(field), read, one))
        fields = _Fields(slots)

        def entries(values: Values, rows: Ints, starts: Ints, sizes: Ints) -> Any:
            unknown = values.lost[UNKNOWN_FIELDS]
            before = unknown.copy()
            unknown[:] = False
            arrays = fields.read(values, rows, starts, sizes)
            values.odd |= unknown  # Google's library drops these
            unknown |= before
            return pa.StructArray.from_arrays(arrays, ["key", "value"])

        return entries

    def _wrapper(self, field: Any, kind: Any) -> Step:
        read = _scalar(field, kind, is_nullable=False)
        fields = _Fields([_Slot(field.number, _wire_type(field), read, kind)])
        return lambda values, *some: fields.read(values, *some)[0]

    def _by_google(self, descriptor: Any, kind: Any, holder: Any, depth: int) -> Step:
        parse = message_factory.GetMessageClass(descriptor).FromString
        convert = self._columns.one_value(descriptor, holder)
        seen, has_required = self._columns.seen, self._has_required
        # A message in it takes two bytes at least, so that it cannot be nested too deeply.
        size_max = 2 * (_DEPTH_MAX - depth)

        def read(values: Values, rows: Ints, starts: Ints, sizes: Ints) -> Any:
            lost = values.lost

            def converted(row: int, data: bytes) -> Any:
                if len(data) > size_max:
                    raise ValueError
                seen.has_unknown = seen.has_lost_digits = False
                try:
                    found = parse(data)
                except message.Error as error:
                    raise ValueError from error
                if has_required and not is_complete(found):
                    raise ValueError
                value = convert(found)
                lost[UNKNOWN_FIELDS][row] |= seen.has_unknown
                lost[LOST_DIGITS][row] |= seen.has_lost_digits
                return value

            return values.by_python(converted, kind, rows, starts, sizes)

        return read


def _empty(kind: Any) -> Step:
    def step(_values: Values, rows: Ints, _starts: Ints, _sizes: Ints) -> Any:
        offsets = pa.array(np.zeros(len(rows) + 1, np.int32))
        return pa.ListArray.from_arrays(offsets, pa.nulls(0, kind.value_type), type=kind)

    return step


def _nulls(kind: Any) -> Step:
    return lambda _values, rows, _starts, _sizes: pa.nulls(len(rows), kind)


def _wire_type(field: Any) -> int:
    return _WIRE_TYPES.get(field.type, _VARINT)


def _timestamps() -> Step:
    def number(_values: Values, _rows: Ints, numbers: Ints, _sizes: Ints) -> Any:
        return numbers

    fields = _Fields([_Slot(one, _VARINT, number, None) for one in (1, 2)])

    def timestamps(values: Values, rows: Ints, starts: Ints, sizes: Ints) -> Any:
        seconds, nanos = fields.read(values, rows, starts, sizes)
        nanos = nanos.astype(np.int32)
        is_time = (seconds >= FIRST_SECOND) & (seconds <= LAST_SECOND)
        is_time &= (nanos >= 0) & (nanos < NANOS)
        values.odd[rows[~is_time]] = True
        values.lost[LOST_DIGITS][rows[nanos % 1000 != 0]] = True
        micros = np.where(is_time, seconds, 0) * 1_000_000 + nanos // 1000
        return pa.array(micros).view(TIMESTAMP)

    return timestamps


def _scalar(field: Any, kind: Any, *, is_nullable: bool) -> Step:
    """Return what reads values without parts, given as 64 bits or by their place."""
    if field.type in (_FIELD.TYPE_STRING, _FIELD.TYPE_BYTES):
        is_text = field.type == _FIELD.TYPE_STRING

        def texts(values: Values, rows: Ints, starts: Ints, sizes: Ints) -> Any:
            if is_text:
                proto_kernels.check_texts(values.data, starts, sizes, rows, values.odd)
                sizes = np.where(values.odd[rows], -1, sizes)
            found = binary(values.data, starts, sizes if is_nullable else np.maximum(sizes, 0))
            return found.view(kind) if is_text else found

        return texts
    plain = _enum(field.enum_type) if field.enum_type is not None else _number(field.type, kind)

    def numbers(values: Values, rows: Ints, bits: Ints, sizes: Ints) -> Any:
        mask = sizes < 0 if is_nullable else None
        return plain(values, rows, bits, None if mask is None or not mask.any() else mask)

    return numbers


def _number(form: int, kind: Any) -> Any:
    def integers(bits: Ints) -> Any:
        if form in _SIGNED32:
            return bits.astype(np.int32).astype(np.int64)
        if form in _UNSIGNED32:
            bits = bits & _LOW_32
        return (
            (bits.view(np.uint64) >> np.uint64(1)).view(np.int64) ^ -(bits & 1)
            if (form in _ZIGZAG)
            else bits
        )

    def numbers(_values: Values, _rows: Ints, bits: Ints, mask: Any) -> Any:
        if pa.types.is_decimal(kind):
            words = np.zeros((len(bits), 2), np.int64)
            words[:, 0] = bits
            found = pa.Array.from_buffers(kind, len(bits), [None, pa.py_buffer(words)])
            return found if mask is None else pc.if_else(pa.array(~mask), found, None)
        if form == _FIELD.TYPE_BOOL:
            return pa.array(bits != 0, mask=mask)
        if form == _FIELD.TYPE_DOUBLE:
            return pa.array(bits.view(np.float64), mask=mask, from_pandas=False)
        if form == _FIELD.TYPE_FLOAT:
            floats = bits.astype(np.uint32).view(np.float32)
            return pa.array(floats, mask=mask, from_pandas=False)
        return pa.array(integers(bits), mask=mask)

    return numbers


def _enum(enum: Any) -> Any:
    names = symbols(enum)
    known = np.array(sorted(names), np.int64)
    texts = [names[number] for number in sorted(names)]
    cells = np.array([cells_of_text(len(one)) for one in texts], np.int64)

    def enums(values: Values, rows: Ints, bits: Ints, mask: Any) -> Any:
        numbers = bits.astype(np.int32).astype(np.int64)
        places = np.minimum(known.searchsorted(numbers), len(known) - 1)
        other = known[places] != numbers
        there = texts
        if cells.any():
            values.spend(rows, cells[places] if mask is None else np.where(mask, 0, cells[places]))
        if other.any():
            if enum.is_closed:  # an unknown field, to Google's library
                values.odd[rows[other if mask is None else other & ~mask]] = True
            unnamed, some = np.unique(numbers[other], return_inverse=True)
            places[other] = len(texts) + some
            there = [*texts, *map(str, unnamed.tolist())]
        return pa.array(there, pa.string()).take(pa.array(places, mask=mask))

    return enums
