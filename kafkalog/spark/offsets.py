"""Where reading begins and ends, by the options of Spark's own Kafka source.

Follows `KafkaSourceProvider`, `KafkaOffsetReaderAdmin` and `JsonUtils` of Spark 4.1.
"""

from __future__ import annotations

import json
import re
import warnings
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from kafkalog.errors import OffsetsMissingError, UsageError
from kafkalog.files.offsets import LeftOut, PartitionOffsets
from kafkalog.io.paths import file_system
from kafkalog.log.defects import Events
from kafkalog.model import present_ms
from kafkalog.node.lookup import lookup_timestamp
from kafkalog.tables.listeners import LOSS_HINT
from kafkalog.tables.model import OF_LOGS, log_of
from kafkalog.tables.planning import each_planned, find_targets, tell_differences

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from kafkalog.errors import Listener
    from kafkalog.files.log_dir import PartitionDir
    from kafkalog.model import Isolation
    from kafkalog.node.unified_log import UnifiedLog
    from kafkalog.tables import Bounds
    from kafkalog.tables.model import Request, Split
    from kafkalog.tables.planning import Target

# As in the JSON offsets of Spark's own source for Kafka.
LATEST: Final = -1
EARLIEST: Final = -2
_WORDS: Final = {"latest": LATEST, "earliest": EARLIEST}
_SAYS: Final = 'Give JSON: {"orders": {"0": 23, "1": -2}, "payments": "latest"}.'

ByPartition = dict[tuple[str, int], int]


@dataclass(frozen=True, slots=True)
class Edge:
    """Where reading begins, or where it ends.

    Attributes:
        option: the option that says so.
        everywhere: an offset for all partitions, which may be EARLIEST or LATEST.
        offsets: offsets by topic and partition, of which none may be left out.
        topics: EARLIEST or LATEST for all partitions of a topic, which has none in `offsets`.
        time: a timestamp in milliseconds for all partitions.
        times: timestamps by topic and partition, of which none may be left out.
    """

    option: str
    everywhere: int | None = None
    offsets: ByPartition | None = None
    topics: Mapping[str, int] = field(default_factory=dict)
    time: int | None = None
    times: ByPartition | None = None

    @property
    def special(self) -> set[int]:
        """The offsets it has, some of which may be EARLIEST or LATEST."""
        everywhere = () if self.everywhere is None else (self.everywhere,)
        return {*everywhere, *self.topics.values(), *(self.offsets or {}).values()}

    def require_known(self, found: Iterable[tuple[str, int]]) -> None:
        """Raise `UsageError` if it names a partition, or a topic, that is not among those found."""
        keys = set(found)
        names = {*(self.offsets or {}), *(self.times or {})} - keys
        unknown = sorted(f"{topic}-{partition}" for topic, partition in names)
        unknown += sorted({*self.topics} - {topic for topic, _ in keys})
        if unknown:
            raise UsageError(f"{self.option} names {', '.join(unknown)}, which is not read here.")


@dataclass(frozen=True, slots=True)
class Edges:
    """Both edges, and what a timestamp means that is later than all records.

    Attributes:
        start, end: None for the usual ones.
        fails_without_match: whether such a starting timestamp is an error; otherwise reading begins
            at the end.
        fails_on_loss: whether starting offsets that are not in a log any more are an error.
    """

    start: Edge | None = None
    end: Edge | None = None
    fails_without_match: bool = False
    fails_on_loss: bool = True

    def between(self, log: UnifiedLog, isolation: Isolation) -> tuple[int | None, int | None]:
        """Return where reading a log begins and ends, as `offset_in` does; None for the usual edge.

        Raises:
            UsageError: the one is behind the other.
        """
        start = None if self.start is None else self.offset_in(self.start, log, isolation)
        end = None if self.end is None else self.offset_in(self.end, log, isolation)
        if start is not None and end is not None and start > end:
            topic, partition = key_of(log.partition)
            raise UsageError(
                f"The start offset {start} is greater than the end offset {end} for "
                f"{topic}-{partition}."
            )
        return start, end

    def offset_in(self, edge: Edge, log: UnifiedLog, isolation: Isolation) -> int:
        """Return the offset of an edge in a log.

        Raises:
            UsageError: the option leaves the partition out, or no record is as late as the time.
            OffsetsMissingError: the log does not have the offset.
        """
        first, end = log.fetch_bounds(isolation)
        key = key_of(log.partition)
        name = f"{key[0]}-{key[1]}"
        time = edge.time if edge.times is None else _of(edge, edge.times, key)
        if time is not None:
            found = lookup_timestamp(log, time).offset
            if found is None and edge is self.start and self.fails_without_match:
                raise UsageError(
                    f"No offset matched from request of topic-partition {name} and timestamp "
                    f"{time}.",
                    hint="startingOffsetsByTimestampStrategy=latest begins at the end.",
                )
            return end if found is None else found
        offset = edge.everywhere
        if edge.offsets is not None:
            offset = edge.topics.get(key[0])
            offset = _of(edge, edge.offsets, key) if offset is None else offset
        if offset in (EARLIEST, LATEST):
            return first if offset == EARLIEST else end
        assert offset is not None, "an edge has one of the three"
        if not first <= offset <= log.log_end_offset and self.fails_on_loss:
            raise OffsetsMissingError(
                f"{edge.option} has offset {offset} of {name}, whose log has {first} to {end - 1}.",
                path=log.partition.path,
                hint=LOSS_HINT,
            )
        return max(offset, first)


def key_of(partition: PartitionDir) -> tuple[str, int]:
    """Return the topic and number of a partition, -1 if its directory has no number."""
    return partition.topic, -1 if partition.partition is None else partition.partition


def _of(edge: Edge, numbers: ByPartition, key: tuple[str, int]) -> int:
    if key not in numbers:
        raise UsageError(
            f"If {edge.option} contains specific offsets, you must specify all TopicPartitions; "
            f"{key[0]}-{key[1]} is missing.",
            hint="Use -1 for latest, -2 for earliest.",
        )
    return numbers[key]


def edges_of(given: Mapping[str, str], *, fails_on_loss: bool) -> Edges:
    """Parse the options of both edges; names are in lower case.

    For each, `…Timestamp` comes before `…OffsetsByTimestamp`, and that before `…Offsets`, as in
    Spark's own source.

    Raises:
        UsageError: a value is malformed.
    """
    strategy = given.get("startingoffsetsbytimestampstrategy", "error").lower()
    if strategy not in ("error", "latest"):
        raise UsageError(
            f"The option startingOffsetsByTimestampStrategy cannot be {strategy!r}.",
            hint="Give error or latest.",
        )
    start, end = _edge(given, "starting"), _edge(given, "ending")
    return Edges(start, end, strategy == "error", fails_on_loss)


def _edge(given: Mapping[str, str], which: str) -> Edge | None:
    option = f"{which}Timestamp"
    if (text := given.get(option.lower())) is not None:
        if not re.fullmatch("[0-9]{1,18}", text):
            raise UsageError(f"The option {option} is a number of milliseconds, not {text!r}.")
        return Edge(option, time=int(text))
    option = f"{which}OffsetsByTimestamp"
    if (text := given.get(option.lower())) is not None:
        return Edge(option, times=_by_partition(option, text, 0)[0])
    option = f"{which}Offsets"
    text = given.get(option.lower())
    if text is None:
        return None
    word = text.strip().lower()
    if word in _WORDS:
        return Edge(option, everywhere=_WORDS[word])
    offsets, topics = _by_partition(option, text, EARLIEST, _WORDS)
    return Edge(option, offsets=offsets, topics=topics)


def _by_partition(
    option: str, text: str, smallest: int, words: Mapping[str, int] = MappingProxyType({})
) -> tuple[ByPartition, dict[str, int]]:
    """Return numbers by partition, and those that one of some words gives for a whole topic."""
    found: ByPartition = {}
    of_topics: dict[str, int] = {}
    for topic, numbers in _topics(option, text, (dict, str) if words else (dict,)).items():
        if isinstance(numbers, str):
            if numbers.lower() not in words:
                raise UsageError(f"The option {option} cannot be {text!r}.", hint=_SAYS)
            of_topics[topic] = words[numbers.lower()]
            continue
        for partition, number in numbers.items():
            is_number = isinstance(number, int) and not isinstance(number, bool)
            # JSON's true is an int in Python.
            if not partition.isdecimal() or not is_number or not smallest <= number < 1 << 63:
                raise UsageError(f"The option {option} cannot be {text!r}.", hint=_SAYS)
            found[topic, int(partition)] = number
    return found, of_topics


def assigned_of(text: str) -> frozenset[tuple[str, int]]:
    """Parse the option `assign`: `{"orders": [0, 1]}`."""
    found = set()
    for topic, numbers in _topics("assign", text, (list,)).items():
        for number in numbers:
            if not isinstance(number, int) or isinstance(number, bool) or number < 0:
                raise UsageError(
                    f"The option assign cannot be {text!r}.", hint='Give JSON: {"orders": [0, 1]}.'
                )
            found.add((topic, number))
    if not found:
        raise UsageError("The option assign names no partition.")
    return frozenset(found)


def _topics(option: str, text: str, kinds: tuple[type, ...]) -> dict[str, Any]:
    try:
        value: Any = json.loads(text, object_pairs_hook=_each_once)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict) or not all(isinstance(one, kinds) for one in value.values()):
        hint = _SAYS if dict in kinds else 'Give JSON: {"orders": [0, 1]}.'
        raise UsageError(f"The option {option} cannot be {text!r}.", hint=hint)
    return value


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON; raise `ValueError` if a name is there twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError
    return found


def require_batch(edges: Edges) -> None:
    """Raise `UsageError` for edges that a batch cannot have, as Spark's own source does."""
    if edges.start is not None and LATEST in edges.start.special:
        raise UsageError(
            "A batch cannot start at the latest offsets.",
            hint="startingTimestamp selects what is new; streams take startingOffsets=latest.",
        )
    if edges.end is not None and EARLIEST in edges.end.special:
        raise UsageError("A batch cannot end at the earliest offsets.")


def planned(
    paths: Sequence[str],
    request: Request,
    edges: Edges,
    listener: Listener,
    find: Callable[[Sequence[str], Request], list[Target]] = find_targets,
) -> list[Split]:
    """Return the splits of a table between two edges. Raises as `plan_splits`, and `Edges`."""
    at_ms = present_ms()

    def within_edges(target: Target) -> Request | None:
        bounds = request.bounds
        if is_cut:
            start, end = edges.between(log_of(target, request), request.isolation)
            bounds = _narrowed(bounds, "offset", start, end)
            low, high = bounds.from_offset, bounds.to_offset
            if low is not None and high is not None and low >= high:
                return None
        return replace(request, bounds=bounds)

    is_cut = bool(edges.start or edges.end) and request.table in OF_LOGS

    with file_system.listings_held(paths):
        targets = find(paths, request)
        for edge in (edges.start, edges.end) if is_cut else ():
            if edge is not None:
                edge.require_known(key_of(target.partition) for target in targets)
        tell_differences(targets, None)
        met = Events()
        found = list(each_planned(targets, within_edges, at_ms, met))
    for event in met.heard:
        listener.hear(event)
    warn_of_left_out(event for event in met.heard if isinstance(event, PartitionOffsets))
    return [split for log in found for split in log.splits]


def warn_of_left_out(ends: Iterable[PartitionOffsets]) -> None:
    """Warn, in the words of other readers, of the records that bounds leave out."""
    for line in LeftOut.by(ends).lines(" (end=log includes them)"):
        warnings.warn(line, stacklevel=2)


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def bounds_of(filters: Iterable[Any], bounds: Bounds) -> Bounds:
    """Return the bounds, narrowed by filters of `pyspark.sql.datasource`.

    All filters must hold. Filters of unknown columns or kinds change nothing.
    """
    for one in filters:
        column = one.attribute[0] if len(getattr(one, "attribute", ())) == 1 else None
        if column in ("topic", "partition"):
            bounds = _of_names(one, column, bounds)
        elif column == "offset" and isinstance(getattr(one, "value", None), int):
            bounds = _of_numbers(one, one.value, "offset", bounds)
        elif column == "timestamp_ms" and isinstance(getattr(one, "value", None), int):
            bounds = _of_numbers(one, one.value, "time", bounds)
        elif column == "timestamp" and isinstance(getattr(one, "value", None), datetime):
            bounds = _of_times(one, bounds)
    return bounds


def _of_names(one: Any, column: str, bounds: Bounds) -> Bounds:
    kind = type(one).__name__
    if kind == "EqualTo":
        wanted = {one.value}
    elif kind == "In":
        wanted = set(one.value)
    else:
        return bounds
    if column == "topic":
        topics = (one for one in wanted if bounds.topics is None or one in bounds.topics)
        return replace(bounds, topics=frozenset(topics))
    known = bounds.partitions
    partitions = (one for one in wanted if known is None or one in known)
    return replace(bounds, partitions=frozenset(partitions))


def _of_numbers(one: Any, value: int, what: str, bounds: Bounds) -> Bounds:
    """Return the range of whole numbers that a comparison allows."""
    kind = type(one).__name__
    lower = upper = None
    if kind == "EqualTo":
        lower, upper = value, value + 1
    elif kind == "GreaterThan":
        lower = value + 1
    elif kind == "GreaterThanOrEqual":
        lower = value
    elif kind == "LessThan":
        upper = value
    elif kind == "LessThanOrEqual":
        upper = value + 1
    return _narrowed(bounds, what, lower, upper)


def _of_times(one: Any, bounds: Bounds) -> Bounds:
    """Return the range of times that a comparison allows, rounded to milliseconds."""
    kind, value = type(one).__name__, one.value
    if value.tzinfo is None:
        value = value.astimezone()
    whole = (value - _EPOCH) // _MILLISECOND  # the millisecond that contains it
    is_whole = whole * _MILLISECOND + _EPOCH == value
    lower = upper = None
    if kind == "EqualTo":
        lower, upper = whole, whole + 1
    elif kind == "GreaterThan":
        lower = whole + 1
    elif kind == "GreaterThanOrEqual":
        lower = whole if is_whole else whole + 1
    elif kind == "LessThan":
        upper = whole if is_whole else whole + 1
    elif kind == "LessThanOrEqual":
        upper = whole + 1
    return _narrowed(bounds, "time", lower, upper)


def _narrowed(bounds: Bounds, what: str, lower: int | None, upper: int | None) -> Bounds:
    if what == "offset":
        first, last = _inner(bounds.from_offset, lower, max), _inner(bounds.to_offset, upper, min)
        return replace(bounds, from_offset=first, to_offset=last)
    first, last = _inner(bounds.from_time, lower, max), _inner(bounds.to_time, upper, min)
    return replace(bounds, from_time=first, to_time=last)


def _inner(one: int | None, other: int | None, choose: Callable[[int, int], int]) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return choose(one, other)
