"""What a line of a journal may say: a schema for each type, and the names that go together.

A journal lies where others may write. Its names decide what `undo` links, renames and removes.
"""

from __future__ import annotations

import os
import re
import uuid
from typing import TYPE_CHECKING, Any, Final

from formats import file_names
from formats.constants import INT64_MAX
from kafkalog.documents import Entries, Fields, Items, Maybe, Number, OneOf, Text, parsed
from kafkalog.names import (
    OFFSET_CHECKPOINTS,
    is_known,
    is_plain,
    is_topic,
    parse_directory_name,
)
from kafkalog.runs.listing import FILE_NAME, LISTING, STATUS

if TYPE_CHECKING:
    from kafkalog.documents import Schema

MARK_REMOVED: Final = "removed"
MARK_RESTORED: Final = "restored"
LINE_SIZE_MAX: Final = 1 << 24
"""Some hundred thousand files of a partition."""
_NAME_LENGTH_MAX: Final = 255  # of LocalLog.logDirNameWithSuffixCappedLength


def _is_place(path: str) -> bool:
    return os.path.isabs(path) and os.path.normpath(path) == path and "\0" not in path


_PLACE: Final = Text(_is_place)
_DIRECTORY: Final = Text(is_plain)
_OFFSET: Final = Maybe(Number(-INT64_MAX, INT64_MAX))
_CHECKPOINT: Final = OneOf(tuple(OFFSET_CHECKPOINTS))
_WORDS: Final = Text(length_max=1 << 20)


def _line(kind: str, **fields: Schema) -> Fields:
    return Fields({"type": OneOf((kind,)), **fields})


def _state(state: str, **fields: Schema) -> Fields:
    return _line("partition", partition=_DIRECTORY, state=OneOf((state,)), path=_PLACE, **fields)


_LINES: Final = {
    "run": _line(
        "run",
        command=Text(length_max=100),
        version=Text(length_max=100),
        log_dir=Maybe(_PLACE),
        arguments=Items(_WORDS),
        time_ms=Number(),
    ),
    "file": _line("file", path=_PLACE, **STATUS),
    "offset": _line("offset", path=_PLACE, checkpoint=_CHECKPOINT, offset=_OFFSET),
    "mark": _line("mark", state=OneOf((MARK_REMOVED, MARK_RESTORED))),
}
_STATES: Final = {
    "in-progress": _state(
        "in-progress",
        kept_in=_DIRECTORY,
        kept=Items(FILE_NAME),
        offsets=Entries(_CHECKPOINT, _OFFSET),
        before=LISTING,
    ),
    "done": _state("done", after=LISTING),
    "aborted": _state("aborted", reason=_WORDS),
    "undoing": _state("undoing", beside=_DIRECTORY),
    "undone": _state("undone"),
}


def parsed_line(line: bytes) -> dict[str, Any]:
    """Parse a line of a journal; raise `ValueError` where it is none."""
    if len(line) > LINE_SIZE_MAX:
        raise ValueError("it is too long")
    fields: dict[str, Any] = parsed(line)
    require_line(fields)
    return fields


def require_line(fields: Any) -> None:
    """Raise `ValueError` unless an object is a line of a journal."""
    kind = fields.get("type") if isinstance(fields, dict) else None
    schemas, key = (_STATES, "state") if kind == "partition" else (_LINES, "type")
    wanted = fields.get(key) if isinstance(fields, dict) else None
    schema = schemas.get(wanted) if isinstance(wanted, str) else None
    if schema is None:
        raise ValueError("its type is unknown")
    schema.check(fields, "")


def require_begin(fields: dict[str, Any], log_dir: str | None) -> None:
    """Raise `ValueError` unless the names of an `in-progress` line go together.

    The partition lies in the log directory that is locked, and is called as a partition is; without
    one, it is any directory. What the backup keeps has names that Kafka or kafkalog gives.
    """
    name, path = fields["partition"], fields["path"]
    if os.path.basename(path) != name:
        raise ValueError("/partition is not the name of /path")
    if log_dir is not None:
        if os.path.dirname(path) != log_dir:
            raise ValueError("/path is not in the log directory")
        parsed_name = parse_directory_name(name)
        if parsed_name is None or not is_topic(parsed_name.topic):
            raise ValueError("/partition is no partition of a topic")
    if not re.fullmatch(re.escape(name) + r"(\.[1-9]\d{0,8})?", fields["kept_in"]):
        raise ValueError("/kept_in is not the name of the partition")
    if fields["offsets"].keys() != OFFSET_CHECKPOINTS.keys():
        raise ValueError("/offsets are not those of the checkpoints")
    there = {file["name"] for file in fields["before"]["files"]}
    for kept in fields["kept"]:
        if kept not in there or not is_known(kept):
            raise ValueError(f"/kept cannot be {kept[:80]!a}")


def require_beside(beside: str, name: str) -> None:
    """Raise `ValueError` unless a directory beside a partition is called as `name_beside` does."""
    uid = beside.removesuffix(file_names.DELETE_DIRECTORY)[-32:]
    if not re.fullmatch(r"[0-9a-f]{32}", uid) or beside != name_beside(name, uid):
        raise ValueError("/beside is no name that undoing gives")


def name_beside(name: str, uid: str | None = None) -> str:
    """What undoing calls a directory beside a partition, as `LocalLog.logDeleteDirName` does."""
    end = f".{uid or uuid.uuid4().hex}-delete"
    found = parse_directory_name(name)
    if found is None:
        return name[: _NAME_LENGTH_MAX - len(end)] + end
    end = f"-{found.partition}{end}"
    return found.topic[: _NAME_LENGTH_MAX - len(end)] + end
