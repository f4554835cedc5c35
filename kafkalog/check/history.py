"""When each segment was last checked: what runs that share the work remember of each other."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from formats.constants import INT64_MAX
from kafkalog import places
from kafkalog.documents import Entries, Fields, Number, OneOf, Row, Text, parsed, read_document
from kafkalog.errors import NotAKafkaFileError
from kafkalog.model import Level

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalog.log_dir import FileEntry, PartitionDir

_MARK: Final = "kafkalog_verify_state"
_VERSION: Final = 1
_TIME: Final = Number(-INT64_MAX, INT64_MAX)
_STATE: Final = Fields(
    {
        _MARK: OneOf((_VERSION,)),
        "begun": Entries(Text(), _TIME),
        "files": Entries(
            Text(), Row((Number(), _TIME, Entries(OneOf(tuple(map(str, Level))), _TIME)))
        ),
    }
)


@dataclass(slots=True)
class _Checked:
    """A log file as it was when it was last checked, and when each level was: milliseconds."""

    size_bytes: int
    mtime_ms: int
    when: dict[Level, int] = field(default_factory=dict)


class History:
    """What earlier runs checked, by path; paths are absolute, so that it holds from anywhere.

    A check at one level counts for those below it, too. Memory and text grow with the number of
    segments: some 150 bytes each.
    """

    def __init__(self) -> None:
        self._files: dict[str, _Checked] = {}
        self._begun: dict[str, int] = {}

    def last_check(self, log: FileEntry, level: Level) -> int:
        """When the log was last checked at the level or above it; 0 for never.

        It may have grown since: else the one that always grows would always be the oldest.
        """
        known = self._files.get(_key(log.path))
        if known is None:
            return 0
        levels = list(Level)
        deep_enough = levels[levels.index(level) :]
        return max((known.when.get(deeper, 0) for deeper in deep_enough), default=0)

    def is_checked(self, log: FileEntry, level: Level, since_ms: int) -> bool:
        """Whether the file, as it is now, was checked at the level since then."""
        known = self._files.get(_key(log.path))
        if known is None or (known.size_bytes, known.mtime_ms) != (log.size_bytes, log.mtime_ms):
            return False
        return self.last_check(log, level) >= since_ms

    def note(self, log: FileEntry, level: Level, now_ms: int) -> None:
        """The file was checked at the level."""
        known = self._files.get(_key(log.path))
        if known is None or (known.size_bytes, known.mtime_ms) != (log.size_bytes, log.mtime_ms):
            known = _Checked(log.size_bytes, log.mtime_ms)
        known.when[level] = now_ms
        self._files[_key(log.path)] = known

    def begin(self, partition: PartitionDir, now_ms: int) -> int:
        """When the walk over the partition began that now begins or goes on."""
        return self._begun.setdefault(_key(partition.path), now_ms)

    def finish(self, partition: PartitionDir) -> None:
        """The walk over the partition came to its end."""
        self._begun.pop(_key(partition.path), None)

    def forget_missing(self, partitions: Iterable[PartitionDir], roots: Iterable[str]) -> None:
        """Forget what lay below the roots and is in none of the partitions any more."""
        below = tuple(os.path.join(_key(root), "") for root in roots)
        there = set()
        for partition in partitions:
            there.add(_key(partition.path))
            there |= {_key(segment.log.path) for segment in partition.segments}
        for known in (self._files, self._begun):
            for path in [p for p in known if p.startswith(below) and p not in there]:
                del known[path]

    def to_json(self) -> str:
        """As text, to be read by `from_json`."""
        files = {
            path: [checked.size_bytes, checked.mtime_ms, checked.when]
            for path, checked in sorted(self._files.items())
        }
        value = {_MARK: _VERSION, "begun": self._begun, "files": files}
        return json.dumps(value, separators=(",", ":")) + "\n"

    @classmethod
    def from_json(cls, text: str, path: str) -> History:
        """What `to_json` wrote.

        Raises:
            NotAKafkaFileError: it is something else.
            CorruptDataError: it begins as a state does, and is none.
        """
        try:
            is_state = parsed(text).keys() >= {_MARK}
        except (ValueError, AttributeError):
            is_state = text.startswith(f'{{"{_MARK}"')
        if not is_state:
            raise NotAKafkaFileError(
                "This is not a state file of `kafkalog verify --state`.",
                path=path,
                hint="Name another file, or remove this one to start from the beginning.",
            )
        value = read_document(text, _STATE, path, "a state of an earlier `kafkalog verify --state`")
        found = cls()
        found._begun = value["begun"]
        for key, (size, mtime, when) in value["files"].items():
            times = {Level(level): time for level, time in when.items()}
            found._files[key] = _Checked(size, mtime, times)
        return found


def _key(path: str) -> str:
    return places.absolute(path)
