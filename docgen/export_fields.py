"""What each object in the report of an export means, field by field."""

from __future__ import annotations

from docgen.object_types import BOOL, INT, TEXT, ObjectType, maybe

EXPORT_TYPES = {
    "export_part": ObjectType(
        "`export`",
        "A file, or a part of the plan without rows. The manifest has the same, and the defects.",
        {
            "file": (maybe(TEXT), "relative to the destination; null where there are no rows"),
            "topic": (TEXT, "topic of its rows"),
            "partition": (INT, "partition of its rows; −1 where the directory's name has none"),
            "log_dir": (TEXT, "the directory around the partition directory they are from"),
            "rows": (INT, "rows"),
            "size": (INT, "bytes of the file"),
            "crc32c": (maybe(INT), "CRC-32C of the file"),
            "first_offset": (maybe(INT), "smallest offset of its rows (records, batches)"),
            "last_offset": (maybe(INT), "largest offset of its rows (records, batches)"),
            "undecoded_keys": (INT, "keys that are not what `--key` says: null in `key_decoded`"),
            "undecoded_values": (INT, "the same of `--value` and `value_decoded`"),
            "defects": (
                INT,
                "damage that was passed over, and deletions; objects of type `defect` follow",
            ),
        },
    ),
    "export_summary": ObjectType(
        "`export`",
        "The last object: totals.",
        {
            "destination": (TEXT, "where the files are, without credentials"),
            "files": (INT, "files"),
            "written": (INT, "parts that this run has written"),
            "rows": (INT, "rows of all files"),
            "size": (INT, "bytes of all files"),
            "undecoded_keys": (INT, "keys that are not what `--key` says"),
            "undecoded_values": (INT, "values that are not what `--value` says"),
            "defects": (INT, "damage that was passed over, and deletions"),
            "without_watermark": (
                "array",
                "partitions of which no high watermark is known: their records end with the log",
            ),
            "above_watermark": (
                "object",
                "partitions with records above the high watermark, which are left out: the offset",
            ),
            "above_last_stable": (
                "object",
                "partitions with records of open transactions or above them, left out: the offset",
            ),
            "below_log_start": (
                "object",
                "partitions with records below the log start offset, left out: the offset",
            ),
            "was_complete": (BOOL, "whether an earlier run had done everything"),
            "left_overs_removed": (INT, "files that killed runs had left and that were removed"),
        },
    ),
}
