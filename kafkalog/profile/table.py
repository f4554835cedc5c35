"""Profiles as an Arrow table: a row each."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from kafkalog.profile.model import Profile

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import BinaryIO

_NESTED: Final = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "codecs": pa.list_(
        pa.struct(
            [
                ("codec", pa.string()),
                ("batches", pa.int64()),
                ("size_bytes", pa.int64()),
                ("data_bytes", pa.int64()),
            ]
        )
    ),
    "hot_keys": pa.list_(
        pa.struct([("key", pa.binary()), ("at_least", pa.int64()), ("at_most", pa.int64())])
    ),
    "histogram": pa.list_(
        pa.struct([("start", pa.int64()), ("records", pa.int64()), ("data_bytes", pa.int64())])
    ),
}


def profile_table(profiles: Iterable[Profile]) -> Any:
    """A `pyarrow.Table` with the attributes of `Profile` as columns; numbers are int64."""
    columns = [(one.name, _NESTED.get(one.name, pa.int64())) for one in fields(Profile)]
    return pa.Table.from_pylist([asdict(one) for one in profiles], pa.schema(columns))


def write_parquet(profiles: Iterable[Profile], file: BinaryIO) -> None:
    """Write `profile_table` as Parquet."""
    pq.write_table(profile_table(profiles), file)
