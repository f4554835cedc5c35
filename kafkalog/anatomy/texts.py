"""The fields of text files: checkpoints, properties, `key: value` lines and JSON.

The schemas of these files keep every character; the fields are the pieces that they return.
"""

from __future__ import annotations

import json
import re
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final

from construct import ConstructError

from formats.text_files import (
    Checkpoint,
    CleanShutdown,
    MetaProperties,
    PartitionMetadata,
    QuorumState,
)
from kafkalog.anatomy.model import Bytes, Content
from kafkalog.names import OFFSET_CHECKPOINTS, FileKind
from kafkalog.paths.reading_errors import reason
from kafkalog.paths.source import read_file
from kafkalog.wording import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafkalog.anatomy.model import Item
    from kafkalog.log_dir import FileEntry

    Pieces = Iterator[tuple[str, str, str]]

_SCHEMAS: Final[dict[FileKind, Any]] = {
    FileKind.OFFSET_CHECKPOINT: Checkpoint,
    FileKind.LEADER_EPOCH_CHECKPOINT: Checkpoint,
    FileKind.REMOTE_LOG_OFFSETS: Checkpoint,
    FileKind.META_PROPERTIES: MetaProperties,
    FileKind.PARTITION_METADATA: PartitionMetadata,
    FileKind.QUORUM_STATE: QuorumState,
    FileKind.CLEAN_SHUTDOWN: CleanShutdown,
}
_ENTRY_NAMES: Final = {
    FileKind.OFFSET_CHECKPOINT: ("topic", "partition", "offset"),
    FileKind.LEADER_EPOCH_CHECKPOINT: ("epoch", "start_offset"),
    FileKind.REMOTE_LOG_OFFSETS: ("metadata_partition", "offset"),
}
_MEANINGS: Final = {
    "epoch": "leader epoch",
    "start_offset": "first offset of the epoch",
    "metadata_partition": "partition of __remote_log_metadata",
}
_JSON_SIZE_MAX: Final = 1 << 20
_PARSED_MIN: Final = 1 << 16
_LINE_SIZE: Final = 1 << 10
"""Bytes per line that is to be shown; of longer lines fewer are."""
_SPACE: Final = re.compile(r"[ \t\n\r]*")


def text_items(entry: FileEntry, limit: int) -> Iterator[Item]:
    """Yield the fields of a text file, line by line: `limit` of them, the rest as one field.

    Only what may be shown is parsed: a hostile file has millions of lines.
    """
    kind = entry.name.kind
    is_json = kind in (FileKind.QUORUM_STATE, FileKind.CLEAN_SHUTDOWN)
    data = read_file(entry.path, _JSON_SIZE_MAX) if is_json else read_file(entry.path)
    space = Bytes(Content(entry.path, data), 0, len(data))
    room = max(_PARSED_MIN, limit * _LINE_SIZE)
    head = data
    if len(data) > room and not is_json:
        head = data[: data.rfind(b"\n", 0, room) + 1]
    try:
        parsed = _SCHEMAS[kind].parse(head)
    except ConstructError as error:
        yield space.field("unreadable", 0, len(data), None, f"{reason(error)}.",
                          damage="file-malformed")  # fmt: skip
        return
    encoding = "iso-8859-1" if kind == FileKind.META_PROPERTIES else "utf-8"
    count = len(parsed) if head is data and not is_json else data.count(b"\n")
    lines = _members(data.decode()) if is_json else _lines(entry, parsed, count)
    position = 0
    for number, (title, pieces) in enumerate(lines):
        if number == limit + 2:  # version and count of a checkpoint come first
            break
        found = []
        start = position
        for name, text, meaning in pieces:
            end = position + len(text.encode(encoding))
            if end > position:
                found.append(space.field(name, position, end, text, meaning))
            position = end
        if title and found:
            yield space.structure(title, start, position, "")
        yield from found
    if position < len(data):
        words = f"{counted(len(data) - position, 'byte')} left out"
        yield space.left_out("", position, len(data), words)


def _lines(entry: FileEntry, lines: list[Any], count: int) -> Iterator[tuple[str, Pieces]]:
    pieces: Callable[[FileEntry, int, Any, str, int], Pieces] = (
        _checkpoint_pieces if "fields" in (lines[0] if lines else ()) else _named_pieces
    )
    for number, line in enumerate(lines):
        title = f"lines[{number}]"
        yield title, pieces(entry, number, line, f"{title}.", count)


def _checkpoint_pieces(entry: FileEntry, number: int, line: Any, prefix: str, count: int) -> Pieces:
    kind = entry.name.kind
    names = _ENTRY_NAMES[kind]
    if number < 2:
        names = (("version",), ("count",))[number]
    for i, (text, separator) in enumerate(zip_longest(line.fields, line.separators, fillvalue="")):
        name = names[i] if i < len(names) else "extra"
        meaning = _MEANINGS.get(name, name)
        if name == "offset" and kind == FileKind.OFFSET_CHECKPOINT:
            meaning = OFFSET_CHECKPOINTS[entry.name.name.removesuffix(".tmp")]
        elif name == "version":
            meaning = "version of the format"
        elif name == "count":
            meaning = f"number of entries; {counted(max(count - 2, 0), 'line')} follow"
        yield f"{prefix}{name}", text, meaning
        yield f"{prefix}space", separator, ""
    yield f"{prefix}end", line.end, "end of the line"


def _named_pieces(_entry: FileEntry, _number: int, line: Any, prefix: str, _count: int) -> Pieces:
    yield f"{prefix}space", line.get("indent", ""), ""
    yield f"{prefix}key", line.key, "name"
    yield f"{prefix}separator", line.separator, ""
    is_comment = line.get("kind", "property") != "property"
    yield f"{prefix}value", line.value, "comment" if is_comment else f"value of {line.key}"
    yield f"{prefix}end", line.end, "end of the line"


def _members(text: str) -> Iterator[tuple[str, Pieces]]:
    """Yield the members of a JSON object, which its schema has parsed."""
    decoder = json.JSONDecoder()
    position = 0

    def upto(end: int) -> str:
        nonlocal position
        piece, position = text[position:end], end
        return piece

    def after_space(start: int) -> int:
        match = _SPACE.match(text, start)
        return match.end() if match else start

    if not text:
        return
    yield "", iter([("begin", upto(text.index("{") + 1), "a JSON object begins")])
    number = 0
    while text[after_space(position)] == '"':
        key_start = after_space(position)
        key, key_end = decoder.raw_decode(text, key_start)
        value_start = after_space(text.index(":", key_end) + 1)
        _, value_end = decoder.raw_decode(text, value_start)
        end = after_space(value_end)
        prefix = f"members[{number}]."
        pieces = [
            (f"{prefix}space", upto(key_start), ""),
            (f"{prefix}key", upto(key_end), "name"),
            (f"{prefix}separator", upto(value_start), ""),
            (f"{prefix}value", upto(value_end), f"value of {key}"),
            (f"{prefix}end", upto(end + (text[end] == ",")), ""),
        ]
        yield f"members[{number}]", iter(pieces)
        number += 1
    yield "", iter([("end", upto(len(text)), "the object ends")])
