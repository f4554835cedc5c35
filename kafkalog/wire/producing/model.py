"""What is replayed and how: the request, the logs and where they go, and what was done."""

from __future__ import annotations

from dataclasses import asdict, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from formats.late_classes import dataclass
from kafkalog.errors import Event, Listener, UsageError
from kafkalog.log.batches.selection import Selection
from kafkalog.log.defects import raise_defect
from kafkalog.model import Defect, Isolation

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Mapping

    from kafkalog.tables.planning import Target


@dataclass(frozen=True, slots=True)
class Request:
    """Which records are replayed, and how.

    Attributes:
        selection: which records; `limit` holds for all logs together, in their order.
        topics: only these; None for all.
        partitions: only these; None for all.
        internal: whether internal topics are replayed, too; they must get other names.
        topic_map: names of topics to their names in the cluster; others keep theirs.
        keep_partitions: whether records keep their partitions; otherwise the key decides, as for
            Kafka's own producer.
        keep_timestamps: whether records keep their timestamps; otherwise they get the time of the
            replay.
        transactions: whether transactions make each record appear once. Without them records since
            the last commit appear twice after a kill.
        create_topics: whether missing topics are created.
        commit_offsets: whether groups get the offsets that they had, translated.
        refused_file: where records that topics refuse are listed, which are left out; None to stop
            at the first one.
        rate: most bytes of keys, values and headers in a second; None for no limit.
    """

    selection: Selection = field(
        default_factory=lambda: Selection(isolation=Isolation.READ_UNCOMMITTED)
    )
    topics: Collection[str] | None = None
    partitions: Container[int | None] | None = None
    internal: bool = False
    topic_map: Mapping[str, str] = field(default_factory=dict)
    keep_partitions: bool = False
    keep_timestamps: bool = True
    transactions: bool = True
    create_topics: bool = False
    commit_offsets: bool = False
    refused_file: str | None = None
    rate: int | None = None

    def __post_init__(self) -> None:
        if self.commit_offsets and not self.keep_partitions:
            raise UsageError(
                "Offsets of groups belong to partitions, which records must keep for that.",
                hint="Add --keep-partitions.",
            )

    @property
    def reading(self) -> Selection:
        """The selection by which logs are read: sound data."""
        return replace(self.selection, data=True, sound=True)

    def identity(self) -> dict[str, Any]:
        """Return what must not change between two parts of a run, besides its logs, for JSON."""
        found = asdict(self.selection)
        for name, value in found.items():
            if hasattr(value, "pattern"):
                value = value.pattern
            if isinstance(value, bytes):
                value = value.hex()
            elif isinstance(value, tuple):
                value = [None if one is None else one.hex() for one in value]
            found[name] = value if value is None or isinstance(value, int | list) else str(value)
        return {
            "selection": found,
            "topic_map": dict(sorted(self.topic_map.items())),
            "keep_partitions": self.keep_partitions,
            "keep_timestamps": self.keep_timestamps,
            "transactions": self.transactions,
            "commit_offsets": self.commit_offsets,
        }


@dataclass(frozen=True, slots=True)
class Route:
    """A log, and where its records go.

    Attributes:
        path: its directory, or its file.
        topic, partition: of the log; None if the directory's name has no number.
        to_topic: topic in the cluster.
        to_partition: partition in the cluster; None if the key of a record decides.
    """

    target: Target
    path: str
    topic: str
    partition: int | None
    to_topic: str
    to_partition: int | None

    @property
    def name(self) -> str:
        """`topic-partition`."""
        return self.topic if self.partition is None else f"{self.topic}-{self.partition}"


class Place(NamedTuple):
    """How far a run has come in one log: the next offset, and how many records are before it."""

    next_offset: int
    records: int


@dataclass(frozen=True, slots=True)
class Position:
    """How far a run has come, as a transaction commits it.

    Attributes:
        records: how many records are in the cluster.
        opened: how many logs, the first ones, were begun.
        places: log to place, of those that were begun and are not at their end.
    """

    records: int = 0
    opened: int = 0
    places: Mapping[int, Place] = field(default_factory=dict)


@dataclass(slots=True)
class Replayed:
    """What was done with one log, or would be.

    Attributes:
        records: number of records that this run produced.
        tombstones: those of them without a value.
        size_bytes: of their keys, values and headers.
        first_offset, last_offset: their first and last offset in the log; None without records.
        records_before: number of records that an earlier, interrupted run had produced.
        unsendable_records: number of those left out, since a header's name is not UTF-8.
        refused_records: number of those left out, since the topic in the cluster refuses them.
        zero_timestamps: number of records whose timestamp 0 became 1.
    """

    _row = (
        "route.path", "route.topic", "route.partition", "route.to_topic", "route.to_partition",
        "records", "tombstones", "size_bytes", "first_offset", "last_offset", "records_before",
        "unsendable", "refused", "zero_timestamps",
    )  # fmt: skip

    route: Route
    records: int = 0
    tombstones: int = 0
    size_bytes: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    records_before: int = 0
    unsendable_records: int = 0
    refused_records: int = 0
    zero_timestamps: int = 0


class ReplayListener(Listener):
    """Hears what a replay reports besides its results; subclasses override what they need."""

    def hear(self, event: Event) -> None:
        """Handle an event; by default raise an error, or that of damage, which is not replayed."""
        if isinstance(event, Defect):
            raise_defect(event)
        super().hear(event)

    def advanced(self, size_bytes: int) -> None:
        """Handle the number of bytes read since the last call."""


@dataclass(frozen=True, slots=True)
class TranslatedOffset:
    """A committed offset of a group, and the offset in the cluster that means the same.

    Attributes:
        to_offset: where the first replayed record at or after `offset` is; after the last one if
            there is none. None if nothing was replayed.
    """

    group: str
    topic: str
    partition: int
    offset: int
    to_topic: str
    to_offset: int | None
