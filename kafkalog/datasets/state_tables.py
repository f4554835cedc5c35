"""The tables besides those of logs: which there are, their columns, and their rows."""

from __future__ import annotations

import os
import warnings
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from kafkalog.cluster_image import read_cluster_image
from kafkalog.cluster_image.model import RESOURCE_TYPES, TOPIC
from kafkalog.configs.sources import read_metadata_configs
from kafkalog.defects import raise_defect
from kafkalog.errors import NotFoundError
from kafkalog.log_dir import CLUSTER_METADATA_TOPIC, LogDirListing, open_path
from kafkalog.model import Isolation, LogView
from kafkalog.state.groups import EndOffsets, read_groups
from kafkalog.tables.model import Bounds, End, Replicas, Request, TableName, usual_replicas
from kafkalog.tables.reading import ROWS_AT_ONCE
from kafkalog.tables.schemas import MILLISECONDS_MAX, SCHEMAS, TIME, table_schema
from kafkalog.targets import best_replica, live_partitions, open_targets
from kafkalog.wording import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kafkalog.model import Defect
    from kafkalog.state.model import Groups
    from kafkalog.tables.model import PartitionEnd
    from kafkalog.view import Difference


class StateTable(StrEnum):
    """The tables of what the internal topics add up to."""

    GROUPS = "groups"
    COMMITS = "commits"
    TOPICS = "topics"
    CONFIGS = "configs"


@dataclass(frozen=True, slots=True)
class Tables:
    """Some logs, and how their tables are read.

    Attributes:
        paths: log directories, partition directories, or single logs.
        topics: these topics only; None for all.
        isolation: for records: those that consumers of this isolation level get.
        end: where records end: at the high watermark, or at the end of the log.
        replicas: how several copies of a partition are handled; None for the usual way.
        internal: whether internal topics of brokers are wanted, too.
        view: what of a partition directory is shown.
        text: whether keys and values are text; invalid UTF-8 becomes U+FFFD.
        disorder_ms: no record is older than the newest before it by more than this, so that
            reading ends soon after a time range; None if that is not known.
        threads: number of decoding threads; None for one per processor, up to 8.
        on_defect: called with each defect; by default the first grave one is raised.
        differences: as for `kafkalog.tables.plan_splits`.
        ends: likewise.
        on_groups: called with the groups that a table of state was read from, and what they lack;
            if None, a `UserWarning` reports missing partitions.
    """

    paths: tuple[str, ...]
    topics: frozenset[str] | None = None
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    end: End = End.WATERMARK
    replicas: Replicas | None = None
    internal: bool = False
    view: LogView = LogView.STARTED
    text: bool = False
    disorder_ms: int | None = None
    threads: int | None = None
    on_defect: Callable[[Defect], object] = field(default=raise_defect, compare=False)
    differences: Callable[[Difference], object] | None = field(default=None, compare=False)
    ends: Callable[[PartitionEnd], object] | None = field(default=None, compare=False)
    on_groups: Callable[[Groups], object] | None = field(default=None, compare=False)

    def request(self, table: TableName) -> Request:
        """Return the request for all rows of a table."""
        return Request(
            table,
            Bounds(topics=self.topics, disorder_ms=self.disorder_ms),
            self.isolation,
            self.replicas or usual_replicas(table),
            self.internal,
            required_topics=self.topics or frozenset(),
            end=self.end,
            view=self.view,
        )


def _field(name: str, kind: Any, *, nullable: bool = False) -> Any:
    return pa.field(name, kind, nullable=nullable)


_MEMBER: Final = pa.struct(
    [
        _field("member_id", pa.string()),
        _field("instance_id", pa.string(), nullable=True),
        _field("client_id", pa.string()),
        _field("host", pa.string()),
        _field("epoch", pa.int32(), nullable=True),
    ]
)

STATE_SCHEMAS: Final = {
    StateTable.GROUPS: pa.schema(
        [
            _field("group_id", pa.string()),
            _field("group_type", pa.string()),
            _field("state", pa.string()),
            _field("epoch", pa.int32()),
            _field("protocol", pa.string(), nullable=True),
            _field("coordinator", pa.int32()),
            _field("members", pa.list_(_field("element", _MEMBER))),
            _field("undecoded", pa.int64()),
        ]
    ),
    StateTable.COMMITS: pa.schema(
        [
            _field("group_id", pa.string()),
            _field("topic", pa.string()),
            _field("partition", pa.int32()),
            _field("offset", pa.int64(), nullable=True),
            _field("end_offset", pa.int64(), nullable=True),
            _field("lag", pa.int64(), nullable=True),
            _field("leader_epoch", pa.int32()),
            _field("metadata", pa.string()),
            _field("committed_at", TIME, nullable=True),
            _field("expires_at", TIME, nullable=True),
            _field("coordinator", pa.int32()),
            _field("record_offset", pa.int64()),
            _field("producer_id", pa.int64(), nullable=True),
            _field("pending", pa.bool_()),
            _field("exact", pa.bool_()),
            _field("complete", pa.bool_()),
        ]
    ),
    StateTable.TOPICS: pa.schema(
        [
            _field("topic", pa.string()),
            _field("partition", pa.int32()),
            _field("topic_id", pa.string()),
            _field("leader_epoch", pa.int32()),
            _field("replicas", pa.list_(_field("element", pa.int32()))),
        ]
    ),
    StateTable.CONFIGS: pa.schema(
        [
            _field("resource", pa.string()),
            _field("name", pa.string()),
            _field("config", pa.string()),
            _field("value", pa.string()),
            _field("source", pa.string()),
        ]
    ),
}
"""The columns of the tables of state. `resource` is `topic` or `broker`; the broker with the empty
name stands for all of them."""


def dataset_schema(table: TableName | StateTable, *, text: bool = False) -> Any:
    """Return the columns of a table; those that cost nothing come first.

    An engine that needs no column, for a `count(*)`, asks for the first one.
    """
    if isinstance(table, StateTable):
        return STATE_SCHEMAS[table]
    names = SCHEMAS[table].names
    first = ("partition", "topic")
    return table_schema(table, [*first, *(one for one in names if one not in first)], text=text)


def read_state(table: StateTable, tables: Tables) -> Iterator[Any]:
    """Yield the rows of a table of state as record batches, with all of its columns.

    Raises:
        NotFoundError: the internal topic that has them is not here.
        CorruptDataError, UnreadableError: it is damaged, unless `on_defect` takes it.
    """
    rows = _ROWS[table](tables, open_targets(tables.paths))
    while some := list(islice(rows, ROWS_AT_ONCE)):
        yield pa.RecordBatch.from_pylist(some, STATE_SCHEMAS[table])


def _read_groups(tables: Tables, targets: Sequence[Any]) -> Groups:
    """Read the groups, and say what is missing."""
    found = read_groups(targets, defects=tables.on_defect)
    if tables.on_groups is not None:
        tables.on_groups(found)
    elif missing := found.topic.missing_count:
        text = f"{counted(missing, 'partition')} of {found.topic.name} not here: groups are missing"
        warnings.warn(text, stacklevel=2)
    return found


def _groups(tables: Tables, targets: Sequence[Any]) -> Iterator[dict[str, Any]]:
    for one in _read_groups(tables, targets).groups.values():
        yield {
            "group_id": one.name,
            "group_type": one.kind,
            "state": one.state,
            "epoch": one.epoch,
            "protocol": one.protocol,
            "coordinator": one.coordinator,
            "members": [asdict(member) for member in one.members],
            "undecoded": one.undecoded,
        }


def _commits(tables: Tables, targets: Sequence[Any]) -> Iterator[dict[str, Any]]:
    ends = EndOffsets(targets)
    for group in _read_groups(tables, targets).groups.values():
        for one in group.offsets:
            if tables.topics is not None and one.topic not in tables.topics:
                continue
            end = ends.of(one.topic, one.partition)
            yield {
                "group_id": one.group,
                "topic": one.topic,
                "partition": one.partition,
                "offset": one.offset,
                "end_offset": end,
                "lag": None if end is None or one.offset is None else max(0, end - one.offset),
                "leader_epoch": one.leader_epoch,
                "metadata": one.metadata,
                "committed_at": _microseconds(one.committed_ms),
                "expires_at": _microseconds(one.expires_ms),
                "coordinator": one.coordinator,
                "record_offset": one.record_offset,
                "producer_id": one.producer_id,
                "pending": one.is_pending,
                "exact": one.is_exact,
                "complete": one.is_complete,
            }


def _microseconds(time_ms: int | None) -> int | None:
    if time_ms is None or abs(time_ms) > MILLISECONDS_MAX:
        return None
    return time_ms * 1000


def _topics(tables: Tables, targets: Sequence[Any]) -> Iterator[dict[str, Any]]:
    found = open_path(_metadata_log_dir(targets))
    image = read_cluster_image(found) if isinstance(found, LogDirListing) else None
    if image is None:
        raise _no_metadata(targets)
    for topic_id, name in sorted(image.names.items()):
        if tables.topics is not None and name not in tables.topics:
            continue
        for partition, one in sorted(image.partitions[topic_id].items()):
            yield {
                "topic": name,
                "partition": partition,
                "topic_id": topic_id,
                "leader_epoch": one.leader_epoch,
                "replicas": one.replicas,
            }


def _configs(tables: Tables, targets: Sequence[Any]) -> Iterator[dict[str, Any]]:
    found = read_metadata_configs(_metadata_log_dir(targets))
    if found is None:
        raise _no_metadata(targets)
    for defect in found.defects:
        tables.on_defect(defect)
    for (kind, name), settings in sorted(found.settings.items()):
        if kind == TOPIC and tables.topics is not None and name not in tables.topics:
            continue
        for config, setting in settings.items():
            yield {
                "resource": RESOURCE_TYPES.get(kind, str(kind)).lower(),
                "name": name,
                "config": config,
                "value": setting.text,
                "source": setting.source,
            }


def _metadata_log_dir(targets: Sequence[Any]) -> str:
    """Return the log directory with the most complete metadata log."""
    found = [one for one in live_partitions(targets) if one.topic == CLUSTER_METADATA_TOPIC]
    if not found:
        raise _no_metadata(targets)
    return os.path.dirname(best_replica(found).path)


def _no_metadata(targets: Sequence[Any]) -> NotFoundError:
    return NotFoundError(
        "There is no metadata log here that begins at offset 0 or at a snapshot.",
        path=targets[0].path if targets else None,
        hint="Give a log directory that has __cluster_metadata-0.",
    )


_ROWS: Final[dict[StateTable, Callable[[Tables, Any], Iterator[dict[str, Any]]]]] = {
    StateTable.GROUPS: _groups,
    StateTable.COMMITS: _commits,
    StateTable.TOPICS: _topics,
    StateTable.CONFIGS: _configs,
}
