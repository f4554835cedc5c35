"""Which topics and partitions are meant: globs over names, and ranges of numbers."""

from __future__ import annotations

import re
from collections.abc import Collection, Container
from fnmatch import translate
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from formats.late_patterns import pattern
from kafkalog.errors import UsageError
from kafkalog.files.payloads.kinds import payload_kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_NUMBERS: Final = pattern(r"([0-9]{1,10})(?:-([0-9]{1,10}))?")


@lru_cache(maxsize=256)
def _compiled(glob: str) -> re.Pattern[str]:
    return re.compile(translate(glob))


class Topics(Collection[str]):
    """The topics that globs name; a glob after `!` leaves out. They iterate as those that include.

    Without a glob that includes, all topics are meant.
    """

    def __init__(self, globs: Iterable[str]) -> None:
        self.texts = tuple(globs)
        self._included = [one for one in self.texts if not one.startswith("!")]
        self._left_out = [one[1:] for one in self.texts if one.startswith("!")]

    def __contains__(self, topic: object) -> bool:
        if not isinstance(topic, str) or _matches(self._left_out, topic):
            return False
        return not self._included or _matches(self._included, topic)

    def __iter__(self) -> Iterator[str]:
        return iter(self._included)

    def __len__(self) -> int:
        return len(self._included)

    def __bool__(self) -> bool:
        return bool(self._included or self._left_out)

    def names(self, topic: str) -> bool:
        """Return whether an internal topic is named, rather than met by a glob about all topics."""
        return _matches([one for one in self._included if one.startswith("__")], topic)


def _matches(globs: Iterable[str], topic: str) -> bool:
    return any(_compiled(glob).match(topic) for glob in globs)


def is_meant(topic: str, topics: Collection[str] | None, *, internal: bool) -> bool:
    """Return whether a topic is meant; an internal one if such ones are, or if it is named."""
    if topics is not None and topic not in topics:
        return False
    if internal or payload_kind(topic) is None:
        return True
    return topics is not None and (not isinstance(topics, Topics) or topics.names(topic))


class PartitionNumbers(Container[int | None]):
    """The numbers that `N` and `A-B` name; all of them if there are none."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        """Parse the texts. Raises `UsageError`."""
        self.texts = tuple(texts)
        self._ranges = [_range_of(text) for text in self.texts]

    def __contains__(self, number: object) -> bool:
        return not self._ranges or any(number in one for one in self._ranges)

    def __bool__(self) -> bool:
        return bool(self._ranges)


def _range_of(text: str) -> range:
    match = _NUMBERS.fullmatch(text)
    if match is None or (match[2] and int(match[2]) < int(match[1])):
        raise UsageError(f"{text!r} is not a partition.", hint="Give N or A-B: -p 3, -p 0-7.")
    return range(int(match[1]), int(match[2] or match[1]) + 1)
