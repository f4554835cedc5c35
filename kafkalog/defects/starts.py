"""What a broker would do with a log, at its next start or when it cleans it."""

from __future__ import annotations

from typing import Final

from kafkalog.defects.reference import Reference
from kafkalog.model import Severity

_W = Severity.WARNING

REFERENCES: Final = (
    Reference("view-differs", _W, "The records shown are those that the next start of a broker "
              "would show; the files with final names hold others.",
              "It finishes an interrupted swap, and truncates the log at the first error from "
              "the recovery point on.",
              "`--view files` shows the files with final names, `--view all` also leftovers of "
              "deletions and cleanings; `kafkalog verify` says what is wrong, `kafkalog "
              "salvage` copies what is sound after it.",
              arises="The broker was killed while it cleaned a log, or before everything was "
                     "on disk."),
    Reference("start-loses-records", _W, "The next start of a broker would drop records, and "
              "no other finding explains it.",
              "It truncates the log, or drops whole segments, and continues with the rest.",
              "Copy the partition first. `kafkalog recover` shows where the log would be "
              "truncated, and why; `kafkalog salvage` copies the records that would be dropped.",
              arises="Checkpoints and segments are of different times, as after a partial "
              "restore; offsets go back or do not fit into their segment."),
    Reference("start-refused", _W, "A broker would not load this, and no other finding "
              "explains it.",
              "It fails to start with an exception, or takes the log directory offline.",
              "Copy the partition, then correct what the exception names; `kafkalog salvage` "
              "copies what is sound.",
              arises="Files were renamed, copied or written by hand; an index is larger than "
              "segment.index.bytes."),
    Reference("cleaner-stuck", _W, "The topic is compacted, but the cleaner fails on the "
              "log.", "It marks the partition as uncleanable until the next start, where it "
              "fails again: the log grows without bound.",
              "While the broker is down, `kafkalog compact` can clean a sound log; if a batch "
              "is damaged, `kafkalog salvage` copies the others.",
              arises="A client sent timestamps before 1970; a batch is damaged."),
)  # fmt: skip
