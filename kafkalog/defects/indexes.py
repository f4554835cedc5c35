"""What can be wrong with the indexes of a segment."""

from __future__ import annotations

from typing import Final

from kafkalog.defects.reference import Reference
from kafkalog.model import Severity

_REBUILD = (
    "While the broker is down, `kafkalog rebuild-index --in-place --backup DIR` makes all indexes "
    "of the segment from its log, as a broker does that finds no .index."
)
_I = Severity.INDEX

REFERENCES: Final = (
    Reference("lookup-index-mismatch", _I, "`lookup-offset --no-index` found another record by "
              "scanning than with the indexes.", "Lookups answer wrongly.",
              "`kafkalog verify` names the index that is wrong; `kafkalog rebuild-index` makes it "
              "again.",
              arises="An index that is wrong, as the other references of this severity tell; a "
                     "log that was changed behind its index."),
    Reference("index-size-not-multiple", _I, "The size of an index is no multiple of its entry "
              "size (8, 12 or 34 bytes): it was cut or written in part.",
              "The rest is ignored, then cut off when the index is closed.", _REBUILD,
              arises="The machine stopped while the index was written; a copy that was cut "
                     "short."),
    Reference("offset-index-not-monotonic", _I, "Offsets or positions of an offset index do "
              "not increase.", "Lookups may start behind the record and miss it.", _REBUILD,
              arises="Blocks of the index that were not written before a crash; bits that "
                     "flipped; a tool that wrote it."),
    Reference("time-index-not-monotonic", _I, "Timestamps of a time index do not increase, or "
              "offsets decrease.", "Lookups by time answer wrongly.", _REBUILD,
              arises="Blocks of the index that were not written before a crash; bits that "
                     "flipped; a tool that wrote it."),
    Reference("index-entry-misses-batch", _I, "An entry points to a position where no batch "
              "starts, or to one whose predecessors reach its offset.",
              "Lookups through the entry fail or miss records.", _REBUILD,
              arises="The index belongs to another state of the log: a restored or edited "
                     "file, a crash before the index was written; bits that flipped."),
    Reference("index-entry-beyond-log", _I, "An entry has an offset that the segment does not "
              "reach.", "Lookups near the end fail.", _REBUILD,
              arises="The log was cut after the index had been written, or the index was "
                     "copied later than the log."),
    Reference("time-index-entry-wrong", _I, "The timestamp of an entry is not the largest up "
              "to its offset.", "Lookups by time answer wrongly; retention may go wrong.",
              _REBUILD,
              arises="The index belongs to another state of the log; bits that flipped."),
    Reference("transaction-index-invalid", _I, "An entry of a transaction index has an unknown "
              "version, an offset below its segment, or offsets out of order.",
              "The index is rebuilt at the start if its sanity check fails.", _REBUILD,
              arises="Blocks of the index that were not written before a crash; bits that "
                     "flipped; an index of another segment."),
    Reference("index-entry-offset-wrong", _I, "The offset of an entry is the last one of no batch "
              "between its position and the next entry's.", "Lookups through the entry may miss "
              "records.", _REBUILD, arises="A bit that changed; an index of another log."),
    Reference("time-index-incomplete", _I, "The time index of a closed segment does not end with "
              "the largest timestamp of the segment.", "Not noticed: lookups by time miss records, "
              "and retention goes by the last entry, without any by the time of the file.",
              _REBUILD, arises="The file was removed or cut: a broker that finds no .timeindex "
              "makes an empty one and does not rebuild it."),
    Reference("index-padding-not-zero", _I, "Behind the entries of an index, where it is "
              "preallocated, not all bytes are zero.", "Nothing until the index is full, if the "
              "log is recovered; else they are taken for entries.", _REBUILD,
              arises="A bit that changed, or a write that went astray."),
    Reference("index-not-trimmed", _I, "The index of a segment that is not the active one ends "
              "with zeros.", "They are taken for entries: lookups go wrong.", _REBUILD,
              arises="A crash of the machine: the size reached the disk, the entries did not."),
    Reference("index-missing", _I, "A log with batches has no offset index or no time index.",
              "Without .index all indexes of the segment are rebuilt; without .timeindex an empty "
              "one is made.", _REBUILD, arises="The file was removed, or not copied."),
)  # fmt: skip
