r"""The text files of log directories and partitions, one schema each: checkpoints, ids, the quorum.

Follows Kafka; any text round-trips exactly, unless a file says otherwise below.

- Checkpoints (`CheckpointFile`): the offset checkpoints of a log directory, and
  leader-epoch-checkpoint. A version, a count and one entry per line, kept as lines of fields.
- `meta.properties` (`java.util.Properties.load` of Java 17, `PropertiesUtils`): the bytes are
  decoded as ISO-8859-1, as in Kafka. Keys and values keep their escapes: `\:`, `\u0041` and the
  backslash at the end of a continued line.
- `partition.metadata` (`PartitionMetadataFile`): one `key: value` per line.
- `quorum-state` (`FileQuorumStateStore`, `QuorumStateData.json`): one line of JSON with Kafka's own
  keys. A file as Kafka writes it round-trips exactly; other spacing of the JSON does not.
- `.kafka_cleanshutdown` (`CleanShutdownFileHandler`): the broker's epoch since Kafka 3.7; older
  brokers leave the file empty.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from formats.constructs import (
    Adapter,
    Container,
    FormatFieldError,
    GreedyBytes,
    ListContainer,
    StringError,
)
from formats.file_names import FileKind
from formats.late_patterns import pattern
from formats.text_lines import checkpoint_fields, key_and_value, split_lines


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
    """Lines of `fields`, `separators` between them, and `end`: see `checkpoint_fields`."""

    def split(self, text: str) -> Any:
        lines = ListContainer()
        for line, end in split_lines(text):
            fields, separators = checkpoint_fields(line)
            lines.append(Container(fields=fields, separators=separators, end=end))
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


# A continued line includes the next line's leading whitespace.
_CONTINUED: Final = r"\\(?:\r\n|\r|\n)[ \t\f]*"
_SPACE: Final = rf"(?:[ \t\f]|{_CONTINUED})*"
_PROPERTY: Final = pattern(
    r"(?P<indent>[ \t\f]*)"
    rf"(?P<key>(?:{_CONTINUED}|\\[^\r\n]|\\\Z|[^\\=: \t\f])*)"
    rf"(?P<separator>{_SPACE}(?:[=:]{_SPACE})?)"
    r"(?P<value>.*)",
    re.DOTALL,
)
_COMMENT_SIGNS: Final = ("#", "!")
_PROPERTY_WHITESPACE: Final = " \t\f"


class PropertiesAdapter(Adapter):  # type: ignore[misc] # construct has no types
    """Lines of `indent`, `key`, `separator`, `value` and `end`, with a `kind` each.

    `kind` is "property", "comment" or "blank"; a comment or blank line is all `value`. A property
    that is continued over several lines is one line here.
    """

    def _decode(self, obj: bytes, context: Any, path: str) -> Any:
        lines = ListContainer()
        natural = iter(split_lines(obj.decode("iso-8859-1")))
        for line, end in natural:
            stripped = line.lstrip(_PROPERTY_WHITESPACE)
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


class PartitionMetadataAdapter(Utf8Text):
    """Lines of `key`, `separator`, `value` and `end`; a line without a separator is all key."""

    def split(self, text: str) -> Any:
        lines = ListContainer()
        for line, end in split_lines(text):
            key, separator, value = key_and_value(line)
            lines.append(Container(key=key, separator=separator, value=value, end=end))
        return lines

    def join(self, obj: Any) -> str:
        return "".join(
            line["key"] + line["separator"] + line["value"] + line["end"] for line in obj
        )


PartitionMetadata: Final = PartitionMetadataAdapter(GreedyBytes)


def _refuse_constant(name: str) -> None:
    # Python accepts NaN and Infinity, JSON does not.
    raise ValueError(f"{name} is no JSON")


class JsonObject(Utf8Text):
    """A JSON object as a dict in the order of the file, written without spaces."""

    def _decode(self, obj: bytes, context: Any, path: str) -> Any:
        try:
            return super()._decode(obj, context, path)
        except (ValueError, RecursionError) as error:
            raise FormatFieldError(f"no JSON object: {error}", path=path) from error

    def _encode(self, obj: Any, context: Any, path: str) -> bytes:
        try:
            return bytes(super()._encode(obj, context, path))
        except (TypeError, ValueError, RecursionError) as error:
            raise FormatFieldError(f"no JSON object: {error}", path=path) from error

    def split(self, text: str) -> Any:
        parsed = json.loads(text, parse_constant=_refuse_constant)
        if not isinstance(parsed, dict):
            raise ValueError(f"a {type(parsed).__name__}")  # noqa: TRY004 # becomes a ConstructError
        return parsed

    def join(self, obj: Any) -> str:
        return json.dumps(obj, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


QuorumState: Final = JsonObject(GreedyBytes)


class CleanShutdownAdapter(JsonObject):
    """A JSON object, or None for an empty file."""

    def split(self, text: str) -> Any:
        return super().split(text) if text else None

    def join(self, obj: Any) -> str:
        return "" if obj is None else super().join(obj)


CleanShutdown: Final = CleanShutdownAdapter(GreedyBytes)

SCHEMAS: Final[dict[FileKind, Any]] = {
    FileKind.OFFSET_CHECKPOINT: Checkpoint,
    FileKind.LEADER_EPOCH_CHECKPOINT: Checkpoint,
    FileKind.REMOTE_LOG_OFFSETS: Checkpoint,
    FileKind.META_PROPERTIES: MetaProperties,
    FileKind.PARTITION_METADATA: PartitionMetadata,
    FileKind.QUORUM_STATE: QuorumState,
    FileKind.CLEAN_SHUTDOWN: CleanShutdown,
}
ENTRY_FIELDS: Final = {
    FileKind.OFFSET_CHECKPOINT: ("topic", "partition", "offset"),
    FileKind.LEADER_EPOCH_CHECKPOINT: ("epoch", "start_offset"),
    FileKind.REMOTE_LOG_OFFSETS: ("metadata_partition", "offset"),
}
"""The fields of a line, for each kind of checkpoint."""
