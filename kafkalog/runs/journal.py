"""The journal of a run: what was there before, what was done, what is there now; one JSON a line.

A line is synced before what follows it is done. Each is an object whose `type` says what it is:

- `run`: a run begins, the first one or one that resumes it: `command`, `version`, `log_dir`,
  `arguments`, `time_ms`;
- `partition`: its `state` changes: `in-progress` with what is there `before`, the files `kept` and
  their directory `kept_in` the backup; `done` with what is there `after`; `aborted` with a
  `reason`; `undoing` with the name of the directory that is built `beside`; `undone`;
- `file`: a file was made in a partition, or is shorter: only its facts, it may be renamed;
- `offset`: an entry of a checkpoint is about to change to `offset`;
- `mark`: its `state` says what is about to happen to the mark of a clean shutdown, which the backup
  has: `removed`, or `restored`, when everything else is as it was.
"""

from __future__ import annotations

import io
import json
import os
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from kafkalog.errors import CorruptDataError, NotFoundError
from kafkalog.places import require_local
from kafkalog.runs.lines import (
    MARK_REMOVED,
    parsed_line,
    require_begin,
    require_beside,
    require_line,
)
from kafkalog.runs.listing import FileStatus, Listing, status_fields, status_of
from kafkalog.source import read_file

JOURNAL_NAME: Final = "journal.ndjson"
_SIZE_MAX: Final = 1 << 30  # some hundred thousand partitions


class PartitionState(StrEnum):
    """How far a run, or its undoing, has come with a partition."""

    IN_PROGRESS = "in-progress"
    DONE = "done"
    ABORTED = "aborted"
    UNDOING = "undoing"
    UNDONE = "undone"


@dataclass(slots=True)
class PartitionEntry:
    """What the journal knows of one partition.

    Attributes:
        name: of its directory.
        path: of its directory.
        state: the last one.
        before: what was there.
        offsets_before: its entries in the checkpoints, by file; None: it had none.
        kept: names of the files that the backup has.
        kept_in: the directory they are in, a name within the backup.
        after: what was there when it was done; None: it was not.
        offsets_set: what the run set its entries in checkpoints to, by file.
        made: the files the run made in it, whatever they are called now.
        beside: the directory that undoing builds and removes, beside the partition.
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
        """The line that says it is in progress."""
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
class Journal:
    """What a journal says, after its last whole line.

    Attributes:
        path: of the file.
        command: of the run.
        log_dir: the log directory; None where copied partitions were changed.
        partitions: by path, in the order the run came to them.
        lacks_mark: whether the run took the mark of a clean shutdown away, and nobody brought it
            back.
    """

    path: str
    command: str
    log_dir: str | None
    partitions: dict[str, PartitionEntry] = field(default_factory=dict)
    lacks_mark: bool = False

    @property
    def backup(self) -> str:
        """The directory it is in, with the files that were kept."""
        return os.path.dirname(self.path)

    def is_of(self, command: str, log_dir: str | None) -> bool:
        """Whether such a run may resume it."""
        return (self.command, self.log_dir) == (command, log_dir)

    def require(self, fields: dict[str, Any]) -> None:
        """Raise `ValueError` unless a line may come next."""
        require_line(fields)
        path = fields.get("path")
        if fields["type"] == "run":
            if fields["log_dir"] != self.log_dir:
                raise ValueError("/log_dir is another than before")
        elif fields["type"] == "mark":
            if self.log_dir is None:
                raise ValueError("there is no log directory with a mark")
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
        """One more line; raises `ValueError` where it is malformed."""
        self.require(fields)
        match fields["type"]:
            case "partition":
                self._note_state(fields)
            case "file":
                self.partitions[fields["path"]].made.add(status_of(fields))
            case "offset":
                set_to = self.partitions[fields["path"]].offsets_set
                set_to.setdefault(fields["checkpoint"], set()).add(fields["offset"])
            case "mark":
                self.lacks_mark = fields["state"] == MARK_REMOVED

    def _note_state(self, fields: dict[str, Any]) -> None:
        path, state = fields["path"], PartitionState(fields["state"])
        if state == PartitionState.IN_PROGRESS:
            before = Listing.from_json(fields["before"])
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
    """What a journal says; None where not even its first line is whole.

    Nothing in it is believed that `kafkalog.runs.lines` does not let pass.

    Raises:
        NotFoundError, UnreadableError: it cannot be read.
        CorruptDataError: it is no journal of a run, or damaged.
    """
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
    """The journal at a path, which names it or the directory it is in.

    Raises:
        NotFoundError: there is none.
    """
    require_local(path)
    if os.path.isdir(path):
        path = os.path.join(path, JOURNAL_NAME)
    if not os.path.lexists(path):
        raise NotFoundError(
            "There is no journal.", path=path, hint="Name the directory that was given as --backup."
        )
    return os.path.realpath(path)


def file_line(path: str, status: FileStatus) -> dict[str, Any]:
    """The line of a file that a run made in the partition at a path."""
    return {"type": "file", "path": path, **status_fields(status)}


def encoded(fields: dict[str, Any]) -> bytes:
    """A line as it is on disk, without the newline."""
    return json.dumps(fields, separators=(",", ":")).encode()


def state_line(entry: PartitionEntry, state: PartitionState, **more: object) -> dict[str, Any]:
    """The line of a partition whose state changes."""
    fields = {"type": "partition", "partition": entry.name, "state": state, "path": entry.path}
    return {**fields, **more}
