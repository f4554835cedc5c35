"""The journal of a run: the state before, the changes, the state after; as JSON lines.

A journal lies where others may write, and its names decide what `undo` links, renames and removes.

A line is synced before the next change is made. Each is an object with a `type`:

- `run`: a run begins, the first one or one that resumes it: `command`, `version`, `log_dir`,
  `arguments`, `time_ms`;
- `partition`: its `state` changes: `in-progress` with the files that exist `before`, the files
`kept`
  and their directory `kept_in` the backup; `done` with the files that exist `after`; `aborted` with
  a
  `reason`; `undoing` with the name of the directory that `undo` builds next to it (`beside`);
  `undone`;
- `file`: a file was made in a partition, or is shorter: only its facts, it may be renamed;
- `offset`: an entry of a checkpoint is about to change to `offset`;
- `top`: a file at the top of the log directory is about to be replaced as a whole, or removed
  (`changing`, the SHA-256 `before` and `after`, null where there is no file), or is restored
  (`undone`);
- `mark`: its `state` says what is about to happen to the clean shutdown mark, which the backup has:
  `removed`, or `restored`, once everything else is restored.
"""

from __future__ import annotations

import io
import json
import os
import re
import stat
import uuid
from dataclasses import field
from enum import StrEnum
from typing import Any, Final

from formats import file_names
from formats.constants import INT64_MAX
from formats.file_names import (
    OFFSET_CHECKPOINTS,
    is_known,
    is_plain,
    is_topic,
    parse_directory_name,
)
from formats.late_classes import dataclass
from kafkalog.change.journal.log_dir_files import (
    FILE_NAME,
    LISTING,
    STATUS,
    FileStatus,
    Listing,
    status_fields,
    status_of,
)
from kafkalog.errors import CorruptDataError, NotFoundError
from kafkalog.io.documents import Entries, Fields, Items, Maybe, Number, OneOf, Schema, Text, parsed
from kafkalog.io.paths import file_system
from kafkalog.io.paths.source import read_file
from kafkalog.io.paths.uris import require_local

MARK_REMOVED: Final = "removed"
MARK_RESTORED: Final = "restored"
TOP_CHANGING: Final = "changing"
TOP_UNDONE: Final = "undone"
TOP_FILES: Final = (
    file_names.META_PROPERTIES,
    file_names.BOOTSTRAP,
    file_names.SERVER_PROPERTIES,
    *OFFSET_CHECKPOINTS,
)
"""Files at the top of a log directory that a run may replace as a whole."""
BEGINS: Final = (b'{"type":"',)
"""What each line begins with."""
LINE_SIZE_MAX: Final = 1 << 24
"""Maximum size of a line: enough for several hundred thousand files of a partition."""
_NAME_LENGTH_MAX: Final = 255  # of LocalLog.logDirNameWithSuffixCappedLength


def _is_place(path: str) -> bool:
    # Without `..`: the path decides which directory is exchanged and removed.
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
_DIGEST: Final = Maybe(Text(re.compile("[0-9a-f]{64}")))
_TOPS: Final = {
    TOP_CHANGING: _line(
        "top", name=OneOf(TOP_FILES), state=OneOf((TOP_CHANGING,)), before=_DIGEST, after=_DIGEST
    ),
    TOP_UNDONE: _line("top", name=OneOf(TOP_FILES), state=OneOf((TOP_UNDONE,))),
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
    """Parse a line of a journal; raise `ValueError` if it is not one."""
    if len(line) > LINE_SIZE_MAX:
        raise ValueError("it is too long")
    fields: dict[str, Any] = parsed(line)
    require_line(fields)
    return fields


def require_line(fields: Any) -> None:
    """Check that an object is a line of a journal; raise `ValueError` if not."""
    kind = fields.get("type") if isinstance(fields, dict) else None
    schemas, key = _LINES, "type"
    if kind in ("partition", "top"):
        schemas, key = _STATES if kind == "partition" else _TOPS, "state"
    wanted = fields.get(key) if isinstance(fields, dict) else None
    schema = schemas.get(wanted) if isinstance(wanted, str) else None
    if schema is None:
        raise ValueError("its type is unknown")
    schema.check(fields, "")


def require_begin(fields: dict[str, Any], log_dir: str | None) -> None:
    """Check that the names of an `in-progress` line agree; raise `ValueError` if not.

    The partition lies in the log directory that is locked, and has a partition's name; without
    one, it is any directory. The files in the backup have names that Kafka or kafkalog gives.
    """
    name, path = fields["partition"], fields["path"]
    if os.path.basename(path) != name:
        raise ValueError("/partition is not the name of /path")
    if log_dir is not None:
        if os.path.dirname(path) != log_dir:
            raise ValueError("/path is not in the log directory")
        parsed_name = parse_directory_name(name)
        if parsed_name is None or not is_topic(parsed_name.topic):
            raise ValueError("/partition is not a partition of a topic")
    if not re.fullmatch(re.escape(name) + r"(\.[1-9]\d{0,8})?", fields["kept_in"]):
        raise ValueError("/kept_in is not the name of the partition")
    # Each has a value, or null: one that is left out would not be restored.
    if fields["offsets"].keys() != OFFSET_CHECKPOINTS.keys():
        raise ValueError("/offsets are not those of the checkpoints")
    there = {file["name"] for file in fields["before"]["files"]}
    for kept in fields["kept"]:
        if kept not in there or not is_known(kept):
            raise ValueError(f"/kept cannot be {kept[:80]!a}")


def require_beside(beside: str, name: str) -> None:
    """Check that a directory's name is from `name_beside`; raise `ValueError` if not."""
    # The name is removed with everything in it, so it has to be one that only `undo` gives.
    uid = beside.removesuffix(file_names.DELETE_DIRECTORY)[-32:]
    if not re.fullmatch(r"[0-9a-f]{32}", uid) or beside != name_beside(name, uid):
        raise ValueError("/beside is not a name that undoing gives")


def name_beside(name: str, uid: str | None = None) -> str:
    """Return undo's name for a directory next to a partition, as `LocalLog.logDeleteDirName`."""
    end = f".{uid or uuid.uuid4().hex}-delete"
    found = parse_directory_name(name)
    if found is None:
        return name[: _NAME_LENGTH_MAX - len(end)] + end
    end = f"-{found.partition}{end}"
    # File systems allow 255 bytes; Kafka cuts the topic, too, and parses such names from the right.
    return found.topic[: _NAME_LENGTH_MAX - len(end)] + end


JOURNAL_NAME: Final = "journal.ndjson"
_SIZE_MAX: Final = 1 << 30  # several hundred thousand partitions


class PartitionState(StrEnum):
    """How far a run, or its undo, has come with a partition."""

    IN_PROGRESS = "in-progress"
    DONE = "done"
    ABORTED = "aborted"
    UNDOING = "undoing"
    UNDONE = "undone"


@dataclass(slots=True)
class PartitionEntry:
    """What the journal records about one partition.

    Attributes:
        name: name of its directory.
        before: the directory before the run.
        offsets_before: its entries in the checkpoints, by file; None if missing.
        kept: names of the files that the backup has.
        kept_in: the directory they are in, a name within the backup.
        after: the directory when the run had finished it; None if it did not.
        offsets_set: the entries that the run set in checkpoints, by file.
        made: the files the run made in it, whatever they are called now.
        beside: the directory that undo builds and removes, next to the partition.
        reason: why it was aborted.
    """

    name: str
    path: str
    state: PartitionState
    before: Listing
    offsets_before: dict[str, int | None]
    kept: tuple[str, ...]
    kept_in: str
    after: Listing | None = None
    offsets_set: dict[str, set[int | None]] = field(default_factory=dict)
    made: set[FileStatus] = field(default_factory=set)
    beside: str | None = None
    reason: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the journal's `in-progress` line for the partition."""
        return {
            "type": "partition",
            "partition": self.name,
            "state": self.state,
            "path": self.path,
            "kept_in": self.kept_in,
            "kept": list(self.kept),
            "offsets": self.offsets_before,
            "before": self.before.to_json(),
        }


@dataclass(slots=True)
class TopFile:
    """A file at the top that a run changed: SHA-256 before and after; None without a file."""

    before: str | None
    after: set[str | None] = field(default_factory=set)


@dataclass(slots=True)
class Journal:
    """The content of a journal, up to its last whole line.

    Attributes:
        command: command of the run.
        log_dir: the log directory; None if copied partitions were changed.
        partitions: by path, in the order the run came to them.
        lacks_mark: whether the run removed the clean shutdown mark, and nobody restored it.
        start_timestamp: when the run began.
    """

    path: str
    command: str
    log_dir: str | None
    partitions: dict[str, PartitionEntry] = field(default_factory=dict)
    lacks_mark: bool = False
    start_timestamp: int = 0
    tops: dict[str, TopFile] = field(default_factory=dict)

    @property
    def backup(self) -> str:
        """The directory it is in, with the files that were kept."""
        return os.path.dirname(self.path)

    def is_of(self, command: str, log_dir: str | None) -> bool:
        """Return whether such a run may resume it."""
        return (self.command, self.log_dir) == (command, log_dir)

    def require(self, fields: dict[str, Any]) -> None:
        """Check that a line may come next; raise `ValueError` if not."""
        require_line(fields)
        path = fields.get("path")
        if fields["type"] == "run":
            if fields["log_dir"] != self.log_dir:
                raise ValueError("/log_dir is another than before")
        elif fields["type"] in ("mark", "top"):
            if self.log_dir is None:
                raise ValueError("there is no log directory with such a file")
        elif fields.get("state") == PartitionState.IN_PROGRESS:
            require_begin(fields, self.log_dir)
            if self.log_dir is None and any(other != path for other in self.partitions):
                raise ValueError("/path is another than before")
        elif path not in self.partitions:
            raise ValueError("/path is not known")
        elif fields["type"] == "partition":
            if fields["partition"] != self.partitions[path].name:
                raise ValueError("/partition is not the name of /path")
            if "beside" in fields:
                require_beside(fields["beside"], fields["partition"])

    def note(self, fields: dict[str, Any]) -> None:
        """Add one more line; raise `ValueError` if it is malformed."""
        self.require(fields)
        match fields["type"]:
            case "partition":
                self._note_state(fields)
            case "file":
                self.partitions[fields["path"]].made.add(status_of(fields))
            case "offset":
                set_to = self.partitions[fields["path"]].offsets_set
                set_to.setdefault(fields["checkpoint"], set()).add(fields["offset"])
            case "top":
                self._note_top(fields)
            case "mark":
                self.lacks_mark = fields["state"] == MARK_REMOVED

    def _note_top(self, fields: dict[str, Any]) -> None:
        name = fields["name"]
        if fields["state"] == TOP_UNDONE:
            self.tops.pop(name, None)
            return
        top = self.tops.setdefault(name, TopFile(fields["before"]))
        top.after.add(fields["after"])

    def _note_state(self, fields: dict[str, Any]) -> None:
        path, state = fields["path"], PartitionState(fields["state"])
        if state == PartitionState.IN_PROGRESS:
            before = Listing.from_json(fields["before"])
            # A partition that a resumed run begins again moves to the end: `undo` goes backwards.
            self.partitions.pop(path, None)
            self.partitions[path] = PartitionEntry(
                fields["partition"],
                path,
                state,
                before,
                dict(fields["offsets"]),
                tuple(fields["kept"]),
                fields["kept_in"],
            )
            return
        entry = self.partitions[path]
        if state == PartitionState.DONE:
            entry.after = Listing.from_json(fields["after"])
        entry.state = state
        entry.beside = fields.get("beside")
        entry.reason = fields.get("reason")


def read_journal(path: str) -> Journal | None:
    """Read a journal; return None if not even its first line is whole.

    Nothing in it is trusted unless it passes the checks of `kafkalog.change.journal.journal`.

    Raises:
        NotFoundError, UnreadableError: it cannot be read.
        CorruptDataError: it is not the journal of a run, or is damaged.
    """
    # Lines are synced one by one: after a crash only the last one can be incomplete.
    data = io.BytesIO(read_file(path, _SIZE_MAX))
    journal = None
    for number, line in enumerate(data, 1):
        if not line.endswith(b"\n"):
            break  # it was being written
        try:
            fields = parsed_line(line[:-1])
            if journal is not None:
                journal.note(fields)
            elif fields["type"] == "run":
                journal = Journal(path, fields["command"], fields["log_dir"])
                journal.start_timestamp = fields["time_ms"]
            else:
                raise ValueError("it does not start a run")
        except ValueError as error:
            raise CorruptDataError(
                f"Line {number} is none of a run's journal: {error}.",
                path=path,
                note="Nothing was changed.",
            ) from error
    return journal


def journal_path(path: str) -> str:
    """Return the journal at a path, which names it or the directory it is in.

    Raises:
        NotFoundError: the journal is missing.
    """
    require_local(path)
    if file_system.is_there(path) and stat.S_ISDIR(file_system.status(path).st_mode):
        path = os.path.join(path, JOURNAL_NAME)
    if not file_system.is_there(path):
        raise NotFoundError(
            "There is no journal.",
            path=path,
            hint="Name the directory that was given as --backup, or with several log directories "
            "one of those in it; `kafkalog undo --list DIR` lists them.",
        )
    return os.path.realpath(path)


def file_line(path: str, status: FileStatus) -> dict[str, Any]:
    """Return the line of a file that a run made in the partition at a path."""
    return {"type": "file", "path": path, **status_fields(status)}


def encoded(fields: dict[str, Any]) -> bytes:
    """Return a line as it is on disk, without the newline."""
    return json.dumps(fields, separators=(",", ":")).encode()


def state_line(entry: PartitionEntry, state: PartitionState, **more: object) -> dict[str, Any]:
    """Return the line of a partition whose state changes."""
    fields = {"type": "partition", "partition": entry.name, "state": state, "path": entry.path}
    return {**fields, **more}
