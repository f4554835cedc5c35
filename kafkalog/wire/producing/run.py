"""A replay: what is in logs, produced into a cluster, each record once."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from contextlib import nullcontext
from dataclasses import field
from typing import TYPE_CHECKING, Final

from formats.late_classes import dataclass
from kafkalog.errors import ClusterError, Deaf, Note, RefusedError
from kafkalog.io.paths import file_system
from kafkalog.io.storage import AppendedFile
from kafkalog.io.wording import counted
from kafkalog.model import present_ms
from kafkalog.tables.model import Request as Rows
from kafkalog.tables.model import partition_ends
from kafkalog.wire.producing.cluster import Cluster, active
from kafkalog.wire.producing.lanes import Lanes
from kafkalog.wire.producing.messages import Piece
from kafkalog.wire.producing.model import Position, ReplayListener, Request
from kafkalog.wire.producing.offsets import OffsetMap, committed_offsets, translations
from kafkalog.wire.producing.progress import ProgressFile
from kafkalog.wire.producing.refusals import REFUSED_BEGIN, TopicRules
from kafkalog.wire.producing.routes import missing_topics_in, require_topics_in, routes_of
from kafkalog.wire.producing.sending import PREFIX, Sending

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kafkalog.files.offsets import PartitionOffsets
    from kafkalog.node.state.model import GroupOffset
    from kafkalog.node.targets import Target
    from kafkalog.wire.producing.lanes import Lane
    from kafkalog.wire.producing.model import Replayed, TranslatedOffset

_COMMIT_SIZE: Final = 1 << 26
_COMMIT_RECORDS: Final = 500_000
_COMMIT_S: Final = 5.0
_RATE_STEP_S: Final = 0.1
_PARTS_MIN: Final = 2


@dataclass(slots=True)
class ReplaySummary:
    """What a replay did, or would do.

    Attributes:
        logs: what was done with each log, in the order in which they came to their end.
        offsets: what committed offsets of groups have become.
        created: topics that were created.
        was_complete: whether an earlier run had done it all.
    """

    logs: list[Replayed] = field(default_factory=list)
    offsets: list[TranslatedOffset] = field(default_factory=list)
    created: list[str] = field(default_factory=list)
    was_complete: bool = False

    @property
    def has_losses(self) -> bool:
        """Whether the cluster has not got all records as they are."""
        return any(
            one.unsendable_records or one.refused_records or one.zero_timestamps
            for one in self.logs
        ) or any(one.to_offset is None for one in self.offsets)


class Replay:
    """A replay, planned.

    Attributes:
        request: which records, and how.
        listener: who hears of what is reported besides the results.
        routes: the logs, and where they go.
        left_out: number of internal partitions that are left out.

    Raises:
        UsageError: the request makes no sense for these logs.
    """

    def __init__(
        self, targets: Sequence[Target], request: Request, listener: ReplayListener
    ) -> None:
        self._targets = targets
        self.request = request
        self.listener = listener
        self.routes, self.left_out = routes_of(targets, request, listener)

    def ends(self) -> list[PartitionOffsets]:
        """Return the bounds of the logs, if they decide which records are replayed."""
        selection = self.request.selection
        rows = Rows(isolation=selection.isolation, view=selection.view)
        logs = [one.target for one in self.routes if not one.target.is_file]
        # What cannot be read fails again, and is reported, when its turn comes.
        return partition_ends(logs, rows, Deaf())

    def count(self) -> ReplaySummary:
        """Read all that would be replayed, and count it; no cluster is asked."""
        lanes = Lanes(self.routes, self.request, Position(), self.listener)
        for lane, piece in lanes.pieces():
            zeros = sum(not timestamp for _, _, _, timestamp, _ in piece.messages)
            lanes.count(lane, piece, zeros if self.request.keep_timestamps else 0)
        return ReplaySummary(lanes.done)

    def check(self, cluster: Cluster) -> None:
        """Make sure that the cluster could take the records; nothing is changed.

        Raises:
            RefusedError, ClusterError: as `perform`.
        """
        self._committed(cluster)
        missing, needed = missing_topics_in(cluster, self.routes, self.request)
        self._warn(cluster.configs(sorted(needed.keys() - {*missing})))

    def perform(self, cluster: Cluster, progress: str) -> ReplaySummary:
        """Produce what is not in the cluster yet.

        Args:
            progress: the progress file; given again, a run that was stopped goes on.

        Raises:
            RefusedError: the cluster lacks topics or partitions, groups are active, or the file
                belongs to another run or cluster.
            ClusterError: the cluster does not do what it is asked; given again, the run goes on.
        """
        summary = ReplaySummary()
        if not self.routes:
            return summary
        logs = [
            (file_system.absolute(route.path), route.topic, route.partition)
            for route in self.routes
        ]
        with ProgressFile(progress, self.request.identity(), logs) as file:
            if file.cluster not in (None, cluster.id):
                raise RefusedError(
                    "The file has the progress of a run in another cluster.", path=progress
                )
            if file.is_complete:
                summary.was_complete = True
                return summary
            # Before a topic is created: a refusal changes nothing in the cluster.
            committed = self._committed(cluster)
            summary.created = require_topics_in(cluster, self.routes, self.request, self._targets)
            configs = cluster.configs(sorted({route.to_topic for route in self.routes}))
            self._warn(configs)
            topic = file.topic or min(route.to_topic for route in self.routes)
            with Sending(
                cluster, file.run, topic, configs, transactional=self.request.transactions
            ) as sending:
                _begin(file, sending, cluster, topic, progress)
                path = self.request.refused_file
                listed = None if path is None else AppendedFile(path, (REFUSED_BEGIN,))
                try:
                    with listed or nullcontext():
                        work = _Work(
                            self, file, sending, committed, configs, listed,
                            compresses=cluster.compresses,
                        )  # fmt: skip
                        work.run()
                except ClusterError as error:
                    error.note = error.note or _committed_words(sending)
                    raise
                summary.logs = work.logs
            summary.offsets = self._translate(cluster, committed, work.offsets)
            # A log that could not be read is tried again by the next run.
            if not work.has_failed:
                file.complete()
        return summary

    def _committed(self, cluster: Cluster) -> dict[int, list[GroupOffset]]:
        if not self.request.commit_offsets:
            return {}
        found = committed_offsets(self._targets, self.routes, self.listener)
        names = sorted({one.group for some in found.values() for one in some})
        if busy := cluster.active_groups(names):
            raise active(*busy)
        return found

    def _translate(
        self,
        cluster: Cluster,
        committed: Mapping[int, Sequence[GroupOffset]],
        offsets: OffsetMap | None,
    ) -> list[TranslatedOffset]:
        if offsets is None:
            return []
        found = list(translations(committed, self.routes, offsets))
        of_groups: defaultdict[str, dict[tuple[str, int], int]] = defaultdict(dict)
        for one in found:
            if one.to_offset is not None:
                of_groups[one.group][one.to_topic, one.partition] = one.to_offset
        for name, places in of_groups.items():
            cluster.commit(name, places)
        return found

    def _warn(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        if not self.request.keep_timestamps:
            return
        for topic, own in configs.items():
            if own.get("message.timestamp.type") == "LogAppendTime":
                words = f"{topic} has message.timestamp.type=LogAppendTime"
                note = Note(f"{words}: records get the time of the replay.", is_warning=True)
                self.listener.hear(note)


def _committed_words(sending: Sending) -> str:
    assert sending.position is not None, "the run has begun"
    count = counted(sending.position.records, "record")
    return (
        f"At least {count} of the run {'is' if count.startswith('1 ') else 'are'} in the cluster."
    )


def _begin(file: ProgressFile, sending: Sending, cluster: Cluster, topic: str, path: str) -> None:
    """Commit a first position, and note that there is one, before any record is produced."""
    # The cluster first: a position that the file does not know of is found there again.
    if file.cluster is None:
        if sending.position is None:
            sending.commit(Position())
        file.begin(cluster.id, topic)
    elif sending.position is None:
        raise RefusedError(
            "The cluster has lost the progress of the run.",
            path=path,
            note=f"It was committed for the group {PREFIX}{file.run} and the topic {topic}. "
            "Brokers forget offsets of groups after offsets.retention.minutes, and those of a "
            "topic that is deleted.",
            hint="Compare what is in the cluster, and start again with another file.",
        )
    assert sending.position is not None, "it was committed, or it was there"
    file.resume(sending.position.records)


class _Work:
    """The work of one run: reads, sends, commits."""

    def __init__(
        self,
        replay: Replay,
        file: ProgressFile,
        sending: Sending,
        committed: Mapping[int, Sequence[GroupOffset]],
        configs: Mapping[str, Mapping[str, str]],
        refused: AppendedFile | None = None,
        *,
        compresses: bool = False,
    ) -> None:
        assert sending.position is not None, "the run has begun"
        request = replay.request
        self._keeps_time = request.keep_timestamps
        self._listener = replay.listener
        self._file = file
        self._sending = sending
        self._lanes = Lanes(
            replay.routes, request, sending.position, replay.listener, self._advanced
        )
        self._pace = _Pace(request.rate)
        self._retention = _Retention(configs, replay.listener)
        self._refused = refused
        self._rules = {
            topic: TopicRules(own, keeps_time=self._keeps_time, compresses=compresses)
            for topic, own in configs.items()
        }
        self.offsets: OffsetMap | None = None
        if request.commit_offsets:
            wanted = {
                log: [one.offset for one in some if one.offset is not None]
                for log, some in committed.items()
            }
            self.offsets = OffsetMap(wanted, *file.known(), failed=sending.fail)
        self._records = self._size = 0
        self._since = time.monotonic()

    @property
    def has_failed(self) -> bool:
        return self._lanes.has_failed

    @property
    def logs(self) -> list[Replayed]:
        return self._lanes.done

    def run(self) -> None:
        """Produce everything, and commit it piece by piece."""
        for lane, piece in self._lanes.pieces():
            if self._keeps_time:
                self._retention.look_at(lane.done.route.to_topic, piece)
            for part in self._pace.parts(self._taken(lane, piece)):
                self._lanes.count(lane, part, self._send(lane, part))
                self._records += len(part.messages)
                self._size += part.size_bytes
                self._pace.wait(part.size_bytes, self._sending)
                if self._size >= _COMMIT_SIZE or self._records >= _COMMIT_RECORDS:
                    self._commit()
                self._commit_if_due()
        if self._lanes.position != self._sending.position:
            self._commit()

    def _taken(self, lane: Lane, piece: Piece) -> Piece:
        """Return what the topic takes of a piece; the rest is listed, if that is wanted."""
        if self._refused is None:
            return piece
        route = lane.done.route
        refused = dict(self._rules[route.to_topic].refused(piece))
        if not refused:
            return piece
        rows = (
            {"topic": route.topic, "partition": route.partition, "offset": offset, "why": why}
            for offset, why in refused.items()
        )
        self._refused.append("\n".join(map(json.dumps, rows)).encode())
        return piece.without(refused)

    def _send(self, lane: Lane, piece: Piece) -> int:
        if self.offsets is None:
            return self._sending.send(lane.done.route, piece.messages, keeps_time=self._keeps_time)
        parts = self.offsets.parts(lane.index, piece.messages)
        return sum(
            self._sending.send(lane.done.route, messages, keeps_time=self._keeps_time, told=told)
            for messages, told in parts
        )

    def _advanced(self, size_bytes: int) -> None:
        """Commit in time, also where little of what is read is wanted."""
        self._listener.advanced(size_bytes)
        self._commit_if_due()

    def _commit_if_due(self) -> None:
        if self._records and time.monotonic() - self._since >= _COMMIT_S:
            self._commit()

    def _commit(self) -> None:
        position = self._lanes.position
        if self.offsets is not None:
            # Before the commit: notes for more records than were committed are forgotten by
            # `resume`.
            self._sending.flush()  # then it is known where offsets lead
            new, ends = self.offsets.take()
            if new or ends:
                self._file.note(position.records, new, ends)
        self._sending.commit(position)
        self._records = self._size = 0
        self._since = time.monotonic()


class _Pace:
    """A limit on bytes in a second; None for no limit."""

    def __init__(self, rate: int | None) -> None:
        self._rate = rate
        self._size = 0
        self._since = time.monotonic()

    def parts(self, piece: Piece) -> Iterator[Piece]:
        """Split a piece so that each part takes a moment."""
        count = len(piece.messages)
        if self._rate is None or count < _PARTS_MIN:
            yield piece
            return
        seconds = piece.size_bytes / self._rate
        step = max(1, int(count * min(1.0, _RATE_STEP_S / seconds))) if seconds else count
        for start in range(0, count, step):
            messages = piece.messages[start : start + step]
            is_last = start + step >= count
            size = piece.size_bytes * len(messages) // count
            left = (piece.unsendable, piece.refused) if is_last else ([], [])
            yield Piece(messages, size, *left)

    def wait(self, size_bytes: int, sending: Sending) -> None:
        """Wait until the rate limit allows `size_bytes` more."""
        if self._rate is None:
            return
        self._size += size_bytes
        while (ahead := self._size / self._rate - (time.monotonic() - self._since)) > 0:
            sending.idle(min(ahead, _RATE_STEP_S))


class _Retention:
    """Warns of topics whose retention takes records that are as old as these."""

    def __init__(self, configs: Mapping[str, Mapping[str, str]], listener: ReplayListener) -> None:
        self._listener = listener
        now = present_ms()
        self._oldest = {
            topic: now - int(own["retention.ms"])
            for topic, own in configs.items()
            # -1 keeps everything.
            if own.get("retention.ms", "").isdigit() and "delete" in own.get("cleanup.policy", "")
        }

    def look_at(self, topic: str, piece: Piece) -> None:
        """Warn, once for a topic, if its first record is too old."""
        oldest = self._oldest.get(topic)
        if oldest is not None and piece.messages and 0 <= piece.messages[0][3] < oldest:
            del self._oldest[topic]
            words = (
                f"{topic} has records that are older than its retention.ms: brokers delete them "
                "soon. Set retention.ms of the topic, or replay with --new-timestamps."
            )
            self._listener.hear(Note(words, is_warning=True))
