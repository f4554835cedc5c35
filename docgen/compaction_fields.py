"""What each object of `compact` means, field by field."""

from __future__ import annotations

from docgen.object_types import BOOL, INT, TEXT, ObjectType, maybe

COMPACTION_TYPES = {
    "compaction": ObjectType(
        "`compact`",
        "A partition, and what became of it or would become.",
        {
            "path": (TEXT, "the directory; with `--to` that of the copy while it was made"),
            "topic": (TEXT, "topic, from the directory's name"),
            "partition": (
                maybe(INT),
                "partition number; null where the directory's name has none",
            ),
            "is_done": (BOOL, "whether it was written; false for a plan and for what is skipped"),
            "first_dirty_offset": (maybe(INT), ("where the dirty part begins; null where nobody "
                                   "looked")),
            "first_uncleanable_offset": (maybe(INT), ("base offset of the first segment that stays "
                                         "as it is; null where nobody looked")),
            "next_dirty_offset": (maybe(INT), ("where the next cleaning begins, which the "
                                  "checkpoint notes; null where it is skipped")),
            "is_complete": (BOOL, ("whether nothing that can be cleaned is left; a plan tells one "
                            "pass, and a small map may need several")),
            "clean_bytes": (maybe(INT), "bytes of the logs in front of the dirty part"),
            "cleanable_bytes": (maybe(INT), ("bytes of the dirty logs that can be cleaned; the "
                                "dirty ratio is their part of both")),
            "passes": (INT, "how many passes there were"),
            "keys": (INT, "keys in the offset map, all passes together"),
            "records_read": (INT, "records, markers among them, of all passes together"),
            "records_kept": (INT, "how many of them were written again"),
            "dropped": ("object", ("how many were not: `superseded` (a later record has the key), "
                        "`tombstone` (its delete horizon is over), `aborted`, `no_key`, `marker`")),
            "bytes_before": (maybe(INT), "bytes of all logs of the partition"),
            "bytes_after": (maybe(INT), "the same afterwards"),
            "groups": ("array", ("the new segments, pass after pass: `base_offset`, `sources` "
                       "(base offsets of what they are made of), `bytes_before`, `bytes_after`")),
            "configs": ("array", "every config that decides: `name`, `value`, `source`, `set_as`"),
            "marks": ("array", ("log start offset, high watermark, last stable offset and cleaner "
                      "offset: `name`, `value`, `source`")),
            "left_overs": ("array", ("names of the `.deleted` files that a broker left, "
                           "which go, too, as when it starts")),
            "cleaner_gives_up": (maybe(TEXT), ("on what a broker's cleaner fails, so that it "
                                 "never cleans the partition; `compact` does not. Null where it "
                                 "does not fail, or nobody looked; of a damaged batch the error "
                                 "says it")),
            "skipped": (maybe(TEXT), "why it is left as it is; null where it is not"),
        },
    ),
    "compaction_summary": ObjectType(
        "`compact`",
        "The last object: what all partitions come to.",
        {
            "now": (INT, "the clock that was used, milliseconds"),
            "is_done": (BOOL, "whether anything was to be written"),
            "partitions": (INT, "partitions that were looked at"),
            "compacted": (INT, "how many of them are not skipped; the other numbers are theirs"),
            "records_read": (INT, "as in `compaction`"),
            "records_kept": (INT, "as in `compaction`"),
            "bytes_before": (INT, "as in `compaction`"),
            "bytes_after": (INT, "as in `compaction`"),
        },
    ),
}  # fmt: skip
