"""How many different keys there are and which are the most frequent, in little memory.

The sketches are those of Apache DataSketches: they can be merged, and say how wrong they can be.
"""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING, Any, Final, Self

from kafkalog.errors import UnsupportedError
from kafkalog.profile.model import HotKey

if TYPE_CHECKING:
    from collections.abc import Iterable

try:
    import datasketches
except ImportError as missing:
    raise UnsupportedError(
        "Profiles need datasketches, which is not installed.",
        hint="pip install 'kafkalog[profile]'",
    ) from missing

_LG_REGISTERS: Final = 14  # 16,384 registers in 8 KiB: a standard deviation of 0.8 %
_LG_FREQUENT: Final = 12  # 3,072 keys at a time
_DEVIATIONS: Final = 2
KEY_SIZE_MAX: Final = 1024
"""How much of a key is shown among the frequent ones."""
_DIGEST_SIZE: Final = 16


class DistinctCount:
    """How many different values were seen: within 1.6 % in 19 of 20 cases. 8 KiB."""

    def __init__(self, text: str | None = None) -> None:
        self._union = datasketches.hll_union(_LG_REGISTERS)
        self._sketch = datasketches.hll_sketch(_LG_REGISTERS)
        if text is not None:
            self._union.update(datasketches.hll_sketch.deserialize(base64.b64decode(text)))

    def add(self, values: Iterable[str | int]) -> None:
        """See values."""
        for value in values:
            self._sketch.update(value)

    def merge(self, other: Self) -> None:
        """See what another one has seen."""
        self._union.update(other._whole)

    def as_text(self) -> str:
        """What makes it again."""
        return base64.b64encode(self._whole.serialize_compact()).decode()

    @property
    def bounds(self) -> tuple[int, int, int]:
        """The estimate, and what it is at least and at most."""
        sketch = self._whole
        lower, upper = sketch.get_lower_bound(_DEVIATIONS), sketch.get_upper_bound(_DEVIATIONS)
        return round(sketch.get_estimate()), round(lower), round(upper)

    @property
    def _whole(self) -> Any:
        union = datasketches.hll_union(_LG_REGISTERS)
        union.update(self._union.get_result())
        union.update(self._sketch)
        return union.get_result()


class FrequentKeys:
    """Which keys are frequent: all that make more than 1 record in 900. Some 100 KiB and keys.

    Of a key the first `KEY_SIZE_MAX` bytes are kept.
    """

    def __init__(self, text: str | None = None) -> None:
        kind = datasketches.frequent_strings_sketch
        self._sketch = (
            kind(_LG_FREQUENT) if text is None else kind.deserialize(base64.b64decode(text))
        )

    def add(self, keys: Iterable[tuple[str, int]]) -> None:
        """See keys, each as often as said."""
        for key, count in keys:
            self._sketch.update(key, count)

    def merge(self, other: Self) -> None:
        """See what another one has seen."""
        self._sketch.merge(other._sketch)

    def as_text(self) -> str:
        """What makes it again."""
        return base64.b64encode(self._sketch.serialize()).decode()

    def most(self, count: int) -> tuple[HotKey, ...]:
        """So many of those that are frequent beyond doubt."""
        kind = datasketches.frequent_items_error_type.NO_FALSE_POSITIVES
        found = [
            HotKey(bytes_of(key), lower, upper)
            for key, _, lower, upper in self._sketch.get_frequent_items(kind)
        ]
        found.sort(key=lambda one: (-one.at_least, one.key))
        return tuple(found[:count])


def text_of(key: bytes) -> str:
    """Return a key as the sketches take it: they pass over texts that are empty.

    Of a long key they get the beginning and a checksum, so that they stay small.
    """
    if len(key) <= KEY_SIZE_MAX:
        return "=" + key.decode("latin-1")
    digest = hashlib.blake2b(key, digest_size=_DIGEST_SIZE).digest()
    return "#" + (digest + key[:KEY_SIZE_MAX]).decode("latin-1")


def bytes_of(text: str) -> bytes:
    """Return the key of a text, as far as it is there."""
    data = text[1:].encode("latin-1")
    return data if text.startswith("=") else data[_DIGEST_SIZE:]
