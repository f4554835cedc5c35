"""Committed offsets of groups, and the offsets in the cluster that mean the same.

An offset leads to the first record at or after it that was replayed. Which record that is, the
cluster says when it is delivered; so only the offsets that a group has committed are kept.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from kafkalog.errors import Note
from kafkalog.io.wording import counted
from kafkalog.node.state.groups import read_groups
from kafkalog.wire.producing.model import TranslatedOffset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from confluent_kafka import KafkaError, Message

    from kafkalog.node.state.model import GroupOffset
    from kafkalog.node.targets import Target
    from kafkalog.wire.producing.messages import Message as Sent
    from kafkalog.wire.producing.model import ReplayListener, Route

    Told = Callable[[KafkaError | None, Message], None]


class OffsetMap:
    """Where offsets of logs lead.

    Args:
        wanted: log to the offsets that are asked for.
        known: log and offset in it to offset in the cluster, as far as an earlier run came.
        ends: log to the offset after its last record in the cluster, likewise.
        failed: called with the failure of a delivery.
    """

    def __init__(
        self,
        wanted: Mapping[int, Sequence[int]],
        known: Mapping[tuple[int, int], int],
        ends: Mapping[int, int],
        failed: Callable[[KafkaError, Message], object],
    ) -> None:
        self._known = dict(known)
        self._ends = dict(ends)
        self._failed = failed
        self._wanted = {
            log: sorted({one for one in offsets if (log, one) not in known})
            for log, offsets in wanted.items()
        }
        self._new: list[tuple[int, int, int]] = []
        self._new_ends: dict[int, int] = {}

    def parts(
        self, log: int, messages: Sequence[Sent]
    ) -> Iterator[tuple[Sequence[Sent], Told | None]]:
        """Split messages of a log behind those that wanted offsets lead to, and the last one.

        Each part comes with what has to be called when its last message is delivered.
        """
        if log not in self._wanted or not messages:
            yield messages, None
            return
        wanted = self._wanted[log]
        offsets = [offset for offset, *_ in messages]
        start = 0
        while start < len(messages):
            at = len(messages) - 1
            if wanted and wanted[0] <= offsets[-1]:
                at = max(bisect_left(offsets, wanted[0]), start)
            found = 0
            while found < len(wanted) and wanted[found] <= offsets[at]:
                found += 1
            yield messages[start : at + 1], self._told(log, wanted[:found])
            del wanted[:found]
            start = at + 1

    def _told(self, log: int, wanted: Sequence[int]) -> Told:
        def told(error: KafkaError | None, message: Message) -> None:
            offset = message.offset()
            if error is not None or offset is None:
                if error is not None:
                    self._failed(error, message)
                return
            self._new += [(log, old, offset) for old in wanted]
            self._new_ends[log] = offset + 1

        return told

    def take(self) -> tuple[list[tuple[int, int, int]], dict[int, int]]:
        """Return what has become known since the last call, and keep it."""
        new, ends = self._new, self._new_ends
        self._known |= {(log, old): offset for log, old, offset in new}
        self._ends |= ends
        self._new, self._new_ends = [], {}
        return new, ends

    def translated(self, log: int, offset: int) -> int | None:
        """Return where an offset leads: after the last record if there is none at or after it."""
        return self._known.get((log, offset), self._ends.get(log))


def committed_offsets(
    targets: Sequence[Target], routes: Sequence[Route], listener: ReplayListener
) -> dict[int, list[GroupOffset]]:
    """Return the committed offsets of all groups by the log that they are about.

    Raises:
        NotFoundError: no partition of `__consumer_offsets` is there.
        UnsupportedError: pyarrow is missing.
        KafkaLogError: a log cannot be read.
    """
    groups = read_groups(targets, defects=listener.hear, failed=listener.hear)
    if groups.topic.missing_count or groups.incomplete or groups.undecoded:
        missing = counted(groups.topic.missing_count + len(groups.incomplete), "partition")
        words = f"{missing} of __consumer_offsets missing or damaged: groups may be missing."
        listener.hear(Note(words, is_warning=True))
    logs = {(route.topic, route.partition): index for index, route in enumerate(routes)}
    found: dict[int, list[GroupOffset]] = {}
    for group in groups.groups.values():
        for one in group.offsets:
            log = logs.get((one.topic, one.partition))
            if one.offset is None or one.is_pending or one.is_share:
                continue
            if log is not None:
                found.setdefault(log, []).append(one)
    return found


def translations(
    committed: Mapping[int, Sequence[GroupOffset]], routes: Sequence[Route], offsets: OffsetMap
) -> Iterator[TranslatedOffset]:
    """Yield what each committed offset has become, by group, topic and partition."""
    found = [
        TranslatedOffset(
            one.group,
            one.topic,
            one.partition,
            one.offset,
            routes[log].to_topic,
            offsets.translated(log, one.offset),
        )
        for log, some in committed.items()
        for one in some
        if one.offset is not None
    ]
    yield from sorted(found, key=lambda one: (one.group, one.topic, one.partition))
