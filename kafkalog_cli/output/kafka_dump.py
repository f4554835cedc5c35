"""The output of `kafka-dump-log.sh` for a list of files, and its reports at the end.

Follows `DumpLogSegments` of Kafka 4.4. Where that tool fails, this one reports the damage on stderr
and continues with the next file; it never writes to the files it reads.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack, suppress
from dataclasses import field, replace
from typing import TYPE_CHECKING, Final

from formats import file_names
from formats.constants import INT32_MAX
from formats.file_names import FileKind, parse_file_name
from formats.late_classes import dataclass
from kafkalog.errors import DataError, KafkaLogError, NotFoundError, ShortageError
from kafkalog.files.indexes import OffsetIndex, TimeIndex, read_aborted_transactions
from kafkalog.io.jit import fast_path
from kafkalog.io.paths.file_system import normalize
from kafkalog.io.paths.source import Source
from kafkalog.io.paths.uris import is_object
from kafkalog.io.wording import printable
from kafkalog.log.batches import index_matches
from kafkalog.log.batches.framing import crc_valid, read_batch
from kafkalog.log.batches.records import decode_records
from kafkalog.log.defects import make_defect
from kafkalog.model import Batch, Defect
from kafkalog_cli.outcome import Outcome, show_note
from kafkalog_cli.output import kafka_text as text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.log.batches.index_matches import TimeMatches

_BASE_OFFSET_MAX: Final = 1 << 62
"""Above this, sums of offsets could overflow in the kernels."""


@dataclass(frozen=True)
class DumpOptions:
    """The options of Kafka's tool that change the output."""

    deep: bool = False
    record: text.RecordText = field(default_factory=text.RecordText)
    max_bytes: int = INT32_MAX
    max_message_size: int = 5 * 1024 * 1024
    verify_only: bool = False
    sanity_check: bool = False


class KafkaDump:
    """A run over some files; `finish` prints the reports about all of them."""

    def __init__(self, options: DumpOptions, outcome: Outcome) -> None:
        self.options = options
        self.outcome = outcome
        self._mismatches: dict[str, dict[int, int]] = {}
        self._wrong_times: dict[str, list[tuple[int, int]]] = {}
        self._unordered: dict[str, list[tuple[int, int]]] = {}
        self._not_found: dict[str, list[tuple[int, int]]] = {}
        self._gaps: dict[str, dict[int, int]] = {}

    def dump(self, path: str) -> None:
        """Print one file; damage and missing files are reported, not raised."""
        path = normalize(path) if is_object(path) else text.java_path(path)
        text.put_line(f"Dumping {path}")
        suffix = os.path.basename(path).rpartition(".")[2] if "." in path else ""
        printers = {
            "log": self._log,
            "checkpoint": self._log,
            "index": self._offset_index,
            "timeindex": self._time_index,
            "txnindex": self._transaction_index,
            "snapshot": self._snapshot,
        }
        if suffix not in printers:
            show_note(f"Ignoring unknown file {path}")
            return
        try:
            if parse_file_name(os.path.basename(path)).kind == FileKind.UNKNOWN:
                # The tool would fail on the name; opening says what is wrong with it.
                from kafkalog.files.log_dir import open_path

                open_path(path)
            printers[suffix](path)
        except ShortageError:
            raise
        except KafkaLogError as error:
            self.outcome.hear(error)

    def _log(self, path: str) -> None:
        text.put_line(text.heading(parse_file_name(os.path.basename(path))))
        with Source(path) as source:
            limit = min(source.size_bytes, self.options.max_bytes)
            if self._is_fast(self._size(source, limit)):
                self._fast_log(source, limit)
                return
            # The tool begins each file like this: a first offset other than 0 is a gap.
            previous, position = -1, 0
            for batch in _frames(source, limit):
                if isinstance(batch, Defect):
                    self._tail(batch, source, position)
                    return
                position = batch.end_position
                previous = self._batch(source, batch, previous)

    def _size(self, source: Source, limit: int) -> int:
        if not self.options.deep:
            return min(limit, source.stored_bytes)
        from kafkalog.log.columns.budget import size_to_decode

        return size_to_decode(source, 0, limit)

    def _is_fast(self, size_bytes: int) -> bool:
        """Return whether kernels write the text: plain text of a large log, not for a terminal."""
        record = self.options.record
        plain = record.decoder is None and not any(record.numbers)
        return plain and not sys.stdout.isatty() and fast_path.is_worth_it(size_bytes)

    def _fast_log(self, source: Source, limit: int) -> None:
        from kafkalog.log.text.kafka_text import dump_lines

        record, deep = self.options.record, self.options.deep
        gaps = self._gaps.setdefault(source.path, {})
        previous, _position = -1, 0
        for found in dump_lines(
            source, limit, deep=deep, content=record.content, metadata=record.metadata,
            threads=fast_path.default_threads(),
            line_of=lambda one: text.record_line(one, record),
        ):  # fmt: skip
            if isinstance(found, Defect):
                self._tail(found, source, found.position or 0)
                return
            if isinstance(found, Batch):
                previous = self._batch(source, found, previous)
                continue
            sys.stdout.buffer.write(found.text)
            for defect in found.defects:
                self._defect(defect)
            if found.ends:
                if found.ends[0] != previous + 1:
                    gaps[previous] = found.ends[0]
                gaps.update(found.gaps)
                previous = found.ends[1]

    def _batch(self, source: Source, batch: Batch, previous: int) -> int:
        """Print a batch, with its records if they are wanted; return the last offset."""
        batch = replace(batch, crc_valid=crc_valid(source, batch))
        text.put_line(text.batch_line(batch))
        if not batch.crc_valid:
            from kafkalog.log.batches.order import batch_defects

            for defect in batch_defects(batch):
                self._defect(defect)
        return self._records(source, batch, previous) if self.options.deep else previous

    def _tail(self, defect: Defect, source: Source, position: int) -> None:
        """Report anything after the last batch that can be framed."""
        if defect.reference == "torn-tail":
            # The tool does not look for a tail if bytes are left out on purpose.
            if self.options.max_bytes == INT32_MAX:
                left = source.size_bytes - position
                name = os.path.basename(source.path)
                text.put_line(f"Found {left} invalid bytes at the end of {name}")
                self._defect(defect)
        elif source.is_zero_from(position):
            show_note(
                f"{source.path}: the rest from position {position} on is zero, preallocated or "
                "never written (Kafka's tool ends with an exception here)"
            )
        else:
            self._defect(defect)

    def _records(self, source: Source, batch: Batch, previous: int) -> int:
        gaps = self._gaps.setdefault(source.path, {})
        try:
            for record in decode_records(source, batch):
                if record.offset != previous + 1:
                    gaps[previous] = record.offset
                previous = record.offset
                text.put_line(text.record_line(record, self.options.record))
        except DataError as error:
            from kafkalog.log.batches.selection import defect_of

            self._defect(defect_of(error, batch))
        return previous

    def _offset_index(self, path: str) -> None:
        with OffsetIndex(path) as index, Source(_sibling(path, file_names.LOG)) as log:
            if index.slot_count == 0:  # the tool says so whatever the options are
                text.put_line(f"{path} is empty.")
                return
            if self.options.sanity_check:
                self._sanity(path, index, sound=True)
                return
            for found in index_matches.match_offsets(index, log, self.options.max_message_size):
                if found.mismatches:
                    self._mismatches.setdefault(path, {}).update(found.mismatches)
                if not self.options.verify_only:
                    text.put_offset_entries(found.entries)
                if found.defect is not None:
                    self._defect(found.defect)

    def _time_index(self, path: str) -> None:
        with ExitStack() as files:
            index = files.enter_context(TimeIndex(path))
            log = files.enter_context(Source(_sibling(path, file_names.LOG)))
            offsets = None
            with suppress(NotFoundError):  # Kafka's tool would create the file and fail
                offsets = files.enter_context(OffsetIndex(_sibling(path, file_names.OFFSET_INDEX)))
            if self.options.sanity_check:
                last = index.entry(index.slot_count - 1) if index.slot_count else None
                sound = last is None or last.timestamp >= index.entry(0).timestamp
                self._sanity(path, index, sound=sound)
                return
            for found in _match_times(index, offsets, log):
                for noted, new in (
                    (self._not_found, found.not_found),
                    (self._wrong_times, found.wrong),
                    (self._unordered, found.unordered),
                ):
                    if new:
                        noted.setdefault(path, []).extend(new)
                # Padding over an empty log is not damage: a broker has it open, or was killed.
                missed = any(log == -1 for _, log in found.not_found)
                self.outcome.lacks(missed and index.entry_count > 0)
                if not self.options.verify_only:
                    text.put_time_entries(found.entries)

    def _sanity(self, path: str, index: OffsetIndex | TimeIndex, *, sound: bool) -> None:
        """Print the result of Kafka's `sanityCheck`, except that zero padding is not damage."""
        odd = index.size_bytes % index.entry_size
        if odd:
            detail = f"The size {index.size_bytes} is not a multiple of {index.entry_size}."
            self._defect(make_defect("index-size-not-multiple", path, detail))
        elif sound:
            text.put_line(f"{path} passed sanity check.")
        elif index.entry_count < index.slot_count:
            show_note(f"{path} is zero-padded, which Kafka's own sanity check calls corrupt")
        else:
            detail = "The last timestamp is smaller than the first."
            self._defect(make_defect("time-index-not-monotonic", path, detail))

    def _transaction_index(self, path: str) -> None:
        with suppress(NotFoundError):  # a segment without aborted transactions has no such file
            for entry in read_aborted_transactions(path):
                text.put_line(text.aborted_transaction_line(entry))

    def _snapshot(self, path: str) -> None:
        from kafkalog.log.producers import read_producer_snapshot

        for state in read_producer_snapshot(path):
            text.put_line(text.producer_line(state))

    def _defect(self, defect: Defect) -> None:
        self.outcome.hear(defect)

    def finish(self) -> None:
        """Print the reports over all files on stderr, as Kafka's tool does."""
        lines = []
        for path, offsets in self._mismatches.items():
            lines.append(f"Mismatches in :{text.absolute_path(path)}")
            # As the tool prints them; one line per index offset.
            for offset, last in sorted(offsets.items(), reverse=True):
                lines.append(f"  Index offset: {offset}, log offset: {last}")
        for path, times in self._wrong_times.items():
            lines.append(f"Found timestamp mismatch in :{text.absolute_path(path)}")
            lines += [f"  Index timestamp: {entry}, log timestamp: {log}" for entry, log in times]
        for path, times in self._unordered.items():
            lines.append(f"Found out of order timestamp in :{text.absolute_path(path)}")
            for entry, before in times:
                lines.append(f"  Index timestamp: {entry}, Previously indexed timestamp: {before}")
        for path, found in self._not_found.items():
            absolute = text.absolute_path(path)
            lines.append(f"The following indexed offsets are not found in :{absolute}")
            lines += [f"Indexed offset: {entry}, found log offset: {log}" for entry, log in found]
        for path, gaps in self._gaps.items():
            if gaps:
                lines.append(f"Non-consecutive offsets in {text.absolute_path(path)}")
            lines += [f"  {last} is followed by {offset}" for last, offset in sorted(gaps.items())]
        sys.stdout.flush()
        sys.stderr.write("".join(f"{printable(line)}\n" for line in lines))


def _frames(source: Source, end: int, position: int = 0) -> Iterator[Batch | Defect]:
    """Yield batches as Kafka's file scanner does, up to the first that it cannot frame."""
    while position < end:
        found = read_batch(source, position, end)
        yield found
        if isinstance(found, Defect):
            return
        position = found.end_position


def _sibling(path: str, suffix: str) -> str:
    return path[: path.rindex(".")] + suffix


def _match_times(
    index: TimeIndex, offsets: OffsetIndex | None, log: Source
) -> Iterator[TimeMatches]:
    """Do what `index_matches.match_times` does; a large log is read once, at memory speed."""
    if fast_path.is_worth_it(log.stored_bytes) and index.base_offset < _BASE_OFFSET_MAX:
        from kafkalog.log.columns import side_files

        return side_files.match_times(index, offsets, log)
    return index_matches.match_times(index, offsets, log)
