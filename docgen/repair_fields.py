"""What each object of the repairs means, field by field."""

from __future__ import annotations

from docgen.object_types import BOOL, INT, TEXT, ObjectType, maybe

_TOPIC = (TEXT, "topic, from the directory's name")
_PARTITION = (maybe(INT), "partition number; null where the directory's name has none")
_VERDICT = (
    "`nothing` (or what each start writes), `tidy` (leftovers), `rebuild` (indexes), `truncate` "
    "(the end is cut off), `stray` (the broker is not to have it), `refuse` (a broker cannot load "
    "the log)"
)

REPAIR_TYPES = {
    "recovery": ObjectType(
        "`recover`",
        "A partition, and what a start does with it.",
        {
            "path": (TEXT, "the directory"),
            "topic": _TOPIC,
            "partition": _PARTITION,
            "mode": (TEXT, "`unclean` (from the recovery point), `full` (everything) or `clean`"),
            "recovery_point": (INT, "offset from which on segments are scanned"),
            "log_start_checkpoint": (INT, "log start offset of the checkpoint, 0 without an entry"),
            "high_watermark": (maybe(INT), "that of the checkpoint; null without an entry"),
            "configs": (
                "array",
                "the configs that decide: `name`, `value`, `source`, `set_as`",
            ),
            "verdict": (TEXT, _VERDICT),
            "detail": (TEXT, "that in words; not for programs"),
            "log_end_offset": (maybe(INT), "offset the next record gets then; null if refused"),
            "lost_from": (maybe(INT), "first offset that may go; null where no log gets shorter"),
            "committed_lost": (
                "array or null",
                "first and last offset below the high watermark that may go; null without any",
            ),
            "records_lost": (INT, "records that go, by the headers of their batches"),
            "bytes_lost": (INT, "bytes of logs that go"),
            "rebuilt_segments": (
                "array",
                "base offsets of the segments with an index that changes",
            ),
            "bytes_to_scan": (INT, "bytes of the segments that are scanned"),
            "files": (
                "array",
                (
                    "files that change: `name`, `fate` (`removed`, `cut`, `renamed`, `written`), "
                    "`size_bytes` then; of those that go, in part or whole, `bytes_gone`, "
                    "`records_gone` and `why`"
                ),
            ),
            "drops_mark": (BOOL, "whether the mark of a clean shutdown has to go"),
            "untouched": (maybe(TEXT), "why it is left to the broker; null if it is not"),
            "refused": (maybe(TEXT), "why it must not be recovered; null if it may be"),
            "assumptions": ("array", "what could not be read and was assumed, in words"),
            "notes": ("array", "what a broker does not notice, in words"),
            "performed": (BOOL, "whether it was done"),
            "verdict_after": (maybe(TEXT), "that of the next start then; null if not done"),
        },
    ),
    "recovery_summary": ObjectType(
        "`recover`",
        "The last object: totals.",
        {
            "in_place": (BOOL, "whether it was to be done"),
            "partitions": (INT, "partitions"),
            "partitions_changed": (INT, "those with a file that changes"),
            "partitions_performed": (INT, "those of them that were recovered"),
            "partitions_untouched": (INT, "those that are left to the broker"),
            "partitions_unloadable": (INT, "those on which a start would fail, as they are"),
            "partitions_stray": (INT, "those that a start takes away from the broker"),
            "partitions_refused": (INT, "those that must not be recovered: then none is"),
            "files_removed": (INT, "files that go"),
            "records_removed": (INT, "records in these files, by the headers of their batches"),
            "records_lost": (INT, "records that go"),
            "bytes_lost": (INT, "bytes of logs that go"),
            "bytes_to_scan": (INT, "bytes that a broker scans at such a start"),
            "scan_rate": (INT, "bytes a second that a broker is assumed to scan (--scan-rate)"),
            "scan_ms": (INT, "milliseconds that it takes then"),
        },
    ),
    "index_comparison": ObjectType(
        "`rebuild-index`",
        "An index beside the one that the log gives.",
        {
            "path": (TEXT, "the file"),
            "base_offset": (INT, "offset in its name"),
            "result": (TEXT, "`same`, `padded` (with zeros), `different` or `missing`"),
            "size": (maybe(INT), "bytes of the file as it was; null where it is missing"),
            "new_size": (INT, "bytes of the new one"),
        },
    ),
    "index_summary": ObjectType(
        "`rebuild-index`",
        "The last object: totals.",
        {
            "indexes": (INT, "indexes"),
            "to_write": (INT, "those that are not `same`"),
            "written": (INT, "those that were written"),
        },
    ),
}
