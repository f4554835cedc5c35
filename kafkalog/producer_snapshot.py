"""Producer snapshots: the state of each producer up to an offset.

Follows `ProducerStateManager.readSnapshot` of Kafka 4.3.
"""

from __future__ import annotations

from kafkalog.checksums import crc32c
from kafkalog.errors import CorruptDataError
from kafkalog.model import ProducerState
from kafkalog.parsing import parse
from kafkalog.paths.source import Source, read_file

_VERSION = 1
_VERSION_SIZE = 2
_CRC_START = 6
_SIZE_MAX = 1 << 28  # more than five million producers


def read_producer_snapshot(path: str) -> list[ProducerState]:
    """Return the producers of a `.snapshot` file in file order.

    Raises:
        CorruptDataError: version, checksum or layout is wrong; a broker discards such a file.
        NotFoundError, UnreadableError: the file cannot be read.
    """
    from formats.producer_snapshot import ProducerSnapshot

    data = _data(path)
    snapshot = parse(ProducerSnapshot, data, path, reference="producer-snapshot-corrupt")
    computed = crc32c(memoryview(data)[_CRC_START:])
    if computed != snapshot.crc:
        raise _corrupt(
            path,
            f"Snapshot is corrupt (CRC is no longer valid). Stored crc: {snapshot.crc}. "
            f"Computed crc: {computed}",
        )
    return [
        ProducerState(
            producer_id=entry.producer_id,
            producer_epoch=entry.producer_epoch,
            coordinator_epoch=entry.coordinator_epoch,
            last_sequence=entry.last_sequence,
            last_offset=entry.last_offset,
            offset_delta=entry.offset_delta,
            last_timestamp=entry.timestamp,
            current_txn_first_offset=(
                entry.current_txn_first_offset if entry.current_txn_first_offset >= 0 else None
            ),
        )
        for entry in snapshot.entries
    ]


def _data(path: str) -> bytes:
    """Return the bytes of a snapshot; stop after the version if it is unknown."""
    with Source(path) as source:
        start = source.read(0, _VERSION_SIZE) if source.size_bytes <= _SIZE_MAX else b""
        version = int.from_bytes(start, "big", signed=True)
        if len(start) == _VERSION_SIZE and version != _VERSION:
            raise _corrupt(path, f"Snapshot contained an unknown file version {version}")
    return read_file(path, size_max=_SIZE_MAX)


def _corrupt(path: str, message: str) -> CorruptDataError:
    return CorruptDataError(
        message,
        reference="producer-snapshot-corrupt",
        path=path,
        hint="When it starts, a broker discards the file and uses an older one.",
    )
