"""What can be wrong with a log: its batches, its indexes, its producers."""

from __future__ import annotations

from typing import Final

from kafkalog.model import Reference, Severity

_D, _I, _W, _N = Severity.DAMAGE, Severity.INDEX, Severity.WARNING, Severity.NOTE
_COPY_FIRST = (
    "Copy the partition before a broker starts on it. If another replica is sound, let the "
    "broker fetch this one again; if none is, `kafkalog salvage` copies every sound batch, "
    "also after the damage."
)
_RECOVER = "`kafkalog recover PATH` shows where a start would truncate the log; --apply does it."
_SALVAGE = "Another replica may have a sound one; `kafkalog salvage` copies all other batches."
_SERVED = "Recovery does not look inside batches; consumers fail on it."
_REPLICA = (
    "If another replica is sound, let the broker fetch this one again; if none is, `kafkalog "
    "salvage` copies the batches that fit together."
)
_BITS = "A bit flipped on disk or in memory; another program wrote into the file."
_REBUILD = (
    "While the broker is down, `kafkalog rebuild-index PATH --apply --backup DIR` rebuilds all "
    "indexes of the segment."
)
_LOST = (
    "Batches were lost, repeated or reordered; or a broker forgot the producer, as after "
    "producer.id.expiration.ms, and could not reject what it sent."
)
_COMPARE = (
    "Compare the offsets with another replica: `kafkalog dump-segment --producer-id` lists the "
    "producer's batches."
)
_SNAPSHOT = (
    "While the broker is down, delete the snapshot; if it is the newest, delete "
    "`.kafka_cleanshutdown` too: the broker then replays the log from an older one."
)
_RUN_DUMP_PRODUCER = "kafkalog dump-segment PATH --batches --producer-id N"
_RUN_REBUILD = "kafkalog rebuild-index PATH --apply --backup DIR"
_RUN_RECOVER = "kafkalog recover PATH"
_RUN_SALVAGE = "kafkalog salvage PATH --to NEW"

BATCHES: Final = (
    Reference("batch-crc-mismatch", _D, "The bytes of a batch do not match its checksum.",
              "Recovery truncates the log here; without recovery consumers fail.", _COPY_FIRST,
              arises="A bit flipped on disk, in memory or in a copy; a write reached the disk "
                     "only in part; somebody edited the file.", command=_RUN_SALVAGE,
              example="Batch at base offset 126 does not match its checksum (stored 0xb401e9ec)."),
    Reference("batch-length-invalid", _D,
              "The length of a batch is wrong: no batch follows, or it is smaller than a header.",
              "Reading fails; recovery truncates the log here.", _COPY_FIRST,
              arises="A bit flipped; bytes were lost or inserted; a crash left a block of zeros "
                     "or of another file.", command=_RUN_SALVAGE,
              example="The length field says 0, but a batch of magic 2 has at least 49. Reading "
                      "resumes at position 820."),
    Reference("magic-unknown", _D, "The magic (version) of the batch is not 0, 1 or 2.",
              "Not noticed for 3 and above: no checksum covers it.", _SALVAGE,
              arises="A bit flipped, or the block belongs to another log.", command=_RUN_SALVAGE,
              example="Magic 3 is unknown."),
    Reference("torn-tail", _D, "The last batch of the file is incomplete.",
              "Recovery truncates it; after a clean shutdown the broker appends after it.",
              _RECOVER,
              arises="The broker or its machine stopped during an append; the file is a copy of a "
                     "live log, or incomplete.",
              command="kafkalog recover PATH --apply --backup DIR",
              example="The batch should have 92 bytes, but the file ends after 91."),
    Reference("zero-tail", _N, "The rest of the file is zero.", "Recovery truncates it.",
              arises="The segment was preallocated (log.preallocate) and not closed, or the "
                     "machine stopped before bytes were written.", command=_RUN_RECOVER,
              example="The rest is zero (100 bytes): preallocated or never written."),
    Reference("decompression-failed", _D, "The records of a batch cannot be decompressed.", _SERVED,
              _SALVAGE,
              arises="A producer wrote broken data and the broker did not look inside; bytes "
                     "changed before the checksum was computed.", command=_RUN_SALVAGE,
              example="The zstd data cannot be decompressed: the frame at position 0 is cut off."),
    Reference("unknown-codec", _D, "A batch names a compression codec that Kafka does not have.",
              _SERVED, _SALVAGE,
              arises="A producer wrote it and the broker did not look inside; bytes changed "
                     "before the checksum was computed.", command=_RUN_SALVAGE,
              example="Codec 5 is unknown to magic 2."),
    Reference("record-malformed", _D,
              "A record cannot be read: a number or length in it is impossible.", _SERVED, _SALVAGE,
              arises="A producer wrote broken records and the broker did not look inside; bytes "
                     "changed before the checksum was computed.", command=_RUN_SALVAGE,
              example="Record 0 of the batch cannot be parsed: variable-length integer is longer "
                      "than 5 bytes."),
    Reference("records-count-invalid", _D,
              "The number of records in a batch differs from its header.", _SERVED, _SALVAGE,
              arises="A producer or a tool wrote a wrong header; bytes changed before the "
                     "checksum was computed.", command=_RUN_SALVAGE,
              example="The header says 2147483647 records; the batch holds 2."),
    Reference("records-left-over", _D, "Bytes are left after the last record of a batch.", _SERVED,
              _SALVAGE, arises="A producer or a tool wrote a wrong header or a wrong length.",
              command=_RUN_SALVAGE, example="The last record of the batch is followed by 8 bytes."),
    Reference("message-set-invalid", _D,
              "The content of a compressed message of magic 0 or 1 is not a valid message set.",
              _SERVED, _SALVAGE,
              arises="A client older than Kafka 0.11 wrote it, or a tool that converts logs.",
              command=_RUN_SALVAGE, example="A compressed message has no value."),
    Reference("control-record-malformed", _D,
              "A control record, such as a transaction marker, has no readable key or value.",
              "Readers fail on it: read_committed consumers, and recovery.", _SALVAGE,
              arises="A tool wrote it; brokers write correct markers.", command=_RUN_SALVAGE),
    Reference("decoder-key-missing", _W, "A record of an internal topic has no key.",
              "kafka-dump-log.sh ends with an exception.",
              arises="Something other than a broker wrote to an internal topic."),
    Reference("limit-exceeded", _W,
              "A batch decompresses to more than 512 MiB, or a record has more than 1,048,576 "
              "headers.", "Nothing: only its memory limits it.",
              arises="The batch compresses extremely well: by chance, or to attack readers."),
    Reference("batch-offset-not-increasing", _D,
              "A batch does not start after the one before it, or not before the one after it. "
              "Tables leave it out.",
              "Not noticed; consumers see records twice or never.",
              "`kafkalog dump-segment --batches` shows the batches around it; `kafkalog salvage` "
              "leaves out those that their neighbours contradict.",
              arises="A bit flipped, which no checksum covers; a tool wrote batches twice or in "
                     "another order.", command=_RUN_SALVAGE,
              example="The batch has offsets 123 to 124, and lower ones follow."),
    Reference("batch-below-base-offset", _D,
              "A batch starts below the offset in the name of its segment.",
              "Recovery truncates the log here.", _COPY_FIRST,
              arises="A bit flipped, which no checksum covers; the file was renamed.",
              command=_RUN_SALVAGE, example="The batch starts at offset 3, the segment at 119."),
    Reference("batch-offset-displaced", _D,
              "The base offset of a batch does not fit between its neighbours; exactly one other "
              "would, at which it is read.",
              "Not noticed, as no checksum covers it: consumers see wrong offsets, twice or never.",
              "If another replica is sound, let the broker fetch this one again; if none is, "
              "`kafkalog salvage` copies the log with the right offset.",
              arises=_BITS, command=_RUN_SALVAGE,
              example="The batch has base offset 1099511627776; between its neighbours 126 is "
                      "right."),
    Reference("segments-overlap", _D, "A segment contains offsets that belong to the next one.",
              "Not noticed; the offsets from the next segment's name on are read twice or from "
              "that segment only.", _REPLICA,
              arises="The file came from another replica or was renamed; a bit flipped.",
              command=_RUN_SALVAGE),
    Reference("offsets-missing", _W,
              "Offsets are missing in a log that shows no sign of compaction.",
              "Not noticed; consumers skip them.",
              "If the topic was never compacted, look for the records on another replica.",
              arises="Segments or batches were removed; or the cleaner removed one batch, and its "
                     "checkpoint is missing.", command="kafkalog diff PATH OTHER --records"),
    Reference("offsets-with-gaps", _N,
              "Offsets are missing in several places, and nothing else shows that the log was "
              "compacted.", "Nothing: a compacted log has such gaps.",
              arises="The log was compacted and copied without its checkpoints; batches were "
                     "lost."),
    Reference("segment-offset-overflow", _W,
              "An offset is more than 2147483647 above the base offset of its segment: no index "
              "can hold it.", "Recovery splits the segment; appends to it fail.",
              "`kafkalog recover PATH --scan start --apply` splits it as a broker would.",
              arises="A broker older than 2.0 wrote the segment; a bit flipped.",
              command="kafkalog recover PATH --scan start --apply --backup DIR"),
    Reference("segment-too-large", _D, "A log file is larger than 2147483647 bytes.",
              "The log directory goes offline: the file cannot be opened.",
              "`kafkalog export` and `kafkalog dump-segment` read it anyway.",
              arises="Another program appended to the file.", command="kafkalog dump-segment PATH"),
    Reference("batch-header-contradictory", _W,
              "Fields of a batch's header contradict each other or its marker.",
              "Not noticed in the log.", None,
              arises="A bug in a broker or a tool: the checksum is correct."),
    Reference("attributes-unknown", _N,
              "A batch has attribute bits that no version of Kafka defines.", "Ignored.", None,
              arises="A client set them; brokers keep unknown bits."),
    Reference("record-offset-invalid", _D,
              "Offsets of records lie outside their batch, or do not increase.", _SERVED, _SALVAGE,
              arises="A bug in a broker or a tool: the checksum is correct.", command=_RUN_SALVAGE),
    Reference("max-timestamp-wrong", _W,
              "The largest timestamp in a batch differs from its header.",
              "Lookups by time and retention use the header.", None,
              arises="A bug in a broker or a tool: the checksum is correct."),
    Reference("timestamp-unit-suspected", _N,
              "A timestamp makes sense in another unit than milliseconds only.",
              "Retention deletes seconds at once, and keeps microseconds.",
              "Let the producer send milliseconds.",
              arises="A producer set it."),
)  # fmt: skip

INDEXES: Final = (
    Reference("lookup-index-mismatch", _I,
              "`lookup-offset --no-index` found different records by scanning than by the indexes.",
              "Lookups give wrong answers.",
              "`kafkalog verify` names the wrong index; `kafkalog rebuild-index` rebuilds it.",
              arises="An index is wrong, see the others of this severity; or the log changed "
                     "after it was written.", command=_RUN_REBUILD),
    Reference("index-size-not-multiple", _I,
              "The size of an index is not a multiple of its entry size (8, 12 or 34 bytes).",
              "The rest is ignored; releases up to 4.3 truncate it when they close the index.",
              _REBUILD,
              arises="The machine stopped while the index was written; the copy is incomplete.",
              command=_RUN_REBUILD,
              example="The size 157 is not a multiple of 8: 5 bytes too many."),
    Reference("offset-index-not-monotonic", _I,
              "Offsets or positions of an offset index do not increase.",
              "Lookups may start after the record and miss it.", _REBUILD,
              arises="A crash left blocks of the index unwritten; bits flipped; a tool wrote it.",
              command=_RUN_REBUILD, example="Entry 1: (125, 603) follows (130, 1153)."),
    Reference("time-index-not-monotonic", _I,
              "Timestamps of a time index do not increase, or offsets decrease.",
              "Lookups by time give wrong answers.", _REBUILD,
              arises="A crash left blocks of the index unwritten; bits flipped; a tool wrote it.",
              command=_RUN_REBUILD,
              example="Entry 1: (1795231085760, 125) follows (1795231131359, 126)."),
    Reference("index-entry-misses-batch", _I,
              "An entry points to a position where no batch starts, or past the batch of its "
              "offset.", "Lookups that use the entry fail or miss records.", _REBUILD,
              arises="The index belongs to another state of the log: a file was restored or "
                     "edited, or a crash came before the index was written; bits flipped.",
              command=_RUN_REBUILD,
              example="Entry 0 (offset 125): no batch starts at position 602."),
    Reference("index-entry-beyond-log", _I, "An entry has an offset above the end of the segment.",
              "Lookups near the end fail.", _REBUILD,
              arises="The log was truncated after the index was written, or the index was copied "
                     "later.", command=_RUN_REBUILD,
              example="Entry 19 (offset 1073741943): the log ends at offset 232."),
    Reference("time-index-entry-wrong", _I,
              "The timestamp of an entry is not the largest up to its offset.",
              "Lookups by time give wrong answers; retention may delete too much or too little.",
              _REBUILD, arises="The index belongs to another state of the log; bits flipped.",
              command=_RUN_REBUILD,
              example="Entry 0 says 1 up to offset 125, the log says 1795231085760 up to 125."),
    Reference("transaction-index-invalid", _I,
              "An entry of a transaction index has an unknown version, an offset below its "
              "segment, or is out of order.",
              "If its sanity check fails, the next start rebuilds it.", _REBUILD,
              arises="A crash left blocks of the index unwritten; bits flipped; it belongs to "
                     "another segment.", command=_RUN_REBUILD,
              example="Entry 0: version 256 is unknown."),
    Reference("index-entry-offset-wrong", _I,
              "No batch from the position of an entry to the next one ends at its offset.",
              "Lookups that use the entry may miss records.", _REBUILD,
              arises="A bit flipped; the index belongs to another log.", command=_RUN_REBUILD),
    Reference("time-index-incomplete", _I,
              "The time index of a closed segment does not end with its largest timestamp.",
              "Not noticed: lookups by time miss records. Retention uses the last entry, else the "
              "modification time of the file.", _REBUILD,
              arises="The file was removed or truncated: if .timeindex is missing, a broker "
                     "creates an empty one.", command=_RUN_REBUILD),
    Reference("index-padding-not-zero", _I,
              "The preallocated part after the entries of an index is not all zero.",
              "Nothing until the index is full, if the log is recovered; otherwise the bytes "
              "count as entries.", _REBUILD,
              arises="A bit flipped, or a write went to the wrong place.", command=_RUN_REBUILD),
    Reference("index-not-trimmed", _I, "The index of a closed segment ends with zeros.",
              "The zeros count as entries: lookups give wrong answers.", _REBUILD,
              arises="The machine crashed: the file size reached the disk, the entries did not.",
              command=_RUN_REBUILD),
    Reference("index-missing", _I, "A log with batches has no offset index or no time index.",
              "If .index is missing, all indexes of the segment are rebuilt; if .timeindex, an "
              "empty one is created.", _REBUILD, arises="The file was removed, or not copied.",
              command=_RUN_REBUILD),
)  # fmt: skip

PRODUCERS: Final = (
    Reference("producer-snapshot-corrupt", _I,
              "The version, checksum or layout of a producer snapshot is wrong.",
              "An older snapshot is used.",
              arises="The machine stopped before the snapshot was written; bits flipped.",
              example="Snapshot is corrupt (CRC is no longer valid). Stored crc: 1366218552. "
                      "Computed crc: 3442462025"),
    Reference("producer-snapshot-wrong", _W,
              "A producer snapshot with a correct checksum contradicts the log.",
              "Trusted: the broker rejects batches in sequence, accepts duplicates, or blocks "
              "read_committed consumers.", _SNAPSHOT,
              arises="The snapshot belongs to another log or time, or was changed."),
    Reference("producer-snapshot-misplaced", _W,
              "The offset of a producer snapshot is above the log end offset, or inside a batch.",
              "A snapshot above the log end is removed at the start, after the newest good one "
              "was removed because of it: the broker replays more of the log. One inside a batch "
              "is trusted.", _SNAPSHOT,
              arises="The log lost its end, or the snapshot belongs to another log."),
    Reference("producer-snapshots-missing", _W,
              "A cleanly closed log has batches with producer ids, but no snapshot.",
              "After a clean shutdown it forgets all producers and open transactions without "
              "reading the log.",
              "Delete `.kafka_cleanshutdown` before the broker starts, so that it replays the log.",
              arises="The snapshots were deleted or left out of a copy."),
    Reference("producer-sequence-repeated", _W,
              "The sequence numbers of a producer go back, although no offset is missing.",
              "Nothing: it only checks what a producer sends.", _COMPARE, arises=_LOST,
              command=_RUN_DUMP_PRODUCER),
    Reference("producer-sequence-skipped", _W,
              "The sequence numbers of a producer have a gap, although no offset is missing.",
              "Nothing: it only checks what a producer sends.", _COMPARE, arises=_LOST,
              command=_RUN_DUMP_PRODUCER),
    Reference("producer-epoch-went-back", _W,
              "A batch has a lower producer epoch than an earlier one of the same producer.",
              "A leader rejects it, unless it has forgotten the producer; later readers at most "
              "log a warning.", _COMPARE,
              arises="Batches were reordered, or a broker had forgotten a fenced producer.",
              command=_RUN_DUMP_PRODUCER),
    Reference("coordinator-epoch-went-back", _W,
              "A marker has a lower coordinator epoch than an earlier one of the same producer.",
              "A leader rejects it; later readers at most log a warning.", _COMPARE,
              arises="Markers were reordered, or __transaction_state was recreated.",
              command=_RUN_DUMP_PRODUCER),
    Reference("batch-outside-transaction", _D,
              "A producer has a batch outside its open transaction.",
              "It fails to load the log when it replays the batch: InvalidTxnStateException.",
              "If another replica is sound, let the broker fetch this one again; if none is, "
              "`kafkalog salvage` copies the sound batches.",
              arises="The marker between them was lost, or batches were reordered.",
              command=_RUN_SALVAGE),
    Reference("transaction-open", _N, "A transaction has no marker yet.",
              "read_committed consumers and compaction wait before it, until it ends or times out.",
              arises="The producer is active, or was when the broker stopped.",
              command="kafkalog transactions PATH"),
    Reference("transaction-hanging", _W,
              "A transaction has no marker, and its producer has been silent for more than a day.",
              "read_committed consumers and compaction wait before it forever. "
              "`kafka-transactions.sh find-hanging` lists it.",
              "While brokers run, `kafka-transactions.sh abort` with topic, partition and first "
              "offset ends it; `kafkalog dump-segment --producer-id` lists its batches.",
              arises="A late batch was appended after the marker, or the coordinator lost the "
                     "transaction (KIP-664, KIP-890).",
              command="kafkalog transactions PATH --hanging --commands"),
    Reference("aborted-transaction-missing", _I,
              "The transaction index lacks a transaction that the log shows as aborted.",
              "read_committed consumers receive its records, and compaction treats them as "
              "committed.", _REBUILD,
              arises="The index was lost, truncated, or not written before a failure.",
              command=_RUN_REBUILD),
    Reference("aborted-transaction-wrong", _I,
              "An entry of the transaction index contradicts the log: producer, offsets or last "
              "stable offset.",
              "read_committed consumers receive aborted records, miss committed ones, or search "
              "the wrong range.", _REBUILD,
              arises="The index was changed, or belongs to another log.", command=_RUN_REBUILD),
)  # fmt: skip

REFERENCES: Final = (*BATCHES, *INDEXES, *PRODUCERS)
