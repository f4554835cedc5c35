"""How the text files of log directories and partitions divide into lines, and lines into fields.

Follows `BufferedReader.readLine`, `CheckpointFile` and `PartitionMetadataFile` of Kafka. The
schemas of `formats.text_files` rest on it; what only reads such a file needs no schema.
"""

from __future__ import annotations

from typing import Final

from formats.late_patterns import pattern

# The line ends of BufferedReader.readLine and the whitespace of java.util.regex.
_LINE: Final = pattern(r"([^\r\n]*)(\r\n|\r|\n|\Z)")
_WHITESPACE: Final = pattern(r"([ \t\x0b\f]+)")

SEPARATOR: Final = pattern(r":[ \t\x0b\f]+")
"""What separates key and value in `partition.metadata`."""


def split_lines(text: str) -> list[tuple[str, str]]:
    """Split a text into lines with their line ends, as Java does; the last may have none."""
    return [(match[1], match[2]) for match in _LINE.finditer(text) if match[0]]


def checkpoint_fields(line: str) -> tuple[list[str], list[str]]:
    """Return the fields of a line of a checkpoint, and the separators between them.

    As for Kafka, a line that starts with whitespace has an empty first field, and a blank line has
    one empty field. One that ends with whitespace has an empty last field, which Kafka drops.
    """
    pieces = _WHITESPACE.split(line)
    return pieces[::2], pieces[1::2]


def key_and_value(line: str) -> tuple[str, str, str]:
    """Return key, separator and value of a line; without a separator it is all key."""
    found = SEPARATOR.search(line)
    return (line[: found.start()], found[0], line[found.end() :]) if found else (line, "", "")
