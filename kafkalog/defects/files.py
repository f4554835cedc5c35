"""What can be wrong with checkpoints, small files, directories, and a run itself."""

from __future__ import annotations

from typing import Final

from kafkalog.defects.reference import Reference
from kafkalog.model import Severity

_D, _W, _N = Severity.DAMAGE, Severity.WARNING, Severity.NOTE
_RESTORE_EPOCHS = (
    "Write the entries that the batches give (`kafkalog dump-segment --batches` shows their "
    "epochs), or move the partition away and let it be fetched from another replica."
)

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
    Reference("clean-shutdown-unreadable", _W, "The mark of a clean shutdown holds no broker "
              "epoch that can be read.", "It still counts as a clean shutdown, but the controller "
              "is told that it was none, and takes the broker out of the eligible leaders.",
              "If it may not have been a clean shutdown, remove the file: the start checks the "
              "logs then.", arises="The disk, or an editor."),
    Reference("file-not-as-written", _N, "A small file of text is not as Kafka writes it, "
              "though Kafka reads it: other spaces, keys, line ends or comments.", "Nothing: it "
              "reads the file, and writes it anew when it has to.", "Compare it with the file of "
              "another replica if nobody has edited it.", arises="An editor, or bytes that the "
              "disk has changed where Kafka does not look."),
    Reference("leader-epochs-invalid", _D, "The entries of a leader-epoch-checkpoint do not "
              "rise in epoch and offset, or are negative.", "Entries that do not fit the later "
              "ones are dropped; with a negative number the broker does not start.",
              _RESTORE_EPOCHS, arises="The disk, or an editor: Kafka keeps the entries in order."),
    Reference("leader-epochs-contradict-log", _D, "A leader-epoch-checkpoint gives batches "
              "another leader epoch than they have, or lets an epoch begin inside a batch.",
              "Not noticed. Followers and consumers that ask where an epoch ends are answered "
              "wrongly, and may truncate too much or too little.", _RESTORE_EPOCHS,
              arises="The disk, an editor, or a file that belongs to another partition or "
              "replica: Kafka writes an epoch there before its first batch."),
    Reference("leader-epochs-missing", _W, "A leader-epoch-checkpoint is empty or missing, "
              "though the batches have leader epochs.", "A clean start leaves it empty, one that "
              "scans the log fills it. Until then followers truncate to their high watermark.",
              "Remove `.kafka_cleanshutdown` and the entry of the recovery point, so that the "
              "start scans the log.", arises="The file was removed or emptied."),
    Reference("leader-epoch-beyond-log", _W, "A leader-epoch-checkpoint has an epoch that begins "
              "behind the log's end: batches at the end are gone.", "The entry is dropped at the "
              "next start.", "Find out what became of the end of the log; another replica has it.",
              arises="A crash that lost bytes not yet on disk, or a log that was cut or replaced "
              "by an older copy."),
    Reference("leader-epochs-start-elsewhere", _N, "The first entry of a leader-epoch-checkpoint "
              "does not begin where the log does.", "Nothing: it is moved when the log start "
              "offset moves.", arises="A crash between the write of this file and that of the "
              "log start offset, segments that were removed by hand, or a changed digit."),
    Reference("batch-leader-epoch-wrong", _D, "A batch has another leader epoch than its "
              "neighbours and leader-epoch-checkpoint give it. The field has no checksum.",
              "Not noticed. Recovery takes it for a new epoch, and consumers that validate "
              "their position may be sent back.", "Let the replica be fetched anew from another.",
              arises="The disk or memory: the field is outside of what the checksum covers."),
    Reference("checkpoint-outside-log", _W, "A recovery point, high watermark or first dirty "
              "offset lies outside of its log: the number is wrong, or the end of the log is "
              "gone.", "It is moved into the log without a word; after a first dirty offset "
              "behind the log the whole log is cleaned again.", "If another file tells that the "
              "log was longer, fetch the replica anew; else nothing.", arises="Bytes that a crash "
              "lost, a log that was cut or replaced by an older copy, or a changed digit."),
    Reference("recovery-point-not-at-end", _W, "After a clean shutdown the recovery point is "
              "not where the log ends, so one of the two is not what the shutdown left.",
              "Not noticed: after a clean shutdown all of the log is believed.", "Compare the "
              "partition with another replica.", arises="Segments that were changed, cut or "
              "copied while the broker was down, or a changed digit."),
    Reference("log-start-beyond-log", _D, "The checkpointed log start offset is negative or "
              "behind the log's end.", "All segments of the partition are deleted, and it begins "
              "anew, empty, at that offset.", "Before the broker starts, take the entry out of "
              "the file, and correct the count in its second line.", arises="A log that was cut "
              "or replaced by an older copy, or a changed digit."),
    Reference("checkpoint-entry-repeated", _W, "A checkpoint has several entries of one "
              "partition.", "The last one counts.", "Remove the others, and correct the count in "
              "the second line.", arises="The disk, or an editor: Kafka writes one."),
    Reference("checkpoint-entry-left", _N, "A checkpoint has an entry of a partition that is not "
              "there, or one that says nothing any more.", "Nothing: it is dropped when the file "
              "is written again.", arises="A partition that was deleted or moved, or segments "
              "that retention has deleted, since the file was written."),
    Reference("checkpoint-entry-missing", _N, "A checkpoint lacks a partition, though the "
              "shutdown was clean.", "The offset counts as 0, and is then moved into the log.",
              arises="A partition directory that was added while the broker was down, a changed "
              "character in a topic's name, or a broker that stopped while it was starting."),
)  # fmt: skip
