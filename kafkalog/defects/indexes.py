"""What can be wrong with the indexes of a segment."""

from __future__ import annotations

from typing import Final

from kafkalog.defects.reference import Reference
from kafkalog.model import Severity

_REBUILD = (
    "While the broker is down, `kafkalog rebuild-index --in-place --backup DIR` rebuilds all "
    "indexes of the segment, as a broker does if .index is missing."
)
_I = Severity.INDEX

REFERENCES: Final = (
    Reference("lookup-index-mismatch", _I, "`lookup-offset --no-index` found different records "
              "by scanning and by the indexes.", "Lookups give wrong answers.",
              "`kafkalog verify` names the wrong index; `kafkalog rebuild-index` rebuilds it.",
              arises="An index is wrong, see the other references of this severity; or the log "
                     "changed after its index was written."),
    Reference("index-size-not-multiple", _I, "The size of an index is not a multiple of its "
              "entry size (8, 12 or 34 bytes): it was truncated or written in part.",
              "The rest is ignored, then truncated when the index is closed.", _REBUILD,
              arises="The machine stopped while the index was written; the copy is incomplete."),
    Reference("offset-index-not-monotonic", _I, "Offsets or positions of an offset index do "
              "not increase.", "Lookups may start after the record and miss it.", _REBUILD,
              arises="A crash left blocks of the index unwritten; bits flipped; a tool wrote "
                     "it."),
    Reference("time-index-not-monotonic", _I, "Timestamps of a time index do not increase, or "
              "offsets decrease.", "Lookups by time give wrong answers.", _REBUILD,
              arises="A crash left blocks of the index unwritten; bits flipped; a tool wrote "
                     "it."),
    Reference("index-entry-misses-batch", _I, "An entry points to a position where no batch "
              "starts, or past the batch of its offset.",
              "Lookups that use the entry fail or miss records.", _REBUILD,
              arises="The index belongs to another state of the log: a file was restored or "
                     "edited, or a crash came before the index was written; bits flipped."),
    Reference("index-entry-beyond-log", _I, "An entry has an offset above the end of the "
              "segment.", "Lookups near the end fail.", _REBUILD,
              arises="The log was truncated after the index was written, or the index was "
                     "copied later than the log."),
    Reference("time-index-entry-wrong", _I, "The timestamp of an entry is not the largest up "
              "to its offset.", "Lookups by time give wrong answers; retention may delete too "
              "much or too little.",
              _REBUILD,
              arises="The index belongs to another state of the log; bits flipped."),
    Reference("transaction-index-invalid", _I, "An entry of a transaction index has an unknown "
              "version, an offset below its segment, or offsets out of order.",
              "If its sanity check fails, the broker rebuilds it when it starts.", _REBUILD,
              arises="A crash left blocks of the index unwritten; bits flipped; the index "
                     "belongs to another segment."),
    Reference("index-entry-offset-wrong", _I, "No batch between the position of an entry and "
              "that of the next one ends at the entry's offset.", "Lookups that use the entry may "
              "miss records.", _REBUILD, arises="A bit flipped; the index belongs to another log."),
    Reference("time-index-incomplete", _I, "The time index of a closed segment does not end with "
              "the largest timestamp of the segment.", "Not noticed: lookups by time miss "
              "records. Retention uses the last entry, or the modification time of the file if "
              "there is none.",
              _REBUILD, arises="The file was removed or truncated: if .timeindex is missing, a "
              "broker creates an empty one and does not rebuild it."),
    Reference("index-padding-not-zero", _I, "The preallocated part after the entries of an "
              "index is not all zero.", "Nothing until the index is full, if "
              "the log is recovered; otherwise the bytes are read as entries.", _REBUILD,
              arises="A bit flipped, or a write went to the wrong place."),
    Reference("index-not-trimmed", _I, "The index of a segment other than the active one ends "
              "with zeros.", "The zeros are read as entries: lookups give wrong answers.", _REBUILD,
              arises="The machine crashed: the file size reached the disk, the entries did not."),
    Reference("index-missing", _I, "A log with batches has no offset index or no time index.",
              "If .index is missing, all indexes of the segment are rebuilt; if .timeindex is "
              "missing, an empty one is created.", _REBUILD, arises="The file was removed, or "
                     "not copied."),
)  # fmt: skip
