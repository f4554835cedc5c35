"""What can be wrong with files and directories, and what a broker would do with them."""

from __future__ import annotations

from typing import Final

from kafkalog.model import Reference, Severity

_D, _I, _W, _N = Severity.DAMAGE, Severity.INDEX, Severity.WARNING, Severity.NOTE
_RESTORE_EPOCHS = (
    "Write the epochs that `kafkalog dump-segment --batches` shows, or move the partition away "
    "and let the broker fetch it from another replica."
)
_RUN_DUMP = "kafkalog dump-segment PATH --batches"
_RUN_EXPORT = "kafkalog export PATH --to DIR"
_RUN_QUORUM = "kafkalog quorum PATH"
_RUN_RECOVER = "kafkalog recover PATH"
_RUN_SALVAGE = "kafkalog salvage PATH --to NEW"

_FILES: Final = (
    Reference("checkpoint-malformed", _D, "A text checkpoint cannot be read.",
              "The whole log directory goes offline.", "Rewrite it, or remove it.",
              arises="The machine stopped before the file was written; the disk was full; "
                     "somebody edited it.", example="Line 8 has 1 fields, not 3."),
    Reference("file-malformed", _D, "A small text file cannot be read.",
              "The broker does not start.", "Restore it from a replica or a backup.",
              arises="The machine stopped before the file was written; somebody edited it.",
              example="Version 9 is unknown to Kafka."),
    Reference("file-unreadable", _D, "A file or directory cannot be read.",
              "The log directory goes offline.", "Check permissions and the disk.",
              arises="Missing permissions, a bad sector, a dangling link, a directory in place of "
                     "a file.", example="This is a directory, not a regular file."),
    Reference("owner-differs", _W,
              "The broker's user can open other files of a directory, but not this one.",
              "The log directory goes offline as soon as it is opened, or it does not start.",
              "Give it the owner and mode of the other files (`chown --reference`, "
              "`chmod --reference`).",
              arises="A tool ran as root, or a file was restored as root.",
              example="It belongs to user 0, group 0, with mode 600: user 1000 cannot read and "
                      "write it."),
    Reference("leftover-file", _N, "A file is left from an unfinished deletion or cleaning.",
              "It removes the file or finishes the work at its next start.",
              "`kafkalog recover` shows what will happen to it.",
              arises="The broker stopped before it deleted the file, or while it cleaned or split "
                     "a segment.", command=_RUN_RECOVER, example="A file in state deleted."),
    Reference("directory-unknown", _W,
              "A directory does not have the name of a partition, such as lost+found.",
              "It does not start with this log directory.",
              "Move it away before the broker starts.",
              arises="The log directory is the root of a file system, or contains a backup.",
              example="This is not the name of a partition; a broker does not start with it."),
    Reference("file-unknown", _N, "A partition directory contains a file that Kafka does not know.",
              "Ignored.",
              arises="Another program wrote it: a backup, an editor, a later release of Kafka.",
              example="Kafka has no file with this name."),
    Reference("copy-unfinished", _W, "rsync did not finish a copy.",
              "Ignored: the file itself is missing or old.",
              "Run rsync again, then delete this file.",
              arises="rsync was killed.",
              example="rsync stopped: 00000000000000000250.log may be older than its original."),
    Reference("bytes-not-checked", _W, "Some bytes were not checked.", "Nothing.",
              arises="A file became shorter, or the disk failed; other findings say where.",
              example="Not checked: 4096 bytes."),
    Reference("changed-while-reading", _N, "Files changed while they were read.", "Nothing.",
              "Check again when the broker is idle, or check a copy.",
              arises="A broker is running on the directory."),
    Reference("deleted-while-reading", _N, "Offsets were deleted before they were read.",
              "There are fewer rows than planned. What is left is read completely.",
              "Nothing, if retention or DeleteRecords did it; otherwise read a copy.",
              arises="A broker is running; its retention or a deletion was faster."),
    Reference("read-from-copy", _N,
              "Offsets come from another copy of the partition: this one has damage, a gap, or "
              "batches of another leader epoch.", "Nothing: each broker knows its own copy only.",
              "Nothing: what is read is complete. `kafkalog verify` says what is wrong with this "
              "copy.",
              arises="Several copies were given, and the most complete one has lost something."),
    Reference("check-failed", _W,
              "A bug in kafkalog made a check fail. What it checks is not judged.",
              "Nothing: this is not about the data.",
              "Please report the message, with the file if you can. The exit status is 70.",
              arises="A bug in kafkalog."),
    Reference("clean-shutdown-unreadable", _W,
              "The mark of a clean shutdown has no readable broker epoch.",
              "The logs count as cleanly closed, but the controller removes the broker from the "
              "eligible leaders.",
              "If the shutdown may not have been clean, remove the file, so that the start checks "
              "the logs.", arises="The disk or an editor changed it."),
    Reference("file-not-as-written", _N,
              "Kafka can read a small text file, but writes it differently: other spaces, keys, "
              "line ends or comments.", "Nothing: it reads the file, and rewrites it at times.",
              "If nobody edited it, compare it with the file of another replica.",
              arises="An editor or the disk changed bytes that Kafka ignores."),
    Reference("leader-epochs-invalid", _D,
              "Entries of leader-epoch-checkpoint do not increase, or are negative.",
              "Entries that contradict later ones are dropped; a negative number keeps the broker "
              "from starting.", _RESTORE_EPOCHS, arises="The disk or an editor changed it.",
              command=_RUN_DUMP),
    Reference("kraft-snapshot-empty", _D, "A snapshot of the cluster's metadata has no batch.",
              "A broker does not start if it is the newest.",
              "Copy `__cluster_metadata-0`, then delete the snapshot: the broker starts from the "
              "one before it. If that, or the log after it, is gone, take both from another node.",
              arises="The machine stopped before the bytes were on the disk.",
              command=_RUN_RECOVER),
    Reference("kraft-snapshot-torn", _D,
              "A snapshot of the cluster's metadata does not begin with its header, or does not "
              "end with its footer.",
              "It loads what is there: the rest of the metadata is missing.",
              "Take a snapshot of the same name from another node, or the one before it and the "
              "log after that.",
              arises="The machine stopped before the bytes were on the disk; a copy was "
                     "interrupted.", command=_RUN_QUORUM,
              example="The snapshot is not whole: it has no footer."),
    Reference("foreign-snapshot", _D,
              "A snapshot of the cluster's metadata is of a history that its node's log has "
              "given up.",
              "A start loads it, and never applies what the log has up to its end: the node has "
              "other metadata than the rest of the cluster, without an error.",
              "Before the node starts, move its `__cluster_metadata-0` away; it fetches the "
              "metadata again. Of the only copy, move only the snapshot away.",
              arises="The quorum went on from a log that ended earlier: after the loss of voters, "
                     "or because empty voters were a majority.", command=_RUN_QUORUM),
    Reference("snapshot-beyond-log", _W,
              "A snapshot of the cluster's metadata is newer than its node's log.",
              "A start drops the log, and goes on from the snapshot.",
              "If the snapshot is sound, nothing; else move it away, or take the end of the log "
              "from another node.",
              arises="The end of the log was lost, or the snapshot was copied from another node.",
              command=_RUN_QUORUM),
    Reference("quorum-epoch-below-log", _W,
              "quorum-state is missing, or has an earlier epoch than the node's metadata log.",
              "It starts with the epoch of the log, and may vote a second time in an epoch.",
              "If the file was restored or removed, start the node last; if others of the cluster "
              "have the earlier epoch, the last batches of this log have a wrong one.",
              arises="The file was removed or replaced by an older one; a bit flipped in the epoch "
                     "of a batch, which no checksum covers.", command=_RUN_QUORUM),
    Reference("metadata-split-brain", _D,
              "Copies of the metadata log have different batches of the same offset and epoch.",
              "Not noticed: nodes have different metadata from there on.",
              "Start none of them before it is decided whose metadata count; `kafkalog metadata` "
              "shows both.",
              arises="Two leaders wrote in one epoch: voters were formatted again, or directories "
                     "were copied.", command=_RUN_QUORUM),
    Reference("quorum-lost", _W,
              "So many voters have other directories now that the rest cannot elect a leader.",
              "The cluster has no controller: nothing can be changed, and brokers do not start.",
              "Bring the directories of the voters back.",
              arises="Disks of controllers were replaced, or their directories formatted again.",
              command=_RUN_QUORUM),
    Reference("quorum-behind", _D,
              "Voters that lack committed records are enough to elect a leader.",
              "If they start before the others, they lead, and the others truncate their logs to "
              "theirs: the metadata of the cluster is lost.",
              "Start none of them before a voter that has the records.",
              arises="Static voters were formatted again, or restored from an earlier time.",
              command=_RUN_QUORUM),
    Reference("bytes-unreadable", _D, "Some bytes of a file cannot be read from the disk.",
              "The first such error takes the log directory offline, with all its partitions.",
              "Let the broker fetch the replica from another one. If there is none, image the "
              "disk, and let `kafkalog salvage` copy the batches around the gap.",
              arises="A bad sector, a failing controller or cable, or a network file system that "
                     "does not answer.", command=_RUN_SALVAGE,
              example="The bytes at this position cannot be read: Input/output error. The next "
                      "batch is at position 8192."),
    Reference("leader-epochs-contradict-log", _D,
              "leader-epoch-checkpoint gives batches another leader epoch than they have, or "
              "starts an epoch inside a batch.",
              "Not noticed. Followers and consumers that ask where an epoch ends may truncate too "
              "much or too little.", _RESTORE_EPOCHS,
              arises="The disk or an editor changed it, or it belongs to another partition or "
                     "replica.", command=_RUN_DUMP),
    Reference("leader-epochs-missing", _W,
              "leader-epoch-checkpoint is empty or missing, although the batches have epochs.",
              "A start that scans the log fills it, a clean one does not. Until then followers "
              "truncate to their high watermark.",
              "Remove `.kafka_cleanshutdown` and the recovery point's entry, so that the start "
              "scans the log.", arises="The file was removed or emptied."),
    Reference("leader-epoch-beyond-log", _W,
              "An epoch of leader-epoch-checkpoint starts above the log end: batches are gone.",
              "The entry is dropped at the next start.",
              "Find out what happened to the end of the log; another replica has it.",
              arises="A crash lost bytes, or the log was truncated or replaced by an older copy."),
    Reference("leader-epochs-start-elsewhere", _N,
              "The first entry of leader-epoch-checkpoint does not start at the log start offset.",
              "Nothing: it moves the entry with the log start offset.",
              arises="A crash came between writing this file and the log start offset, somebody "
                     "removed segments, or a digit changed."),
    Reference("batch-leader-epoch-wrong", _D,
              "The leader epoch of a batch, which no checksum covers, contradicts its neighbours "
              "or leader-epoch-checkpoint.",
              "Not noticed. Recovery takes it for a new epoch, and may send back consumers that "
              "validate their position.",
              "Let the broker fetch the replica again from another one.",
              arises="A bit flipped on disk or in memory."),
    Reference("checkpoint-outside-log", _W,
              "A recovery point, high watermark or first dirty offset lies outside its log.",
              "The offset is silently moved into the log; if a first dirty offset lies above it, "
              "the whole log is cleaned again.",
              "If another file shows that the log was longer, let the broker fetch the replica "
              "again.",
              arises="A crash lost bytes, the log was truncated or replaced by an older copy, or "
                     "a digit changed."),
    Reference("recovery-point-not-at-end", _W,
              "After a clean shutdown the recovery point is not the log end offset: one of the "
              "two changed.", "Not noticed: the whole log is trusted.",
              "Compare the partition with another replica.",
              arises="Segments were changed, truncated or copied while the broker was down, or a "
                     "digit changed."),
    Reference("log-start-beyond-log", _D,
              "The checkpointed log start offset is negative or above the log end offset.",
              "All segments of the partition are deleted; it starts empty at that offset.",
              "Before the broker starts, remove the entry from the file, and correct the count in "
              "its second line.",
              arises="The log was truncated or replaced by an older copy, or a digit changed."),
    Reference("checkpoint-entry-repeated", _W, "A checkpoint has several entries of one partition.",
              "The last one counts.",
              "Remove the others, and correct the count in the second line.",
              arises="The disk or an editor changed it."),
    Reference("checkpoint-entry-left", _N,
              "A checkpoint has an entry of a missing partition, or an obsolete one.",
              "Nothing: the entry goes when the file is rewritten.",
              arises="The partition was deleted or moved, or retention deleted segments."),
    Reference("checkpoint-entry-missing", _N,
              "A checkpoint lacks a partition, although the shutdown was clean.",
              "The offset counts as 0, and is then moved into the log.",
              arises="The partition directory was added while the broker was down, a character of "
                     "its name changed, or a start was interrupted."),
    Reference("directory-id-repeated", _W, "Two log directories have the same directory id.",
              "It does not start with both.",
              "If one is a copy, never give both to a broker; otherwise format the newer one "
              "again.", arises="The log directory was copied."),
    Reference("directory-id-unknown", _N,
              "The node has not registered this directory id in `__cluster_metadata`.",
              "It registers the directory at its next start.",
              "Compare `meta.properties` with the other log directories of the broker.",
              arises="The log directory was formatted again and not used yet, it came from "
                     "another broker, or a character changed."),
    Reference("log-dir-of-other-broker", _W,
              "The directory id is registered under another node or cluster than meta.properties "
              "says.", "It does not start on directories of different nodes or clusters.",
              "Correct the file, unless the directory was moved on purpose.",
              arises="meta.properties was edited, the directory was given to another broker, or a "
                     "character changed."),
    Reference("log-dir-not-formatted", _W,
              "A log directory has no meta.properties, or one that names no node.",
              "It does not start with the directory.",
              "Write it with the ids of node, cluster and directory, as the broker's other log "
              "directories and `__cluster_metadata` have them.",
              arises="The copy lacks the file, a crash emptied it, or the broker is older than "
                     "0.8.2."),
    Reference("cluster-metadata-missing", _N,
              "None of the given log directories of a KRaft node holds `__cluster_metadata-0`.",
              "Nothing, if another one holds it. Otherwise a broker fetches it from the "
              "controllers; a node that is the only controller starts an empty cluster, and all "
              "partitions become strays.", "Give `verify` all log directories of the node.",
              arises="One of several log directories was given, metadata.log.dir is elsewhere, or "
                     "the directory was lost."),
    Reference("partition-not-assigned", _W,
              "The cluster's metadata does not assign the partition to this node.",
              "In KRaft mode the partition is a stray: its directory gets the suffix `-stray`, "
              "and a replica of this name starts empty.",
              "Copy the directory before the broker starts. `kafkalog export` reads the records; "
              "to bring them into this cluster, create the topic and produce them.",
              arises="The directory came from another broker or cluster, or the replica was "
                     "reassigned while the broker was down.", command=_RUN_EXPORT),
    Reference("partition-absent", _W,
              "The node had a partition that none of its log directories has.",
              "It creates an empty log, and copies a replica that is in sync.",
              "Without such a replica, restore the directory before the broker starts.",
              arises="The directory was removed or renamed."),
    Reference("topic-id-mismatch", _W,
              "The topic id in partition.metadata is not the one in the cluster's metadata, or in "
              "other partitions.",
              "In KRaft mode the partition is a stray: its directory gets the suffix `-stray`, "
              "and a replica of this name starts empty.",
              "If the partition belongs to this topic, write the right id into the file before "
              "the broker starts.",
              arises="The topic was deleted and created again, the directory was copied from "
                     "another cluster, or a character changed."),
    Reference("topic-deleted", _N, "The topic of the partition was deleted.",
              "The directory gets the suffix `-stray` or `-delete`.",
              arises="The broker stopped before it deleted its replica."),
    Reference("partition-metadata-missing", _W,
              "A partition with batches has no partition.metadata, in KRaft mode.",
              "In KRaft mode the partition is a stray: its directory gets the suffix `-stray`, "
              "and a replica of this name starts empty.",
              "Before the broker starts, run `kafkalog recover`, which takes the id from the "
              "cluster's metadata, or copy the file from another replica.",
              arises="The file was removed, or the copy lacks it."),
    Reference("broker-epoch-mismatch", _W,
              "The broker epoch in the mark of the clean shutdown is not that of the node's last "
              "registration.", "The controller treats the shutdown as unclean.",
              "Nothing for a copy with parts of different times, but start no broker on it.",
              arises="A digit changed, or the directory was assembled from copies."),
    Reference("leader-epoch-beyond-metadata", _W,
              "The last epoch in leader-epoch-checkpoint is above the one in the cluster's "
              "metadata.", "Other brokers refuse its requests with that epoch.", _RESTORE_EPOCHS,
              arises="A digit changed, or the directory was assembled from copies.",
              command=_RUN_DUMP),
    Reference("high-watermark-not-at-end", _W,
              "After a clean shutdown the high watermark of a partition with one replica is not "
              "its log end.", "It raises it to the log end when it leads the partition.",
              "Nothing.", arises="A digit changed, or the log was replaced by a longer copy."),
    Reference("partition-in-two-places", _W,
              "A broker has a partition in two log directories, or twice in one.",
              "It does not start.", "Move the older one away; `kafkalog ls` shows where they end.",
              arises="Somebody copied it, or a crash stopped a move between directories.",
              command="kafkalog ls PATH"),
    Reference("leftover-directory", _N,
              "A partition directory is marked as deleted, stray or future.",
              "`-delete` goes a minute after the start, `-stray` stays until somebody removes it, "
              "`-future` is filled up; if the partition is assigned there, it takes its place.",
              arises="The broker was stopped before it finished."),
    Reference("changed-after-shutdown", _N,
              "A log was modified after the mark of the clean shutdown.",
              "Not noticed: everything is trusted.",
              "If anything but a copy wrote to the log, remove `.kafka_cleanshutdown`.",
              arises="A copy gave the files new times, or a program wrote to the log while the "
                     "broker was down."),
    Reference("file-name-not-canonical", _W,
              "A file has the suffix of a segment file, but no 20 digits before it.",
              "It does not start if the name has no number; otherwise it creates an empty file "
              "with the right name.", "Move it away, or restore its name.",
              arises="Somebody renamed or copied the file."),
    Reference("index-without-log", _N, "An index has no log.", "It deletes the index.",
              "If the log was not deleted on purpose, look for it.",
              arises="Somebody removed the log, or a crash interrupted a deletion."),
    Reference("directory-in-partition", _N, "A partition directory contains a directory.",
              "Ignored.", arises="Somebody made a copy or a backup."),
    Reference("replicas-diverge", _D, "Replicas of a partition differ below the high watermark.",
              "A follower truncates to the end of the last leader epoch that both have. "
              "Differences below that stay: consumers read what the leader has.",
              "Let the broker fetch the replica that disagrees with the majority again; without a "
              "majority, compare both from that offset on.",
              arises="An unclean leader election, a disk that lost or changed bytes, or a log "
                     "that was edited or replaced.", command="kafkalog diff PATH OTHER --records"),
    Reference("replicas-fork", _W, "Copies of a partition differ, but not below a high watermark.",
              "The leader keeps its batches; the others truncate to the end of the last common "
              "leader epoch, and lose theirs.",
              "Before you start a broker or discard a copy, save what only one has: `kafkalog "
              "export` from that offset on.",
              arises="A leader was killed before its followers had fetched everything, or the log "
                     "continued differently after a backup.", command=_RUN_EXPORT),
)  # fmt: skip

_BROKERS: Final = (
    Reference("view-differs", _W,
              "The next start of a broker would show these records; the files with final names "
              "hold others.",
              "It finishes an interrupted swap, and truncates the log at the first error from the "
              "recovery point on.",
              "`--view as-is` shows the files with final names, `--view all` also leftovers; "
              "`kafkalog verify` says what is wrong, `kafkalog salvage` copies what is sound "
              "after it.",
              arises="The broker was killed while it cleaned a log, or before everything was on "
                     "disk.", command=_RUN_RECOVER),
    Reference("start-loses-records", _W,
              "The next start of a broker would drop records, and no other finding explains it.",
              "It truncates the log, drops whole segments, or ends the log before its last "
              "batches.",
              "Copy the partition first. `kafkalog recover` shows where the log would be "
              "truncated, and why; `kafkalog salvage` copies the records that would be dropped.",
              arises="Checkpoints and segments are of different times, as after a partial "
                     "restore; offsets go back or do not fit into their segment.",
              command=_RUN_RECOVER),
    Reference("start-refused", _W,
              "A broker would not load this, and no other finding explains it.",
              "It fails to start with an exception, or takes the log directory offline.",
              "Copy the partition, then correct what the exception names; `kafkalog salvage` "
              "copies what is sound. Change a topic's config with the older broker that accepted "
              "it; `kafkalog resurrect` leaves it out.",
              arises="Files were renamed, copied or written by hand; an index is larger than "
                     "segment.index.bytes; a topic has a config from a broker before 4.1, such as "
                     "segment.bytes below 1 MiB.", command=_RUN_SALVAGE),
    Reference("cleaner-stuck", _W, "The topic is compacted, but the cleaner fails on the log.",
              "It marks the partition as uncleanable until the next start, where it fails again: "
              "the log grows without bound.",
              "While the broker is down, `kafkalog compact` can clean a sound log; if a batch is "
              "damaged, `kafkalog salvage` copies the others.",
              arises="A client sent timestamps before 1970; a batch is damaged.",
              command="kafkalog compact PATH"),
)  # fmt: skip

_REMOTE: Final = (
    Reference("remote-segment-missing", _D,
              "Remote storage lacks a file of a segment whose upload is finished.",
              "Fetches of these offsets fail, and consumers stop there.",
              "Restore the object from a version or a backup; if a broker still has the segment, "
              "copy it from there.",
              arises="Somebody, or a rule of the storage, deleted the object.",
              command="kafkalog verify LOG_DIR TIER",
              example="The upload of offsets 89 to 117 (2785 bytes) is finished, and its log is "
                      "not there."),
    Reference("remote-size-wrong", _D,
              "The log of a remote segment has another size than its metadata say.",
              "It reads what is there, and fails at its end.",
              "Restore the object from a version or a backup.",
              arises="The object was truncated or replaced.",
              command="kafkalog verify LOG_DIR TIER",
              example="The log has 2685 bytes, the metadata say 2785."),
    Reference("remote-indexes-wrong", _W, "An index in remote storage is not that of its log.",
              "It serves wrong or fewer records, or reads more than it needs; it does not rebuild "
              "a fetched index.",
              "Restore the object from a version or a backup, and remove its copies in "
              "remote-log-index-cache.",
              arises="The object was truncated or replaced, or the index was wrong when it was "
                     "uploaded.", command="kafkalog verify TIER",
              example="Entry 3 points to position 990, where no batch begins."),
    Reference("remote-manifest-contradicts", _D,
              "A manifest of Aiven's plugin contradicts the objects.",
              "Consumers get an error, or records of another segment.",
              "Restore objects and manifest together, from versions or a backup.",
              arises="An object was truncated, replaced or restored alone, or copied to another "
                     "name.", command="kafkalog verify TIER",
              example="The object has 2000 bytes, the manifest says 2685."),
    Reference("remote-lineage-gap", _W,
              "Offsets are neither in remote storage nor in the log directory.",
              "Consumers there get an error, and go on after the gap or at their "
              "auto.offset.reset.",
              "Look for them in the log directories of other brokers, and in segments of the tier "
              "that the metadata do not know.",
              arises="A log directory was lost or restored from an earlier time; a leader was "
                     "elected without all records.", command="kafkalog verify LOG_DIR TIER",
              example="Offsets 118 to 140 are neither in the tier nor local."),
    Reference("remote-segment-orphan", _N,
              "Remote storage holds a segment that is not part of the log.",
              "Nothing reads it. A begun deletion is tried again; others stay, and cost money.",
              "If no broker is uploading now, nothing needs the files.",
              arises="The broker stopped during an upload or a deletion, more than an hour ago.",
              example="The metadata do not know the segment."),
)  # fmt: skip

REFERENCES: Final = (*_FILES, *_BROKERS, *_REMOTE)
