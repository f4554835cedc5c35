"""How the columns of logs are encoded in Parquet: one choice for all files that are written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

# Of 100-byte texts a third more than zstd, in two thirds of the time.
CODEC: Final = "snappy"
# Columns whose values hardly repeat: a dictionary would be built in vain.
_UNIQUE: Final = ("key", "value", "headers.list.element.value", "crc")
# Numbers that rise, or nearly so: their differences are small.
_RISING: Final = ("offset", "timestamp", "timestamp_ms")
# Statistics of keys and values would be large, and nobody skips row groups by them.
_STATISTICS: Final = (
    "path", "offset", "timestamp", "timestamp_ms", "base_offset", "last_offset", "position",
    "batch_position", "base_timestamp", "max_timestamp", "producer_id", "partition_leader_epoch",
    "leader_epoch", "first_offset", "segment",
)  # fmt: skip


def parquet_writer(
    file: BinaryIO, schema: Any, codec: str = CODEC, level: int | None = None
) -> Any:
    """A `pyarrow.parquet.ParquetWriter` for record batches of scans or tables.

    Args:
        file: where it writes.
        schema: of the record batches.
        codec: `none`, `snappy`, `zstd`, `lz4` or `gzip`.
        level: of the codec; None: its own.
    """
    import pyarrow.parquet as pq

    rising = [name for name in _RISING if name in schema.names]
    return pq.ParquetWriter(
        file,
        schema,
        compression=codec,
        compression_level=level,
        use_dictionary=[name for name in _leaves(schema) if name not in (*_UNIQUE, *rising)],
        column_encoding=dict.fromkeys(rising, "DELTA_BINARY_PACKED"),
        write_statistics=[name for name in _STATISTICS if name in schema.names],
    )


def _leaves(schema: Any) -> Iterator[str]:
    """Parquet's names of the columns."""
    for field in schema:
        yield from _leaves_of(field.name, field.type)


def _leaves_of(name: str, kind: Any) -> Iterator[str]:
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _leaves_of(f"{name}.{field.name}", field.type)
    elif pa.types.is_map(kind):
        yield from _leaves_of(f"{name}.key_value.key", kind.key_type)
        yield from _leaves_of(f"{name}.key_value.value", kind.item_type)
    elif pa.types.is_list(kind):
        yield from _leaves_of(f"{name}.list.element", kind.value_type)
    else:
        yield name
