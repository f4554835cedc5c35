"""`partition.metadata`: the version and the topic id of a partition, one `key: value` per line.

Follows `PartitionMetadataFile` of Kafka 4.3. Any text round-trips exactly.
"""

from __future__ import annotations

import re
from typing import Any, Final

from construct import Container, GreedyBytes, ListContainer

from formats.checkpoint import Utf8Text, split_lines

SEPARATOR: Final = re.compile(r":[ \t\x0b\f]+")
"""What separates key and value."""


class PartitionMetadataAdapter(Utf8Text):
    """Lines of `key`, `separator`, `value` and `end`; a line without a separator is all key."""

    def split(self, text: str) -> Any:
        """Split a text into lines."""
        lines = ListContainer()
        for line, end in split_lines(text):
            found = SEPARATOR.search(line)
            key, separator, value = (
                (line[: found.start()], found[0], line[found.end() :]) if found else (line, "", "")
            )
            lines.append(Container(key=key, separator=separator, value=value, end=end))
        return lines

    def join(self, obj: Any) -> str:
        """Join lines into a text."""
        return "".join(
            line["key"] + line["separator"] + line["value"] + line["end"] for line in obj
        )


PartitionMetadata: Final = PartitionMetadataAdapter(GreedyBytes)
