"""The topics and partitions that are served: names first, logs when somebody asks for them."""

from __future__ import annotations

import base64
import math
import os
import re
import threading
import time
import uuid
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from formats import file_names
from formats.constants import NO_EPOCH
from formats.error_codes import ErrorCode
from formats.file_names import DirectoryState, is_staging, parse_directory_name, partition_of
from formats.topic_names import CLUSTER_METADATA, INTERNAL_TOPICS
from kafkalog.errors import (
    KafkaLogError,
    NotAKafkaFileError,
    NotFoundError,
    ReplacedError,
    RequestsExceededError,
    UsageError,
    contained,
)
from kafkalog.files.log_dir import FileEntry, LogDirTop, PartitionDir, list_partition
from kafkalog.files.payloads.kinds import PayloadKind, payload_kind
from kafkalog.files.text_files import epoch_end, read_leader_epochs
from kafkalog.files.topics import is_meant
from kafkalog.io.engine import in_order
from kafkalog.io.paths.file_system import requests_at_once
from kafkalog.io.paths.uris import is_object
from kafkalog.log.living import listed_again
from kafkalog.model import EpochEntry
from kafkalog.node.choice import note_hosting, paths_of_others
from kafkalog.node.identity import cluster_id_of, topic_id_of
from kafkalog.node.remote_logs import with_tiers
from kafkalog.node.targets import best_replica, log_dirs_of, look_at_targets, require_topics
from kafkalog.wire.server.open_files import OpenFiles
from kafkalog.wire.server.served_log import ServedLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from formats.file_names import DirectoryName
    from kafkalog.errors import Event
    from kafkalog.wire.server.model import ServeListener, ServeOptions

FILES_MAX: Final = 60_000
"""How many files the logs may have together whose offsets are kept."""
"""What a client says that names no leader epoch; Fetch takes all negative numbers for it."""
_ILLEGAL: Final = re.compile(r"[^a-zA-Z0-9._-]")
_NAME_SIZE_MAX: Final = 249  # `Topic.MAX_NAME_LENGTH`
_UUID_SHOWN: Final = 8
_NO_CLUSTER: Final = "kafkalog"
_FIRST_EPOCH: Final = 0
_LEFTOVERS: Final = (DirectoryState.DELETE, DirectoryState.STRAY)


@dataclass(slots=True)
class ServedPartition:
    """A partition, and the directories that hold copies of it.

    Attributes:
        paths: the directories; none if all that is left is in remote storage.
        remote: the directories in tiers that hold its part in remote storage.
        epoch: the last leader epoch of the log, once it was asked for.
        has_failed: whether it could not be read, and somebody has heard of it.
    """

    topic: str
    index: int
    paths: tuple[str, ...]
    remote: tuple[str, ...] = ()
    epoch: int | None = None
    has_failed: bool = False


@dataclass(slots=True)
class Topic:
    """A topic and those of its partitions that are served.

    Attributes:
        is_leftover: whether it is made of directories that are no partitions any more.
        partitions: the partitions by number, ascending.
        id: the topic id, 22 characters, once it was asked for.
        is_opened: whether all its logs were opened together.
    """

    name: str
    is_leftover: bool
    partitions: dict[int, ServedPartition] = field(default_factory=dict)
    id: str | None = None
    is_opened: bool = False

    @property
    def noted_id(self) -> str | None:
        """The id that a directory has of it; a leftover's may be a live topic's."""
        for one in self.partitions.values() if not self.is_leftover else ():
            for path in (*one.paths, *one.remote):
                found = topic_id_of(PartitionDir(path, partition_of(path), ()))
                if found is not None:  # another copy may have it
                    return found
        return None

    def is_still(self, before: Topic) -> bool:
        """Return whether it is the topic that was found before."""
        places = [
            [(one.index, one.paths, one.remote) for one in topic.partitions.values()]
            for topic in (self, before)
        ]
        known = self.noted_id if before.id is not None else None
        return places[0] == places[1] and known in (None, before.id)

    @property
    def is_internal(self) -> bool:
        """Whether it is one that Kafka calls internal: `Topic.isInternal`."""
        return self.name in INTERNAL_TOPICS


class Catalog:
    """What is served.

    Args:
        paths: log directories, partition directories, parents of log directories, and tiers, whose
            logs are the older parts of local ones.

    Raises:
        UsageError: a topic is wanted that is not there.
        KafkaLogError: no path can be listed.
    """

    def __init__(
        self, paths: Iterable[str], options: ServeOptions, listener: ServeListener
    ) -> None:
        self.paths = tuple(paths)
        self._options = options
        self._listener = listener
        self._logs: OrderedDict[tuple[str, int], ServedLog] = OrderedDict()
        self._opening: dict[tuple[str, int], threading.Lock] = {}
        self._lock = threading.Lock()
        self._weight = 0
        self._files = OpenFiles()
        self._looking = threading.Lock()
        self.log_dirs: list[str] = []
        self._places: tuple[str, ...] = ()
        self.topics: dict[str, Topic] = {}
        self._by_id: dict[str, Topic] | None = None
        self.left_out = 0
        self._metadata: list[str] = []
        self._quorums: dict[str, None] = {}
        self._look()
        if self._quorums:
            found = look_at_targets(self.log_dirs, lambda _: None)
            note_hosting(found, lambda one: self._is_meant(one.topic))
        for topic in self.topics.values() if options.follow else ():
            for path in (path for one in topic.partitions.values() for path in one.paths):
                if is_object(path):
                    raise UsageError(
                        "--follow sees what a broker appends to local files, not to objects.",
                        path=path,
                        hint="Leave out --follow.",
                    )

    def _look(self) -> None:
        """Find what is to be served; a topic stays as it is if its directories and its id do."""
        self.left_out = 0
        tiered: list[PartitionDir] = []
        wanted: list[tuple[str, PartitionDir]] = []
        present: set[str] = set()
        for path, parsed in self._directories():
            name = _topic_name(parsed, path)
            present.add(name)
            if payload_kind(name) is PayloadKind.REMOTE_LOG_METADATA:
                # Tiers need it, even where the topic itself is not served.
                tiered.append(PartitionDir(path, parsed, ()))
            if name == CLUSTER_METADATA:
                self._quorums[path] = None
            if self._is_wanted(parsed, name):
                wanted.append((name, PartitionDir(path, parsed, ())))
        require_topics(self._options.topics, present)
        directories = [*tiered, *(one for _, one in wanted)]
        # A leftover has a name of its own.
        others = paths_of_others(directories, self.metadata_logs, dead=True)
        topics: dict[str, Topic] = {}
        for name, one in sorted(wanted, key=lambda pair: (pair[0], pair[1].partition or 0)):
            if one.path in others:
                continue
            topic = topics.setdefault(name, Topic(name, one.state in _LEFTOVERS))
            index = one.partition or 0
            partition = topic.partitions.setdefault(index, ServedPartition(name, index, ()))
            if one.is_remote:
                partition.remote += (one.path,)
            else:
                partition.paths += (one.path,)
        for before in self.topics.values():
            found = topics.get(before.name)
            if found is not None and found.is_still(before):
                topics[before.name] = before
            else:
                self._forget(before)
        self._metadata = [one.path for one in tiered if one.path not in others]
        self.topics, self._by_id = topics, None

    def metadata_logs(self) -> list[PartitionDir]:
        found: list[PartitionDir] = []
        for path in self._quorums:
            with contained(path, lambda _: None):
                found.append(list_partition(path))
        return found

    def _look_again(self, seen: dict[str, Topic]) -> None:
        with self._looking, contained(self.paths[0], self._listener.hear):
            if self.topics is seen:
                self._look()

    def _forget(self, topic: Topic) -> None:
        with self._lock:
            for index in topic.partitions:
                if (log := self._logs.pop((topic.name, index), None)) is not None:
                    self._weight -= log.weight

    @property
    def partition_count(self) -> int:
        return sum(len(topic.partitions) for topic in self.topics.values())

    @property
    def cluster_id(self) -> str:
        """The cluster's id in `meta.properties`; a word of ours without one."""
        return next(filter(None, map(cluster_id_of, self.log_dirs)), _NO_CLUSTER)

    def partition(self, topic: str, index: int) -> ServedPartition | None:
        served = self.topics.get(topic)
        return served.partitions.get(index) if served else None

    def together(
        self,
        work: Callable[[ServedPartition], object],
        partitions: Iterable[ServedPartition],
        seconds_max: float = math.inf,
    ) -> None:
        """Do what many partitions will be asked for, if they are in a store: its answers take long.

        A later question then has its answer at once, or meets the error.

        Args:
            work: keeps what it finds; called in several threads.
            partitions: those that will be asked, first ones first.
            seconds_max: after this time no more are begun.
        """
        asked = list(partitions)
        threads = max(
            (requests_at_once(path) for one in asked for path in one.paths or one.remote), default=1
        )
        if threads == 1:  # local files: nothing would be saved
            return
        end = time.monotonic() + seconds_max

        def attempt(partition: ServedPartition) -> bool:
            with contained(partition.topic, lambda _: None):
                work(partition)
            return time.monotonic() < end

        for goes_on in in_order(attempt, asked, threads):
            if not goes_on:
                break

    def identify(self, topics: Iterable[Topic]) -> None:
        """Read the ids of topics and the leader epochs of their partitions; see `together`."""
        found = [one for one in topics if one.partitions]
        self.together(
            lambda one: self.topic_id(self.topics[one.topic]),
            [min(one.partitions.items())[1] for one in found if one.id is None],
        )
        self.together(
            self.leader_epoch,
            [one for topic in found for one in topic.partitions.values() if one.epoch is None],
        )

    def topic_by_id(self, topic_id: str) -> Topic | None:
        """Return the topic with an id, or None.

        Cost:
            Reads one small file per topic, the first time.
        """
        if self._by_id is None:
            self.identify(self.topics.values())
            self._by_id = {self.topic_id(topic): topic for topic in self.topics.values()}
        return self._by_id.get(topic_id)

    def topic_id(self, topic: Topic) -> str:
        """Return the id of a topic: from `partition.metadata`, or made of its name."""
        if topic.id is None:
            # Logs of before Kafka 2.8 have none, and clients of today ask by id.
            topic.id = topic.noted_id or _made_id(topic.name)
        return topic.id

    def leader_epoch(self, partition: ServedPartition) -> int:
        """Return the last leader epoch of a partition's log, the first one if none is noted.

        A broker always leads in some epoch, also a log of before leader epochs. librdkafka never
        gets past UNKNOWN_LEADER_EPOCH where Metadata names none.

        Cost:
            Reads one small file: the first time, or each time if files may grow.
        """
        # A broker that still runs may have begun another epoch.
        if partition.epoch is None or self._options.follow:
            epochs: list[EpochEntry] = []
            for path in partition.paths:
                with contained(path, lambda _: None):
                    epochs += read_leader_epochs(os.path.join(path, file_names.LEADER_EPOCHS))
            for path in () if partition.paths else partition.remote:
                with contained(path, lambda _: None):
                    place = list_partition(path).place_of(file_names.LEADER_EPOCHS)
                    epochs += read_leader_epochs(place)
            partition.epoch = max((one.leader_epoch for one in epochs), default=_FIRST_EPOCH)
        return partition.epoch

    def epoch_error(self, partition: ServedPartition, believed: int) -> ErrorCode:
        """Return what is wrong with the leader epoch that a client believes in, if it names one."""
        if believed == NO_EPOCH:
            return ErrorCode.NONE
        epoch = self.leader_epoch(partition)
        if believed < epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH if believed > epoch else ErrorCode.NONE

    def is_open(self, partition: ServedPartition) -> bool:
        """Return whether `log` has an answer without opening files."""
        return (partition.topic, partition.index) in self._logs

    def opened(self, partition: ServedPartition) -> ServedLog | None:
        return self._logs.get((partition.topic, partition.index))

    def log(self, partition: ServedPartition) -> ServedLog:
        """Return the log of a partition, opened now unless it is open, as it is now if files grow.

        In a store the second log of a topic is opened together with all others of the topic: some
        clients ask for one at a time.

        Raises:
            ReplacedError: the topic was deleted, and there may be another one with the name.
            KafkaLogError: it cannot be read.
        """
        topics = self.topics
        topic = topics.get(partition.topic)
        if topic is None or topic.partitions.get(partition.index) is not partition:
            raise ReplacedError("The topic was deleted.", path=min(partition.paths, default=None))
        try:
            log = self._opened(topic, partition)
            before = log.path
            if self._options.follow and log.refresh() and log.path != before:
                moved = (log.path if one == before else one for one in partition.paths)
                partition.paths = tuple(moved)
        except (NotFoundError, ReplacedError):
            if self._options.follow:
                self._look_again(topics)
            raise
        return log

    def _opened(self, topic: Topic, partition: ServedPartition) -> ServedLog:
        if not topic.is_opened and not self.is_open(partition):
            closed = [one for one in topic.partitions.values() if not self.is_open(one)]
            if len(closed) < len(topic.partitions):
                topic.is_opened = True
                others = (one for one in closed if one is not partition)
                self.together(self._log, [partition, *others])
        return self._log(partition)

    def _log(self, partition: ServedPartition) -> ServedLog:
        key = partition.topic, partition.index
        with self._lock:
            log = self._logs.get(key)
            # Not under the lock of all logs: others are answered while this one is opened.
            if log is not None:
                self._logs.move_to_end(key)
                return log
            opening = self._opening.setdefault(key, threading.Lock())
        with opening:
            log = self._logs.get(key)
            if log is None:
                log = self._open(partition)
                self._keep(key, log)
        return log

    def _keep(self, key: tuple[str, int], log: ServedLog) -> None:
        with self._lock:
            self._logs[key] = log
            self._weight += log.weight
            # The newest stays, whatever it weighs.
            while self._weight > FILES_MAX and len(self._logs) > 1:
                _, oldest = self._logs.popitem(last=False)
                self._weight -= oldest.weight
            self._opening.pop(key, None)

    def _open(self, partition: ServedPartition) -> ServedLog:
        copies = [
            listed_again(PartitionDir(path, partition_of(path), (), log_dirs=self._places))
            for path in partition.paths or partition.remote
        ]
        best = best_replica(copies)
        others = [one.path for one in copies if one.path != best.path]
        if partition.paths:
            partition.paths = tuple(one.path for one in copies)
        if partition.paths and partition.remote:
            best = with_tiers(best, partition.remote, self._metadata)
        topic = self.topics.get(partition.topic)
        found = topic_id_of(best) if best.is_served else None
        if topic is None or found not in (None, self.topic_id(topic)):
            raise ReplacedError("The topic was deleted.", path=best.path)
        return ServedLog(best, self._options, self._listener, self._files, others)

    def failed(self, partition: ServedPartition, error: KafkaLogError) -> ErrorCode:
        """Report, once, that a partition cannot be read; return the answer for its clients.

        Raises `RequestsExceededError` if that is why, since it will be for all.
        """
        if isinstance(error, RequestsExceededError):
            raise error
        if not (partition.has_failed or isinstance(error, ReplacedError)):
            partition.has_failed = True
            self._listener.hear(error)
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _directories(self) -> Iterator[tuple[str, DirectoryName | None]]:
        errors: list[KafkaLogError] = []

        def hear(event: Event) -> None:
            if isinstance(event, KafkaLogError):
                errors.append(event)
            self._listener.hear(event)

        targets = look_at_targets(self.paths, hear)
        if not targets and errors:
            raise errors[0]
        self._places = log_dirs_of(targets)
        for target in targets:
            if isinstance(target, PartitionDir):
                yield target.path, target.name
            elif isinstance(target, LogDirTop):
                if target.path not in self.log_dirs:
                    self.log_dirs.append(target.path)
                for directory in target.directories:
                    name = parse_directory_name(directory)
                    if name is not None and not is_staging(directory):
                        yield os.path.join(target.path, directory), name
            elif isinstance(target, FileEntry):
                hear(NotAKafkaFileError(
                    "A single file is no partition.", path=target.path,
                    hint="Give its partition directory.",
                ))  # fmt: skip

    def _is_wanted(self, name: DirectoryName | None, topic: str) -> bool:
        if name is None:
            return self._options.topics is None or topic in self._options.topics
        if name.partition < 0:
            return False
        if name.state not in (DirectoryState.LIVE, DirectoryState.REMOTE):
            return name.state in _LEFTOVERS and self._options.leftovers
        topics, is_served = self._options.topics, self._is_meant(topic)
        self.left_out += not is_served and (topics is None or topic in topics)
        return is_served

    def _is_meant(self, topic: str) -> bool:
        return is_meant(topic, self._options.topics, internal=self._options.internal)


def epoch_end_served(epochs: Sequence[EpochEntry], end: int, epoch: int) -> tuple[int, int] | None:
    """Return the same as `epoch_end`; where nothing is noted, the first epoch starts at the end.

    Source: `Partition.makeLeader`, which notes its epoch at the log end offset.
    """
    return epoch_end(epochs or (EpochEntry(_FIRST_EPOCH, end),), end, epoch)


def _topic_name(name: DirectoryName | None, path: str) -> str:
    """Return what clients call a topic; a directory of any name becomes a legal one."""
    if name is None:
        return _ILLEGAL.sub("_", os.path.basename(os.path.abspath(path)))[:_NAME_SIZE_MAX]
    if name.state in _LEFTOVERS:
        word = "deleted" if name.state == DirectoryState.DELETE else "stray"
        return f"{name.topic}.{word}-{(name.uid or '')[:_UUID_SHOWN]}"
    return name.topic


def _made_id(name: str) -> str:
    made = uuid.uuid5(uuid.NAMESPACE_URL, f"kafka-topic:{name}")
    return base64.urlsafe_b64encode(made.bytes).decode("ascii")[:22]
