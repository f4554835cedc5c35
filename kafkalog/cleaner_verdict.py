"""Conditions on which a broker's log cleaner fails; it then marks the partition uncleanable.

Follows `MemoryRecordsBuilder`, `ByteBufferLogInputStream` and `DefaultRecordBatch` of Kafka 4.3. A
batch of magic 2 that keeps all its records is copied regardless of their content; a batch that is
rewritten must pass the checks of a leader's append. A full offset map is not a failure: the cleaner
makes another pass.
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
"""References of the damage on which the cleaner throws. A wrong checksum is not among them: the
cleaner does not verify checksums, and rewrites the batch with a right one.
"""

EMPTY_BATCH: Final = "Empty batches are only supported for magic v2 and above"
"""The cleaner's message if the last batch to clean has an old format and loses all records."""


def why_not_rewritten(batch: Batch, records: Iterable[tuple[int, int]]) -> str | None:
    """Return why Kafka cannot rewrite a batch with these of its records, or None if it can.

    Args:
        batch: the batch before cleaning.
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
