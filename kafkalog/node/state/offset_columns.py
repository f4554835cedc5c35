"""Committed offsets decoded as columns, of which `__consumer_offsets` may hold millions.

A twin of `payloads.offset_commits` for whole Arrow arrays: it takes the same keys and values for
plain ones, and leaves all others to the decoder that follows the schemas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import numpy as np
import pyarrow as pa

from formats import decoder

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Longs = NDArray[np.int64]
    Mask = NDArray[np.bool_]

T = TypeVar("T")
_KEY_TYPE: Final = 1
_NOT_TEXT: Final = -1


class Strings:
    """The bytes of an Arrow array of byte strings, read at many positions at once.

    A position outside the array gives any byte, so a row with such a position is not plain.

    Attributes:
        starts, stops: positions of the rows; a null is empty.
    """

    def __init__(self, rows: Any) -> None:
        _, bounds, self._data = rows.buffers()
        last = rows.offset + len(rows)
        ends = np.frombuffer(bounds, np.int32)[rows.offset : last + 1].astype(np.int64)
        self.starts, self.stops = ends[:-1], ends[1:]
        content = np.frombuffer(self._data or b"", np.uint8)
        self._content = content if len(content) else np.zeros(1, np.uint8)

    def byte(self, at: Longs) -> Longs:
        """Return a byte per row."""
        return self._content.take(at, mode="clip").astype(np.int64)

    def short(self, at: Longs) -> Longs:
        """Return an int16 per row."""
        high = self.byte(at)
        return ((high ^ 0x80) - 0x80 << 8) | self.byte(at + 1)

    def long(self, at: Longs) -> Longs:
        """Return an int64 per row."""
        found = self._content.take(at[:, None] + np.arange(8), mode="clip")
        return found.view(">i8")[:, 0].astype(np.int64)

    def slices(self, starts: Longs, stops: Longs) -> Any:
        """Return a part of each of some rows, which rise, as an Arrow array."""
        bounds = np.stack((starts, stops), axis=1).astype(np.int32)
        count = max(0, 2 * len(starts) - 1)  # every other one is what lies between two parts
        buffers = [None, pa.py_buffer(bounds), self._data or pa.py_buffer(b"")]
        parts = pa.Array.from_buffers(pa.binary(), count, buffers)
        return parts.take(pa.array(np.arange(0, count, 2)))


class Names(Generic[T]):
    """Numbers for byte strings, in the order in which they first come.

    Args:
        decode: returns what a byte string says; may raise `UnicodeDecodeError`.

    Attributes:
        names: what each number stands for.
    """

    def __init__(self, decode: Callable[[bytes], T]) -> None:
        self.names: list[T] = []
        self._decode = decode
        self._numbers: dict[bytes, int] = {}

    def numbers(self, parts: Any) -> Longs:
        """Return the number of each row of an Arrow array; below 0 for what is no text."""
        encoded = parts.dictionary_encode()
        numbers = [self._number(name) for name in encoded.dictionary.to_pylist()]
        found: Longs = np.array(numbers, np.int64)[encoded.indices.to_numpy()]
        return found

    def _number(self, name: bytes) -> int:
        number = self._numbers.get(name)
        if number is None:
            try:
                self.names.append(self._decode(name))
                number = len(self.names) - 1
            except UnicodeDecodeError:
                number = _NOT_TEXT
            self._numbers[name] = number
        return number


def group_names() -> Names[str]:
    """Return numbers for the ids of groups."""
    return Names(bytes.decode)


def partition_names() -> Names[tuple[str, int]]:
    """Return numbers for topics with a partition, as they stand in keys."""
    return Names(lambda name: (_topic(name), int.from_bytes(name[-4:], "big", signed=True)))


def _topic(name: bytes) -> str:
    return name[:-4].decode()


def commit_keys(
    rows: Any, groups: Names[str], partitions: Names[tuple[str, int]]
) -> tuple[Mask, Longs, Longs]:
    """Decode keys, as `commit_key`: which are plain, their groups, their topics with partition."""
    keys = Strings(rows)
    group = keys.starts + 4
    group_end = group + keys.short(keys.starts + 2)
    topic = group_end + 2
    end = topic + keys.short(group_end) + 4
    is_plain = (
        (keys.stops - keys.starts >= 4) & (keys.short(keys.starts) == _KEY_TYPE)
        & (group <= group_end) & (topic + 4 <= end) & (end == keys.stops)
    )  # fmt: skip
    chosen = np.flatnonzero(is_plain)
    numbers = np.full((2, len(is_plain)), _NOT_TEXT, np.int64)
    numbers[0, chosen] = groups.numbers(keys.slices(group[chosen], group_end[chosen]))
    numbers[1, chosen] = partitions.numbers(keys.slices(topic[chosen], end[chosen]))
    is_text: Mask = np.logical_and.reduce(numbers > _NOT_TEXT)
    return is_text, numbers[0], numbers[1]


def commit_values(rows: Any) -> tuple[Mask, Longs]:
    """Decode values, as `commit_value`: which are plain, and the committed offsets."""
    values = Strings(rows)
    version = values.short(values.starts)
    size_at = values.starts + np.where(version == 3, 14, 10)  # after the leader epoch, or without
    text = size_at + 2
    end = text + values.short(size_at)
    stop = end + np.where(version == 1, 16, 8)  # with a time of expiry, or without
    is_plain = (version >= 0) & (version <= 3) & (text <= end) & (stop == values.stops)
    is_flexible = (version == 4) & (not decoder.BY_SCHEMA)  # its sizes are varints
    if is_flexible.any():
        # From 128 on a size takes several bytes: such rows are left to the decoder.
        size = values.byte(values.starts + 14)
        new_end = values.starts + 14 + size
        tags = [values.byte(new_end + 8 + number) for number in range(3)]
        has_none = (tags[0] == 0) & (new_end + 9 == values.stops)
        # The only known tag: 0, the topic id, with 16 bytes.
        has_id = (tags[0] == 1) & (tags[1] == 0) & (tags[2] == 16)
        has_id &= new_end + 11 + 16 == values.stops
        is_new = is_flexible & (size > 0) & (size < 0x80) & (has_none | has_id)
        is_plain |= is_new
        text, end = np.where(is_new, values.starts + 15, text), np.where(is_new, new_end, end)
    is_plain &= rows.is_valid().to_numpy(zero_copy_only=False)
    texts = np.flatnonzero(is_plain & (text < end))
    is_plain[texts] = _are_texts(values.slices(text[texts], end[texts]))
    return is_plain, values.long(values.starts + 2)


def _are_texts(parts: Any) -> Mask:
    """Return which byte strings are UTF-8."""
    try:
        parts.cast(pa.string())
    except pa.ArrowInvalid:
        return np.array([_is_text(one) for one in parts.to_pylist()], np.bool_)
    return np.ones(len(parts), np.bool_)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
