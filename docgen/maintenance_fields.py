"""What each object of the commands that change or judge a log means, field by field."""

from __future__ import annotations

from docgen.object_types import BOOL, BYTES, INT, TEXT, ObjectType, maybe

_PATH = (TEXT, "the directory")
_TOPIC = (TEXT, "topic, from the directory's name")
_PARTITION = (maybe(INT), "partition number; null where the directory's name has none")

MAINTENANCE_TYPES = {
    "retention_applied": ObjectType(
        "`apply-retention`",
        "What goes from a partition, or went, after the rows of all segments. The active segment "
        "stays, whatever `retention` rows say of it.",
        {
            "path": _PATH,
            "topic": _TOPIC,
            "partition": _PARTITION,
            "performed": (BOOL, "whether it was done; false in a plan"),
            "segments_deleted": (INT, "how many segments are deleted"),
            "bytes_freed": (INT, "bytes of their `.log` files"),
            "side_bytes_freed": (INT, "bytes of their indexes and producer snapshots"),
            "files": ("array", "names of all these files, in the order they go"),
            "keep_deleted": (BOOL, "whether they stay under `.deleted` names"),
            "left_overs": ("array", ("names of the files that interrupted deletions left, "
                           "which go too")),
            "active_stays": (BOOL, "whether a broker would roll the log and take all of it"),
            "log_start_offset": (INT, "first readable offset then"),
            "log_start_checkpoint": (maybe(INT), ("what `log-start-offset-checkpoint` says then; "
                                     "null: no entry, the log starts with a segment")),
            "log_end_offset": (INT, "offset the next record gets, before and after"),
            "leader_epochs": ("array", "`leader-epoch-checkpoint` then: epoch, first offset"),
        },
    ),
    "undo": ObjectType(
        "`undo`",
        "A partition that is brought back to what it was before the run, or would be.",
        {
            "path": _PATH,
            "topic": _TOPIC,
            "partition": _PARTITION,
            "state": (TEXT, ("how far the run came with it: `done`, `in-progress`, `aborted`, or "
                      "`undoing` where an earlier `undo` was interrupted")),
            "performed": (BOOL, "whether it was done; false in a plan"),
            "files_restored": (INT, "how many files come back, or get back their old bytes"),
            "bytes_restored": (INT, "their bytes"),
            "files_removed": (INT, "how many files go that the run made"),
            "bytes_removed": (INT, "their bytes"),
            "offsets": ("array", ("entries in checkpoints that change: `checkpoint`, `offset` now, "
                        "`restored_to`; null: no entry")),
        },
    ),
    "audit_finding": ObjectType(
        "`audit-compaction`",
        "A counterexample: in what the log is not correctly compacted.",
        {
            "reason": (TEXT, ("`stale-key`, `no-key`, `live-key-lost`, "
                       "`tombstone-dropped-too-early`, `marker-dropped-too-early`, `record-lost`, "
                       "`record-changed`, `record-added`, `batch-changed`, "
                       "`delete-horizon-changed`, `producer-state-lost`, `log-start-changed`, "
                       "`log-end-changed`, `leader-epochs-changed`, "
                       "`last-stable-offset-changed`")),
            "path": (TEXT, ("the `.log`, of the original where a record is gone; the directory for "
                     "the log as a whole")),
            "position": (maybe(INT), "byte position of the batch; null for the log as a whole"),
            "offset": (maybe(INT), ("of the record, or the base offset of the batch; null for the "
                       "log as a whole")),
            "key": (BYTES, "of the record; null without one"),
            "other_offset": (maybe(INT), "of the later record with that key; null without one"),
            "detail": (TEXT, "why, in words; not for programs"),
        },
    ),
    "audit": ObjectType(
        "`audit-compaction`",
        "The last object of a run: what was judged.",
        {
            "path": _PATH,
            "topic": _TOPIC,
            "partition": _PARTITION,
            "original": (maybe(TEXT), "the directory it was judged by; null without one"),
            "first_dirty_offset": (INT, "where the cleanings began"),
            "cleaner_offset": (INT, "up to where the log was compacted"),
            "cleaner_offset_source": (TEXT, "where that comes from"),
            "now": (INT, "the clock that was used, milliseconds"),
            "keys": (INT, "distinct keys that were read below the cleaner offset"),
            "findings": (INT, "counterexamples, as many as were asked for"),
            "proved": (BOOL, "whether there is none"),
        },
    ),
}  # fmt: skip
