"""What differs between the releases of Kafka that kafkalog follows; nothing else compares them.

The levels of features come from `features.txt`; how a release behaves was seen in its classes and
on its files.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from formats.late_classes import dataclass
from formats.packaged import packaged_text

METADATA_VERSION: Final = "metadata.version"


@dataclass(frozen=True, slots=True)
class Levels:
    """The levels of a feature in a release.

    Attributes:
        least: the smallest that its brokers start with.
        newest: the largest in production.
        default: that of a new cluster.
    """

    least: int
    newest: int
    default: int


@dataclass(frozen=True, slots=True)
class Release:
    """A release.

    Attributes:
        name: its number, 4.4 say.
        features: name of each feature to its levels.
        trims_metadata_indexes: whether a clean stop cuts the indexes of the metadata log to their
            entries, and adds the last one of the time index. `LogSegment.close` did so up to 4.3;
            `UnifiedLog.prepareActiveSegmentForClose` does since, but nothing calls it for this log.
        names_transaction_states: whether `kafka-dump-log` prints the state of a transaction by its
            name, and not by its number.
        keeps_end_of_round: whether the cleaner keeps the last batch below the end of its round,
            even without records. Before 3.9 it did not; since 4.4 it keeps the batch that ends at
            the high watermark instead.
        reads_aborted_versions_whole: whether both bytes of the version of an entry in a transaction
            index are read. Up to 4.3 only the first was.
        highest_remote_is_local: whether a segment whose base offset is the highest remote offset
            counts as one that only the local log has.
    """

    name: str
    features: dict[str, Levels]
    trims_metadata_indexes: bool
    names_transaction_states: bool
    keeps_end_of_round: bool
    reads_aborted_versions_whole: bool
    highest_remote_is_local: bool

    @property
    def metadata_version(self) -> int:
        """The largest `metadata.version` in production."""
        return self.features[METADATA_VERSION].newest


@cache
def releases() -> tuple[Release, ...]:
    """Return all releases, the newest first."""
    features: dict[str, dict[str, Levels]] = {}
    for kind, *words in _lines():
        if kind == "feature":
            release, name, *levels = words
            least, newest, *default = map(int, levels)
            features.setdefault(release, {})[name] = Levels(least, newest, *default or [newest])
    return (
        Release(
            "4.4",
            features["4.4"],
            trims_metadata_indexes=False,
            names_transaction_states=True,
            keeps_end_of_round=False,
            reads_aborted_versions_whole=True,
            highest_remote_is_local=False,
        ),
        Release(
            "4.3",
            features["4.3"],
            trims_metadata_indexes=True,
            names_transaction_states=False,
            keeps_end_of_round=True,
            reads_aborted_versions_whole=False,
            highest_remote_is_local=True,
        ),
    )


@cache
def metadata_levels() -> dict[int, str]:
    """Return the name of each level of `metadata.version`, 4.4-IV0 say."""
    return {int(words[0]): words[1] for kind, *words in _lines() if kind == "level"}


def newest() -> Release:
    """Return the newest release."""
    return releases()[0]


def by_name(name: str) -> Release:
    """Return the release of a name, 4.4 say."""
    return next(one for one in releases() if one.name == name)


def release_of(level: int) -> Release:
    """Return the oldest release that knows a level of `metadata.version`; else the newest."""
    for one in reversed(releases()):
        if level <= one.metadata_version:
            return one
    return newest()


def _lines() -> list[list[str]]:
    lines = packaged_text("features.txt").splitlines()
    return [line.split() for line in lines if line and not line.startswith("#")]
