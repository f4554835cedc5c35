"""Opens what a resurrection reads: log directories, partitions, and the metadata of clusters."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from formats import file_names
from formats.file_names import DirectoryState, FileKind, partition_of
from formats.releases import METADATA_VERSION, metadata_levels, releases
from kafkalog.errors import (
    CorruptDataError,
    DataError,
    KafkaLogError,
    NotFoundError,
    RefusedError,
    UnreadableError,
    UnsupportedDataError,
    UsageError,
)
from kafkalog.files.log_dir import FileEntry, LogDirListing, Target, open_path
from kafkalog.files.text_files import read_offset_checkpoint
from kafkalog.files.tiers import is_remote
from kafkalog.io.paths import file_system, uris
from kafkalog.io.paths.source import Source
from kafkalog.io.wording import counted
from kafkalog.model import LogView
from kafkalog.node.cluster_image.reader import metadata_partition
from kafkalog.node.identity import cluster_id_of
from kafkalog.node.remote_logs import with_remote_parts
from kafkalog.node.state.metadata import read_metadata
from kafkalog.node.targets import open_targets, partitions_of, unlisted_of
from kafkalog.node.view import show_now

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from formats.releases import Release
    from kafkalog.change.resurrection.choice import Candidate
    from kafkalog.files.log_dir import AnyPath, PartitionDir
    from kafkalog.node.cluster_image import ClusterImage


@dataclass(frozen=True, slots=True)
class SourceImage:
    """The metadata of a cluster: the log directory it was read from, its cluster, its image."""

    path: str
    cluster_id: str | None
    image: ClusterImage

    @property
    def order(self) -> tuple[int, int]:
        """How new it is: leader epoch and offset of its last batch."""
        return self.image.provenance.epoch, self.image.provenance.offset


def open_sources(
    paths: Iterable[AnyPath],
    from_tier: Iterable[str | os.PathLike[str]] = (),
    topics: Collection[str] | None = None,
) -> list[Target]:
    """Open log directories and partition directories; those that are open stay as they are.

    Args:
        paths: where they are.
        from_tier: tiers whose remote segments are taken as local ones.
        topics: those that are taken; None for all.

    Raises:
        UsageError: a path is a file.
        KafkaLogError: a path, or a file at the top of a log directory, cannot be read.
    """
    targets = open_targets(paths, topics=topics)
    for target in targets:
        if isinstance(target, FileEntry):
            raise UsageError(
                "This is a file.",
                path=target.path,
                hint="Give log directories or partition directories.",
            )
        if isinstance(target, LogDirListing):
            _require_files(target.files)
    tiers = list(from_tier)
    return with_remote_parts(targets, tiers) if tiers else targets


def unreadable_partitions(
    targets: Sequence[Target], topics: Collection[str] | None
) -> dict[str, tuple[PartitionDir, DataError]]:
    """Return the partition directories of these topics that cannot be read, by path, and why."""
    found = {one.path: (one, error) for one, error in unlisted_of(targets)}
    for partition in partitions_of(targets):
        if partition.state != DirectoryState.LIVE:
            continue
        try:
            _require_files(partition.files)
            for segment in partition.segments if not uris.is_object(partition.path) else ():
                with Source(segment.log.path):
                    pass
        except DataError as error:
            found[partition.path] = partition, error
    return {path: one for path, one in found.items() if topics is None or one[0].topic in topics}


def _require_files(entries: Iterable[FileEntry]) -> None:
    """Raise `UnreadableError` for a device or the like in place of a file: it is not missing."""
    for entry in entries:
        if entry.error is not None and entry.name.kind not in (FileKind.UNKNOWN, FileKind.LOG):
            raise UnreadableError(entry.error, path=entry.path)


def log_dirs_of(targets: Sequence[Target], as_of: str | None) -> list[str]:
    """Return the local log directories that targets are, or are in, and the one of the metadata."""
    found: dict[str, None] = {}
    for target in targets:
        if uris.is_object(target.path):
            continue
        path = os.path.realpath(target.path)
        place = partition_of(path)
        if place is not None and place.state == DirectoryState.REMOTE:
            continue
        found[path if isinstance(target, LogDirListing) else os.path.dirname(path)] = None
    if as_of is not None and not uris.is_object(as_of):
        found[os.path.realpath(as_of)] = None
    return list(found)


def source_images(
    targets: Sequence[Target], as_of: str | None, release: Release, *, takes_damage: bool
) -> list[SourceImage]:
    """Return the newest metadata of each cluster, the newest of all first.

    Args:
        as_of: the log directory whose metadata log counts alone; None for all sources.
        release: the one that is to start on them.
        takes_damage: whether what can be read of a damaged metadata log will do.

    Raises:
        NotFoundError: `as_of` has no metadata log.
        CorruptDataError: a cluster's metadata can only be read with damage.
        RefusedError: they are of a later Kafka than the release.
        UnsupportedDataError: they are of a later Kafka than kafkalog knows.
    """
    if as_of is not None:
        opened = open_path(as_of)
        if not isinstance(opened, LogDirListing) or metadata_partition(opened) is None:
            raise NotFoundError("There is no metadata log here.", path=as_of)
        return [_image(opened, release, takes_damage=takes_damage)]
    newest: dict[str | None, SourceImage] = {}
    errors: dict[str | None, KafkaLogError] = {}
    for target in targets:
        if not isinstance(target, LogDirListing) or metadata_partition(target) is None:
            continue
        cluster = cluster_id_of(target.path)
        try:
            found = _image(target, release, takes_damage=takes_damage)
        except CorruptDataError as error:
            errors[cluster] = error
            continue
        # A later leader epoch counts before a larger offset, as in KRaft's elections.
        if cluster not in newest or newest[cluster].order < found.order:
            newest[cluster] = found
    # Another node's metadata log of the same cluster will do.
    for cluster, damage in errors.items():
        if cluster not in newest:
            raise damage
    return sorted(newest.values(), key=lambda one: one.order, reverse=True)


def _image(log_dir: LogDirListing, release: Release, *, takes_damage: bool) -> SourceImage:
    found = read_metadata(log_dir, shown=lambda one: show_now(one, LogView.AS_IS))
    image = found.image
    if image.damage and not takes_damage:
        defect = image.damage[0]
        raise CorruptDataError(
            f"The metadata log is damaged: {defect.detail}",
            path=defect.path,
            position=defect.position,
            hint="Give another broker's log directory, --as-of-metadata, or --salvage to take what "
            "can be read.",
        )
    _require_known(image, release, found.path)
    return SourceImage(log_dir.path, cluster_id_of(log_dir.path), image)


def _require_known(image: ClusterImage, release: Release, path: str) -> None:
    """Raise unless a release starts on metadata with the levels and records of an image."""
    if image.unknown:
        raise UnsupportedDataError(
            f"The metadata are of a later Kafka: {counted(image.unknown, 'record')} of unknown "
            "types.", path=path,
        )  # fmt: skip
    levels = {METADATA_VERSION: image.metadata_version or 0, **image.features}
    above = [name for name, level in levels.items() if level > _newest(release, name)]
    if not above:
        return
    name, level = above[0], levels[above[0]]
    level_name = metadata_levels().get(level) if name == METADATA_VERSION else None
    message = (
        f"The metadata are of a later Kafka: {name} is {level}"
        f"{f' ({level_name})' if level_name else ''}, Kafka {release.name} knows "
        f"{_newest(release, name) or 'no such feature'}."
    )
    for one in reversed(releases()):
        if all(level <= _newest(one, name) for name, level in levels.items()):
            hint = f"Kafka {one.name} starts on them: --kafka {one.name}. No feature is downgraded."
            raise RefusedError(message, path=path, hint=hint)
    raise UnsupportedDataError(message, path=path)


def _newest(release: Release, feature: str) -> int:
    """Return the largest level of a feature that a release starts with; 0 if it knows none."""
    levels = release.features.get(feature)
    return 0 if levels is None else levels.newest


class OldCheckpoints:
    """The checkpoints of the sources, each read once."""

    def __init__(self) -> None:
        self._read: dict[tuple[str, str], dict[tuple[str, int], int]] = {}

    def of(self, one: Candidate, name: str) -> int | None:
        """Return the entry of a partition; None without one, and for one that was dead."""
        # Its entries are those of a partition with that name, if there is one: not its own.
        if one.directory.state != DirectoryState.LIVE:
            return None
        log_dir = os.path.dirname(file_system.absolute(one.path))
        key = log_dir, name
        if key not in self._read:
            self._read[key] = _checkpoint_entries(os.path.join(log_dir, name))
        return self._read[key].get((one.old_name, one.number))

    def left_in_tier(self, one: Candidate, first: int, *, is_tiered: bool) -> int | None:
        """Return the first offset of a log that only remote storage has; None if it has all.

        Only a log with remote storage starts before its first segment. Without an entry it is not
        known where it started.

        Args:
            one: the copy that is taken.
            first: the first offset that it has.
            is_tiered: whether its topic had remote storage.
        """
        start = self.of(one, file_names.LOG_STARTS)
        if start is None and is_tiered:
            has_tier = any(is_remote(entry.path) for entry in one.directory.files)
            start = first if has_tier else 0
        return start if start is not None and start < first else None


def _checkpoint_entries(path: str) -> dict[tuple[str, int], int]:
    if not file_system.is_there(path):
        return {}
    try:
        found = read_offset_checkpoint(path)
    except DataError:
        return {}  # a broker would not have started with it; the logs say where they begin
    return {(entry.topic, entry.partition): entry.offset for entry in found}
