"""A file of committed offsets that outlives the server: one line of JSON per commit, only appended.

A line is durable before its commit is answered. From time to time the file is written anew, with
the offsets that count.
"""

from __future__ import annotations

import json
import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

from formats.constants import INT32_MAX, INT64_MAX
from kafkalog.errors import CorruptDataError
from kafkalog.io.documents import Fields, Items, Number, Text, read_document
from kafkalog.io.paths.source import read_file
from kafkalog.io.storage import AppendedFile, NewFile, require_outside
from kafkalog.wire.server.model import Commit, Committed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_NAME_MAX: Final = 1 << 15  # the protocol's short strings have an int16 length
_FILE_SIZE_MAX: Final = 512 << 20
_ANEW_FROM: Final = 16 << 20
_ANEW_FACTOR: Final = 4
_BEGINS: Final = (b'{"group":',)

_LINE: Final = Fields({
    "group": Text(length_max=_NAME_MAX),
    "timestamp": Number(),
    "offsets": Items(Fields({
        "topic": Text(length_max=_NAME_MAX),
        "partition": Number(-INT32_MAX - 1, INT32_MAX),
        "offset": Number(-INT64_MAX - 1),
        "leaderEpoch": Number(-INT32_MAX - 1, INT32_MAX),
        "metadata": Text(length_max=_NAME_MAX),
    })),
})  # fmt: skip


class CommitsFile:
    """The file; use it as a context manager, then read it before anything is appended.

    Args:
        path: the file; created if it is missing.
        sources: the paths that are served, outside which it must lie.

    Raises:
        UsageError: it lies inside a path that is served.
        DestinationExistsError: another server has it open.
        UnwritableError: it cannot be opened or written.
        CorruptDataError: it holds something else than commits.
    """

    def __init__(self, path: str, sources: Iterable[str]) -> None:
        require_outside(path, sources)
        self.path = path
        self._opened = ExitStack()
        self._file = AppendedFile(path, _BEGINS)
        self._size = 0

    def __enter__(self) -> CommitsFile:
        self._open()
        return self

    def _open(self) -> None:
        self._file = self._opened.enter_context(AppendedFile(self.path, _BEGINS))
        self._size = os.path.getsize(self.path)

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def read(self) -> Iterator[Committed]:
        data = read_file(self.path, _FILE_SIZE_MAX)
        for number, line in enumerate(data.splitlines(), start=1):
            try:
                found = read_document(line, _LINE, self.path, "a line of committed offsets")
            except CorruptDataError as error:
                raise CorruptDataError(
                    f"Line {number}: {error.message}", path=self.path,
                    hint="Move the file away to start with the offsets of the log.",
                ) from error  # fmt: skip
            offsets = [
                (one["topic"], one["partition"],
                 Commit(one["offset"], one["leaderEpoch"], one["metadata"]))
                for one in found["offsets"]
            ]  # fmt: skip
            yield Committed(found["group"], found["timestamp"], offsets)

    def append(self, committed: Committed, all_of_them: Iterable[Committed]) -> None:
        """Append a commit, durably.

        Args:
            all_of_them: what counts, this commit included, for a file that has grown too long.
        """
        line = _line(committed)
        self._file.append(line)
        self._size += len(line) + 1
        if self._size > _ANEW_FROM:
            lines = [_line(one) for one in all_of_them]
            # Only if most of it no longer counts: otherwise each commit would write all of them.
            if self._size > _ANEW_FACTOR * sum(map(len, lines)):
                self._write_anew(lines)

    def _write_anew(self, lines: Iterable[bytes]) -> None:
        with NewFile(self.path, replaces=True) as new:
            new.file.writelines(line + b"\n" for line in lines)
        # The open file, and with it the lock, is the one that has just been replaced.
        self._opened.close()
        self._open()


def _line(committed: Committed) -> bytes:
    document: dict[str, Any] = {
        "group": committed.group,
        "timestamp": committed.time_ms,
        "offsets": [
            {
                "topic": topic,
                "partition": partition,
                "offset": one.offset,
                "leaderEpoch": one.leader_epoch,
                "metadata": one.metadata,
            }
            for topic, partition, one in committed.offsets
        ],
    }
    return json.dumps(document, separators=(",", ":")).encode()
