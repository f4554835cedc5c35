"""What can be wrong with producers, transactions and producer snapshots."""

from __future__ import annotations

from typing import Final

from kafkalog.defects.reference import Reference
from kafkalog.model import Severity

_D, _I, _W, _N = Severity.DAMAGE, Severity.INDEX, Severity.WARNING, Severity.NOTE
_LOST = (
    "Batches were lost, repeated or put in another order. Or a broker forgot the producer in "
    "between, as after producer.id.expiration.ms, and could not reject what it sent."
)
_COMPARE = (
    "Compare the offsets around it with another replica: `kafkalog dump-segment --producer-id` "
    "lists the producer's batches."
)
_SNAPSHOT = (
    "While the broker is down, delete the snapshot; if it is the newest one, delete "
    "`.kafka_cleanshutdown` as well: the broker then replays the log from an older one."
)
_REBUILD = (
    "While the broker is down, `kafkalog rebuild-index --in-place --backup DIR` makes all indexes "
    "of the segment from its log, as a broker does that finds no .index."
)

REFERENCES: Final = (
    Reference("producer-snapshot-corrupt", _I, "Version, checksum or layout of a producer "
              "snapshot are wrong.", "It is discarded and an older one is used.",
              arises="The machine stopped before the snapshot was written; bits that flipped."),
    Reference("producer-snapshot-wrong", _W, "A producer snapshot with a right checksum says of a "
              "producer what the log contradicts.", "It is believed: the broker rejects what is in "
              "sequence, accepts duplicates, or holds back read_committed consumers.", _SNAPSHOT,
              arises="The snapshot is that of another log or of other times of this one, or was "
              "changed."),
    Reference("producer-snapshot-misplaced", _W, "A producer snapshot is of an offset behind the "
              "end of the log, or inside a batch.", "One behind the end is removed at the start, "
              "after it has made the broker remove the newest good one, so that more of the log "
              "is replayed. One inside a batch is believed.", _SNAPSHOT,
              arises="The log has lost its end, or the snapshot is that of another log."),
    Reference("producer-snapshots-missing", _W, "A log that was closed has batches of producers, "
              "but no producer snapshot at all.", "After a clean shutdown it forgets all producers "
              "and all open transactions without reading the log.", "Delete `.kafka_cleanshutdown` "
              "before the broker starts: it replays the log then.",
              arises="The snapshots were deleted by hand or left out of a copy."),
    Reference("producer-sequence-repeated", _W, "The sequences of a producer go back, although "
              "nothing is missing in between.", "Nothing: only what a producer sends is checked.",
              _COMPARE, arises=_LOST),
    Reference("producer-sequence-skipped", _W, "The sequences of a producer leave some out, "
              "although nothing is missing in between.",
              "Nothing: only what a producer sends is checked.", _COMPARE, arises=_LOST),
    Reference("producer-epoch-went-back", _W, "A batch has a lower epoch than the one of the same "
              "producer before it.", "A leader rejects it, unless it has forgotten the producer; "
              "whoever reads it later says so in its log at most.", _COMPARE,
              arises="Batches were put in another order, or a fenced producer was let in by a "
              "broker that had forgotten it."),
    Reference("coordinator-epoch-went-back", _W, "A marker has a lower coordinator epoch than the "
              "one of the same producer before it.", "A leader rejects it; whoever reads it later "
              "says so in its log at most.", _COMPARE,
              arises="Markers were put in another order, or __transaction_state was made anew."),
    Reference("batch-outside-transaction", _D, "A producer with an open transaction has a batch "
              "that is not transactional.", "It does not start on the log when it replays the "
              "batch: InvalidTxnStateException.",
              "If another replica is sound, let the broker fetch this one again; if none is, "
              "`kafkalog salvage` copies the sound batches.",
              arises="The marker between them was lost, or batches were put in another order."),
    Reference("transaction-open", _N, "A transaction has no marker yet.", "read_committed "
              "consumers wait in front of it, and compaction stops there, until it ends or times "
              "out.", arises="The producer is at work, or was when the broker stopped."),
    Reference("transaction-hanging", _W, "A transaction has no marker, and by the clocks of "
              "brokers nothing has been heard of it for more than a day.", "read_committed "
              "consumers wait in front of it for ever, and compaction stops there. "
              "`kafka-transactions.sh find-hanging` lists it.", "While brokers run, "
              "`kafka-transactions.sh abort` with the topic, the partition and the first offset "
              "of the transaction ends it; `kafkalog dump-segment --producer-id` lists its "
              "batches.",
              arises="A late batch was appended behind the marker of its transaction, or the "
              "coordinator has lost the transaction (KIP-664, KIP-890)."),
    Reference("aborted-transaction-missing", _I, "A transaction that the log shows as aborted is "
              "not in the transaction index.", "read_committed consumers get its records, and "
              "compaction takes them for committed ones.", _REBUILD,
              arises="The index was lost, cut, or not written when the broker or the disk failed."),
    Reference("aborted-transaction-wrong", _I, "An entry of a transaction index is not as the log "
              "has it: producer, offsets or last stable offset.", "read_committed consumers get "
              "aborted records, miss committed ones, or search the wrong range.", _REBUILD,
              arises="The index was changed, or is that of another log."),
)  # fmt: skip
