"""Tables, requests for their rows, the bounds of logs, and the splits they are read in."""

from __future__ import annotations

import os
import re
from dataclasses import field, fields
from enum import StrEnum
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Self

from formats.late_classes import dataclass
from kafkalog.errors import DataError, EventKind, GoneError, UsageError
from kafkalog.log.living import about_a_log
from kafkalog.model import Isolation, LogView, Replicas
from kafkalog.node.claims import Claim

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence

    from kafkalog.errors import Listener
    from kafkalog.files.log_dir import PartitionDir
    from kafkalog.files.offsets import PartitionOffsets
    from kafkalog.node.unified_log import UnifiedLog
    from kafkalog.tables.planning import Target


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a query.

    Attributes:
        names: names of the columns, in order; not necessarily unique.
        numeric: for each column whether it holds numbers.
        rows: values of each row: None, numbers, text, bytes, times (UTC, with a zone or none),
            lists, and dicts for structs and maps. They are fetched on demand.
    """

    names: tuple[str, ...]
    numeric: tuple[bool, ...]
    rows: Iterator[tuple[Any, ...]]


def is_named(query: str, name: str) -> bool:
    """Return whether a query may name a table or a column."""
    return re.search(rf"\b{name}\b", query, re.IGNORECASE) is not None


def columns_for(query: str, usual: Sequence[str], others: Iterable[str]) -> list[str]:
    """Return the columns that `*` stands for: the usual ones, and what else the query may name."""
    return [*usual, *(name for name in others if name not in usual and is_named(query, name))]


def consumers_log(partition: PartitionDir, request: Request) -> UnifiedLog:
    """Return the log of a partition with the high watermark that the request asks for."""
    from kafkalog.node.unified_log import (  # `--help` needs only the names in this module
        END,
        UnifiedLog,
    )

    return UnifiedLog(partition, high_watermark=END if request.ends_as_given else None)


def log_of(target: Target, request: Request) -> UnifiedLog:
    """Return the log of a target as `consumers_log`; of several copies, what they are together."""
    if not target.copies:
        return consumers_log(target.partition, request)
    from kafkalog.tables.merged_log import MergedLog

    partition, plain = target.partition, plain_split(target.partition, request)
    copies = [one.partition for one in target.copies]
    return MergedLog(partition, copies, plain, to_end=request.ends_as_given)


def plain_split(partition: PartitionDir, request: Request) -> Split:
    """Return a split that has the place of a partition directory, and nothing of it."""
    is_of_records = request.table == TableName.RECORDS
    return Split(
        request.table,
        os.path.dirname(partition.path),
        partition.topic,
        -1 if partition.partition is None else partition.partition,
        partition.path,
        view=request.view,
        where=request.where if is_of_records else None,
        contents=request.contents if is_of_records else Contents(),
    )


def partition_ends(
    targets: Iterable[Target], request: Request, listener: Listener
) -> list[PartitionOffsets]:
    """Return the bounds of the logs, if they decide which records are returned.

    The listener hears of logs that cannot be read.
    """
    if not has_bounds(request):
        return []
    found = []
    for target in targets:
        try:
            log = log_of(target, request)
            found.append(_offsets_of(log, request.isolation))
        except GoneError:
            pass  # it was deleted, and none of it is returned
        except DataError as error:
            error.partition = target.listed
            listener.hear(error)
    return found


@about_a_log
def _offsets_of(log: UnifiedLog, isolation: Isolation) -> PartitionOffsets:
    return log.offsets.of_partition(isolation)


def has_bounds(request: Request) -> bool:
    """Return whether the high watermark and other bounds decide which rows are returned."""
    is_committed = request.isolation == Isolation.READ_COMMITTED
    left_overs = request.view == LogView.ALL and not is_committed
    return request.table == TableName.RECORDS and not left_overs


SPLIT_SIZE: Final = 128 << 20


class TableName(StrEnum):
    """The tables of a log directory."""

    RECORDS = "records"
    BATCHES = "batches"
    OFFSET_INDEX = "offset_index"
    TIME_INDEX = "time_index"
    TRANSACTIONS = "transactions"
    SEGMENTS = "segments"
    PRODUCERS = "producers"
    DEFECTS = "defects"


OF_LOGS: Final = (TableName.RECORDS, TableName.BATCHES, TableName.DEFECTS)
"""The tables that are read from the logs themselves, each log in several splits."""


def usual_replicas(table: TableName) -> Replicas:
    """Return how several copies are handled by default.

    A record counts once, however many copies there are. Batches, indexes and damage belong to
    files.
    """
    return Replicas.BEST if table == TableName.RECORDS else Replicas.ALL


@dataclass(frozen=True, slots=True)
class Bounds:
    """Which rows are wanted, as far as names, indexes and headers show; None leaves a bound open.

    Unwanted rows can remain: a caller that needs exact results filters them.

    Attributes:
        topics: these topics only.
        partitions: these partitions only.
        from_offset, to_offset: first offset, inclusive, and last, exclusive.
        from_time, to_time: earliest and latest record timestamp, likewise; milliseconds.
        disorder_ms: no record is older than the newest before it by more than this; None if
            unknown. If set, a log is not read after the first record that is that much later than
            `to_time`.
    """

    topics: Collection[str] | None = None
    partitions: Container[int | None] | None = None
    from_offset: int | None = None
    to_offset: int | None = None
    from_time: int | None = None
    to_time: int | None = None
    disorder_ms: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.topics, str):  # it would have each name that is part of it
            raise UsageError("Topics are names in a list, not a text.")


@dataclass(frozen=True, slots=True)
class Contents:
    """What the bytes of records match, as in `Selection`; None leaves it open.

    Attributes:
        key: the key.
        key_regex, value_regex: patterns that the key and the value hold a match of.
        header, header_value: the name of a header, and its value.
    """

    key: bytes | None = None
    key_regex: bytes | None = None
    value_regex: bytes | None = None
    header: bytes | None = None
    header_value: bytes | None = None

    def selected(self) -> dict[str, Any]:
        """Return them as arguments of `Selection`."""
        regexes = {"key_regex": self.key_regex, "value_regex": self.value_regex}
        compiled = {name: None if one is None else re.compile(one) for name, one in regexes.items()}
        header = None if self.header is None else (self.header, self.header_value)
        return {"key": self.key, "header": header, **compiled}

    def as_json(self) -> dict[str, str | None]:
        """Return its fields, from which `from_json` rebuilds it: a letter for each byte."""
        given = ((name, getattr(self, name)) for name in self.__slots__)
        return {name: one if one is None else one.decode("latin-1") for name, one in given}

    @classmethod
    def from_json(cls, fields: Mapping[str, str | None]) -> Self:
        return cls(
            **{name: one if one is None else one.encode("latin-1") for name, one in fields.items()}
        )


@dataclass(frozen=True, slots=True)
class Request:
    """A request for rows of a table.

    Attributes:
        table: the table.
        bounds: which rows.
        isolation: for records: those that consumers of this isolation level get, or all of the
            log. None has control records, or records below the log start offset.
        replicas: how to handle several replicas of a partition; of a request that was made without,
            what is usual for its table.
        internal: whether internal topics of brokers are wanted, too.
        split_bytes: approximate size of a split of a log.
        named: the bounds as they were given: topics and partitions in them must exist; None if none
            must.
        assigned: these topics and partitions only; None for all.
        requires_assigned: whether all of these must exist.
        pattern: only topics whose whole name matches this regular expression.
        gaps_when_read: whether gaps after segments of a store are left to their readers, which
            need no request for them; see `Split.looks_for_gap`.
        view: what of a partition directory is shown. `all` also takes the directories of a log
            directory that await their deletion, or are stray. Defects are those of the files.
        notes_hosting: whether partitions are noted that are not where the cluster has them.
        where: for records: only those that meet this condition, see `condition_of`.
        contents: for records: only those that match.
        has_decided_end: for records: whether an earlier watermark has become the end in `bounds`.
    """

    table: TableName = TableName.RECORDS
    bounds: Bounds = field(default_factory=Bounds)
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    replicas: Replicas | None = None
    internal: bool = False
    split_bytes: int = SPLIT_SIZE
    named: Bounds | None = None
    view: LogView = LogView.RECOVERED
    assigned: frozenset[tuple[str, int]] | None = None
    pattern: str | None = None
    gaps_when_read: bool = False
    requires_assigned: bool = True
    notes_hosting: bool = True
    where: str | None = None
    contents: Contents = Contents()
    has_decided_end: bool = False

    def __post_init__(self) -> None:
        if self.replicas is None:
            object.__setattr__(self, "replicas", usual_replicas(self.table))

    @property
    def ends_as_given(self) -> bool:
        """Whether records end where `bounds` or the log end, whatever the high watermark is."""
        return self.has_decided_end or self.isolation == Isolation.LOG

    @property
    def joins_tiers(self) -> bool:
        """Whether each log has its part in a tier; files are listed where they are."""
        is_of_logs = self.merges_copies or self.table == TableName.RECORDS
        return is_of_logs and self.view != LogView.ALL

    @property
    def merges_copies(self) -> bool:
        """Whether rows come from all copies of a log together."""
        is_best = self.replicas == Replicas.BEST and self.view != LogView.ALL
        return is_best and self.table in (TableName.RECORDS, TableName.BATCHES)

    def names(self, topic: str, partition: int | None) -> bool:
        """Return whether a partition is one of the assigned ones, and its topic as the pattern."""
        if self.assigned is not None and (topic, partition) not in self.assigned:
            return False
        return self.pattern is None or re.fullmatch(self.pattern, topic) is not None

    def require_assigned(self, found: Iterable[tuple[str, int | None]]) -> None:
        """Raise `UsageError` if an assigned partition has to be, and is not, among those found."""
        if not self.requires_assigned:
            return
        for topic, partition in sorted((self.assigned or frozenset()) - set(found)):
            raise UsageError(f"No partition {topic}-{partition} is here.")


@dataclass(frozen=True, slots=True)
class Split:
    """A piece of work: some bytes of one log, one index, or the small files of one partition.

    Attributes:
        table: the table it belongs to.
        log_dir: the directory that the partition directory is in.
        topic, partition: those of the rows; partition -1 if the directory's name has none.
        path: the file; for small files the partition directory.
        base_offset: base offset of the segment.
        start, end: positions in the file, at boundaries of batches.
        from_offset, to_offset, from_time, to_time: as in `Bounds`.
        committed: whether only committed records are wanted.
        aborted: the aborted transactions that can lie in it: producer id, first and last offset.
        first_offset: offset at which it begins; None if unknown.
        next_offset: offset at which the next one begins, or the log ended when it was planned.
        seen: what the planner saw there; None in an object store.
        view: the view in which the partition directory is read.
        copies: other directories of the partition, which help where this one has no sound batches.
        lineages: the leader epochs and their start offsets, by the checkpoints of all of them.
        clean_to: offset below which the cleaner may have made holes; with copies.
        looks_for_gap: whether its reader has to see if offsets are missing after it.
        log_dirs: with `looks_for_gap`, the log directory that has the metadata log of its node, if
            that is another one.
        high: the offset that no batch of it reaches; None if unknown: a log may have grown since.
        where, contents: only records that meet this condition, and match.
    """

    table: TableName
    log_dir: str
    topic: str
    partition: int
    path: str
    base_offset: int = 0
    start: int = 0
    end: int = 0
    from_offset: int | None = None
    to_offset: int | None = None
    from_time: int | None = None
    to_time: int | None = None
    committed: bool = False
    aborted: tuple[tuple[int, int, int], ...] = ()
    first_offset: int | None = None
    next_offset: int | None = None
    seen: Claim | None = None
    view: LogView = LogView.RECOVERED
    copies: tuple[str, ...] = ()
    lineages: tuple[tuple[tuple[int, int], ...], ...] = ()
    clean_to: int = 0
    looks_for_gap: bool = False
    log_dirs: tuple[str, ...] = ()
    high: int | None = None
    where: str | None = None
    contents: Contents = Contents()

    @property
    def size_bytes(self) -> int:
        """Number of bytes to read."""
        return self.end - self.start

    def as_json(self) -> dict[str, Any]:
        """Return its fields, from which `from_json` rebuilds it."""
        found = dict(zip(_FIELDS_OF_SPLITS, _values_of_split(self), strict=True))
        found["seen"] = None if self.seen is None else self.seen.as_json()
        found["contents"] = self.contents.as_json()
        return found

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """Rebuild the split from the result of `as_json`."""
        aborted = tuple((one[0], one[1], one[2]) for one in fields["aborted"])
        seen = fields.get("seen")
        return cls(
            **{
                **fields,
                "table": TableName(fields["table"]),
                "aborted": aborted,
                "view": LogView(fields["view"]),
                "seen": None if seen is None else Claim.from_json(seen),
                "contents": Contents.from_json(fields.get("contents", {})),
                "copies": tuple(fields.get("copies", ())),
                "log_dirs": tuple(fields.get("log_dirs", ())),
                "lineages": tuple(
                    tuple((epoch, start) for epoch, start in one)
                    for one in fields.get("lineages", ())
                ),
            }
        )


_FIELDS_OF_SPLITS: Final = tuple(one.name for one in fields(Split))
_values_of_split: Final = attrgetter(*_FIELDS_OF_SPLITS)


Offsets = dict[str, list[int]]
"""`TOPIC-PARTITION@TOPICID` to offset and leader epoch, -1 if unknown; as JSON."""


class LossReason(StrEnum):
    """Why a reader never gets some offsets."""

    DELETED = "deleted"
    """Retention or DeleteRecords removed them before they were read."""
    CUT = "cut"
    """The log was cut there after they had been read, and filled again by another leader."""
    SHORT = "short"
    """The log ends before offsets that were read: it was cut, or this is an older copy."""
    GONE = "gone"
    """Their topic was deleted, or the partition is in none of the directories."""
    MISSING = "missing"
    """A segment was lost: the log goes on after it."""
    DAMAGED = "damaged"
    """What is in their place cannot be read; found when rows were written."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Offsets that a reader of a growing log never gets, or has got although they are no more.

    Attributes:
        key: the partition, as in `Offsets`.
        first_offset: the first of them.
        end_offset: the one after the last; None if unknown.
        reason: why.
        detail: a sentence for a person.
        path: the partition directory; None if there is none.
    """

    kind = EventKind.DEFECT

    key: str
    first_offset: int
    end_offset: int | None
    reason: LossReason
    detail: str
    path: str | None = None

    @property
    def name(self) -> str:
        """`topic-partition`."""
        return self.key.partition("@")[0]
