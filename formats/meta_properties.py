r"""`meta.properties`: the ids of a log directory as Java properties, in their escaped form.

Follows `java.util.Properties.load` of Java 17 and `PropertiesUtils` of Kafka 4.3. The bytes are
decoded as ISO-8859-1, as in Kafka, so any file round-trips exactly. Keys and values keep their
escapes: `\:`, `\u0041` and the backslash at the end of a continued line.
"""

from __future__ import annotations

import re
from typing import Any, Final

from construct import Adapter, Container, GreedyBytes, ListContainer, StringError

from formats.checkpoint import split_lines

# A continued line includes the next line's leading whitespace.
_CONTINUED: Final = r"\\(?:\r\n|\r|\n)[ \t\f]*"
_SPACE: Final = rf"(?:[ \t\f]|{_CONTINUED})*"
_PROPERTY: Final = re.compile(
    r"(?P<indent>[ \t\f]*)"
    rf"(?P<key>(?:{_CONTINUED}|\\[^\r\n]|\\\Z|[^\\=: \t\f])*)"
    rf"(?P<separator>{_SPACE}(?:[=:]{_SPACE})?)"
    r"(?P<value>.*)",
    re.DOTALL,
)
_COMMENT_SIGNS: Final = ("#", "!")
_WHITESPACE: Final = " \t\f"


class PropertiesAdapter(Adapter):  # type: ignore[misc] # construct has no types
    """Lines of `indent`, `key`, `separator`, `value` and `end`, with a `kind` each.

    `kind` is "property", "comment" or "blank"; a comment or blank line is all `value`. A property
    that is continued over several lines is one line here.
    """

    def _decode(self, obj: bytes, context: Any, path: str) -> Any:
        lines = ListContainer()
        natural = iter(split_lines(obj.decode("iso-8859-1")))
        for line, end in natural:
            stripped = line.lstrip(_WHITESPACE)
            kind = "blank" if not stripped else "property"
            if stripped.startswith(_COMMENT_SIGNS):
                kind = "comment"
            if kind != "property":
                lines.append(
                    Container(kind=kind, indent="", key="", separator="", value=line, end=end)
                )
                continue
            pieces = [line]
            while end and _is_continued(pieces[-1]):
                continuation, next_end = next(natural, ("", ""))
                pieces += [end, continuation]
                end = next_end
            match = _PROPERTY.fullmatch("".join(pieces))
            assert match is not None  # each part may be empty, and the last accepts anything
            lines.append(Container(kind=kind, **match.groupdict(), end=end))
        return lines

    def _encode(self, obj: Any, context: Any, path: str) -> bytes:
        text = "".join(
            line["indent"] + line["key"] + line["separator"] + line["value"] + line["end"]
            for line in obj
        )
        try:
            return text.encode("iso-8859-1")
        except UnicodeEncodeError as error:
            raise StringError(f"not ISO-8859-1: {error}", path=path) from error


def _is_continued(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


MetaProperties: Final = PropertiesAdapter(GreedyBytes)
