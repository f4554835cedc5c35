"""What each object of the simulations means, field by field."""

from __future__ import annotations

from docgen.object_types import BOOL, INT, TEXT, ObjectType, maybe

_TOPIC = (TEXT, "topic, from the directory's name")
_PARTITION = (maybe(INT), "partition number; null where the directory's name has none")

SIMULATION_TYPES = {
    "retention_partition": ObjectType(
        "`simulate-retention`, `apply-retention`",
        "A partition, before the rows of its segments: what decides, and what it comes to.",
        {
            "path": (TEXT, "the directory"),
            "topic": _TOPIC,
            "partition": _PARTITION,
            "state": (TEXT, "`live`, `delete`, `future` or `stray`"),
            "configs": ("array", ("every config that decides: `name`, `value` (a list joined by "
                        "commas), `source` (`--config`, `FILE:LINE`, `__cluster_metadata-0 ...`, "
                        "`default`), `set_as` (its name there, null for a default)")),
            "marks": ("array", ("log start offset and high watermark: `name`, `value`, `source` "
                      "(a checkpoint, the log, or the option)")),
            "log_end_offset": (INT, "offset the next record would get"),
            "size": (INT, "bytes of batches in all segments"),
            "segments_deleted": (INT, "how many segments go now"),
            "bytes_freed": (INT, "bytes of their `.log` files"),
            "side_bytes_freed": (INT, "bytes of their indexes and producer snapshots"),
            "log_start_offset_after": (INT, "first readable offset when they are gone"),
            "rolled": (BOOL, "whether all go, so that a new active segment is needed"),
        },
    ),
    "retention": ObjectType(
        "`simulate-retention`, `apply-retention`",
        "A segment and what becomes of it.",
        {
            "topic": _TOPIC,
            "partition": _PARTITION,
            "segment": (TEXT, "its `.log`"),
            "base_offset": (INT, "offset in the file's name"),
            "end_offset": (INT, "base offset of the next segment, log end offset for the last"),
            "size": (INT, "bytes of its batches"),
            "is_active": (BOOL, "whether a broker would append to it"),
            "largest_timestamp": (INT, "milliseconds, as a broker takes it"),
            "timestamp_source": (TEXT, ("`time-index` (its last entry), `batches` (the segment is "
                                 "recovered at the next start), `mtime` (there is no timestamp)")),
            "verdict": (TEXT, "`delete` or `keep`, now"),
            "reason": (TEXT, ("`log-start-offset`, `retention.bytes`, `retention.ms`: the policy "
                       "that takes it. `blocked`: a policy would, something is in the way. "
                       "`within-retention`, `unlimited`, `compact-only`, `cleaner-disabled`, "
                       "`metadata-log`, `not-live`: why none does")),
            "deletable_at": (maybe(INT), ("first millisecond at which it may go, by time alone, "
                             "segments before it included; null where time alone never does it")),
            "blocked_by": (maybe(TEXT), ("`high-watermark`, `segment` (an earlier one), "
                           "`active-empty`, `remote-storage` (only what was uploaded goes)")),
            "blocking_segment": (maybe(INT), ("base offset of the earlier segment that time takes "
                                 "later than this one; null without one")),
            "bytes_to_append": (maybe(INT), ("after so many more bytes `retention.bytes` takes it; "
                                "null where it never does, and for the active segment")),
            "latest_record": ("object or null", ("record with the largest timestamp: `offset`, "
                              "`timestamp`, `position` of its batch; for a segment whose time "
                              "lies in the future, or that keeps others")),
            "detail": (TEXT, "all that in words; not for programs"),
        },
    ),
    "retention_summary": ObjectType(
        "`simulate-retention`, `apply-retention`",
        "The last object of a run: what is freed now, and by time alone later.",
        {
            "now": (INT, "the clock that was used, milliseconds"),
            "until": (INT, "end of the forecast, milliseconds"),
            "partitions": (INT, "partitions with a log"),
            "segments": (INT, "their segments"),
            "segments_deleted": (INT, "segments that go now"),
            "size": (INT, "bytes of batches in all segments"),
            "bytes_freed": (INT, "bytes of the `.log` files that go now"),
            "side_bytes_freed": (INT, "bytes of the indexes and snapshots that go with them"),
            "forecast": ("array", ("for each 24 hours from now in which something goes: `from` "
                         "(exclusive), `to` (inclusive), `segments`, `bytes`")),
        },
    ),
    "roll": ObjectType(
        "`simulate-roll`",
        "A segment that a broker would have made of the batches.",
        {
            "topic": _TOPIC,
            "partition": _PARTITION,
            "configs": (TEXT, "`present`, or `proposed` with what was given"),
            "base_offset": (INT, "offset in the file's name"),
            "last_offset": (maybe(INT), "last offset; null where it is empty"),
            "size": (INT, "bytes of its batches"),
            "batches": (INT, "how many it holds"),
            "first_timestamp": (maybe(INT), ("largest timestamp of its first batch, from which "
                                "`segment.ms` counts; -1: the broker's clock decides")),
            "largest_timestamp": (maybe(INT), "of all its batches, -1 without one"),
            "is_active": (BOOL, "whether a broker would append to it"),
            "rolled_by": (maybe(TEXT), ("why it ended: `segment.bytes`, `segment.ms`, "
                          "`segment.index.bytes` (an index is full), `offset-range` (2^31 offsets)"
                          "; null for the active segment")),
            "log_size": (INT, "length of its `.log`: preallocated where the configs say so"),
            "index_entries": (INT, "entries of its `.index`"),
            "index_size": (INT, "length of its `.index`: preallocated for the active segment"),
            "timeindex_entries": (INT, "entries of its `.timeindex`"),
            "timeindex_size": (INT, "length of its `.timeindex`, likewise"),
        },
    ),
    "roll_summary": ObjectType(
        "`simulate-roll`",
        "What a replay comes to, after the rows of its segments.",
        {
            "topic": _TOPIC,
            "partition": _PARTITION,
            "configs": (TEXT, "`present` or `proposed`"),
            "values": ("array", "the configs that decide, as in `retention_partition`"),
            "segments": (INT, "segments that result"),
            "segments_on_disk": (INT, "segments that are there"),
            "rolls": ("object", "each reason and how many segments it ended"),
            "size": (INT, "bytes of batches"),
            "index_size": (INT, "bytes of all `.index` files"),
            "timeindex_size": (INT, "bytes of all `.timeindex` files"),
            "files": (INT, "files: log and two indexes a segment, and a snapshot for each roll"),
            "refused": (INT, "batches larger than `segment.bytes`, which a broker refuses"),
            "untimed": (INT, ("batches behind one without timestamp: there the broker's clock "
                        "decides, and no roll by time is simulated")),
        },
    ),
}  # fmt: skip
