"""What a broker would do with a log, at its next start or when it cleans it."""

from __future__ import annotations

from typing import Final

from kafkalog.defects.reference import Reference
from kafkalog.model import Severity

_W = Severity.WARNING

REFERENCES: Final = (
    Reference("view-differs", _W, "What is shown of a partition is what the next start of a broker "
              "would show, and that is not what lies under final names.",
              "It finishes an interrupted swap, and cuts the log at the first thing that is wrong "
              "from the recovery point on.",
              "`--view files` shows what has a final name, `--view all` also what is left of "
              "deletions and cleanings; `kafkalog verify` says what is wrong, `kafkalog salvage` "
              "rescues what lies behind it.",
              arises="The broker was killed: while it cleaned a log, or before all was on disk."),
    Reference("start-loses-records", _W, "The next start of a broker would drop records, and no "
              "other finding says why.",
              "It cuts the log, or drops whole segments, and goes on with what is left.",
              "Copy the partition first. `kafkalog recover` shows at which offset the log is cut, "
              "and why; `kafkalog salvage` copies the records that would go.",
              arises="Checkpoints of another time than the segments, as after a restore of a part "
              "of the files; offsets that go back or do not fit into their segment."),
    Reference("start-refused", _W, "A broker would not load this, and no other finding says why.",
              "It ends its start with an exception, or takes the log directory offline.",
              "Copy the partition, then correct what the message of the exception names; `kafkalog "
              "salvage` copies what is sound.",
              arises="Files that were renamed, copied or written by hand; an index larger than "
              "segment.index.bytes."),
    Reference("cleaner-stuck", _W, "The topic is compacted, and its cleaner cannot get through the "
              "log.", "It marks the partition as uncleanable, and cleans it no more until the "
              "broker starts again, which changes nothing: the log grows without bound.",
              "`kafkalog compact` cleans a sound log all the same, while the broker is down; where "
              "a batch is damaged, `kafkalog salvage` copies the others.",
              arises="A client that sent times before 1970; a batch that is damaged."),
)  # fmt: skip
