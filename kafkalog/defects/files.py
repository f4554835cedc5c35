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
    Reference("git-lfs-pointer", _D, "Files are Git LFS pointers: text of three lines in the place "
              "of the contents.", "It takes the text for what should be there, and does not start "
              "or cuts the logs.", "Get the contents with `git lfs pull`, then check again.",
              arises="A clone or an archive of a repository without its Git LFS objects."),
    Reference("leftover-file", _N, "A file of a deletion or a cleaning that was not finished.",
              "Removed or finished at the next start.",
              "`kafkalog recover` shows what becomes of it.",
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
    Reference("changed-while-reading", _N, "Files changed while they were read, so that they "
              "could not be judged as they were at one moment.", "Nothing.",
              "Check again when the broker is idle, or check a copy or a snapshot.",
              arises="A broker runs on the directory: it appends, rolls, cleans and deletes."),
    Reference("deleted-while-reading", _N, "Offsets that were to be read were deleted meanwhile, "
              "or their partition was.", "There are fewer rows than were planned. What is left is "
              "read whole.", "None, where retention or DeleteRecords took them; else read a copy.",
              arises="A broker runs on the directory; its retention or a deletion was quicker."),
    Reference("check-failed", _W, "A check of kafkalog's own failed: what it was about is not "
              "judged. All the rest is.",
              "Nothing: this says nothing about the data.",
              "Please report it with what it says, and with the file if you can; the status is 70.",
              arises="A bug in kafkalog."),
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
    Reference("bytes-unreadable", _D, "The disk does not give some bytes of a file.",
              "Reading there fails; with the first such error it takes the log directory offline, "
              "and its other partitions with it.", "Let the replica be fetched anew from "
              "another. Without one image the disk, and let `kafkalog salvage` copy the batches "
              "around the gap.",
              arises="A bad sector, a controller or cable that fails, or the server of a network "
              "file system that does not answer."),
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
              "neighbours or leader-epoch-checkpoint give it. The field has no checksum.",
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
    Reference("directory-id-repeated", _W, "Two log directories have the same directory id.",
              "It does not start with both of them.", "If one is a copy, never give both to a "
              "broker; else format the newer one again.", arises="A copied log directory."),
    Reference("directory-id-unknown", _N, "The directory id is none that the node has registered "
              "in `__cluster_metadata`.", "It registers the directory at its next start.",
              "Compare `meta.properties` with the other log directories of the broker.",
              arises="A log directory that was formatted anew and not started with yet, one that "
              "was moved from another broker, or a changed character."),
    Reference("log-dir-of-other-broker", _W, "The directory id is registered under another node "
              "or cluster than meta.properties says.", "It does not start on directories of "
              "different nodes or clusters.", "Correct the file, if nobody has moved the "
              "directory on purpose.", arises="An edited meta.properties, a directory that was "
              "given to another broker, or a changed character."),
    Reference("log-dir-not-formatted", _W, "A log directory has no meta.properties, or one that "
              "names no node.", "It does not start with the directory.",
              "Write the file again with the ids of the node, the cluster and the directory: those "
              "of the broker's other log directories and of `__cluster_metadata`.",
              arises="A copy without the file, a file that was emptied by a crash, or a broker "
              "older than 0.8.2."),
    Reference("cluster-metadata-missing", _N, "None of the given log directories of a KRaft node "
              "holds `__cluster_metadata-0`.", "Nothing, if another log directory of the node "
              "holds it. Otherwise a broker fetches it from the controllers; a node that is the "
              "only controller begins an empty cluster, and makes strays of all partitions.",
              "Give `verify` all log directories of the node.",
              arises="One of several log directories was given, metadata.log.dir is elsewhere, or "
              "the directory was lost."),
    Reference("partition-not-assigned", _W, "The cluster's metadata does not assign the partition "
              "to the node of this log directory.", "In KRaft mode it is a stray then: the "
              "directory gets the suffix `-stray`, nobody reads it, and a replica of this name "
              "begins again, empty.",
              "Copy the directory before the broker starts. `kafkalog export` reads the records; "
              "to bring them into this cluster, make the topic there and produce them.",
              arises="A directory that was moved or copied from another broker or cluster, or a "
              "replica that was moved away while the broker was down."),
    Reference("topic-id-mismatch", _W, "The topic id in partition.metadata is not the one that "
              "the topic has in the cluster's metadata, or in its other partitions.",
              "In KRaft mode it is a stray then: the directory gets the suffix `-stray`, and the "
              "replica begins anew, empty.", "Put the right id into the file before the broker "
              "starts, if the partition belongs to this topic.", arises="A directory of a topic "
              "that was deleted and made again, one copied from another cluster, or a changed "
              "character."),
    Reference("topic-deleted", _N, "The partition is of a topic that was deleted.",
              "The directory gets the suffix `-stray` or `-delete`.", arises="The broker stopped "
              "before it had deleted its replica."),
    Reference("partition-metadata-missing", _W, "A partition has batches, but no "
              "partition.metadata, in a log directory of KRaft mode.", "The partition is a stray: "
              "the directory gets the suffix `-stray`, and the replica begins anew, empty.",
              "Write the file from that of another replica before the broker starts.",
              arises="The file was removed, or left out of a copy: Kafka writes it before the "
              "first batch."),
    Reference("broker-epoch-mismatch", _W, "The mark of the clean shutdown is not of the broker "
              "epoch with which the node registered last.", "The controller takes the shutdown "
              "for an unclean one.", "Nothing, if the directory is a copy whose parts are of "
              "different times; such a copy is not to be started on.", arises="A changed digit, "
              "or a directory put together from copies."),
    Reference("leader-epoch-beyond-metadata", _W, "The last entry of a leader-epoch-checkpoint "
              "is an epoch that the cluster's metadata has not reached.", "Its requests with that "
              "epoch are refused by the others.", _RESTORE_EPOCHS, arises="A changed digit, or a "
              "directory put together from copies of different times."),
    Reference("high-watermark-not-at-end", _W, "After a clean shutdown the high watermark of a "
              "partition without other replicas is not its log's end.", "It is raised to the end "
              "as soon as the broker leads the partition.", "Nothing.", arises="A changed digit, "
              "or a log that has been replaced by a longer copy."),
    Reference("partition-in-two-places", _W, "A broker has a partition in two log directories, "
              "or twice in one.", "It does not start.", "Move the older one away: compare their "
              "ends with `kafkalog ls`.", arises="A copy by hand, or a move between directories "
              "that was stopped by a crash between two renames."),
    Reference("leftover-directory", _N, "A partition directory that is deleted, stray, or to "
              "become a replica.", "`-delete` is removed a minute after the start, `-stray` stays "
              "until someone removes it, `-future` is filled up or, without its partition, fails "
              "to become one.", arises="A broker that was stopped in between."),
    Reference("changed-after-shutdown", _N, "A log is younger than the mark of the clean "
              "shutdown.", "Not noticed: all is believed.", "Remove `.kafka_cleanshutdown` if "
              "something other than a copy has written the log.", arises="A copy that gave the "
              "files new times, or a program that writes logs while the broker is down."),
    Reference("file-name-not-canonical", _W, "A file has the suffix of a segment's file, but not "
              "the 20 digits in front of it.", "It does not start where the name begins with no "
              "number; otherwise it makes a new, empty file of the right name.",
              "Move it away, or give it its name back.", arises="A file that was renamed or "
              "copied by hand."),
    Reference("index-without-log", _N, "An index lies beside no log.", "It is deleted.",
              "If the log was not deleted on purpose, look for it.", arises="A log that was "
              "removed by hand, or a crash during a deletion."),
    Reference("directory-in-partition", _N, "There is a directory inside a partition directory.",
              "Ignored.", arises="A copy or a backup by hand."),
    Reference("replicas-diverge", _D, "Replicas of a partition have different batches below the "
              "high watermark, where all should have the same.", "A follower that starts to fetch "
              "truncates to the end of the last leader epoch that both have; what differs below "
              "it stays, and consumers read one or the other, by who leads.", "Let the replica "
              "that is not with the majority be fetched anew; without a majority compare what "
              "both have from that offset on.", arises="An unclean leader election, a disk that "
              "lost or changed bytes, or a log that was edited or replaced on one broker."),
    Reference("replicas-fork", _W, "Copies of a partition have different batches, not below a "
              "high watermark.", "The replica that leads keeps its batches; the others truncate "
              "to the end of the last leader epoch that both have, and lose theirs.",
              "Before you start a broker or discard a copy, look at what only one of them has: "
              "`kafkalog export` with that offset as the start.",
              arises="A leader that was killed before its followers had fetched all, or a backup "
              "of which the log went another way."),
)  # fmt: skip
