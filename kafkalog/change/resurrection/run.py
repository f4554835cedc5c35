"""A resurrection from beginning to end: logs, metadata, checkpoints and properties in one place."""

from __future__ import annotations

import os
import shlex
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from formats import file_names
from formats.topic_names import TRANSACTION_STATE
from kafkalog.change.rescue.model import manifest_object as salvage_object
from kafkalog.change.resurrection.choice import NEW, choose, losers_of
from kafkalog.change.resurrection.model import (
    LOG_ROOT,
    MetadataRecord,
    Missing,
    ResurrectedPartition,
    ResurrectedTopic,
    ResurrectSummary,
    manifest_object,
    new_id,
)
from kafkalog.change.resurrection.partition import PartitionCopier
from kafkalog.change.resurrection.properties import meta_properties, server_properties
from kafkalog.change.resurrection.records import (
    configs_of,
    feature_records,
    is_internal,
    is_tiered,
    other_records,
    producer_ids_record,
    topic_records,
)
from kafkalog.change.resurrection.requirements import (
    release_for,
    require_read_back,
    require_room,
    require_sense,
)
from kafkalog.change.resurrection.sources import (
    OldCheckpoints,
    log_dirs_of,
    source_images,
)
from kafkalog.errors import CorruptDataError, KafkaLogError, NotFoundError
from kafkalog.files.log_dir import list_partition
from kafkalog.files.text_files import checkpoint_text
from kafkalog.io.documents import json_line
from kafkalog.io.storage import LogDirLock, NewDirectory, NewFile, require_outside, require_vacant
from kafkalog.model import present_ms
from kafkalog.node.cluster_image.model import BROKER
from kafkalog.node.cluster_image.snapshot import metadata_record, snapshot_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import BinaryIO

    from kafkalog.change.rescue.model import Row as SalvageRow
    from kafkalog.change.resurrection.choice import Candidate, Chosen, PartitionChoice, TopicChoice
    from kafkalog.change.resurrection.model import ResurrectOptions, Row
    from kafkalog.change.resurrection.partition import Judged
    from kafkalog.change.resurrection.sources import SourceImage
    from kafkalog.io.storage import Step
    from kafkalog.node.targets import Target

MANIFEST: Final = "manifest.ndjson"
UNNAMED: Final = "NEW"
"""What the directory is called in a plan without one."""
_NOTED_MAX: Final = 5


def run_resurrection(
    targets: Sequence[Target],
    destination: str | None,
    options: ResurrectOptions,
    *,
    dry_run: bool,
    tell: Callable[[Row], None] | None,
    progress: Callable[[int], None] | None,
    observe: Callable[[Step], None] | None = None,
) -> ResurrectSummary:
    """Do what `kafkalog.resurrect` describes; `observe` is called after each step."""
    place = destination or UNNAMED
    require_sense(place, options)
    log_dirs = log_dirs_of(targets, options.as_of_metadata)
    if destination is not None:
        require_outside(destination, [*log_dirs, *(one.path for one in targets)])
        require_vacant(os.path.realpath(destination))
    directory, manifest, properties = None, None, None
    with _told_if_done(lambda: directory), ExitStack() as held:
        for log_dir in log_dirs:
            held.enter_context(LogDirLock(log_dir))
        images = source_images(
            targets, options.as_of_metadata, release_for(options), takes_damage=options.salvage
        )
        chosen = choose(targets, images, options, leaves_out=True)
        if not any(one.partitions for one in chosen.topics):
            raise NotFoundError(
                "No partition is found.",
                path=targets[0].path if targets else None,
                hint="--undelete takes directories that await deletion, too."
                if chosen.left_out else None,
            )  # fmt: skip
        if destination is not None and not dry_run:
            require_room(destination, chosen, options)
            if options.properties_out is not None:  # it gets its name last
                properties = held.enter_context(NewFile(options.properties_out))
            home = log_dirs[0] if log_dirs else None
            directory = held.enter_context(
                NewDirectory(destination, home, syncs_once=True, observe=observe)
            )
            manifest = held.enter_context(directory.create(MANIFEST))
        run = Resurrection(directory, manifest, place, options, images, tell, progress)
        run.work(chosen)
        if properties is not None:
            properties.file.write(run.properties)
    return run.summary


@contextmanager
def _told_if_done(made: Callable[[], NewDirectory | None]) -> Iterator[None]:
    """Raise `PartlyDoneError` for what fails once the new directory has its name."""
    try:
        yield
    except KafkaLogError as error:
        directory = made()
        if directory is None or directory.afterwards(error) is error:
            raise
        raise directory.afterwards(error) from error


class Resurrection:
    """The work on all topics, and what it adds up to."""

    def __init__(
        self,
        directory: NewDirectory | None,
        manifest: BinaryIO | None,
        destination: str,
        options: ResurrectOptions,
        images: Sequence[SourceImage],
        tell: Callable[[Row], None] | None,
        progress: Callable[[int], None] | None,
    ) -> None:
        log_dir = os.path.join(os.path.realpath(destination), LOG_ROOT)
        self._release = release_for(options)
        self.summary = ResurrectSummary(
            destination,
            directory is None,
            log_dir=log_dir,
            cluster_id=_id_or_new(options.cluster_id),
            directory_id=new_id(),
            node_id=options.node_id,
            kafka=self._release.name,
            metadata_from=tuple(one.path for one in images),
            left_over_removed=directory is not None and directory.left_over_removed,
        )
        self.properties = b""
        self._directory = directory
        self._manifest = manifest
        self._options = options
        self._images = images
        self._tell = tell
        self._copier = PartitionCopier(
            directory, options.copy, self._salvaged, progress or (lambda _: None)
        )
        self._opened: list[tuple[str, int, int]] = []
        self._checkpoints = OldCheckpoints()
        self._entries: dict[str, list[tuple[str, int, int]]] = {
            file_names.RECOVERY_POINTS: [], file_names.LOG_STARTS: [],
            file_names.CLEANER_OFFSETS: [], file_names.HIGH_WATERMARKS: [],
        }  # fmt: skip
        self._largest_producer = -1

    def work(self, chosen: Chosen) -> None:
        """Copy everything, then write what a broker needs to know about it."""
        for left_out in chosen.left_out:
            self.row(left_out)
        records: list[MetadataRecord] = []
        level = max((one.image.metadata_version or 0 for one in self._images), default=0)
        for topic in chosen.topics:
            judged = {
                number: self._partition(topic, one) for number, one in topic.partitions.items()
            }
            compacted = {topic.old_name} if self._is_compacted(topic) else set()
            configs, replaced = configs_of(topic, compacted, self._options.retention)
            self._topic(topic, judged, configs, replaced)
            records += topic_records(
                topic, judged, configs, self._options, self.summary.directory_id,
                level=level or self._release.metadata_version,
            )  # fmt: skip
        records += other_records(self._images)
        self._finish(chosen, records)

    def _partition(self, topic: TopicChoice, choice: PartitionChoice) -> Judged:
        """Copy the best copy of a partition that is not damaged."""
        name = f"{topic.name}-{choice.number}"
        taken, judged, damage = choice.copies[0], None, dict[str, str]()
        # Only copies that are as complete: a damaged best one is not replaced by an older one in
        # silence.
        for one in choice.copies[: choice.ties]:
            start = self._checkpoints.of(one, file_names.LOG_STARTS) or 0
            judged = self._copied(one, topic.topic_id, name, start)
            if judged.damage is None:
                taken = one
                break
            damage[one.path] = judged.damage.message
        assert judged is not None, "there is a copy"
        if judged.damage is not None:
            if not self._options.salvage:
                raise self._refused(judged.damage, choice)
            others = [one.path for one in choice.copies if one is not taken]
            judged = self._copier.salvaged(taken, topic.topic_id, name, others)
        judged.remote_from = self._checkpoints.left_in_tier(
            taken, judged.log_start_offset, is_tiered=is_tiered(topic)
        )
        losers = choice.losers
        if taken is not choice.copies[0]:
            losers = tuple(
                replace(one, reason=damage.get(one.path, one.reason))
                for one in losers_of(choice.copies, taken)
            )
        judged.log_dir = taken.directory.log_dir
        self.row(
            ResurrectedPartition(
                path=taken.path,
                target=self._target(name),
                topic=topic.name,
                partition=choice.number,
                topic_id=topic.topic_id,
                how=judged.how,
                log_start_offset=judged.log_start_offset,
                log_end_offset=judged.log_end_offset,
                records=judged.records,
                size_bytes=judged.size_bytes,
                leader_epoch=judged.leader_epoch + 1,
                cut_bytes=judged.cut_bytes,
                first_unstable_offset=judged.first_unstable_offset,
                losers=losers,
                remote_from=judged.remote_from,
            )
        )
        self._note_offsets(topic.name, taken, judged)
        self._largest_producer = max(self._largest_producer, judged.producer_id)
        return judged

    def _copied(self, one: Candidate, topic_id: str, name: str, start: int) -> Judged:
        return self._copier.run(one, topic_id, name, start)

    def _target(self, name: str) -> str:
        """Return where a partition is, relative to the destination."""
        return f"{LOG_ROOT}/{name}"

    def _refused(self, damage: CorruptDataError, choice: PartitionChoice) -> CorruptDataError:
        if len(choice.copies) > 1:
            others = ", ".join(one.path for one in choice.copies[1 : _NOTED_MAX + 1])
            damage.note = f"Other copies: {others}. --prefer takes one of them."
        return damage

    def _note_offsets(self, topic: str, taken: Candidate, judged: Judged) -> None:
        """Take over what the checkpoints of the source say, within the new log."""
        start, end = judged.log_start_offset, judged.log_end_offset
        # There is one replica: all of it is replicated.
        self._entries[file_names.HIGH_WATERMARKS].append((topic, taken.number, end))
        if start:
            self._entries[file_names.LOG_STARTS].append((topic, taken.number, start))
        cleaned = self._checkpoints.of(taken, file_names.CLEANER_OFFSETS)
        if cleaned is not None:
            # Kept within the log, as LogCleanerManager.cleanableOffsets would reset it otherwise.
            offset = max(start, min(cleaned, end))
            self._entries[file_names.CLEANER_OFFSETS].append((topic, taken.number, offset))

    def _is_compacted(self, topic: TopicChoice) -> bool:
        return any(one[0] == topic.name for one in self._entries[file_names.CLEANER_OFFSETS])

    def _topic(
        self,
        topic: TopicChoice,
        judged: dict[int, Judged],
        configs: dict[str, str],
        replaced: dict[str, str],
    ) -> None:
        """Tell about a topic, and about its missing partitions."""
        missing = self._options.missing
        for number in topic.missing:
            self.row(
                ResurrectedPartition(
                    None, None, topic.name, number, topic.topic_id, str(missing), leader_epoch=0
                )
            )
        self.row(
            ResurrectedTopic(
                topic.name,
                topic.topic_id,
                topic.old_name,
                topic.count,
                topic.missing,
                sum(one.records for one in judged.values()),
                sum(one.size_bytes for one in judged.values()),
                min((one.log_start_offset for one in judged.values()), default=0),
                max((one.log_end_offset for one in judged.values()), default=0),
                tuple(dict.fromkeys(one.log_dir for one in judged.values())),
                configs,
                replaced,
                tuple(self._notes(topic, judged)),
            )
        )

    def _notes(self, topic: TopicChoice, judged: dict[int, Judged]) -> Iterable[str]:
        if topic.missing and self._options.missing == Missing.EMPTY:
            yield f"partitions without data begin at offset 0: {some(topic.missing)}"
        elif topic.missing:
            yield f"partitions without a leader: {some(topic.missing)}"
        if cut := [number for number, one in judged.items() if one.cut_bytes]:
            yield f"an incomplete batch at the end was cut off: partition {some(cut)}"
        if falling := [number for number, one in judged.items() if one.has_falling_epochs]:
            yield f"leader epochs go back, as `verify` shows: partition {some(falling)}"
        if salvaged := [number for number, one in judged.items() if one.how == "salvaged"]:
            yield f"salvaged: partition {some(salvaged)}"
        if opened := {
            number: one.first_unstable_offset
            for number, one in judged.items()
            if one.first_unstable_offset is not None
        }:
            yield f"open transactions: partition {some(opened)}"
        if left := {
            number: f"{number} (offsets {one.remote_from} to {one.log_start_offset - 1})"
            for number, one in judged.items()
            if one.remote_from is not None
        }:
            where = some(left.values())
            yield f"left in remote storage, and --from-tier TIER takes it: partition {where}"
        if topic.is_dead:
            yield "it was deleted"

    def _finish(self, chosen: Chosen, others: list[MetadataRecord]) -> None:
        """Write metadata, checkpoints and properties, and read the metadata back."""
        options, summary = self._options, self.summary
        # A transactional id that has not produced yet has its producer id in no partition's log.
        self._read_transactions(chosen)
        records = list(feature_records(self._images, len(others), self._release))
        summary.metadata_version = records[0].fields["featureLevel"]
        ids = producer_ids_record(self._largest_producer, self._images, options.node_id)
        if ids is not None:
            records.append(ids)
            summary.next_producer_id = ids.fields["nextProducerId"]
        records += others
        for record in records:
            self.row(record)
        counts = {one.name: one.count for one in chosen.topics if is_internal(one.name)}
        has_acls = any(one.image.acls for one in self._images)
        self.properties = server_properties(
            options.node_id, summary.log_dir, counts, has_acls=has_acls
        )
        place = os.path.join(summary.destination, file_names.SERVER_PROPERTIES)
        place = options.properties_out or place
        summary.start_command = f"kafka-server-start.sh {shlex.quote(place)}"
        summary.notes += self._warnings(chosen)
        self._write(records, chosen)
        self.row(summary)

    def _read_transactions(self, chosen: Chosen) -> None:
        """Take the producer ids of transactional ids into account; a dry run does without."""
        if self._directory is None and self.summary.dry_run:
            return
        if not any(one.name == TRANSACTION_STATE and one.partitions for one in chosen.topics):
            return
        from kafkalog.node.state.transactions import read_transactions

        topic = next(one for one in chosen.topics if one.name == TRANSACTION_STATE)
        log_dir = self.summary.log_dir
        if self._directory is not None:
            log_dir = self._directory.place(LOG_ROOT)
        places = (f"{log_dir}/{TRANSACTION_STATE}-{number}" for number in topic.partitions)
        targets = [list_partition(one) for one in places]
        found = read_transactions(targets, now_ms=present_ms())
        ids = (one.producer_id for one in found.ids.values())
        self._largest_producer = max([self._largest_producer, *ids])

    def _warnings(self, chosen: Chosen) -> Iterable[str]:
        names = {one.name for one in chosen.topics if one.partitions}
        if any(kind == BROKER for one in self._images for kind, _ in one.image.configs):
            yield "the configs of brokers were left out: they are for other machines"
        if not self._images:
            yield (
                "no metadata log was found: topics have Kafka's default configs; there are no "
                "ACLs, credentials or quotas"
            )
        elif any(one.image.tokens for one in self._images):
            yield "delegation tokens need delegation.token.secret.key in the properties"
        if self._opened and TRANSACTION_STATE not in names:
            topic, number, offset = self._opened[0]
            yield (
                f"without {TRANSACTION_STATE} nothing ends the open transactions; for each: "
                "kafka-transactions.sh --bootstrap-server 127.0.0.1:9092 abort "
                f"--topic {topic} --partition {number} --start-offset {offset}"
            )

    def _write(self, records: Sequence[MetadataRecord], chosen: Chosen) -> None:
        """Write the files at the top of the new log directory, and the properties beside it."""
        if self._directory is None:
            return
        for name, data in self._top_files(records).items():
            self._directory.write(f"{LOG_ROOT}/{name}", data)
        self._directory.write(file_names.SERVER_PROPERTIES, self.properties)
        require_read_back(self._directory.place(LOG_ROOT), chosen)

    def _top_files(self, records: Sequence[MetadataRecord]) -> dict[str, bytes]:
        """Return the files at the top of the log directory; `meta.properties` comes last."""
        summary, now = self.summary, present_ms()
        values = (metadata_record(one.name, one.version, one.fields) for one in records)
        return {
            **{name: checkpoint_text(entries) for name, entries in self._entries.items()},
            file_names.BOOTSTRAP: b"".join(snapshot_batches(values, now)),
            file_names.META_PROPERTIES: meta_properties(
                summary.cluster_id, summary.node_id, summary.directory_id
            ),
        }

    def _salvaged(self, row: SalvageRow) -> None:
        if self._manifest is not None:
            self._manifest.write(json_line(salvage_object(row)))

    def row(self, row: Row) -> None:
        self.summary.count(row)
        if isinstance(row, ResurrectedPartition) and row.first_unstable_offset is not None:
            self._opened.append((row.topic, row.partition, row.first_unstable_offset))
        if self._manifest is not None:
            self._manifest.write(json_line(manifest_object(row)))
        if self._tell is not None:
            self._tell(row)


def _id_or_new(given: str | None) -> str:
    return new_id() if given is None or given == NEW else given


def some(numbers: Iterable[object]) -> str:
    """Join the first few numbers."""
    shown = [str(number) for number in numbers]
    more = [f"… ({len(shown)} in all)"] if len(shown) > _NOTED_MAX else []
    return ", ".join(shown[:_NOTED_MAX] + more)
