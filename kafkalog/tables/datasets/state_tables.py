"""The rows of the tables of state: groups, committed offsets, topics and configs."""

from __future__ import annotations

import warnings
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from formats.topic_names import CLUSTER_METADATA
from kafkalog.errors import NotFoundError
from kafkalog.io.wording import counted
from kafkalog.node.choice import live_partitions
from kafkalog.node.cluster_image.model import RESOURCE_TYPES, TOPIC
from kafkalog.node.configs.sources import read_metadata_configs
from kafkalog.node.identity import image_of, newest_metadata
from kafkalog.node.state.groups import EndOffsets, read_groups
from kafkalog.node.targets import open_targets
from kafkalog.tables.datasets.model import StateTable, Tables
from kafkalog.tables.datasets.schemas import STATE_SCHEMAS
from kafkalog.tables.reading import ROWS_AT_ONCE
from kafkalog.tables.schemas import MILLISECONDS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kafkalog.files.log_dir import PartitionDir
    from kafkalog.node.state.model import Groups


def read_state(table: StateTable, tables: Tables) -> Iterator[Any]:
    """Yield the rows of a table of state as record batches, with all of its columns.

    Raises:
        NotFoundError: the internal topic that has them is not here.
        CorruptDataError, UnreadableError: it is damaged, unless a listener takes it.
    """
    rows = _ROWS[table](tables, open_targets(tables.paths))
    while some := list(islice(rows, ROWS_AT_ONCE)):
        yield pa.RecordBatch.from_pylist(some, STATE_SCHEMAS[table])


def _read_groups(tables: Tables, targets: Sequence[Any]) -> Groups:
    """Read the groups, and say what is missing."""
    found = read_groups(targets, defects=tables.reader.hear)
    if tables.listener is not None:
        tables.listener.hear(found)
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
            "group_epoch": one.group_epoch,
            "protocol": one.protocol,
            "coordinator": one.coordinator,
            "members": [asdict(member) for member in one.members],
            "undecoded_records": one.undecoded_records,
        }


def _commits(tables: Tables, targets: Sequence[Any]) -> Iterator[dict[str, Any]]:
    ends = EndOffsets(targets)
    for group in _read_groups(tables, targets).groups.values():
        for one in group.offsets:
            if not tables.means(one.topic, one.partition):
                continue
            found = ends.lag(one)
            yield {
                "group_id": one.group,
                "topic": one.topic,
                "partition": one.partition,
                "offset": one.offset,
                "log_end_offset": found.log_end_offset,
                "lag": found.lag,
                "leader_epoch": one.leader_epoch,
                "metadata": one.metadata,
                "commit_timestamp": _microseconds(one.commit_timestamp),
                "expire_timestamp": _microseconds(one.expire_timestamp),
                "coordinator": one.coordinator,
                "record_offset": one.record_offset,
                "producer_id": one.producer_id,
                "pending": one.is_pending,
                "exact": one.is_exact,
                "complete": one.is_complete,
            }
    for error in ends.errors:
        tables.reader.hear(error)


def _microseconds(time_ms: int | None) -> int | None:
    if time_ms is None or time_ms == -1 or abs(time_ms) > MILLISECONDS_MAX:
        return None
    return time_ms * 1000


def _topics(tables: Tables, targets: Sequence[Any]) -> Iterator[dict[str, Any]]:
    image = image_of(_metadata_log(targets))
    if image is None:
        raise _no_metadata(targets)
    for topic_id, name in sorted(image.names.items()):
        for partition, one in sorted(image.partitions[topic_id].items()):
            if not tables.means(name, partition):
                continue
            yield {
                "topic": name,
                "partition": partition,
                "topic_id": topic_id,
                "leader_epoch": one.leader_epoch,
                "replicas": one.replicas,
            }


def _configs(tables: Tables, targets: Sequence[Any]) -> Iterator[dict[str, Any]]:
    found = read_metadata_configs(_metadata_log(targets).log_dir)
    if found is None:
        raise _no_metadata(targets)
    for defect in found.defects:
        tables.reader.hear(defect)
    for (kind, name), settings in sorted(found.settings.items()):
        if kind == TOPIC and tables.topics is not None and name not in tables.topics:
            continue
        for config, setting in settings.items():
            yield {
                "resource_type": RESOURCE_TYPES.get(kind, str(kind)).lower(),
                "resource_name": name,
                "name": config,
                "value": setting.text,
                "source": setting.source,
            }


def _metadata_log(targets: Sequence[Any]) -> PartitionDir:
    found = newest_metadata(live_partitions(targets, CLUSTER_METADATA))
    if found is None:
        raise _no_metadata(targets)
    return found


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
