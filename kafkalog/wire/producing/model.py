"""What is replayed and how: the request, the logs and where they go, and what was done."""

from __future__ import annotations

from dataclasses import asdict, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from formats.late_classes import dataclass
from kafkalog.errors import Event, Listener, UsageError
from kafkalog.log.batches.selection import EVERYTHING, Selection
from kafkalog.log.defects import raise_defect
from kafkalog.model import Defect, End, Isolation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalog.tables.planning import Target


@dataclass(frozen=True, slots=True)
class Request:
    """Which records are replayed, and how.

    Attributes:
        selection: which records; `limit` holds for each partition.
        topics: only these; None for all.
        internal: whether internal topics are replayed, too; they must get other names.
        end: where records end.
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

    selection: Selection = EVERYTHING
    topics: tuple[str, ...] | None = None
    internal: bool = False
    end: End = End.WATERMARK
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
        if self.selection.read_committed and self.end == End.LOG:
            raise UsageError("--read-committed ends at the last stable offset, not at the log end.")

    @property
    def reading(self) -> Selection:
        """The selection by which logs are read: sound data, up to the end."""
        isolation = self.selection.isolation
        if not self.selection.read_committed:
            is_bounded = self.end == End.WATERMARK
            isolation = Isolation.READ_UNCOMMITTED if is_bounded else Isolation.LOG
        return replace(self.selection, data=True, sound=True, isolation=isolation)

    def identity(self) -> dict[str, Any]:
        """Return what must not change between two parts of a run, as JSON values."""
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
            "topics": None if self.topics is None else sorted(self.topics),
            "internal": self.internal,
            "end": str(self.end),
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
        unsendable: number of records that were left out, since a header's name is not UTF-8.
        refused: number of records that were left out, since the topic in the cluster refuses them.
        zero_times: number of records whose timestamp 0 became 1.
    """

    _row = (
        "route.path", "route.topic", "route.partition", "route.to_topic", "route.to_partition",
        "records", "tombstones", "size_bytes", "first_offset", "last_offset", "records_before",
        "unsendable", "refused", "zero_times",
    )  # fmt: skip

    route: Route
    records: int = 0
    tombstones: int = 0
    size_bytes: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    records_before: int = 0
    unsendable: int = 0
    refused: int = 0
    zero_times: int = 0


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
