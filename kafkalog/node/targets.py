"""The targets of a run: what is at its paths; a parent stands for the log directories in it."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from itertools import combinations
from typing import TYPE_CHECKING, Final, TypeVar

from formats.file_names import (
    DirectoryState,
    is_staging,
    parse_directory_name,
    partition_of,
)
from kafkalog.errors import DataError, NothingFoundError, contained, raised
from kafkalog.files.log_dir import AnyPath as AnyPath  # noqa: PLC0414 # as in `log_dir`
from kafkalog.files.log_dir import (
    FileEntry,
    LogDirListing,
    LogDirTop,
    PartitionDir,
    look_at,
    open_any,
)
from kafkalog.files.log_dir import Target as Target  # noqa: PLC0414 # likewise
from kafkalog.files.parents import Parent
from kafkalog.files.topics import PartitionNumbers, Topics, is_meant
from kafkalog.io.broker_lock import is_broker_running
from kafkalog.io.paths import file_system
from kafkalog.io.paths.uris import is_object
from kafkalog.io.wording import did_you_mean, some_of
from kafkalog.log.living import TRIES_MAX, about_a_log, are_of_one_node, pause
from kafkalog.node.unified_log import UnifiedLog

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence

    from kafkalog.errors import Event


T = TypeVar("T")


def open_targets(
    paths: Iterable[AnyPath],
    *,
    hear: Callable[[Event], object] = raised,
    by_names: bool = False,
    topics: Collection[str] | None = None,
) -> list[Target]:
    """Open what is at several paths: once per run, which passes on what is open.

    Partitions of it know the log directories of all of it, to which they may move.

    Args:
        paths: log directories, partition directories, files, and directories that hold log
            directories at most `kafkalog.files.parents.DEPTH_MAX` levels below them; what is open
            is not opened again.
        hear: called with the error of a path or log directory that is left out, which is raised
            without it, and with a note of each directory that stands for log directories below it.
        by_names: whether manifests are read when files are looked at, and only then.
        topics: as for `open_any`.

    Raises:
        KafkaLogError: as `open_path`, unless `hear` takes the error.
    """

    def opened(path: str) -> Target | Parent:
        found = open_any(path, topics)
        if isinstance(found, PartitionDir) and not by_names:
            len(found.files)  # reads the manifests of a tier
        return found

    given = [*paths]
    targets: list[Target] = _each(opened, given, hear)
    # What is open may be a part that was chosen: looked at again, it would be all of it.
    if any(isinstance(one, str | os.PathLike) for one in given):
        targets = of_one_moment(targets, opened)
    before = (one for partition in partitions_of(targets) for one in partition.log_dirs)
    log_dirs = tuple(dict.fromkeys((*log_dirs_of(targets), *before)))

    def knowing(partition: PartitionDir) -> PartitionDir:
        return replace(partition, log_dirs=log_dirs)

    return [
        knowing(one)
        if isinstance(one, PartitionDir)
        else replace(one, partitions=tuple(map(knowing, one.partitions)))
        if isinstance(one, LogDirListing)
        else one
        for one in targets
    ]


def log_dirs_of(targets: Iterable[Target | LogDirTop]) -> tuple[str, ...]:
    """Return the log directories of targets, those around single partitions included."""
    of_logs = (LogDirListing, LogDirTop)
    return tuple(
        one.path if isinstance(one, of_logs) else one.log_dir
        for one in targets
        if not isinstance(one, FileEntry)
    )


def look_at_targets(
    paths: Iterable[str | os.PathLike[str]],
    hear: Callable[[Event], object] = raised,
) -> list[LogDirTop | PartitionDir | FileEntry]:
    """Do what `open_targets` does, without listing the partitions of log directories."""
    return of_one_moment(_each(look_at, paths, hear), look_at)


def _each(
    opens: Callable[[str], T | Parent],
    paths: Iterable[str | os.PathLike[str] | T],
    hear: Callable[[Event], object],
) -> list[T]:
    targets: list[T] = []
    for one in paths:
        if not isinstance(one, str | os.PathLike):
            targets.append(one)
            continue
        with contained(path := os.fspath(one), hear):
            found = opens(path)
            if isinstance(found, Parent):
                hear(found.note)
                targets += _each(opens, found.log_dirs, hear)
            else:
                targets.append(found)
    return targets


def of_one_moment(targets: Sequence[T], opens: Callable[[str], T | Parent]) -> list[T]:
    """Return targets whose log directories have their partitions at the same time.

    Else a partition that moves between two of them meanwhile could be in both, or in none.
    """
    found = list(targets)
    for _ in range(TRIES_MAX):
        log_dirs = {
            n: one
            for n, one in enumerate(found)
            if isinstance(one, LogDirListing | LogDirTop) and not is_object(one.path)
        }
        if len(log_dirs) < 2:
            break
        changed = [n for n, one in log_dirs.items() if not _is_as_listed(one)]
        if not changed:
            moving = _moving(list(log_dirs.values()))
            changed = [n for n, one in log_dirs.items() if one.path in moving]
            if not changed:
                break
            pause()
        for n in changed:
            with suppress(DataError):
                if not isinstance(again := opens(log_dirs[n].path), Parent):
                    found[n] = again
    return found


def names_in(log_dir: LogDirListing | LogDirTop) -> set[str]:
    """Return the names of the partition directories that a log directory had."""
    if isinstance(log_dir, LogDirTop):
        return {name for name in log_dir.directories if parse_directory_name(name)}
    paths = (*(one.path for one in log_dir.partitions), *log_dir.errors, *log_dir.passed_over)
    return {os.path.basename(one) for one in paths}


def _is_as_listed(log_dir: LogDirListing | LogDirTop) -> bool:
    """Return whether no partition came or went since a log directory was listed."""
    before = names_in(log_dir)
    with suppress(OSError, DataError):
        now = {name for name in file_system.names(log_dir.path) if parse_directory_name(name)}
        came = (os.path.join(log_dir.path, name) for name in now - before)
        return before <= now and not any(map(file_system.is_directory, came))
    return True


def _moving(log_dirs: Sequence[LogDirListing | LogDirTop]) -> set[str]:
    """Return the log directories that have partitions in common while their broker moves them.

    It gives the new directory its name before it takes it from the old one.
    """
    living = {one.path: names_in(one) for one in log_dirs if is_broker_running(one.path)}
    return {
        path
        for pair in combinations(living, 2)
        if not living[pair[0]].isdisjoint(living[pair[1]]) and are_of_one_node(*pair)
        for path in pair
    }


def path_of(target: AnyPath) -> str:
    """Return a path, or that of what is open already."""
    return os.fspath(target) if isinstance(target, str | os.PathLike) else target.path


@lru_cache(maxsize=1024)
def partition_around(path: str) -> PartitionDir:
    """Return the partition directory around a file by its name, not listed."""
    directory = os.path.dirname(file_system.absolute(path))
    return PartitionDir(directory, partition_of(directory), ())


_NAMED_MAX: Final = 20  # topics in a hint


def unlisted(targets: Iterable[Target]) -> dict[tuple[str, int | None], DataError]:
    """Return the live partitions of log directories that could not be listed, with the errors."""
    found = unlisted_of(targets)
    return {
        (one.topic, one.partition): why for one, why in found if one.state == DirectoryState.LIVE
    }


def partitions_of(targets: Iterable[Target]) -> Iterator[PartitionDir]:
    """Yield the partition directories of the targets."""
    for target in targets:
        if isinstance(target, LogDirListing):
            yield from target.partitions
        elif isinstance(target, PartitionDir):
            yield target


def selected(
    targets: Sequence[Target],
    topics: Collection[str] | None,
    numbers: PartitionNumbers | None = None,
    *,
    internal: bool = True,
) -> list[Target]:
    """Return targets with only the partitions that are meant, in whatever state, listed or not.

    Args:
        topics: only these topics.
        numbers: only partitions with these numbers.
        internal: whether internal topics are meant that are not named.
    """

    def means(one: PartitionDir) -> bool:
        is_number = numbers is None or one.partition in numbers
        return is_number and is_meant(one.topic, topics, internal=internal)

    return [
        replace(
            one,
            partitions=tuple(filter(means, one.partitions)),
            errors={there.path: error for there, error in unlisted_of([one]) if means(there)},
        )
        if isinstance(one, LogDirListing)
        else one
        for one in targets
        if not isinstance(one, PartitionDir) or means(one)
    ]


def choose_logs(
    targets: Sequence[Target],
    topics: Collection[str] | None,
    numbers: PartitionNumbers | None = None,
    *,
    internal: bool,
    dead: bool,
) -> tuple[list[PartitionDir | FileEntry], int]:
    """Return the logs that are meant, and how many are left out as internal.

    A file or a partition directory is meant whatever it is called; of a log directory, what a
    broker would serve, without internal topics.

    Args:
        targets: where they are.
        topics: only these topics, which may be internal.
        numbers: only partitions with these numbers.
        internal: whether internal topics are meant, too.
        dead: whether directories are meant, too, that await their deletion, are stray or moving.
    """
    logs: list[PartitionDir | FileEntry] = []
    left_out = 0
    for target in targets:
        if isinstance(target, FileEntry):
            logs.append(target)
        is_named = isinstance(target, PartitionDir)
        for one in partitions_of([target]):
            if not (is_named or dead or one.is_served):
                continue
            if not is_named and is_staging(os.path.basename(one.path)):
                continue  # left by a killed run of ours
            if topics is not None and one.topic not in topics:
                continue
            if numbers is not None and one.partition not in numbers:
                continue
            if is_meant(one.topic, topics, internal=internal or is_named):
                logs.append(one)
            else:
                left_out += 1
    return logs, left_out


def topics_of(targets: Iterable[Target]) -> set[str]:
    """Return the topics of targets, also of directories that could not be listed."""
    found: set[str] = set()
    for target in targets:
        found.update(partition.topic for partition in partitions_of([target]))
        found.update(one.topic for one in passed_over(target))
        found.update(one.topic for one, _ in unlisted_of([target]))
        if isinstance(target, FileEntry) and (name := partition_around(target.path).name):
            found.add(name.topic)
    return found


def passed_over(target: Target) -> Iterator[PartitionDir]:
    """Yield the partition directories, not listed, of topics that were not to be opened."""
    for path in target.passed_over if isinstance(target, LogDirListing) else ():
        yield PartitionDir(path, partition_of(path), ())


def unlisted_of(targets: Iterable[Target]) -> Iterator[tuple[PartitionDir, DataError]]:
    """Yield the partition directories that cannot be listed, as empty ones, and why."""
    for target in targets:
        if isinstance(target, LogDirListing):
            yield from zip(target.unlisted, target.errors.values(), strict=True)


def require_topics(wanted: Collection[str] | None, present: Iterable[str]) -> None:
    """Raise `NothingFoundError` if a wanted topic is not present: an empty answer hides a typo."""
    from kafkalog.files.payloads.kinds import payload_kind

    topics = set(present)
    missing = sorted(
        one for one in wanted or () if not any(topic in Topics([one]) for topic in topics)
    )
    if missing:
        known = sorted(topic for topic in topics if payload_kind(topic) is None)
        alike = did_you_mean(missing[0], topics)
        named = f"{alike}Topics are {some_of(known, _NAMED_MAX)}." if known else alike or None
        if any("," in one for one in missing):
            named = "Repeat -t for each topic."
        raise NothingFoundError(
            f"No partition of the topic {', '.join(one or repr(one) for one in missing)} is here.",
            hint=named,
        )


def require_named(
    targets: Sequence[Target],
    topics: Collection[str] | None,
    numbers: PartitionNumbers | None = None,
) -> None:
    """Raise `NothingFoundError` if a topic or a partition that is named is not at the targets."""
    require_topics(topics, topics_of(targets))
    there = (*partitions_of(targets), *(one for one, _ in unlisted_of(targets)))
    meant = (one.partition for one in there if topics is None or one.topic in topics)
    require_numbers(numbers, meant)


def require_numbers(wanted: Container[int | None] | None, present: Iterable[int | None]) -> None:
    """Raise `NothingFoundError` if there are partitions, and none has a wanted number."""
    there = set(present)
    if wanted is not None and there and not any(one in wanted for one in there):
        known = some_of([str(one) for one in sorted(one for one in there if one is not None)])
        texts = wanted.texts if isinstance(wanted, PartitionNumbers) else ["with such a number"]
        raise NothingFoundError(
            f"No partition {', '.join(texts)} is here.",
            hint=f"Partitions are {known}." if known else None,
        )


def best_replica(replicas: Sequence[PartitionDir]) -> PartitionDir:
    """Return the replica with the latest leader epoch, of those the one with the longest log.

    One that cannot be read is taken only if there is no other.
    """

    def rank(partition: PartitionDir) -> tuple[int, int]:
        try:
            return completeness(UnifiedLog(partition))
        except DataError:
            return (-2, -1)  # below any log that can be read

    return replicas[0] if len(replicas) == 1 else max(replicas, key=rank)


def best_replicas(partitions: Sequence[PartitionDir]) -> list[PartitionDir]:
    """Return the best replica of each partition, in the order of their first replicas."""
    found: dict[tuple[str, int | None], list[PartitionDir]] = {}
    for one in partitions:
        found.setdefault((one.topic, one.partition), []).append(one)
    return [best_replica(replicas) for replicas in found.values()]


@about_a_log
def completeness(log: UnifiedLog) -> tuple[int, int]:
    """Return how complete a replica is: its latest leader epoch, and its log end offset."""
    return log.leader_epochs[-1].leader_epoch if log.leader_epochs else -1, log.log_end_offset
