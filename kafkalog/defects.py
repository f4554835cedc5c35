"""The names of what can be wrong: severity, meaning and next step of each reference.

`docs/defects.md` is generated from this table.
"""

from __future__ import annotations

from dataclasses import dataclass

from kafkalog.model import Defect, Severity


@dataclass(frozen=True, slots=True)
class Reference:
    """One kind of defect.

    Attributes:
        name: kebab-case, fixed.
        severity: how bad it is.
        meaning: what was found, and how it arises.
        broker: what Kafka makes of it.
        hint: what to do.
    """

    name: str
    severity: Severity
    meaning: str
    broker: str
    hint: str | None = None


_COPY_FIRST = (
    "Copy the partition before a broker starts on it: recovery drops all that follows. If another "
    "replica is sound, let this one be fetched anew."
)
_RECOVER = "A broker that starts after an unclean shutdown cuts it off."
_REBUILD = (
    "While the broker is down, delete this file and the segment's .index: a broker that finds no "
    ".index rebuilds all indexes of the segment."
)
_SERVED = "Recovery does not look inside a batch; it is served as it is, and consumers fail on it."

_D, _I, _W, _N = Severity.DAMAGE, Severity.INDEX, Severity.WARNING, Severity.NOTE

REFERENCES = {
    reference.name: reference
    for reference in (
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
        Reference("lookup-index-mismatch", _I, "`lookup-offset --no-index` found another record by "
                  "scanning than with the indexes.", "Lookups answer wrongly.",
                  "`kafkalog verify` tells which index is wrong."),
        Reference("batch-offset-not-increasing", _D, "A batch does not start after the one before "
                  "it.", "Not noticed; consumers see records again or never."),
        Reference("batch-below-base-offset", _D, "A batch starts below the offset in the name of "
                  "its segment.", "Recovery cuts the log off here.", _COPY_FIRST),
        Reference("index-size-not-multiple", _I, "The size of an index is no multiple of its entry "
                  "size (8, 12 or 34 bytes): it was cut or written in part.",
                  "The rest is ignored, then cut off when the index is closed.", _REBUILD),
        Reference("offset-index-not-monotonic", _I, "Offsets or positions of an offset index do "
                  "not increase.", "Lookups may start behind the record and miss it.", _REBUILD),
        Reference("time-index-not-monotonic", _I, "Timestamps of a time index do not increase, or "
                  "offsets decrease.", "Lookups by time answer wrongly.", _REBUILD),
        Reference("index-entry-misses-batch", _I, "An entry points to a position where no batch "
                  "starts, or to one whose predecessors reach its offset.",
                  "Lookups through the entry fail or miss records.", _REBUILD),
        Reference("index-entry-beyond-log", _I, "An entry has an offset that the segment does not "
                  "reach.", "Lookups near the end fail.", _REBUILD),
        Reference("time-index-entry-wrong", _I, "The timestamp of an entry is not the largest up "
                  "to its offset.", "Lookups by time answer wrongly; retention may go wrong.",
                  _REBUILD),
        Reference("transaction-index-invalid", _I, "An entry of a transaction index has an unknown "
                  "version, an offset below its segment, or offsets out of order.",
                  "The index is rebuilt at the start if its sanity check fails.", _REBUILD),
        Reference("producer-snapshot-corrupt", _I, "Version, checksum or layout of a producer "
                  "snapshot are wrong.", "It is discarded and an older one is used."),
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
    )
}  # fmt: skip


def make_defect(
    name: str,
    path: str,
    detail: str,
    *,
    position: int | None = None,
    offset: int | None = None,
    size_bytes: int | None = None,
) -> Defect:
    """A defect of a known kind: severity and hint come from the table."""
    reference = REFERENCES[name]
    return Defect(
        reference=name,
        severity=reference.severity,
        path=path,
        detail=detail,
        position=position,
        offset=offset,
        hint=reference.hint,
        size_bytes=size_bytes,
    )
