"""What can be wrong with producers, transactions and producer snapshots."""

from __future__ import annotations

from typing import Final

from kafkalog.defects.reference import Reference
from kafkalog.model import Severity

_D, _I, _W, _N = Severity.DAMAGE, Severity.INDEX, Severity.WARNING, Severity.NOTE
_LOST = (
    "Batches were lost, repeated or reordered. Or a broker forgot the producer in between, as "
    "after producer.id.expiration.ms, and could not reject what it sent."
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
    "While the broker is down, `kafkalog rebuild-index --in-place --backup DIR` rebuilds all "
    "indexes of the segment, as a broker does if .index is missing."
)

REFERENCES: Final = (
    Reference("producer-snapshot-corrupt", _I, "The version, checksum or layout of a producer "
              "snapshot is wrong.", "It is discarded and an older one is used.",
              arises="The machine stopped before the snapshot was written; bits flipped."),
    Reference("producer-snapshot-wrong", _W, "A producer snapshot with a correct checksum "
              "contradicts the log.", "It is trusted: the broker rejects batches "
              "in sequence, accepts duplicates, or blocks read_committed consumers.", _SNAPSHOT,
              arises="The snapshot belongs to another log or another time of this one, or was "
              "changed."),
    Reference("producer-snapshot-misplaced", _W, "The offset of a producer snapshot is above "
              "the log end offset, or inside a batch.", "A snapshot above the log end is removed "
              "at the start, after the newest good one was removed because of it, so that the "
              "broker replays more of the log. One inside a batch is trusted.", _SNAPSHOT,
              arises="The log lost its end, or the snapshot belongs to another log."),
    Reference("producer-snapshots-missing", _W, "A cleanly closed log has batches with "
              "producer ids, but no producer snapshot.", "After a clean shutdown it forgets all "
              "producers "
              "and all open transactions without reading the log.", "Delete "
              "`.kafka_cleanshutdown` before the broker starts, so that it replays the log.",
              arises="The snapshots were deleted by hand or left out of a copy."),
    Reference("producer-sequence-repeated", _W, "The sequence numbers of a producer go back, "
              "although no offset is missing in between.", "Nothing: it only checks what a "
              "producer sends.",
              _COMPARE, arises=_LOST),
    Reference("producer-sequence-skipped", _W, "The sequence numbers of a producer have a gap, "
              "although no offset is missing in between.",
              "Nothing: it only checks what a producer sends.", _COMPARE, arises=_LOST),
    Reference("producer-epoch-went-back", _W, "A batch has a lower producer epoch than an "
              "earlier batch of the same producer.", "A leader rejects it, unless it has "
              "forgotten the "
              "producer; later readers at most log a warning.", _COMPARE,
              arises="Batches were reordered, or a broker that had forgotten a fenced producer "
              "accepted it."),
    Reference("coordinator-epoch-went-back", _W, "A marker has a lower coordinator epoch than "
              "an earlier marker of the same producer.", "A leader rejects it; later readers at "
              "most log a warning.", _COMPARE,
              arises="Markers were reordered, or __transaction_state was recreated."),
    Reference("batch-outside-transaction", _D, "A producer with an open transaction has a batch "
              "that is not transactional.", "It fails to load the log when it replays the "
              "batch: InvalidTxnStateException.",
              "If another replica is sound, let the broker fetch this one again; if none is, "
              "`kafkalog salvage` copies the sound batches.",
              arises="The marker between them was lost, or batches were reordered."),
    Reference("transaction-open", _N, "A transaction has no marker yet.", "read_committed "
              "consumers wait before it, and compaction stops there, until it ends or times "
              "out.", arises="The producer is active, or was when the broker stopped."),
    Reference("transaction-hanging", _W, "A transaction has no marker, and by the brokers' "
              "clocks its producer has been silent for more than a day.", "read_committed "
              "consumers wait before it forever, and compaction stops there. "
              "`kafka-transactions.sh find-hanging` lists it.", "While brokers run, "
              "`kafka-transactions.sh abort` with the topic, the partition and the first offset "
              "of the transaction ends it; `kafkalog dump-segment --producer-id` lists its "
              "batches.",
              arises="A late batch was appended after the marker of its transaction, or the "
              "coordinator lost the transaction (KIP-664, KIP-890)."),
    Reference("aborted-transaction-missing", _I, "The transaction index lacks a transaction "
              "that the log shows as aborted.", "read_committed consumers receive its records, "
              "and compaction treats them as committed.", _REBUILD,
              arises="The index was lost, truncated, or not written when the broker or the "
                     "disk failed."),
    Reference("aborted-transaction-wrong", _I, "An entry of the transaction index contradicts "
              "the log: producer, offsets or last stable offset.", "read_committed consumers "
              "receive aborted records, miss committed ones, or search the wrong range.", _REBUILD,
              arises="The index was changed, or belongs to another log."),
)  # fmt: skip
