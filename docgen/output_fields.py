"""What each object of NDJSON and JSON output means, field by field; the rows themselves are real.

`docgen.output` compares this table with what the commands print: a field that is missing here,
or here alone, stops it.
"""

from __future__ import annotations

from docgen.compaction_fields import COMPACTION_TYPES
from docgen.export_fields import EXPORT_TYPES
from docgen.maintenance_fields import MAINTENANCE_TYPES
from docgen.object_types import BOOL, BYTES, INT, TEXT, ObjectType, documented, maybe
from docgen.repair_fields import REPAIR_TYPES
from docgen.salvage_fields import SALVAGE_TYPES
from docgen.simulation_fields import SIMULATION_TYPES
from kafkalog_cli.output import listing
from kafkalog_cli.output.objects import DEFECT

_PATH = (TEXT, "the file, as it was given or found")
_TOPIC = (TEXT, "topic, from the directory's name")
_PARTITION = (maybe(INT), "partition number; null where the directory's name has none")
_SIZE = (INT, "bytes")
_STATE = (
    TEXT,
    (
        "with `--view all` only: where the log lives: `live`, `swap`, `cleaned`, `deleted`, "
        "or `delete`, `future` or `stray` by its directory"
    ),
)
_MTIME = (INT, "when the file was last modified, milliseconds")
_PRODUCER = {
    "producer_id": (INT, "producer id, −1 without one"),
    "producer_epoch": (INT, "producer epoch, −1 without one"),
}
_BATCH_FLAGS = {
    "is_transactional": (BOOL, "part of a transaction"),
    "is_control": (BOOL, "control records (markers, KRaft), not data"),
}
_EPOCH = (INT, "leader epoch of the append, −1 without one")
_TIMESTAMP_TYPE = (TEXT, "`CreateTime`, `LogAppendTime` or `NoTimestampType` (magic 0)")
_CODEC = (TEXT, "`none`, `gzip`, `snappy`, `lz4`, `zstd`, or `unknown(N)`")

OBJECT_TYPES = {
    **documented(listing.LOG_DIR, listing.PARTITION, listing.SEGMENT, listing.FILE),
    "batch": ObjectType(
        "`dump-segment --batches`",
        "A record batch; for magic 0 and 1 a top-level message.",
        {
            "state": _STATE,
            "path": _PATH,
            "position": (INT, "byte position of the batch in the file"),
            "size": (INT, "bytes of the batch, header included"),
            "base_offset": (INT, "offset of the first record, kept when compaction removes it"),
            "last_offset": (INT, "offset of the last record, kept when compaction removes it"),
            "count": (INT, "records the batch holds"),
            "magic": (INT, "version of the format: 0, 1, 2"),
            "compression": _CODEC,
            "timestamp_type": _TIMESTAMP_TYPE,
            "base_timestamp": (INT, "milliseconds that the records' deltas refer to"),
            "max_timestamp": (INT, "largest timestamp, milliseconds"),
            "delete_horizon_ms": (maybe(INT), "when compaction may drop tombstones and markers"),
            **_PRODUCER,
            "base_sequence": (INT, "sequence of the first record, −1 without one"),
            "last_sequence": (INT, "sequence of the last record, −1 without one"),
            "partition_leader_epoch": _EPOCH,
            **_BATCH_FLAGS,
            "crc": (INT, "stored checksum, unsigned"),
            "crc_valid": (maybe(BOOL), "whether the bytes match it"),
        },
        frozenset({"state"}),
    ),
    "record": ObjectType(
        "`dump-segment`, `dump-segment --records`, `lookup-offset --show`",
        "A record with what its batch says about it.",
        {
            "state": _STATE,
            "path": _PATH,
            "offset": (INT, "offset"),
            "timestamp": (INT, "milliseconds, −1 without one"),
            "timestamp_type": _TIMESTAMP_TYPE,
            "key": (BYTES, "key, in the form `--bytes` asks for; null is not empty"),
            "value": (BYTES, "value; null is a tombstone"),
            "key_size": (maybe(INT), "bytes of the key; null where it is null"),
            "value_size": (maybe(INT), "bytes of the value; null where it is null"),
            "headers": ("array", "objects with `key` (string) and `value` (as above), in order"),
            "sequence": (INT, "sequence of the record, −1 without one"),
            **_PRODUCER,
            "partition_leader_epoch": _EPOCH,
            **_BATCH_FLAGS,
            "control_type": (maybe(TEXT), ("`ABORT`, `COMMIT`, `LEADER_CHANGE` …; `UNKNOWN(N)`, "
                             "`MALFORMED`; null for data")),
            "compression": _CODEC,
            "magic": (INT, "version of the format: 0, 1, 2"),
            "batch_base_offset": (INT, "base offset of its batch"),
            "batch_position": (INT, "byte position of its batch in the file"),
            "decoded": ("object", ("records of internal topics only, with `--decode auto`: `key` "
                        "and `value` as objects or null, `error` why one could not be read or "
                        "null")),
        },
        frozenset({"decoded", "state"}),
    ),
    "offset_index_entry": ObjectType(
        "`dump-segment FILE.index`",
        "An entry of an offset index.",
        {
            "path": _PATH,
            "entry": (INT, "ordinal, from 0"),
            "offset": (INT, "last offset of the batch, absolute"),
            "position": (INT, "byte position of the batch in the `.log`"),
        },
    ),
    "time_index_entry": ObjectType(
        "`dump-segment FILE.timeindex`",
        "An entry of a time index.",
        {
            "path": _PATH,
            "entry": (INT, "ordinal, from 0"),
            "timestamp": (INT, "largest timestamp so far, milliseconds"),
            "offset": (INT, "offset of the record or batch it belongs to, absolute"),
        },
    ),
    "aborted_transaction": ObjectType(
        "`dump-segment FILE.txnindex`",
        "An entry of a transaction index.",
        {
            "path": _PATH,
            "version": (INT, "version of the entry, 0"),
            "producer_id": (INT, "producer of the transaction"),
            "first_offset": (INT, "first offset of the transaction"),
            "last_offset": (INT, "offset of its marker"),
            "last_stable_offset": (INT, "last stable offset after the marker"),
        },
    ),
    "producer_state": ObjectType(
        "`dump-segment FILE.snapshot`",
        "A producer in a producer snapshot.",
        {
            "path": _PATH,
            "producer_id": (INT, "producer id"),
            "producer_epoch": (INT, "producer epoch"),
            "coordinator_epoch": (INT, "epoch of the last marker's coordinator, −1 without one"),
            "first_sequence": (maybe(INT), "first sequence of the last batch"),
            "last_sequence": (maybe(INT), "last sequence of the last batch"),
            "last_offset": (maybe(INT), "last offset of the last batch"),
            "offset_delta": (INT, "offsets between the last batch's first and last record"),
            "last_timestamp": (INT, "timestamp of the last batch or marker, milliseconds"),
            "current_txn_first_offset": (maybe(INT), ("where the open transaction begins; null "
                                         "without one")),
        },
    ),
    "checkpoint_entry": ObjectType(
        "`dump-segment` of an offset checkpoint",
        "A line of `replication-offset-checkpoint` and the like.",
        {
            "path": _PATH,
            "topic": (TEXT, "topic"),
            "partition": (INT, "partition number"),
            "offset": (INT, "the offset; the file's name says which"),
        },
    ),
    "leader_epoch": ObjectType(
        "`dump-segment leader-epoch-checkpoint`",
        "A line of `leader-epoch-checkpoint`.",
        {
            "path": _PATH,
            "epoch": (INT, "leader epoch"),
            "start_offset": (INT, "its first offset"),
        },
    ),
    "property": ObjectType(
        "`dump-segment` of `meta.properties`, `partition.metadata`, `quorum-state` and other small "
        "files",
        "A name and its value in a small file.",
        {
            "path": _PATH,
            "file": (TEXT, "kind of the file"),
            "name": (TEXT, "name"),
            "value": ("any", "value, as the file has it"),
        },
    ),
    "lookup": ObjectType(
        "`lookup-offset`",
        "The answer to one query. What was not found is null.",
        {
            "query": ("object", ("`{\"offset\": N}`, `{\"timestamp\": MS}` or "
                      "`{\"special\": NAME}`")),
            "found": (BOOL, "whether there is an answer"),
            "segment": (maybe(TEXT), "the `.log` that holds it"),
            "position": (maybe(INT), "byte position of the batch"),
            "size": (maybe(INT), "bytes of the batch"),
            "batch_base_offset": (maybe(INT), "base offset of the batch"),
            "batch_last_offset": (maybe(INT), "last offset of the batch"),
            "offset": (maybe(INT), "offset of the first record that answers"),
            "timestamp": (maybe(INT), "its timestamp; −1 for `earliest` and `latest`"),
            "leader_epoch": (maybe(INT), ("leader epoch of the batch, or of the log for `earliest` "
                             "and `latest`")),
            "bytes_read": (INT, "bytes of headers, batches and index entries that were needed"),
            "reason": (maybe(TEXT), "why nothing was found, in words"),
        },
    ),
    "step": ObjectType(
        "`lookup-offset --explain`",
        "A step of the lookup before it.",
        {
            "step": (INT, "ordinal, from 0"),
            "action": (TEXT, "`segment`, `time-index`, `offset-index`, `scan` …"),
            "path": (maybe(TEXT), "the file that was looked at"),
            "detail": (TEXT, "what it said, in words"),
            "probes": ("array", ("the steps of a binary search: bounds `low` (inclusive), `high` "
                       "(exclusive) and the fields of the entry between them")),
        },
    ),
    **documented(DEFECT),
    "next_start": ObjectType(
        "`verify`",
        "What the next start of a broker would do with a partition, or why it would stop at a log "
        "directory. A start that would do nothing, and leaves nothing to say, has no row.",
        {
            "path": (TEXT, "the partition directory or the log directory"),
            "topic": (maybe(TEXT), "topic; null for a log directory"),
            "partition": (maybe(INT), "partition number; null for a log directory, or without one"),
            "mode": (TEXT, ("`clean` after a clean shutdown, `unclean` without its mark: what is "
                     "behind the recovery point is scanned; `full`: everything is")),
            "verdict": (TEXT, ("the gravest of what it does: `nothing`, `tidy` up files without "
                        "records, `rebuild` indexes, `truncate` the log, make a `stray` of "
                        "the directory, `refuse` to load it")),
            "truncate_to": (maybe(INT), "the log end offset after the log is cut; null otherwise"),
            "records_lost": (INT, "records that are dropped, by their batches' headers"),
            "bytes_lost": (INT, "bytes of logs that are dropped"),
            "rebuilt_segments": ("array", "base offsets of segments whose indexes change"),
            "error": (maybe(TEXT), "the exception with which Kafka refuses; null otherwise"),
            "consequence": (maybe(TEXT), "how far a refusal reaches; null without one"),
            "detail": (TEXT, "all that in one line"),
            "assumptions": ("array", "what could not be read and was assumed"),
            "notes": ("array", "what the start would not notice, and someone should know"),
        },
    ),
    "summary": ObjectType(
        "`verify`",
        "The last object of a run: what was checked, and how much was found.",
        {
            "files": (INT, "files"),
            "batches": (INT, "batches"),
            "records": (INT, "records, by the counts in the batches' headers"),
            "bytes_expected": (INT, "bytes that should be checked"),
            "bytes_checked": (INT, "bytes that were"),
            "bytes_deferred": (INT, ("bytes put off because `--max-duration` was over; not among "
                               "those expected")),
            "segments_deferred": (INT, "segments put off likewise"),
            "defects": ("object", "each severity and the number of its defects"),
            "levels": ("array", "the levels at which segments were read"),
            "sample": ("object or null", ("with `--sample`: `share`, `seed`, how many `segments` "
                       "`of` all were read at the level that was asked for")),
        },
    ),
    "reference": ObjectType(
        "`explain`",
        "What is known about a finding or an error of this name.",
        {
            "reference": (TEXT, "its name"),
            "severity": (maybe(TEXT), "of a finding: `damage`, `index`, `warning` or `note`"),
            "exit_code": (maybe(INT), "the exit status where it is an error that stops the work"),
            "meaning": (TEXT, "what was found, or what happened"),
            "arises": (maybe(TEXT), "what it comes from"),
            "broker": (maybe(TEXT), "what a broker makes of it"),
            "hint": (maybe(TEXT), "what to do"),
            "example": (maybe(TEXT), "`detail` of such a finding"),
        },
    ),
    **REPAIR_TYPES,
    **SALVAGE_TYPES,
    **SIMULATION_TYPES,
    **COMPACTION_TYPES,
    **MAINTENANCE_TYPES,
    **EXPORT_TYPES,
}  # fmt: skip
