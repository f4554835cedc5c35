"""The columns of datasets: those of `kafkalog.tables`, and of the tables of state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from kafkalog.tables.datasets.model import StateTable
from kafkalog.tables.schemas import SCHEMAS, TIME, table_schema

if TYPE_CHECKING:
    from kafkalog.tables.model import TableName


def _field(name: str, kind: Any, *, nullable: bool = False) -> Any:
    return pa.field(name, kind, nullable=nullable)


_MEMBER: Final = pa.struct(
    [
        _field("member_id", pa.string()),
        _field("instance_id", pa.string(), nullable=True),
        _field("client_id", pa.string()),
        _field("host", pa.string()),
        _field("member_epoch", pa.int32(), nullable=True),
        _field("assigned", pa.list_(_field("element", pa.string()))),
    ]
)

STATE_SCHEMAS: Final = {
    StateTable.GROUPS: pa.schema(
        [
            _field("group_id", pa.string()),
            _field("group_type", pa.string()),
            _field("state", pa.string()),
            _field("group_epoch", pa.int32()),
            _field("protocol", pa.string(), nullable=True),
            _field("coordinator", pa.int32()),
            _field("members", pa.list_(_field("element", _MEMBER))),
            _field("undecoded_records", pa.int64()),
        ]
    ),
    StateTable.COMMITS: pa.schema(
        [
            _field("group_id", pa.string()),
            _field("topic", pa.string()),
            _field("partition", pa.int32()),
            _field("offset", pa.int64(), nullable=True),
            _field("log_end_offset", pa.int64(), nullable=True),
            _field("lag", pa.int64(), nullable=True),
            _field("leader_epoch", pa.int32()),
            _field("metadata", pa.string()),
            _field("commit_timestamp", TIME, nullable=True),
            _field("expire_timestamp", TIME, nullable=True),
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
            _field("resource_type", pa.string()),
            _field("resource_name", pa.string()),
            _field("name", pa.string()),
            _field("value", pa.string()),
            _field("source", pa.string()),
        ]
    ),
}
"""The columns of the tables of state. `resource_type` is `topic` or `broker`; the broker with the
empty name stands for all of them."""


def dataset_schema(table: TableName | StateTable, *, text: bool = False) -> Any:
    """Return the columns of a table; those that cost nothing come first.

    An engine that needs no column, for a `count(*)`, asks for the first one.
    """
    if isinstance(table, StateTable):
        return STATE_SCHEMAS[table]
    names = SCHEMAS[table].names
    first = ("partition", "topic")
    return table_schema(table, [*first, *(one for one in names if one not in first)], text=text)
