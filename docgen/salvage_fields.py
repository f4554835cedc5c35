"""What each object in the manifest of a salvage means, field by field."""

from __future__ import annotations

from docgen.object_types import BOOL, INT, TEXT, ObjectType, maybe

_LOG = (TEXT, "the log of the source")
_TARGET = "relative to the new directory"
_TOPIC = (TEXT, "topic, from the directory's name")
_LAST_LOST = (
    "last offset that may be lost, before the batch or the segment behind the range; null without "
    "one, and at the end of a log where no checkpoint says where it ended"
)
_PARTITION = (maybe(INT), "partition number; null where the directory's name has none")

SALVAGE_TYPES = {
    "copied_range": ObjectType(
        "`salvage`",
        "Neighbouring batches that were copied byte for byte.",
        {
            "path": _LOG,
            "position": (INT, "byte position in it"),
            "size": (INT, "bytes"),
            "to_position": (INT, "byte position in the new log"),
            "base_offset": (INT, "offset of the first batch"),
            "last_offset": (INT, "last offset of the last batch"),
            "batches": (INT, "batches"),
            "records": (INT, "records, each of which was decoded"),
        },
    ),
    "lost_range": ObjectType(
        "`salvage`",
        "Bytes between two copied batches, or between one and an end of the log. The copied and "
        "the lost ranges of a log cover it without a gap.",
        {
            "path": _LOG,
            "position": (INT, "byte position in it"),
            "size": (INT, "bytes"),
            "file": (maybe(TEXT), f"where the bytes are now, {_TARGET}; null where all are zero"),
            "reason": (TEXT, "kind of the first defect there, as in [defects.md](defects.md)"),
            "detail": (TEXT, "that defect in words; not for programs"),
            "defects": (INT, "batches and stretches without one that are left out"),
            "first_offset": (
                maybe(INT),
                "first offset that may be lost, behind the batch before; null without one",
            ),
            "last_offset": (
                maybe(INT),
                _LAST_LOST,
            ),
        },
    ),
    "salvage": ObjectType(
        "`salvage`",
        "A log, after its ranges: `size_copied` and `size_lost` together are `size`.",
        {
            "path": _LOG,
            "to": (maybe(TEXT), f"the new log, {_TARGET}; null where nothing is left of it"),
            "topic": _TOPIC,
            "partition": _PARTITION,
            "base_offset": (INT, "offset in the file's name"),
            "size": (INT, "bytes of the log of the source"),
            "size_copied": (INT, "bytes of the new log"),
            "size_lost": (INT, "bytes that are not in it"),
            "batches": (INT, "batches that were copied"),
            "records": (INT, "records that were copied"),
            "crc32c": (maybe(INT), "CRC-32C of the source's log; null unless all bytes were read"),
            "crc32c_copied": (maybe(INT), "CRC-32C of the new log; null in a dry run"),
        },
    ),
    "salvaged_file": ObjectType(
        "`salvage`",
        "A file or directory that is no salvaged log. Indexes and producer snapshots of the source "
        "are not listed: they are made anew.",
        {
            "path": (maybe(TEXT), "the file of the source; null for one that is made anew"),
            "to": (maybe(TEXT), f"the new file, {_TARGET}; null where it was skipped"),
            "fate": (TEXT, "`copied`, `rebuilt`, `lost` (it is in `lost+found`) or `skipped`"),
            "detail": (TEXT, "why, in words; not for programs"),
            "records": (INT, "records in a log that was skipped, by the headers of its batches"),
        },
    ),
    "salvaged_partition": ObjectType(
        "`salvage`",
        "A partition, after its logs and files.",
        {
            "path": (TEXT, "the directory of the source"),
            "to": (TEXT, f"the new directory, {_TARGET}"),
            "topic": _TOPIC,
            "partition": _PARTITION,
            "log_start_offset": (INT, "first offset of the new log"),
            "log_end_offset": (INT, "offset the next record would get"),
            "first_unstable_offset": (
                maybe(INT),
                "first offset of a transaction without an end; null without one, and in a dry run",
            ),
        },
    ),
    "failed_partition": ObjectType(
        "`salvage`",
        "A partition of which nothing was copied, since the work on it failed.",
        {
            "path": (TEXT, "the directory of the source"),
            "reference": (TEXT, "kind of the error, as on stderr"),
            "detail": (TEXT, "what happened, in words; not for programs"),
        },
    ),
    "salvage_summary": ObjectType(
        "`salvage`",
        "The last object: totals.",
        {
            "destination": (TEXT, "the new directory, as it was given"),
            "dry_run": (BOOL, "whether nothing was written"),
            "partitions": (INT, "partitions"),
            "segments": (INT, "logs"),
            "size": (INT, "bytes of the logs of the source"),
            "size_copied": (INT, "bytes that were copied"),
            "size_lost": (INT, "bytes that were not"),
            "batches": (INT, "batches that were copied"),
            "records": (INT, "records that were copied"),
            "lost_ranges": (INT, "lost ranges, without the zeros of preallocated logs"),
            "offsets_lost": (INT, "offsets of the lost ranges whose ends are known"),
            "records_skipped": (INT, "records in logs that were skipped"),
            "files": ("object", "each fate and the number of its files"),
            "findings": (INT, "what `verify` finds in the result above a note"),
            "partitions_failed": (INT, "partitions that were not copied, since the work failed"),
            "left_over_removed": (BOOL, "whether the leftover of a killed run was removed"),
        },
    ),
}
