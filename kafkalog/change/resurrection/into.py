"""Moves single partitions into the log directory of an existing cluster, whose broker is down.

Its metadata log says what belongs there, and is not changed: topic ids, replicas, leader epochs and
configs agree with what is put there, or it is refused.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from formats import file_names
from formats.file_names import OFFSET_CHECKPOINTS
from formats.releases import newest
from kafkalog.change.journal.requirements import require_own_checkpoints
from kafkalog.change.resurrection.choice import choose
from kafkalog.change.resurrection.home import Home
from kafkalog.change.resurrection.model import (
    LOG_ROOT,
    THERE,
    Missing,
    ResurrectedPartition,
    ResurrectedTopic,
    ResurrectOptions,
    ResurrectSummary,
)
from kafkalog.change.resurrection.partition import PartitionCopier, size_if_same
from kafkalog.change.resurrection.requirements import require_ids, require_meaning, require_room
from kafkalog.change.resurrection.run import some
from kafkalog.change.resurrection.sources import OldCheckpoints, log_dirs_of, source_images
from kafkalog.errors import (
    DestinationExistsError,
    KafkaLogError,
    NotFoundError,
    PartlyDoneError,
    UsageError,
)
from kafkalog.files.log_dir import list_partition
from kafkalog.files.text_files import checkpoint_text, read_offset_checkpoint
from kafkalog.io.paths import file_system
from kafkalog.io.storage import Changes, LogDirLock, NewPartitions
from kafkalog.node.cluster_image.model import TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kafkalog.change.resurrection.choice import Candidate, Chosen, TopicChoice
    from kafkalog.change.resurrection.model import Row
    from kafkalog.change.resurrection.partition import Judged
    from kafkalog.io.storage import Step
    from kafkalog.node.targets import Target

_MEANINGLESS: Final = ("node_id", "cluster_id", "missing", "salvage", "properties_out", "kafka")


def run_into(
    targets: Sequence[Target],
    log_dir: str,
    options: ResurrectOptions,
    *,
    dry_run: bool,
    tell: Callable[[Row], None] | None,
    progress: Callable[[int], None] | None,
    observe: Callable[[Step], None] | None = None,
) -> ResurrectSummary:
    """Do what `kafkalog.resurrect_into` describes; `observe` is called after each step."""
    _require_sense(targets, log_dir, options)
    place = os.path.realpath(log_dir)
    require_own_checkpoints(place)
    with ExitStack() as held:
        # The metadata are read behind the lock: a broker that starts meanwhile would change them.
        held.enter_context(LogDirLock(place, writes=not dry_run))
        for other in log_dirs_of(targets, options.as_of_metadata):
            if other != place:
                held.enter_context(LogDirLock(other))
        home = Home.of(log_dir, options)
        images = source_images(targets, None, newest(), takes_damage=True)
        everything = replace(options, missing=Missing.EMPTY)
        chosen = choose(targets, images, everything, leaves_out=True)
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
            directory = held.enter_context(NewPartitions(place, observe))
        return _Arrival(home, directory, options, tell, progress, observe).work(chosen)


def _require_sense(targets: Sequence[Target], log_dir: str, options: ResurrectOptions) -> None:
    """Raise `UsageError` for what the log directory says itself."""
    require_meaning(options, _MEANINGLESS, "--into")
    require_ids(options)
    place = os.path.realpath(log_dir)
    if any(os.path.realpath(one.path) == place for one in targets):
        raise UsageError(
            "PATH and LOG_DIR are the same directory.",
            path=log_dir,
            hint="Give the partition directories in it that are to be moved.",
        )


def _is_free(path: str) -> bool:
    """Return whether a directory is missing, or holds no record, as that of a new topic."""
    if not file_system.is_there(path):
        return True
    if os.path.islink(path) or not os.path.isdir(path):
        raise DestinationExistsError("It exists, and is not a directory.", path=path)
    found = list_partition(path)
    logs = [(one.base_offset, one.log.size_bytes) for one in found.segments]
    # A single empty segment at offset 0, as brokers make it for a new topic.
    return not (found.directories or found.other_logs or any(any(one) for one in logs))


def _taken(path: str) -> DestinationExistsError:
    return DestinationExistsError(
        "It exists, and is not an empty partition.",
        path=path,
        hint="Move it away if the partition shall be replaced.",
    )


class _Arrival:
    """The work on the partitions that are moved."""

    def __init__(
        self,
        home: Home,
        directory: NewPartitions | None,
        options: ResurrectOptions,
        tell: Callable[[Row], None] | None,
        progress: Callable[[int], None] | None,
        observe: Callable[[Step], None] | None,
    ) -> None:
        image = home.known
        self._home = home
        self._directory = directory
        self._tell = tell
        self._observe = observe
        self._arrived: list[str] = []
        self._there: dict[str, int] = {}
        self._copier = PartitionCopier(
            directory, options.copy, lambda _: None, progress or (lambda _: None)
        )
        self._judge = PartitionCopier(
            None, options.copy, lambda _: None, progress or (lambda _: None)
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
            for number, choice in topic.partitions.items():
                self._require_vacant(f"{topic.name}-{number}", choice.copies[0], topic.name)
        for topic in chosen.topics:
            self._topic(topic)
        if self._directory is not None:
            self._arrive(self._directory)
        self._row(self._summary)
        return self._summary

    def _arrive(self, directory: NewPartitions) -> None:
        """Put everything in place, so that a crash leaves a partition as it was, or the new one.

        Before an entry in a checkpoint changes, an empty partition goes: a start would begin it at
        the new log start offset. Until the new one comes, a start makes it again.
        """
        # Read before anything changes: a malformed one stops the run while all is as it was.
        checkpoints = self._merged_checkpoints()
        # All files durable before the first gets its place; `put` then syncs single renames only.
        directory.sync()
        put: list[str] = []
        with self._counted(put):
            for name in self._arrived:
                directory.vacate(name)
            for name, data in checkpoints.items():
                Changes(self._home.path, self._observe).replace(name, data)
            for name in self._arrived:
                directory.put(f"{LOG_ROOT}/{name}", name)
                put.append(name)

    @contextmanager
    def _counted(self, put: list[str]) -> Iterator[None]:
        """Raise `PartlyDoneError` if partitions are in place when another one fails."""
        try:
            yield
        except KafkaLogError as error:
            if not put:
                raise
            raise PartlyDoneError(
                f"{len(put)} of {len(self._arrived)} partitions are in place, up to {put[-1]}: "
                f"{error.message}",
                path=error.path,
                hint="The same command again moves the others.",
            ) from error

    def _topic(self, topic: TopicChoice) -> None:
        image = self._home.known.image
        total = ResurrectedTopic(topic.name, image.topics[topic.name], topic.old_name)
        starts, sources = [], []
        for number, choice in topic.partitions.items():
            taken = choice.copies[0]
            start = self._checkpoints.of(taken, file_names.LOG_STARTS) or 0
            name = f"{topic.name}-{number}"
            judged = self._moved(taken, total.topic_id, name, start)
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
                    cut_bytes=judged.cut_bytes,
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
        there = [one for one in topic.partitions if f"{topic.name}-{one}" in self._there]
        if there:
            total.notes += (f"was there already: partition {some(there)}",)
        self._row(total)

    def _moved(self, taken: Candidate, topic_id: str, name: str, start: int) -> Judged:
        """Copy a partition, unless an earlier run has put it in place."""
        if name not in self._there:
            self._arrived.append(name)
            return self._copier.run(taken, topic_id, name, start)
        judged = self._judge.run(taken, topic_id, name, start)
        if judged.damage is None and judged.size_bytes != self._there[name]:
            raise _taken(os.path.join(self._home.path, name))
        judged.how = THERE
        return judged

    def _require_vacant(self, name: str, taken: Candidate, topic: str) -> None:
        """Raise unless a place is free, or an earlier run has put the same log there."""
        place = os.path.join(self._home.path, name)
        if _is_free(place):
            return
        size = size_if_same(place, taken, self._home.known.image.topics[topic])
        if size is None:
            raise _taken(place)
        self._there[name] = size

    def _note(self, topic: str, taken: Candidate, judged: Judged) -> None:
        """Note the entries in checkpoints: no recovery point, so that a start scans the log."""
        start, end = judged.log_start_offset, judged.log_end_offset
        cleaned = self._checkpoints.of(taken, file_names.CLEANER_OFFSETS)
        key = topic, taken.number
        if judged.how != THERE:  # its entries came before it
            self._entries[file_names.RECOVERY_POINTS][key] = None
            self._entries[file_names.LOG_STARTS][key] = start or None
            # There is one replica: all of it is replicated.
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
            found = read_offset_checkpoint(path) if file_system.is_there(path) else []
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
