"""A broker's properties file, each entry with the line it is on.

Follows `java.util.Properties`; the last of equal keys counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalog.errors import CorruptDataError
from kafkalog.source import read_file

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class Property:
    """One entry; `line` counts from 1."""

    name: str
    value: str
    line: int


def read_property_lines(path: str) -> Iterator[Property]:
    """The entries of a file in file order.

    Raises:
        CorruptDataError: an escape is malformed.
        NotFoundError, UnreadableError: it cannot be read.
    """
    import javaproperties

    text = read_file(path).decode("iso-8859-1")
    line = 1
    try:
        for part in javaproperties.parse(text):
            if isinstance(part, javaproperties.KeyValue):
                yield Property(part.key, part.value, line)
            source = part.source
            line += source.count("\n") + source.replace("\r\n", "\n").count("\r")
    except ValueError as error:
        raise CorruptDataError(f"{error}.", reference="file-malformed", path=path) from error
