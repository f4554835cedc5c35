"""Moves single partitions into the log directory of an existing cluster, whose broker is down.

Its metadata log says what belongs there, and is not changed: topic ids, replicas, leader epochs and
configs agree with what is put there, or it is refused. Follows `LogManager` and `ReplicaManager` of
Kafka 4.3: a start makes a stray of a partition with another topic id, cuts a follower to its
leader, and deletes what is older than the retention.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from formats import file_names
from kafkalog.cluster_image.model import TOPIC
from kafkalog.errors import DestinationExistsError, NotFoundError, RefusedError, UsageError
from kafkalog.journal.log_dir_files import has_mark
from kafkalog.journal.requirements import require_own_checkpoints
from kafkalog.log_dir import LogDirListing, list_partition, open_path
from kafkalog.names import OFFSET_CHECKPOINTS
from kafkalog.resurrection.choice import NEW, choose
from kafkalog.resurrection.model import (
    LOG_ROOT,
    Missing,
    ResurrectedPartition,
    ResurrectedTopic,
    ResurrectOptions,
    ResurrectSummary,
    Retention,
)
from kafkalog.resurrection.partition import PartitionCopier
from kafkalog.resurrection.run import require_ids, require_room
from kafkalog.resurrection.sources import OldCheckpoints, log_dirs_of, source_images
from kafkalog.storage import Changes, LogDirLock, NewPartitions
from kafkalog.text_files import checkpoint_text, read_meta_properties, read_offset_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkalog.cluster_image.model import Partition
    from kafkalog.resurrection.choice import Candidate, Chosen, TopicChoice
    from kafkalog.resurrection.model import Row
    from kafkalog.resurrection.partition import Judged
    from kafkalog.resurrection.sources import SourceImage
    from kafkalog.targets import Target

_RESERVED: Final = tuple("A" * 21 + end for end in "AQg")
"""Ids of no directory: `MIGRATING`, `UNASSIGNED` and `LOST` of `DirectoryId`."""
_EXPIRATION_MS: Final = 86_400_000
"""Default of `producer.id.expiration.ms`: a start forgets producers whose last batch is older."""
_MEANINGLESS: Final = ("node_id", "cluster_id", "missing", "salvage", "properties_out")
_COMPACT: Final = "compact"


def run_into(
    targets: Sequence[Target],
    log_dir: str,
    options: ResurrectOptions,
    *,
    dry_run: bool,
    tell: Callable[[Row], None] | None,
    progress: Callable[[int], None] | None,
) -> ResurrectSummary:
    """Do what `kafkalog.resurrect_into` describes."""
    _require_sense(targets, log_dir, options)
    place = os.path.realpath(log_dir)
    require_own_checkpoints(place)
    with ExitStack() as held:
        held.enter_context(LogDirLock(place, writes=not dry_run))
        others = log_dirs_of(targets)
        if options.as_of_metadata is not None:
            others.append(os.path.realpath(options.as_of_metadata))
        for other in dict.fromkeys(others):
            if other != place:
                held.enter_context(LogDirLock(other))
        home = _Home.of(log_dir, options)
        images = source_images(targets, None, takes_damage=True)
        chosen = choose(targets, images, replace(options, missing=Missing.EMPTY))
        chosen.topics = [one for one in chosen.topics if one.partitions]
        if not chosen.topics:
            raise NotFoundError(
                "No partition is found.",
                path=targets[0].path if targets else None,
                hint="--undelete takes directories that await deletion, too."
                if chosen.left_out else None,
            )  # fmt: skip
        for topic in chosen.topics:
            home.require_topic(topic, options)
        directory = None
        if not dry_run:
            require_room(os.path.join(place, LOG_ROOT), chosen, options)
            directory = held.enter_context(NewPartitions(place))
        return _Arrival(home, directory, options, tell, progress).work(chosen)


def _require_sense(targets: Sequence[Target], log_dir: str, options: ResurrectOptions) -> None:
    """Raise `UsageError` for what the log directory says itself."""
    for name in _MEANINGLESS:
        if getattr(options, name) != getattr(ResurrectOptions(), name):
            raise UsageError(
                f"--{name.replace('_', '-')} and --into exclude each other.",
                hint="Run `kafkalog salvage` first, and take its result."
                if name == "salvage" else "Leave it out.",
            )  # fmt: skip
    require_ids(options)
    place = os.path.realpath(log_dir)
    if any(os.path.realpath(one.path) == place for one in targets):
        raise UsageError(
            "PATH and LOG_DIR are the same directory.",
            path=log_dir,
            hint="Give the partition directories in it that are to be moved.",
        )


@dataclass(frozen=True, slots=True)
class _Home:
    """The log directory that partitions are moved to, and the metadata of its cluster."""

    path: str
    node_id: int
    directory_id: str | None
    known: SourceImage

    @classmethod
    def of(cls, log_dir: str, options: ResurrectOptions) -> _Home:
        """Read a log directory.

        Raises:
            UsageError: it is none.
            NotFoundError: there is no metadata log.
            RefusedError: the metadata are of another cluster.
            CorruptDataError, UnsupportedError: they are damaged, or of a later Kafka.
        """
        target = open_path(log_dir)
        if not isinstance(target, LogDirListing):
            raise UsageError("This is not a log directory.", path=log_dir,
                             hint="Give the log directory of a broker that is down.")  # fmt: skip
        path = os.path.join(log_dir, file_names.META_PROPERTIES)
        found = read_meta_properties(path)
        images = source_images([target], options.as_of_metadata, takes_damage=False)
        if not images or found.node_id is None:
            raise NotFoundError(
                "There is no metadata log here.",
                path=log_dir,
                hint="--as-of-metadata names the broker's log directory that has it.",
            )
        if images[0].cluster_id != found.cluster_id:
            raise RefusedError(
                f"The metadata log is of the cluster {images[0].cluster_id}, the log directory of "
                f"{found.cluster_id}.",
                path=images[0].path,
            )
        return cls(log_dir, found.node_id, found.directory_id, images[0])

    def partition(self, topic: str, number: int) -> Partition | None:
        """Return what the metadata say of a partition."""
        return self.known.image.partition(self.known.image.topics.get(topic, ""), number)

    def require_topic(self, topic: TopicChoice, options: ResurrectOptions) -> None:
        """Raise `RefusedError` unless a topic's partitions belong here, and may stay."""
        image, name = self.known.image, topic.name
        topic_id = image.topics.get(name)
        if topic_id is None:
            raise RefusedError(
                f"The metadata of the cluster have no topic {name}.",
                path=self.path,
                hint=f"Create it: kafka-topics.sh --create --topic {name} --partitions "
                f"{max(topic.partitions) + 1} --config retention.ms=-1; stop the broker, and run "
                "this again. Or make a directory with --to.",
            )
        given = options.topic_ids.get(name)
        stated = topic.partitions[min(topic.partitions)].copies[0].topic_id
        if given not in (None, NEW, topic_id, stated):
            raise RefusedError(
                f"The topic {name} has the id {topic_id} in the metadata, not {given}.",
                path=self.path,
            )
        if given not in (NEW, topic_id) and not topic.is_dead and stated not in (None, topic_id):
            raise RefusedError(
                f"The topic {name} has the id {topic_id} in the metadata; the directory is of a "
                f"topic with the id {stated}.",
                path=topic.partitions[min(topic.partitions)].copies[0].path,
                hint=f"If it shall become that topic: --topic-id {name}={topic_id}.",
            )
        for number in topic.partitions:
            self._require_place(name, number)
            _require_free(os.path.join(self.path, f"{name}-{number}"))
        if options.retention == Retention.KEEP:
            self._require_retention(name)

    def _require_place(self, topic: str, number: int) -> None:
        known = self.partition(topic, number)
        if known is None:
            raise RefusedError(
                f"In the metadata the topic {topic} has no partition {number}.",
                path=self.path,
                hint=f"Add partitions: kafka-topics.sh --alter --topic {topic} --partitions "
                f"{number + 1}; stop the broker, and run this again.",
            )
        if self.node_id not in known.replicas:
            nodes = ", ".join(map(str, known.replicas))
            raise RefusedError(
                f"The metadata assign {topic}-{number} to {nodes}, not to this node, "
                f"{self.node_id}.",
                path=self.path,
                hint="A broker would take it for a stray. Use that node's log directory.",
            )
        if len(known.replicas) > 1:
            others = ", ".join(str(one) for one in known.replicas if one != self.node_id)
            raise RefusedError(
                f"{topic}-{number} has replicas on other nodes, too: {others}.",
                path=self.path,
                note="One of them could lead without these records; this one would be cut to it.",
                hint="Reassign it to this node alone first; add the others again afterwards.",
            )
        directory = known.directories[0] if known.directories else None
        if directory not in (None, self.directory_id, *_RESERVED):
            raise RefusedError(
                f"The metadata assign {topic}-{number} to the log directory {directory}, not to "
                f"this one, {self.directory_id}.",
                path=self.path,
                hint="Use the log directory whose meta.properties has that directory.id.",
            )

    def _require_retention(self, topic: str) -> None:
        configs = self.known.image.configs.get((TOPIC, topic), {})
        if configs.get("cleanup.policy") == _COMPACT:
            return
        if configs.get("retention.ms") == "-1" and configs.get("retention.bytes", "-1") == "-1":
            return
        raise RefusedError(
            f"The retention of the topic {topic} may delete old data minutes after the start.",
            path=self.path,
            hint=f"kafka-configs.sh --alter --topic {topic} --add-config "
            "retention.ms=-1,retention.bytes=-1 keeps them, before the broker is stopped; "
            "--retention original accepts it.",
        )

    def require_agreement(self, topic: str, number: int, path: str, judged: Judged) -> None:
        """Raise `RefusedError` if clients or new producers could not go on behind a log."""
        known = self.partition(topic, number)
        assert known is not None, "required before"
        if judged.leader_epoch > known.leader_epoch:
            raise RefusedError(
                f"The leader epoch of the log is {judged.leader_epoch}, that of {topic}-{number} "
                f"in the metadata {known.leader_epoch}: clients that are ahead would be fenced.",
                path=path,
                hint="Each start of the broker raises that of the metadata by one or two; start "
                "and stop it until they agree. Or make a directory with --to.",
            )
        following = self.known.image.next_producer_id
        is_known = (
            judged.last_timestamp > time.time_ns() // 1_000_000 - _EXPIRATION_MS
            or judged.first_unstable_offset is not None
            or not has_mark(self.path)
        )
        if judged.producer_id >= max(following, 0) and is_known:
            raise RefusedError(
                f"The log has producer ids up to {judged.producer_id}, the cluster gives new ones "
                f"from {max(following, 0)} on: what new producers send would be taken for "
                "repetitions.",
                path=path,
                hint="A start after a clean shutdown forgets those without an open transaction "
                "and with no batch for a day. Or make a directory with --to.",
            )


def _require_free(path: str) -> None:
    """Raise unless a directory is missing, or holds no record, as that of a new topic."""
    if not os.path.lexists(path):
        return
    if os.path.islink(path) or not os.path.isdir(path):
        raise DestinationExistsError("It exists, and is not a directory.", path=path)
    found = list_partition(path)
    logs = [(one.base_offset, one.log.size_bytes) for one in found.segments]
    if found.directories or found.other_logs or any(any(one) for one in logs):
        raise DestinationExistsError(
            "It exists, and is not an empty partition.",
            path=path,
            hint="Move it away if the partition shall be replaced.",
        )


class _Arrival:
    """The work on the partitions that are moved."""

    def __init__(
        self,
        home: _Home,
        directory: NewPartitions | None,
        options: ResurrectOptions,
        tell: Callable[[Row], None] | None,
        progress: Callable[[int], None] | None,
    ) -> None:
        image = home.known
        self._home = home
        self._directory = directory
        self._tell = tell
        self._copier = PartitionCopier(
            directory, options.copy, lambda _: None, progress or (lambda _: None)
        )
        self._checkpoints = OldCheckpoints()
        self._entries: dict[str, dict[tuple[str, int], int | None]] = {
            name: {} for name in OFFSET_CHECKPOINTS
        }
        self._summary = ResurrectSummary(
            home.path,
            directory is None,
            log_dir=os.path.realpath(home.path),
            cluster_id=image.cluster_id or "",
            directory_id=home.directory_id or "",
            node_id=home.node_id,
            metadata_version=image.image.metadata_version or 0,
            metadata_from=(image.path,),
            left_over_removed=directory is not None and directory.left_over_removed,
        )

    def work(self, chosen: Chosen) -> ResurrectSummary:
        """Copy and judge all partitions; when all agree, put them in place."""
        for left_out in chosen.left_out:
            self._row(left_out)
        for topic in chosen.topics:
            self._topic(topic)
        if self._directory is not None:
            checkpoints = self._merged_checkpoints()
            self._directory.sync()
            for name, data in checkpoints.items():
                Changes(self._home.path).replace(name, data)
            for topic in chosen.topics:
                for number in topic.partitions:
                    name = f"{topic.name}-{number}"
                    self._directory.put(f"{LOG_ROOT}/{name}", name)
        self._row(self._summary)
        return self._summary

    def _topic(self, topic: TopicChoice) -> None:
        image = self._home.known.image
        total = ResurrectedTopic(topic.name, image.topics[topic.name], topic.old_name)
        starts, sources = [], []
        for number, choice in topic.partitions.items():
            taken = choice.copies[0]
            start = self._checkpoints.of(taken, file_names.LOG_STARTS) or 0
            name = f"{topic.name}-{number}"
            judged = self._copier.run(taken, total.topic_id, name, start)
            if judged.damage is not None:
                judged.damage.hint = "`kafkalog salvage` takes every sound batch of it."
                raise judged.damage
            self._home.require_agreement(topic.name, number, taken.path, judged)
            known = self._home.partition(topic.name, number)
            self._row(
                ResurrectedPartition(
                    path=taken.path,
                    target=name,
                    topic=topic.name,
                    partition=number,
                    topic_id=total.topic_id,
                    how=judged.how,
                    log_start_offset=judged.log_start_offset,
                    log_end_offset=judged.log_end_offset,
                    records=judged.records,
                    size_bytes=judged.size_bytes,
                    leader_epoch=known.leader_epoch if known is not None else 0,
                    bytes_cut=judged.bytes_cut,
                    first_unstable_offset=judged.first_unstable_offset,
                    losers=choice.losers,
                )
            )
            self._note(topic.name, taken, judged)
            total.partitions += 1
            total.records += judged.records
            total.size_bytes += judged.size_bytes
            total.log_end_offset = max(total.log_end_offset, judged.log_end_offset)
            starts.append(judged.log_start_offset)
            sources.append(taken.directory.log_dir)
        total.log_start_offset = min(starts)
        total.sources = tuple(dict.fromkeys(sources))
        total.configs = dict(sorted(image.configs.get((TOPIC, topic.name), {}).items()))
        if topic.is_dead:
            total.notes = ("it was deleted",)
        self._row(total)

    def _note(self, topic: str, taken: Candidate, judged: Judged) -> None:
        """Note the entries in checkpoints: no recovery point, so that a start scans the log."""
        start, end = judged.log_start_offset, judged.log_end_offset
        cleaned = self._checkpoints.of(taken, file_names.CLEANER_OFFSETS)
        key = topic, taken.number
        self._entries[file_names.RECOVERY_POINTS][key] = None
        self._entries[file_names.LOG_STARTS][key] = start or None
        self._entries[file_names.HIGH_WATERMARKS][key] = end
        self._entries[file_names.CLEANER_OFFSETS][key] = (
            None if cleaned is None else max(start, min(cleaned, end))
        )
        if judged.first_unstable_offset is not None:
            self._summary.notes.append(
                f"an open transaction of {topic}-{taken.number} stays open; to abort it: "
                f"kafka-transactions.sh abort --topic {topic} --partition {taken.number} "
                f"--start-offset {judged.first_unstable_offset}"
            )

    def _merged_checkpoints(self) -> dict[str, bytes]:
        """Return the checkpoints that change; they are replaced before there are the logs.

        An entry without a log is forgotten by a broker; a log without its entry would show records
        that were deleted. The clean shutdown mark stays: the new logs need no scan, since all that
        a recovery makes was made.
        """
        texts = {}
        for name, changed in self._entries.items():
            path = os.path.join(self._home.path, name)
            found = read_offset_checkpoint(path) if os.path.lexists(path) else []
            before = {(one.topic, one.partition): one.offset for one in found}
            after = {key: offset for key, offset in before.items() if key not in changed}
            after |= {key: offset for key, offset in changed.items() if offset is not None}
            if after != before:
                rows = [(*key, offset) for key, offset in after.items()]
                texts[name] = checkpoint_text(rows)
        return texts

    def _row(self, row: Row) -> None:
        self._summary.count(row)
        if self._tell is not None:
            self._tell(row)
