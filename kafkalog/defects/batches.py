"""What can be wrong with batches and the records in them."""

from __future__ import annotations

from typing import Final

from kafkalog.defects.reference import Reference
from kafkalog.model import Severity

_COPY_FIRST = (
    "Copy the partition before a broker starts on it: recovery drops all that follows. If another "
    "replica is sound, let this one be fetched anew."
)
_RECOVER = "A broker that starts after an unclean shutdown cuts it off."
_SERVED = "Recovery does not look inside a batch; it is served as it is, and consumers fail on it."
_D, _W, _N = Severity.DAMAGE, Severity.WARNING, Severity.NOTE

REFERENCES: Final = (
    Reference("batch-crc-mismatch", _D, "The bytes of a batch do not match its checksum.",
              "Recovery cuts the log off here; without recovery consumers fail.", _COPY_FIRST),
    Reference("batch-length-invalid", _D, "The length field of a batch cannot be right: the "
              "bytes behind it are no batch, or it is smaller than a header.",
              "Reading stops with an exception; recovery cuts the log off here.", _COPY_FIRST),
    Reference("magic-unknown", _D, "The version of the batch is none of 0, 1, 2.",
              "Not noticed for 3 and above: bytes up to the version have no checksum."),
    Reference("torn-tail", _D, "The last batch of the file is not all there, as after a crash "
              "during a write.", "Recovery cuts it off; a clean start appends behind it.",
              _RECOVER),
    Reference("zero-tail", _N, "The rest of the file is zero: preallocated, or extended by the "
              "file system before a crash.", "Recovery cuts it off."),
    Reference("decompression-failed", _D, "The records of a batch cannot be decompressed.",
              _SERVED),
    Reference("unknown-codec", _D, "A batch names a compression codec that Kafka does not have "
              "for its version.", _SERVED),
    Reference("record-malformed", _D, "A record inside a batch cannot be read: a number or a "
              "length in it cannot be right.", _SERVED),
    Reference("records-count-invalid", _D, "A batch does not hold as many records as its "
              "header says.", _SERVED),
    Reference("records-left-over", _D, "Bytes are left behind the last record of a batch.",
              _SERVED),
    Reference("message-set-invalid", _D, "A compressed message of magic 0 or 1 does not hold "
              "messages as it should.", _SERVED),
    Reference("control-record-malformed", _D, "A control record, such as the marker of a "
              "transaction, has no readable key or value.",
              "What reads it fails: read_committed consumers, and recovery."),
    Reference("decoder-key-missing", _W, "A record of an internal topic has no key.",
              "kafka-dump-log.sh ends with an exception."),
    Reference("limit-exceeded", _W, "A batch has more bytes when decompressed than the limit "
              "of 512 MiB.", "Nothing: Kafka's only limit is its memory."),
    Reference("batch-offset-not-increasing", _D, "A batch does not start after the one before "
              "it.", "Not noticed; consumers see records again or never."),
    Reference("batch-epoch-not-monotonic", _D, "The leader epoch of a batch does not fit those of "
              "the batches around it.",
              "Not noticed: the field has no checksum. An epoch that is too high goes into "
              "leader-epoch-checkpoint at a recovery, and consumers that have read it wait for a "
              "leader of that epoch.",
              "`kafkalog salvage` leaves the batch out. If another replica is sound, let this one "
              "be fetched anew.",
              arises="A bit of the batch's header was flipped outside its checksum."),
    Reference("batch-below-base-offset", _D, "A batch starts below the offset in the name of "
              "its segment.", "Recovery cuts the log off here.", _COPY_FIRST),
)  # fmt: skip
