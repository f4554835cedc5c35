"""What helps with a defect: the command that repairs or shows it, and an example of its finding.

An example is the `detail` of one finding of a kind, as `verify` or another command gave it; a test
damages a real log and compares, numbers aside.
"""

from __future__ import annotations

from typing import Final

_NAMES: Final = {
    "kafkalog salvage PATH --to DIR": (
        "batch-below-base-offset", "batch-crc-mismatch", "batch-length-invalid",
        "batch-offset-displaced", "batch-offset-not-increasing", "batch-outside-transaction",
        "bytes-unreadable", "control-record-malformed", "decompression-failed", "magic-unknown",
        "message-set-invalid", "record-malformed", "record-offset-invalid",
        "records-count-invalid", "records-left-over", "segments-overlap", "start-refused",
        "unknown-codec",
    ),
    "kafkalog rebuild-index PATH --in-place --backup DIR": (
        "aborted-transaction-missing", "aborted-transaction-wrong", "index-entry-beyond-log",
        "index-entry-misses-batch", "index-entry-offset-wrong", "index-missing",
        "index-not-trimmed", "index-padding-not-zero", "index-size-not-multiple",
        "lookup-index-mismatch", "offset-index-not-monotonic", "time-index-entry-wrong",
        "time-index-incomplete", "time-index-not-monotonic", "transaction-index-invalid",
    ),
    "kafkalog recover PATH --in-place --backup DIR": ("torn-tail",),
    "kafkalog recover PATH --from start --in-place --backup DIR": ("segment-offset-overflow",),
    "kafkalog recover PATH": (
        "leftover-file", "start-loses-records", "view-differs", "zero-tail",
    ),
    "kafkalog transactions PATH --hanging --commands": ("transaction-hanging",),
    "kafkalog transactions PATH": ("transaction-open",),
    "kafkalog compact PATH": ("cleaner-stuck",),
    "kafkalog dump-segment PATH --batches --producer-id N": (
        "coordinator-epoch-went-back", "producer-epoch-went-back", "producer-sequence-repeated",
        "producer-sequence-skipped",
    ),
    "kafkalog dump-segment PATH --batches": (
        "leader-epoch-beyond-metadata", "leader-epochs-contradict-log", "leader-epochs-invalid",
    ),
    "kafkalog export PATH --to DIR": ("partition-not-assigned", "replicas-fork"),
    "kafkalog dump-segment PATH": ("segment-too-large",),
    "kafkalog ls PATH": ("partition-in-two-places",),
}  # fmt: skip
COMMANDS: Final = {name: command for command, names in _NAMES.items() for name in names}
"""The command line by reference, with PATH for the path of the finding."""


EXAMPLES: Final[dict[str, str]] = {
    "batch-crc-mismatch": "Batch at base offset 126 does not match its checksum (stored "
    "0xb401e9ec).",
    "batch-length-invalid": "The length field says 0, a batch of magic 2 has at least 49. Reading "
    "resumes at position 820.",
    "magic-unknown": "Magic 3 is unknown.",
    "torn-tail": "The batch should have 92 bytes, the file ends after 91.",
    "zero-tail": "The rest is zero (100 bytes): preallocated or never written.",
    "decompression-failed": "The zstd data cannot be decompressed: the frame at position 0 is cut "
    "off.",
    "unknown-codec": "Codec 5 is unknown to magic 2.",
    "record-malformed": "Record 0 of the batch cannot be parsed: variable-length integer is longer "
    "than 5 bytes.",
    "records-count-invalid": "The header says 2147483647 records; the batch holds 2.",
    "records-left-over": "The last record of the batch is followed by 8 bytes.",
    "message-set-invalid": "A compressed message has no value.",
    "batch-offset-not-increasing": "The batch has offsets 123 to 124, after 125.",
    "batch-offset-displaced": "The batch has base offset 1099511627776; between its neighbours 126 "
    "is right.",
    "batch-below-base-offset": "The batch starts at offset 3, the segment at 119.",
    "index-size-not-multiple": "The size 157 is not a multiple of 8: 5 bytes too many.",
    "offset-index-not-monotonic": "Entry 1: (125, 603) follows (130, 1153).",
    "time-index-not-monotonic": "Entry 1: (1795231085760, 125) follows (1795231131359, 126).",
    "index-entry-misses-batch": "Entry 0 (offset 125): no batch starts at position 602.",
    "index-entry-beyond-log": "Entry 19 (offset 1073741943): the log ends at offset 232.",
    "time-index-entry-wrong": "Entry 0 says 1 up to offset 125, the log says 1795231085760 up to "
    "125.",
    "transaction-index-invalid": "Entry 0: version 256 is unknown.",
    "producer-snapshot-corrupt": "Snapshot is corrupt (CRC is no longer valid). Stored crc: "
    "1366218552. Computed crc: 3442462025",
    "checkpoint-malformed": "Line 8 has 1 fields, not 3.",
    "file-malformed": "Version 9 is unknown to Kafka 4.3.",
    "bytes-unreadable": "The bytes at this position cannot be read: Input/output error. "
    "The next batch is at position 8192.",
    "file-unreadable": "This is a directory, not a regular file.",
    "leftover-file": "A file in state deleted.",
    "directory-unknown": "This is not the name of a partition; a broker does not start with it.",
    "file-unknown": "Kafka has no file with this name.",
    "bytes-not-checked": "Not checked: 4096 bytes.",
}
