"""What can be wrong with checkpoints, small files, directories, and a run itself."""

from __future__ import annotations

from typing import Final

from kafkalog.defects.reference import Reference
from kafkalog.model import Severity

_D, _W, _N = Severity.DAMAGE, Severity.WARNING, Severity.NOTE

REFERENCES: Final = (
    Reference("checkpoint-malformed", _D, "A text checkpoint cannot be read.",
              "The whole log directory is taken offline.", "Write it anew, or remove it."),
    Reference("file-malformed", _D, "A small file of text cannot be read.",
              "The broker does not start.", "Restore it from a replica or a backup."),
    Reference("file-unreadable", _D, "A file or directory cannot be read.",
              "The log directory is taken offline.", "Look at permissions and the disk."),
    Reference("leftover-file", _N, "A file of a deletion or a cleaning that was not finished.",
              "Removed or finished at the next start."),
    Reference("directory-unknown", _W, "A directory among the partitions whose name is none of "
              "a partition, such as lost+found.", "It does not start on the log directory.",
              "Move it away before the broker starts."),
    Reference("file-unknown", _N, "A file in a partition directory that Kafka does not know.",
              "Ignored."),
    Reference("bytes-not-checked", _W, "Fewer bytes were checked than are there.",
              "Nothing."),
)  # fmt: skip
