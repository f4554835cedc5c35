"""Chooses what is resurrected: directories, topic ids, and the best copy of each partition.

The order of copies follows KIP-101 and KIP-279: a later leader epoch counts before a longer log.
"""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from formats import file_names
from formats.file_names import DirectoryState, is_staging, is_topic
from formats.topic_names import CLUSTER_METADATA
from kafkalog.change.resurrection.model import LeftOutDirectory, Loser, Missing, new_id
from kafkalog.change.resurrection.sources import unreadable_partitions
from kafkalog.check.replicas import truncation_offset
from kafkalog.errors import DataError, RefusedError, UsageError
from kafkalog.io.paths import file_system
from kafkalog.node.choice import live_id
from kafkalog.node.identity import topic_id_of
from kafkalog.node.targets import completeness, partitions_of, require_topics, topics_of
from kafkalog.node.unified_log import UnifiedLog

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kafkalog.change.resurrection.model import ResurrectOptions
    from kafkalog.change.resurrection.sources import SourceImage
    from kafkalog.files.log_dir import PartitionDir
    from kafkalog.node.targets import Target

NEW: Final = "new"
"""A topic id that is made up."""
_NAME_MAX: Final = 255
_SHOWN_MAX: Final = 8
_HOLES_MAX: Final = 100_000
"""Missing partitions of a topic: more than a cluster has, few enough to write a record for each."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A directory that may become a partition.

    Attributes:
        directory: where it is.
        old_name: its topic in the source.
        topic: its new topic.
        number: its partition number.
        topic_id: in its `partition.metadata`; None if it has none.
        is_dead: whether it awaits deletion, is stray or was moving here.
    """

    directory: PartitionDir
    old_name: str
    topic: str
    number: int
    topic_id: str | None
    is_dead: bool

    @property
    def path(self) -> str:
        return self.directory.path


@dataclass(slots=True)
class PartitionChoice:
    """A partition, and its copies: the first is taken, or one that ties with it."""

    number: int
    copies: list[Candidate]
    ties: int
    losers: tuple[Loser, ...]


@dataclass(slots=True)
class TopicChoice:
    """A topic that is resurrected.

    Attributes:
        name, old_name, topic_id: its new and old name, and its id.
        image: the metadata that knows it; None if none does.
        partitions: by number.
        missing: numbers without a directory.
        evidence: where the id comes from.
        is_dead: whether it was deleted.
    """

    name: str
    old_name: str
    topic_id: str
    image: SourceImage | None
    evidence: str
    is_dead: bool = False
    partitions: dict[int, PartitionChoice] = field(default_factory=dict)
    missing: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        return len(self.partitions) + len(self.missing)


@dataclass(slots=True)
class Chosen:
    """What is resurrected, and what is left out."""

    topics: list[TopicChoice]
    left_out: list[LeftOutDirectory]


def choose(
    targets: Sequence[Target],
    images: Sequence[SourceImage],
    options: ResurrectOptions,
    *,
    leaves_out: bool = False,
) -> Chosen:
    """Choose the directories, ids and copies.

    Args:
        leaves_out: whether partitions that cannot be read are left out. Without another copy of
            one, its topic is left out, too, unless missing partitions are agreed to: the number of
            partitions decides where keys go.

    Raises:
        DataError: a partition cannot be read, and is not left out, or nothing is left.
        UsageError: an option names what is not there.
        RefusedError: the choice is not clear, or partitions are missing.
    """
    chosen = Chosen([], [])
    unread = unreadable_partitions(targets, options.topics)
    for path, (partition, error) in unread.items():
        if not leaves_out or partition.topic == CLUSTER_METADATA:
            raise error
        why = f"{error.path or path} cannot be read: {error.message.rstrip('.')}"
        chosen.left_out.append(LeftOutDirectory(path, why, unreadable=True))
    candidates = _candidates(targets, images, options, chosen.left_out)
    found = [candidate for candidate in candidates if candidate.path not in unread]
    groups: dict[str, list[Candidate]] = defaultdict(list)
    for one in _renamed(_alive(found, images), images, options.rename):
        groups[one.topic].append(one)
    for name in sorted(groups):
        chosen.topics.append(_topic(name, groups[name], images, options, chosen.left_out))
    chosen.topics += _without_directories(chosen.topics, images, options)
    _require_known(options.topic_ids, [one.name for one in chosen.topics], "--topic-id")
    _note_unread(chosen, [partition for partition, _ in unread.values()], options)
    if not any(one.partitions for one in chosen.topics):
        for _, error in unread.values():
            raise error
    if options.missing == Missing.REFUSE:
        _require_whole(chosen.topics)
    return chosen


def _candidates(
    targets: Sequence[Target],
    images: Sequence[SourceImage],
    options: ResurrectOptions,
    left_out: list[LeftOutDirectory],
) -> Iterator[Candidate]:
    """Yield the directories that count; each only once, however many paths lead to it."""
    seen: set[str] = set()
    removed = {topic_id for one in images for topic_id in one.image.removed}
    there = topics_of(targets)
    there |= {name for one in images for name in one.image.topics}
    require_topics(options.topics, there)
    _require_known(options.rename, there, "--rename")
    for one in partitions_of(targets):
        place = file_system.absolute(one.path)
        # The metadata log is made new: the old one names another node and another quorum.
        if place in seen or one.topic == CLUSTER_METADATA or is_staging(_base(one)):
            continue
        seen.add(place)
        if options.topics is not None and one.topic not in options.topics:
            continue
        if one.name is None or one.name.partition < 0 or not is_topic(one.topic):
            left_out.append(LeftOutDirectory(one.path, "its name is not that of a partition"))
            continue
        topic_id = topic_id_of(one)
        is_removed = topic_id in removed
        is_dead = one.state != DirectoryState.LIVE or is_removed
        if is_dead and not options.undelete:
            why = "the metadata log says that its topic was deleted" if is_removed else (
                f"its name ends in -{one.state}"
            )  # fmt: skip
            left_out.append(LeftOutDirectory(one.path, f"{why}; --undelete takes it"))
            continue
        yield Candidate(one, one.topic, one.topic, one.name.partition, topic_id, is_dead)


def _base(partition: PartitionDir) -> str:
    return os.path.basename(file_system.absolute(partition.path))


def _require_known(given: Iterable[str], known: Iterable[str], option: str) -> None:
    if unknown := sorted(set(given) - set(known)):
        raise UsageError(f"{option} names the topic {unknown[0]}, which is not here.")


def _alive(found: list[Candidate], images: Sequence[SourceImage]) -> list[Candidate]:
    """Return the candidates; what has the id of a live topic is one more copy, not a dead topic.

    A broker makes a stray of a replica that was moved away from it.
    """
    live = {(one.old_name, one.topic_id) for one in found if not one.is_dead}
    live |= {(name, topic_id) for one in images for name, topic_id in one.image.topics.items()}
    return [
        replace(one, is_dead=False) if (one.old_name, one.topic_id) in live else one
        for one in found
    ]


def _renamed(
    found: list[Candidate], images: Sequence[SourceImage], rename: Mapping[str, str]
) -> Iterator[Candidate]:
    """Yield the candidates under their new names.

    Raises:
        RefusedError: a deleted topic would get the name of another, or its name was cut.
        UsageError: a new name is not one that Kafka accepts.
    """
    for new in rename.values():
        if not is_topic(new):
            raise UsageError(f"{new!r} is not a name that Kafka accepts for a topic.")
    live = {one.old_name for one in found if not one.is_dead}
    dead = {one.old_name for one in found if one.is_dead}
    # A name is taken also by a topic of which no directory is here.
    live |= {name for one in images for name in one.image.topics}
    for one in found:
        new_name = rename.get(one.old_name)
        is_kept = not one.is_dead and one.old_name in dead
        if new_name is not None and not is_kept:
            yield replace(one, topic=new_name)
            continue
        if one.is_dead and new_name is None:
            _require_own_name(one, live)
        yield one


def _require_own_name(one: Candidate, live: set[str]) -> None:
    hint = f"Give it another one: --rename {one.old_name}=NAME."
    if one.old_name in live:
        raise RefusedError(
            f"The topic {one.old_name} is there, too; the deleted one needs another name.",
            path=one.path,
            hint=hint,
        )
    # LocalLog.logDirNameWithSuffixCappedLength cuts the topic to 255: a shorter one is complete.
    if len(os.fsencode(_base(one.directory))) >= _NAME_MAX:
        raise RefusedError(
            "Kafka cut the name of the topic when it renamed the directory.",
            path=one.path,
            hint=hint,
        )


def _topic(
    name: str,
    found: list[Candidate],
    images: Sequence[SourceImage],
    options: ResurrectOptions,
    left_out: list[LeftOutDirectory],
) -> TopicChoice:
    """Choose the id of a topic, then the copies of its partitions."""
    old_names = sorted({one.old_name for one in found})
    if len(old_names) > 1:
        raise RefusedError(
            f"The topics {' and '.join(old_names)} would have one name, {name}.",
            hint="Give each another one with --rename.",
        )
    topic = _identified(name, found, images, options)
    kept = []
    for one in found:
        if one.topic_id is None or topic.takes(one.topic_id):
            kept.append(one)
        else:
            why = f"its topic id is {one.topic_id}, another topic of that name"
            left_out.append(LeftOutDirectory(one.path, why))
    choice = topic.choice
    by_number: dict[int, list[Candidate]] = defaultdict(list)
    for one in kept:
        by_number[one.number].append(one)
    for number in sorted(by_number):
        choice.partitions[number] = _best(number, by_number[number], options.prefer)
    known = choice.image.image.partition_count(choice.old_name) if choice.image is not None else 0
    # The number of partitions decides where keys go: it must not be that of the directories found.
    count = max(known or 0, max(by_number) + 1)
    if count - len(by_number) > _HOLES_MAX:
        highest = by_number[max(by_number)][0]
        raise RefusedError(
            f"The partition number {highest.number} would need a topic of {count} partitions.",
            path=highest.path,
            hint="Leave that directory out.",
        )
    if count > len(by_number):
        choice.missing = tuple(one for one in range(count) if one not in by_number)
    return choice


@dataclass(frozen=True, slots=True)
class _Identified:
    """A topic whose id is chosen, and the id that its directories state; None for any."""

    choice: TopicChoice
    stated: str | None

    def takes(self, topic_id: str) -> bool:
        return self.stated is None or topic_id == self.stated


def _identified(
    name: str, found: list[Candidate], images: Sequence[SourceImage], options: ResurrectOptions
) -> _Identified:
    old_name, is_dead = found[0].old_name, all(one.is_dead for one in found)
    stated = sorted({one.topic_id for one in found if one.topic_id is not None})
    given = options.topic_ids.get(name)
    if len(stated) > 1:
        preferred = {one.topic_id for one in found if _is_below(one.path, options.prefer)}
        if given in stated:
            stated = [given]
        elif len(preferred) == 1 and (one := preferred.pop()) is not None:
            stated = [one]
        elif (known := live_id(old_name, stated, [one.image for one in images])) is not None:
            stated = [known]
        else:
            raise RefusedError(
                f"The directories of the topic {name} have different topic ids: "
                f"{', '.join(stated[:_SHOWN_MAX])}.",
                path=found[0].path,
                hint=f"Choose one with --topic-id {name}=ID, or a place with --prefer PATH.",
            )
    only = stated[0] if stated else None
    image = next((one for one in images if only in one.image.names), None)
    if image is None and only is None:
        image = next((one for one in images if old_name in one.image.topics), None)
    topic_id, evidence = _id_of(given, only, image, old_name, is_dead=is_dead)
    choice = TopicChoice(name, old_name, topic_id, image, evidence, is_dead)
    return _Identified(choice, only)


def _id_of(
    given: str | None, stated: str | None, image: SourceImage | None, name: str, *, is_dead: bool
) -> tuple[str, str]:
    """Return the id of a topic, and where it comes from."""
    if given is not None:
        return (new_id(), "new, as asked for") if given == NEW else (given, "as asked for")
    if is_dead:
        return new_id(), "new: the topic was deleted"
    if stated is not None:
        return stated, file_names.PARTITION_METADATA
    if image is not None:
        return image.image.topics[name], f"the metadata log in {image.path}"
    return new_id(), f"new: no {file_names.PARTITION_METADATA}"


def _is_below(path: str, places: Sequence[str]) -> bool:
    inner = file_system.absolute(path)
    return any(
        inner == (place := file_system.absolute(one)) or inner.startswith(f"{place}/")
        for one in places
    )


def _best(number: int, found: list[Candidate], prefer: Sequence[str]) -> PartitionChoice:
    """Order the copies of a partition, the best first."""
    if len(found) == 1:
        return PartitionChoice(number, found, 1, ())
    ranks = {one.path: _rank(one, prefer) for one in found}
    copies = sorted(found, key=lambda one: ranks[one.path], reverse=True)
    best = ranks[copies[0].path]
    ties = sum(ranks[one.path] == best for one in copies)
    return PartitionChoice(number, copies, ties, losers_of(copies, copies[0]))


def _rank(one: Candidate, prefer: Sequence[str]) -> tuple[bool, int, int]:
    try:
        epoch, end = completeness(UnifiedLog(one.directory))
    except DataError:
        # Below each readable copy, also one without an epoch (-1).
        return False, -2, -1
    return _is_below(one.path, prefer), epoch, end


def losers_of(copies: Sequence[Candidate], taken: Candidate) -> tuple[Loser, ...]:
    """Say how the other copies differ from the one that is taken."""
    winner = UnifiedLog(taken.directory)
    return tuple(_loser(winner, one) for one in copies if one is not taken)


def _loser(winner: UnifiedLog, one: Candidate) -> Loser:
    try:
        log = UnifiedLog(one.directory)
        epoch, end = completeness(log)
    except DataError as error:
        return Loser(one.path, -1, 0, 0, f"it cannot be read: {error.message}")
    best_epoch, best_end = completeness(winner)
    cut = truncation_offset(winner.leader_epochs, best_end, log.leader_epochs, end)
    if cut is None:
        cut = min(end, best_end)
    differs = None if cut == end == best_end else cut
    if epoch < best_epoch:
        why = f"its leader epoch is {epoch}, that of the copy taken {best_epoch}"
    elif end < best_end:
        why = f"it ends at offset {end}, the copy taken at {best_end}"
    elif (epoch, end) == (best_epoch, best_end):
        why = "it has the epoch and the end of the copy taken"
    else:
        why = "another copy is preferred"
    return Loser(one.path, epoch, end, differs, why)


def _without_directories(
    topics: list[TopicChoice], images: Sequence[SourceImage], options: ResurrectOptions
) -> Iterator[TopicChoice]:
    """Yield the topics of metadata logs of which no directory is here."""
    known = {one.old_name for one in topics if not one.is_dead}
    for one in images:
        for name, topic_id in sorted(one.image.topics.items()):
            is_meant = options.topics is None or name in options.topics
            count = one.image.partition_count(name) or 0
            if name in known or not is_meant or not count:
                continue
            known.add(name)
            new_name = options.rename.get(name, name)
            if any(other.name == new_name for other in topics):
                new_name = name  # the deleted topic of that name has the new one
            yield TopicChoice(
                new_name, name, topic_id, one, f"the metadata log in {one.path}",
                missing=tuple(range(count)),
            )  # fmt: skip


def _note_unread(chosen: Chosen, unread: Sequence[PartitionDir], options: ResurrectOptions) -> None:
    """Count partitions that no copy gives as missing, or leave out topics that lack only them."""
    numbers: dict[str, set[int]] = defaultdict(set)
    for one in unread:
        if one.name is not None and one.name.partition >= 0:
            numbers[one.topic].add(one.name.partition)
    for topic in [*chosen.topics]:
        lacking = numbers[topic.old_name] - topic.partitions.keys()
        if not lacking:
            continue
        count = max(topic.count, max(lacking) + 1)
        topic.missing = tuple(one for one in range(count) if one not in topic.partitions)
        if options.missing == Missing.REFUSE and lacking.issuperset(topic.missing):
            chosen.topics.remove(topic)
            why = (
                f"partition {_numbers(sorted(lacking))} of its topic cannot be read; --missing "
                "empty or offline takes it"
            )
            chosen.left_out += (
                LeftOutDirectory(copy.path, why)
                for one in topic.partitions.values()
                for copy in one.copies
            )


def _require_whole(topics: Sequence[TopicChoice]) -> None:
    """Raise `RefusedError` if partitions are missing."""
    holes = [one for one in topics if one.missing]
    if not holes:
        return
    words = [f"{one.name}: {_numbers(one.missing)}" for one in holes[:_SHOWN_MAX]]
    more = ["…"] if len(holes) > _SHOWN_MAX else []
    raise RefusedError(
        f"Partitions are missing: {'; '.join(words + more)}.",
        note="Consumers of an empty partition would begin again at offset 0.",
        hint="Give the log directories that have them; or --missing empty, --missing offline, or "
        "--topic.",
    )


def _numbers(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:_SHOWN_MAX]))
    return f"{shown}, … ({len(numbers)} in all)" if len(numbers) > _SHOWN_MAX else shown
