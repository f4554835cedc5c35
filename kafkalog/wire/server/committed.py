"""The offsets that groups have committed: those of the served log, and what is committed here."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final, Self

from formats.error_codes import ErrorCode
from kafkalog.errors import KafkaLogError, LimitExceededError, Note, NotFoundError
from kafkalog.node.state.coordinators import partition_for
from kafkalog.wire.server.classic_group import CLASSIC, RequestError
from kafkalog.wire.server.groups import Past
from kafkalog.wire.server.model import Commit, Committed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from kafkalog.node.state.model import Groups
    from kafkalog.wire.server.commits_file import CommitsFile

METADATA_SIZE_MAX: Final = 4096
"""`offset.metadata.max.bytes` of a broker, by default."""
_COMMITS_SIZE_MAX: Final = 64 << 20
_COMMIT_OVERHEAD: Final = 300
_PATIENCE_SECONDS: Final = 20
"""A request waits so long for the log of the groups to be read; then its client is to try again."""


class CommittedOffsets:
    """The committed offsets of all groups.

    Those of `__consumer_offsets` are read when a client first asks. Offsets of open transactions do
    not count: nothing will ever end these transactions. No offset expires.

    Args:
        read: reads the groups of the served log; called once, in a thread.
        file: where commits outlive the server; None for memory only.
        hear: called with what keeps offsets from being read or written, and with notes on them.
        size_max: bytes that commits may cost in memory, about.
    """

    def __init__(
        self,
        read: Callable[[], Groups],
        *,
        file: CommitsFile | None = None,
        hear: Callable[[KafkaLogError | Note], None],
        size_max: int = _COMMITS_SIZE_MAX,
    ) -> None:
        self._read = read
        self._file = file
        self._hear = hear
        self._size_max = size_max
        self._size = 0
        self._log: Groups | None = None
        self._error: KafkaLogError | None = None
        self._reading: asyncio.Task[None] | None = None
        self._writing = asyncio.Lock()
        self._here: dict[str, dict[tuple[str, int], Commit]] = {}
        self._opened = AsyncExitStack()

    async def __aenter__(self) -> Self:
        if self._file is not None:
            self._opened.enter_context(self._file)
            for one in self._file.read():
                self._take(one.group, one.offsets)
                if self._size > self._size_max:
                    raise LimitExceededError(
                        "The file holds too many offsets.", path=self._file.path
                    )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
        await self._opened.aclose()

    async def ready(self) -> None:
        """Wait until the groups of the log are known.

        Raises:
            RequestError: `COORDINATOR_LOAD_IN_PROGRESS`, that takes long.
        """
        if self._reading is None:
            self._reading = asyncio.create_task(self._load())
        if not self._reading.done():
            await asyncio.wait([self._reading], timeout=_PATIENCE_SECONDS)
        if not self._reading.done():
            raise RequestError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    async def _load(self) -> None:
        try:
            self._log = await asyncio.to_thread(self._read)
        except NotFoundError:
            return  # a log directory without groups
        except KafkaLogError as error:
            self._error = error
            self._hear(error)
            return
        missing = self._log.topic.missing_count
        if missing:
            part = f"{missing} of {self._log.topic.count} partitions of {self._log.topic.name}"
            self._hear(Note(f"{part} are not here: their groups begin without offsets."))

    # What is known

    def names(self) -> Iterable[str]:
        """Return the names of all groups that have offsets, or are in the log."""
        return {*self._here, *(() if self._log is None else self._log.groups)}

    def recall(self, name: str) -> Past | None:
        found = None if self._log is None else self._log.groups.get(name)
        if found is not None:
            return Past(max(found.group_epoch, 0), found.protocol_type or None, found.kind)
        return Past(0, None, CLASSIC) if name in self._here else None

    def is_unreadable(self, group: str) -> bool:
        """Return whether the log of the group's coordinator is there, but cannot all be read."""
        if self._log is None:
            return self._error is not None
        topic = self._log.topic
        return bool(topic.count) and partition_for(group, topic.count) in self._log.incomplete

    async def of(
        self, group: str, wanted: set[tuple[str, int]] | None = None
    ) -> dict[tuple[str, int], Commit]:
        """Return the committed offsets of a group, by topic and partition.

        Args:
            wanted: topics and partitions; None for all.
        """
        found = {}
        here = self._here.get(group, {})
        if self._log is not None and (wanted is None or not wanted <= here.keys()):
            found = await asyncio.to_thread(self._of_log, group, wanted)
        if wanted is None:
            return found | here
        return found | {key: here[key] for key in wanted if key in here}

    def _of_log(
        self, group: str, wanted: set[tuple[str, int]] | None
    ) -> dict[tuple[str, int], Commit]:
        known = None if self._log is None else self._log.groups.get(group)
        return {
            (one.topic, one.partition): Commit(one.offset, one.leader_epoch, one.metadata)
            for one in (() if known is None else known.offsets)
            if one.offset is not None and not (one.is_pending or one.is_share)
            if wanted is None or (one.topic, one.partition) in wanted
        }

    # Commits

    def has_room(self, group: str, offsets: Sequence[tuple[str, int, Commit]]) -> bool:
        more = _COMMIT_OVERHEAD + len(group) + sum(map(_cost, offsets))
        return self._size + more <= self._size_max

    async def commit(self, group: str, offsets: Sequence[tuple[str, int, Commit]]) -> None:
        """Commit offsets, durably if there is a file.

        Raises:
            RequestError: `COORDINATOR_NOT_AVAILABLE`, the file cannot be written.
        """
        if not offsets:
            return
        # The file has the commits in the order in which memory gets them.
        async with self._writing:
            if self._file is None:
                self._take(group, offsets)
                return
            committed = Committed(group, int(time.time() * 1000), offsets)
            try:
                await asyncio.to_thread(self._file.append, committed, self._all(committed))
            except KafkaLogError as error:
                self._hear(error)
                raise RequestError(ErrorCode.COORDINATOR_NOT_AVAILABLE) from error
            # After the file: nobody may fetch what a crash would take back.
            self._take(group, offsets)

    def _take(self, group: str, offsets: Sequence[tuple[str, int, Commit]]) -> None:
        if group not in self._here:
            self._size += _COMMIT_OVERHEAD + len(group)
        here = self._here.setdefault(group, {})
        for one in offsets:
            topic, partition, commit = one
            before = here.get((topic, partition))
            self._size += _cost(one) - (0 if before is None else _cost((topic, partition, before)))
            here[topic, partition] = commit

    def _all(self, newest: Committed) -> Iterator[Committed]:
        """Yield one commit per group, of all offsets that were committed here."""
        for group, offsets in list(self._here.items()):
            listed = [(topic, index, one) for (topic, index), one in list(offsets.items())]
            yield Committed(group, newest.time_ms, listed)
        yield newest


def _cost(one: tuple[str, int, Commit]) -> int:
    return _COMMIT_OVERHEAD + len(one[0]) + len(one[2].metadata)
