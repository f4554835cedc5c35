"""What can be wrong with batches and the records in them."""

from __future__ import annotations

from typing import Final

from kafkalog.defects.reference import Reference
from kafkalog.model import Severity

_COPY_FIRST = (
    "Copy the partition before a broker starts on it: recovery drops all that follows. If another "
    "replica is sound, let the broker fetch this one again; if none is, `kafkalog salvage` copies "
    "every sound batch, those after the damage included."
)
_RECOVER = (
    "`kafkalog recover` shows where an unclean start would cut the log, and cuts it there with "
    "--in-place."
)
_SALVAGE = "Another replica may have a sound one; `kafkalog salvage` copies all other batches."
_SERVED = "Recovery does not look inside a batch; it is served as it is, and consumers fail on it."
_REPLICA = (
    "If another replica is sound, remove this one and let the broker fetch it again; if none is, "
    "`kafkalog salvage` copies the batches that fit together."
)
_BITS = "A bit that changed on the disk or in memory; another program wrote into the file."
_D, _W, _N = Severity.DAMAGE, Severity.WARNING, Severity.NOTE

REFERENCES: Final = (
    Reference("batch-crc-mismatch", _D, "The bytes of a batch do not match its checksum.",
              "Recovery cuts the log off here; without recovery consumers fail.", _COPY_FIRST,
              arises="A bit that flipped on the disk, in memory or in a copy; a write that "
                     "reached the disk only in part; a file that somebody edited."),
    Reference("batch-length-invalid", _D, "The length field of a batch cannot be right: the "
              "bytes behind it are no batch, or it is smaller than a header.",
              "Reading stops with an exception; recovery cuts the log off here.", _COPY_FIRST,
              arises="A bit that flipped in the length; bytes that were lost or put in within "
                     "the file; a block of zeros or of another file after a crash."),
    Reference("magic-unknown", _D, "The version of the batch is none of 0, 1, 2.",
              "Not noticed for 3 and above: bytes up to the version have no checksum.", _SALVAGE,
              arises="A bit that flipped in the version byte, or a block that is not this "
                     "log's."),
    Reference("torn-tail", _D, "The last batch of the file is not all there, as after a crash "
              "during a write.", "Recovery cuts it off; a clean start appends behind it.",
              _RECOVER,
              arises="The broker or its machine stopped while it appended; a copy that was "
                     "made of a live log, or that was cut short."),
    Reference("zero-tail", _N, "The rest of the file is zero: preallocated, or extended by the "
              "file system before a crash.", "Recovery cuts it off.",
              arises="The segment was preallocated (log.preallocate) and not closed, or the "
                     "machine stopped after the file had grown and before its bytes were "
                     "written."),
    Reference("decompression-failed", _D, "The records of a batch cannot be decompressed.",
              _SERVED, _SALVAGE,
              arises="A producer wrote broken data and the broker did not look inside; bytes "
                     "changed before the checksum was computed."),
    Reference("unknown-codec", _D, "A batch names a compression codec that Kafka does not have "
              "for its version.", _SERVED, _SALVAGE,
              arises="A producer wrote it and the broker did not look inside; bytes changed "
                     "before the checksum was computed."),
    Reference("record-malformed", _D, "A record inside a batch cannot be read: a number or a "
              "length in it cannot be right.", _SERVED, _SALVAGE,
              arises="A producer wrote broken records and the broker did not look inside; "
                     "bytes changed before the checksum was computed."),
    Reference("records-count-invalid", _D, "A batch does not hold as many records as its "
              "header says.", _SERVED, _SALVAGE,
              arises="A producer or a tool that rewrites logs wrote a wrong header; bytes "
                     "changed before the checksum was computed."),
    Reference("records-left-over", _D, "Bytes are left behind the last record of a batch.",
              _SERVED, _SALVAGE,
              arises="A producer or a tool that rewrites logs wrote a wrong header or a wrong "
                     "length."),
    Reference("message-set-invalid", _D, "A compressed message of magic 0 or 1 does not hold "
              "messages as it should.", _SERVED, _SALVAGE,
              arises="A client of the years before Kafka 0.11 wrote it, or a tool that "
                     "converts logs."),
    Reference("control-record-malformed", _D, "A control record, such as the marker of a "
              "transaction, has no readable key or value.",
              "What reads it fails: read_committed consumers, and recovery.", _SALVAGE,
              arises="A tool that rewrites logs wrote it; brokers write markers themselves, "
                     "and do so rightly."),
    Reference("decoder-key-missing", _W, "A record of an internal topic has no key.",
              "kafka-dump-log.sh ends with an exception.",
              arises="Something other than a broker wrote to an internal topic."),
    Reference("limit-exceeded", _W, "A batch has more bytes when decompressed than the limit "
              "of 512 MiB.", "Nothing: Kafka's only limit is its memory.",
              arises="A batch that compresses extremely well: by chance, by a client with huge "
                     "batches, or made to harm who reads it."),
    Reference("batch-offset-not-increasing", _D, "A batch does not start after the one before "
              "it.", "Not noticed; consumers see records again or never.", "`kafkalog "
              "dump-segment --batches` shows the batches around it; `kafkalog salvage` leaves out "
              "those that their neighbours contradict.",
              arises="A bit that flipped in the base offset, which no checksum covers; batches "
                     "written twice, or put in another order by a tool."),
    Reference("batch-below-base-offset", _D, "A batch starts below the offset in the name of "
              "its segment.", "Recovery cuts the log off here.", _COPY_FIRST,
              arises="A bit that flipped in the base offset, which no checksum covers; a file "
                     "that was renamed."),
    Reference("batch-offset-displaced", _D, "The base offset of a batch does not fit between the "
              "batches around it, where exactly one other would.",
              "Not noticed, no checksum covers it: consumers see records with wrong offsets, again "
              "or never.", _REPLICA, arises=_BITS),
    Reference("segments-overlap", _D, "A segment has offsets of the next one.",
              "Not noticed; the offsets from the next segment's name on are read twice or from the "
              "next segment only.", _REPLICA,
              arises="A file that came from another replica or was renamed; a bit that changed."),
    Reference("offsets-missing", _W, "Offsets are missing in a log that shows no sign of "
              "compaction.", "Not noticed; consumers skip them.",
              "If the topic was never compacted, records are lost: look for them on another "
              "replica.", arises="Segments or batches were removed; or the cleaner removed one "
              "batch, and its checkpoint is not there."),
    Reference("offsets-with-gaps", _N, "Offsets are missing at several places, and nothing else "
              "says that the log was compacted.", "Nothing: a compacted log has such gaps.",
              arises="The copy of a compacted log without the checkpoints around it; lost "
              "batches."),
    Reference("segment-offset-overflow", _W, "An offset is more than 2147483647 above the base "
              "offset of its segment, which no index can express.",
              "The segment is split when the log is recovered; appends to it fail.",
              "`kafkalog recover --from start --in-place` splits it as a broker would.",
              arises="A segment written by a broker before 2.0; a bit that changed in a base "
              "offset."),
    Reference("segment-too-large", _D, "A log file is larger than 2147483647 bytes.",
              "It cannot be opened: the log directory is taken offline.",
              "`kafkalog export` and `kafkalog dump-segment` read it all the same.",
              arises="Another program appended to the file."),
    Reference("batch-header-contradictory", _W, "Fields of a batch's header contradict each other "
              "or its marker.", "Not noticed once the batch is in the log.", None,
              arises="A broker or a tool with a bug: the checksum is right."),
    Reference("attributes-unknown", _N, "A batch has attributes that no version of Kafka gave a "
              "meaning.", "Ignored.", None,
              arises="A client that sets them; a broker keeps what it does not know."),
    Reference("record-offset-invalid", _D, "Records of a batch have offsets outside the batch, or "
              "that do not rise.", _SERVED, _SALVAGE,
              arises="A broker or a tool with a bug: the checksum is right."),
    Reference("max-timestamp-wrong", _W, "The largest timestamp in a batch is not the one that "
              "its header says.", "Lookups by time and retention go by the header.", None,
              arises="A broker or a tool with a bug: the checksum is right."),
)  # fmt: skip
