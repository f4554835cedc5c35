"""The command that repairs what a defect reports, or shows what to decide."""

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
