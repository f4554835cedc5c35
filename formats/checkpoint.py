"""Text checkpoints: a version, a count and one entry per line, kept as lines of fields.

Follows `CheckpointFile` of Kafka 4.3: recovery-point-offset-checkpoint and the other offset
checkpoints of a log directory, and leader-epoch-checkpoint. Any text round-trips exactly.
"""

from __future__ import annotations

import re
from typing import Any, Final

from construct import Adapter, Container, GreedyBytes, ListContainer, StringError

# The line ends of BufferedReader.readLine and the whitespace of java.util.regex.
_LINE: Final = re.compile(r"([^\r\n]*)(\r\n|\r|\n|\Z)")
_WHITESPACE: Final = re.compile(r"([ \t\x0b\f]+)")


def split_lines(text: str) -> list[tuple[str, str]]:
    """Split a text into lines with their line ends, as Java does; the last may have none."""
    return [(match[1], match[2]) for match in _LINE.finditer(text) if match[0]]


class Utf8Text(Adapter):  # type: ignore[misc] # construct has no types
    """All bytes up to the end as strict UTF-8; subclasses split the text further."""

    def _decode(self, obj: bytes, context: Any, path: str) -> Any:
        try:
            return self.split(obj.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise StringError(f"not UTF-8: {error}", path=path) from error

    def _encode(self, obj: Any, context: Any, path: str) -> bytes:
        try:
            return self.join(obj).encode("utf-8")
        except UnicodeEncodeError as error:
            raise StringError(f"not UTF-8: {error}", path=path) from error

    def split(self, text: str) -> Any:
        """Split a text into fields."""
        return text

    def join(self, obj: Any) -> str:
        """Join the fields of `split` into a text."""
        return str(obj)


class CheckpointAdapter(Utf8Text):
    """Lines of `fields`, `separators` between them, and `end`.

    As for Kafka, a line that starts with whitespace has an empty first field, and a blank line has
    one empty field. One that ends with whitespace has an empty last field, which Kafka drops.
    """

    def split(self, text: str) -> Any:
        """Split a text into lines."""
        lines = ListContainer()
        for line, end in split_lines(text):
            pieces = _WHITESPACE.split(line)
            lines.append(Container(fields=pieces[::2], separators=pieces[1::2], end=end))
        return lines

    def join(self, obj: Any) -> str:
        """Join lines into a text; missing separators become one space."""
        text = []
        for line in obj:
            separators = [*line["separators"], *[" "] * len(line["fields"])]
            for position, field in enumerate(line["fields"]):
                text.append(separators[position - 1] if position else "")
                text.append(field)
            text.append(line["end"])
        return "".join(text)


Checkpoint: Final = CheckpointAdapter(GreedyBytes)
