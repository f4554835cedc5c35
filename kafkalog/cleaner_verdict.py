"""What a broker's cleaner fails on: it then gives the partition up, and never cleans it again.

Follows `MemoryRecordsBuilder`, `ByteBufferLogInputStream` and `DefaultRecordBatch` of Kafka 4.3. A
batch of magic 2 that keeps all its records is copied, and what is in them does not matter; one that
is written again has to be as a leader would take it. An offset map that is full stops no cleaner:
it takes one more pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from formats import constants as c

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalog.model import Batch

ENDS_READING: Final = frozenset(
    {
        "batch-length-invalid",
        "decompression-failed",
        "magic-unknown",
        "record-malformed",
        "records-count-invalid",
        "records-left-over",
        "torn-tail",
        "unknown-codec",
        "zero-tail",
    }
)
"""References of damage on which it ends with an exception. A wrong checksum is none: it looks at no
checksum, and writes the batch again under a right one."""

EMPTY_BATCH: Final = "Empty batches are only supported for magic v2 and above"
"""What it says where the last batch that it cleans is of an old format and loses all records."""


def why_not_rewritten(batch: Batch, records: Iterable[tuple[int, int]]) -> str | None:
    """Return why Kafka does not write a batch again with some of its records; None where it does.

    Args:
        batch: what it was.
        records: offset and timestamp of each record that is kept.
    """
    for offset, timestamp in records:
        if timestamp < c.NO_TIMESTAMP:
            return f"Invalid negative timestamp {timestamp} (offset {offset})"
    if batch.magic < 2 or batch.producer_id == -1:
        return None
    if batch.producer_epoch == -1:
        return f"Invalid negative producer epoch (batch at offset {batch.base_offset})"
    if batch.base_sequence < 0 and not batch.is_control:
        return f"Invalid negative sequence number used (batch at offset {batch.base_offset})"
    return None
