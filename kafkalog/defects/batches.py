"""What can be wrong with batches and the records in them."""

from __future__ import annotations

from typing import Final

from kafkalog.defects.reference import Reference
from kafkalog.model import Severity

_COPY_FIRST = (
    "Copy the partition before a broker starts on it: recovery drops everything after the "
    "damage. If another replica is sound, let the broker fetch this one again; if none is, "
    "`kafkalog salvage` copies every sound batch, including those after the damage."
)
_RECOVER = (
    "`kafkalog recover` shows where an unclean start would truncate the log, and truncates it "
    "with --in-place."
)
_SALVAGE = "Another replica may have a sound one; `kafkalog salvage` copies all other batches."
_SERVED = (
    "Recovery does not look inside batches; the batch is served as it is, and consumers fail on it."
)
_REPLICA = (
    "If another replica is sound, remove this one and let the broker fetch it again; if none is, "
    "`kafkalog salvage` copies the batches that fit together."
)
_BITS = "A bit flipped on disk or in memory; another program wrote into the file."
_D, _W, _N = Severity.DAMAGE, Severity.WARNING, Severity.NOTE

REFERENCES: Final = (
    Reference("batch-crc-mismatch", _D, "The bytes of a batch do not match its checksum.",
              "Recovery truncates the log here; without recovery consumers fail.", _COPY_FIRST,
              arises="A bit flipped on disk, in memory or in a copy; a write reached the disk "
                     "only in part; somebody edited the file."),
    Reference("batch-length-invalid", _D, "The length field of a batch is wrong: no batch "
              "follows, or it is smaller than a header.",
              "Reading stops with an exception; recovery truncates the log here.", _COPY_FIRST,
              arises="A bit of the length flipped; bytes were lost or inserted; a crash left a "
                     "block of zeros or of another file."),
    Reference("magic-unknown", _D, "The magic (version) of the batch is not 0, 1 or 2.",
              "Not noticed for 3 and above: bytes up to the version have no checksum.", _SALVAGE,
              arises="A bit of the version byte flipped, or the block belongs to another log."),
    Reference("torn-tail", _D, "The last batch of the file is incomplete, as after a crash "
              "during a write.", "Recovery truncates it; after a clean shutdown the broker "
              "appends after it.",
              _RECOVER,
              arises="The broker or its machine stopped during an append; the file is a copy "
                     "of a live log, or an incomplete copy."),
    Reference("zero-tail", _N, "The rest of the file is zero: preallocated, or extended by the "
              "file system before a crash.", "Recovery truncates it.",
              arises="The segment was preallocated (log.preallocate) and not closed, or the "
                     "machine stopped after the file grew and before its bytes were written."),
    Reference("decompression-failed", _D, "The records of a batch cannot be decompressed.",
              _SERVED, _SALVAGE,
              arises="A producer wrote broken data and the broker did not look inside; bytes "
                     "changed before the checksum was computed."),
    Reference("unknown-codec", _D, "A batch names a compression codec that Kafka does not have "
              "for its version.", _SERVED, _SALVAGE,
              arises="A producer wrote it and the broker did not look inside; bytes changed "
                     "before the checksum was computed."),
    Reference("record-malformed", _D, "A record inside a batch cannot be read: a number or "
              "length in it is impossible.", _SERVED, _SALVAGE,
              arises="A producer wrote broken records and the broker did not look inside; "
                     "bytes changed before the checksum was computed."),
    Reference("records-count-invalid", _D, "The number of records in a batch differs from its "
              "header.", _SERVED, _SALVAGE,
              arises="A producer or a tool that rewrites logs wrote a wrong header; bytes "
                     "changed before the checksum was computed."),
    Reference("records-left-over", _D, "Bytes are left after the last record of a batch.",
              _SERVED, _SALVAGE,
              arises="A producer or a tool that rewrites logs wrote a wrong header or a wrong "
                     "length."),
    Reference("message-set-invalid", _D, "The content of a compressed message of magic 0 or 1 "
              "is not a valid message set.", _SERVED, _SALVAGE,
              arises="A client older than Kafka 0.11 wrote it, or a tool that converts logs."),
    Reference("control-record-malformed", _D, "A control record, such as a transaction marker, "
              "has no readable key or value.",
              "Readers fail on it: read_committed consumers, and recovery.", _SALVAGE,
              arises="A tool that rewrites logs wrote it; brokers write correct markers."),
    Reference("decoder-key-missing", _W, "A record of an internal topic has no key.",
              "kafka-dump-log.sh ends with an exception.",
              arises="Something other than a broker wrote to an internal topic."),
    Reference("limit-exceeded", _W, "The decompressed size of a batch exceeds the limit of 512 "
              "MiB.", "Nothing: only its memory limits it.",
              arises="The batch compresses extremely well: by chance, by a client with huge "
                     "batches, or to attack readers."),
    Reference("batch-offset-not-increasing", _D, "A batch does not start after the one before "
              "it.", "Not noticed; consumers see records twice or never.", "`kafkalog "
              "dump-segment --batches` shows the batches around it; `kafkalog salvage` leaves out "
              "those that their neighbours contradict.",
              arises="A bit of the base offset flipped, which no checksum covers; a tool wrote "
                     "batches twice or in another order."),
    Reference("batch-below-base-offset", _D, "A batch starts below the offset in the name of "
              "its segment.", "Recovery truncates the log here.", _COPY_FIRST,
              arises="A bit of the base offset flipped, which no checksum covers; the file was "
                     "renamed."),
    Reference("batch-offset-displaced", _D, "The base offset of a batch does not fit between "
              "its neighbours; exactly one other offset would.",
              "Not noticed, since no checksum covers it: consumers see records with wrong "
              "offsets, twice or never.", _REPLICA, arises=_BITS),
    Reference("segments-overlap", _D, "A segment contains offsets that belong to the next one.",
              "Not noticed; the offsets from the next segment's name on are read twice or from the "
              "next segment only.", _REPLICA,
              arises="The file came from another replica or was renamed; a bit flipped."),
    Reference("offsets-missing", _W, "Offsets are missing in a log that shows no sign of "
              "compaction.", "Not noticed; consumers skip them.",
              "If the topic was never compacted, records are lost: look for them on another "
              "replica.", arises="Segments or batches were removed; or the cleaner removed one "
              "batch, and its checkpoint is missing."),
    Reference("offsets-with-gaps", _N, "Offsets are missing in several places, and nothing "
              "else shows that the log was compacted.", "Nothing: a compacted log has such gaps.",
              arises="The log was compacted and copied without its checkpoints; batches were "
              "lost."),
    Reference("segment-offset-overflow", _W, "An offset is more than 2147483647 above the base "
              "offset of its segment, which no index can hold.",
              "The segment is split when the log is recovered; appends to it fail.",
              "`kafkalog recover --from start --in-place` splits it as a broker would.",
              arises="A broker older than 2.0 wrote the segment; a bit of a base offset "
              "flipped."),
    Reference("segment-too-large", _D, "A log file is larger than 2147483647 bytes.",
              "It cannot be opened: the log directory is taken offline.",
              "`kafkalog export` and `kafkalog dump-segment` read it anyway.",
              arises="Another program appended to the file."),
    Reference("batch-header-contradictory", _W, "Fields of a batch's header contradict each other "
              "or its marker.", "Not noticed once the batch is in the log.", None,
              arises="A bug in a broker or a tool: the checksum is correct."),
    Reference("attributes-unknown", _N, "A batch has attribute bits that no version of Kafka "
              "defines.", "Ignored.", None,
              arises="A client set them; brokers keep unknown bits."),
    Reference("record-offset-invalid", _D, "Records of a batch have offsets outside the batch, "
              "or offsets that do not increase.", _SERVED, _SALVAGE,
              arises="A bug in a broker or a tool: the checksum is correct."),
    Reference("max-timestamp-wrong", _W, "The largest timestamp in a batch differs from its "
              "header.", "Lookups by time and retention use the header.", None,
              arises="A bug in a broker or a tool: the checksum is correct."),
)  # fmt: skip
