"""The contents of log directories as tables: planned as splits, read as Arrow record batches.

One planner and one reader for every engine: a local pool and Spark run the same splits. Names are
loaded on first use: code that only needs the tables' names loads no pyarrow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalog.tables.model import Bounds as Bounds
    from kafkalog.tables.model import Contents as Contents
    from kafkalog.tables.model import Request as Request
    from kafkalog.tables.model import Split as Split
    from kafkalog.tables.model import TableName as TableName
    from kafkalog.tables.planning import plan_splits as plan_splits
    from kafkalog.tables.reading import announced as announced
    from kafkalog.tables.reading import read_split as read_split

_HOMES = {
    "Bounds": "model",
    "Contents": "model",
    "Request": "model",
    "Split": "model",
    "TableName": "model",
    "announced": "reading",
    "plan_splits": "planning",
    "read_split": "reading",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605 # computed from the table above


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'kafkalog.tables' has no attribute {name!r}")
    return getattr(import_module(f"kafkalog.tables.{_HOMES[name]}"), name)
