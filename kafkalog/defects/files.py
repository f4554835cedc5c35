"""What can be wrong with checkpoints, small files, directories, and a run itself."""

from __future__ import annotations

from typing import Final

from kafkalog.defects.reference import Reference
from kafkalog.model import Severity

_D, _W, _N = Severity.DAMAGE, Severity.WARNING, Severity.NOTE

REFERENCES: Final = (
    Reference("checkpoint-malformed", _D, "A text checkpoint cannot be read.",
              "The whole log directory is taken offline.", "Write it anew, or remove it.",
              arises="The machine stopped before the file was written; a disk that was full; "
                     "an edit by hand."),
    Reference("file-malformed", _D, "A small file of text cannot be read.",
              "The broker does not start.", "Restore it from a replica or a backup.",
              arises="The machine stopped before the file was written; an edit by hand."),
    Reference("file-unreadable", _D, "A file or directory cannot be read.",
              "The log directory is taken offline.", "Look at permissions and the disk.",
              arises="Permissions, a bad sector of the disk, a link that leads nowhere, a "
                     "directory in the place of a file."),
    Reference("leftover-file", _N, "A file of a deletion or a cleaning that was not finished.",
              "Removed or finished at the next start.",
              arises="The broker stopped before it had deleted the file, or while it cleaned "
                     "or split a segment."),
    Reference("directory-unknown", _W, "A directory among the partitions whose name is none of "
              "a partition, such as lost+found.", "It does not start on the log directory.",
              "Move it away before the broker starts.",
              arises="The log directory is the root of a file system (lost+found), or somebody "
                     "keeps a backup in it."),
    Reference("file-unknown", _N, "A file in a partition directory that Kafka does not know.",
              "Ignored.",
              arises="A file of somebody else: a backup, an editor's copy, a file of a later "
                     "release of Kafka."),
    Reference("bytes-not-checked", _W, "Fewer bytes were checked than are there.",
              "Nothing.",
              arises="Reading failed on the way: a file became shorter, or the disk failed; "
                     "the other findings say where."),
)  # fmt: skip
