"""Kafka's own text: the lines of `kafka-dump-log.sh`, byte for byte.

Follows `DumpLogSegments` and the `toString` methods it prints with.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from formats.file_names import BOOTSTRAP
from formats.late_classes import dataclass
from kafkalog.files.payloads.java_text import java_text, java_utf8
from kafkalog.io.paths.uris import is_object
from kafkalog_cli.output.text import compression_name

if TYPE_CHECKING:
    from formats.file_names import FileName
    from formats.releases import Release
    from kafkalog.files.payloads.kinds import PayloadKind
    from kafkalog.model import AbortedTransaction, Batch, ProducerState, Record


@dataclass(frozen=True, slots=True)
class RecordText:
    """Which parts of a record are printed.

    Attributes:
        metadata: whether offset, sizes and so on are (not with `--skip-record-metadata`).
        decoder: how internal topics' records are decoded; None for text.
        numbers: sizes in bytes of big-endian integers, (key, value); 0 for text.
        release: whose tool it is; None for the newest.
    """

    content: bool = False
    metadata: bool = True
    decoder: PayloadKind | None = None
    numbers: tuple[int, int] = (0, 0)
    release: Release | None = None


def heading(name: FileName) -> str:
    """Return the line after `Dumping …` of a `.log` or `.checkpoint`."""
    if name.name == BOOTSTRAP:
        return "KRaft bootstrap snapshot"
    if name.epoch is not None:
        return f"Snapshot end offset: {name.offset}, epoch: {name.epoch}"
    return f"Log starting offset: {name.offset}"


def batch_line(batch: Batch) -> str:
    tail = (
        f"position: {batch.position} {batch.timestamp_type}: {batch.max_timestamp} "
        f"size: {batch.size_bytes} magic: {batch.magic} compresscodec: {compression_name(batch)} "
        f"crc: {batch.crc} isvalid: {_boolean(bool(batch.crc_valid))}"
    )
    if batch.magic < 2:
        return f"offset: {batch.last_offset} {tail}"
    return (
        f"baseOffset: {batch.base_offset} lastOffset: {batch.last_offset} count: {batch.records} "
        f"baseSequence: {batch.base_sequence} lastSequence: {batch.last_sequence} "
        f"producerId: {batch.producer_id} producerEpoch: {batch.producer_epoch} "
        f"partitionLeaderEpoch: {batch.leader_epoch} "
        f"isTransactional: {_boolean(batch.is_transactional)} "
        f"isControl: {_boolean(batch.is_control)} "
        f"deleteHorizonMs: {_optional(batch.delete_horizon_timestamp)} {tail}"
    )


def record_line(record: Record, what: RecordText) -> bytes:
    """Return the line of a record, without its end.

    Raises:
        CorruptDataError: a control record or a coordinator's record cannot be decoded.
    """
    if not what.metadata:
        # Kafka prints an empty line for a record of which nothing is shown.
        if record.batch.is_control or not what.content:
            return b""
        content = _content(record, what)
        return b"".join((b"|", *content)) if content else b""
    line = (
        f"| offset: {record.offset} {record.timestamp_type}: {record.timestamp} "
        f"keySize: {_size(record.key)} valueSize: {_size(record.value)}"
    )
    if record.batch.magic < 2:
        line += f" isValid: {_boolean(bool(record.crc_valid))} crc: {record.crc}"
    else:
        names = ",".join(java_text(header.key) for header in record.headers)
        # Unquoted and with repetitions, as the tool prints them.
        line += f" sequence: {record.sequence} headerKeys: [{names}]"
        if record.batch.is_control:
            from kafkalog.files.payloads.control_records import control_text

            return _encoded(line + control_text(record))
    return b"".join((_encoded(line), *(_content(record, what) if what.content else ())))


def _content(record: Record, what: RecordText) -> list[bytes]:
    if what.decoder is not None:
        from kafkalog.files.payloads.internal_topics import kafka_text

        text = kafka_text(what.decoder, record, what.release)
        return [_encoded(text)] if text else []
    pieces: list[bytes] = []
    for word, data, width in (
        (b" key: ", record.key, what.numbers[0]),
        (b" payload: ", record.value, what.numbers[1]),
    ):
        if data is not None:
            number = int.from_bytes(data[:width], "big", signed=True)
            pieces.append(word)
            pieces += [b"%d" % number] if width else java_utf8(data)
    return pieces


def put_offset_entries(entries: list[tuple[int, int]]) -> None:
    lines = [f"offset: {offset} position: {position}\n" for offset, position in entries]
    sys.stdout.buffer.write("".join(lines).encode())


def put_time_entries(entries: list[tuple[int, int]]) -> None:
    lines = [f"timestamp: {timestamp} offset: {offset}\n" for timestamp, offset in entries]
    sys.stdout.buffer.write("".join(lines).encode())


def aborted_transaction_line(entry: AbortedTransaction) -> str:
    """Return the line of an aborted transaction; Kafka prints the version's high byte."""
    return (
        f"version: {entry.version >> 8} producerId: {entry.producer_id} "
        f"firstOffset: {entry.first_offset} lastOffset: {entry.last_offset} "
        f"lastStableOffset: {entry.last_stable_offset}"
    )


def producer_line(state: ProducerState) -> str:
    line = (
        f"producerId: {state.producer_id} producerEpoch: {state.producer_epoch} "
        f"coordinatorEpoch: {state.coordinator_epoch} "
        f"currentTxnFirstOffset: {_optional(state.current_txn_first_offset)} "
        f"lastTimestamp: {state.last_timestamp}"
    )
    if state.last_offset < 0:
        return line
    return (
        f"{line} firstSequence: {state.first_sequence} lastSequence: {state.last_sequence} "
        f"lastOffset: {state.last_offset} offsetDelta: {state.offset_delta} "
        f"timestamp: {state.last_timestamp}"
    )


def put_line(text: str | bytes) -> None:
    """Print one line of Kafka's text: raw, except on a terminal, where escapes are made visible."""
    if sys.stdout.isatty():
        from kafkalog.io.wording import printable

        if isinstance(text, bytes):
            text = text.decode("utf-8", "surrogateescape")
        text = printable(text)
    sys.stdout.buffer.write(_encoded(text) if isinstance(text, str) else text)
    sys.stdout.buffer.write(b"\n")


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def java_path(path: str) -> str:
    """Return the path as `java.io.File` prints it: no doubled or trailing slashes."""
    while "//" in path:
        path = path.replace("//", "/")
    return path.rstrip("/") if len(path) > 1 else path


def absolute_path(path: str) -> str:
    """Return the path as `File.getAbsolutePath` does."""
    is_absolute = os.path.isabs(path) or is_object(path)
    return path if is_absolute else os.path.join(os.getcwd(), path)


def _optional(value: int | None) -> str:
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)
