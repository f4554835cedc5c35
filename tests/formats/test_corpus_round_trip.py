"""Every byte of the corpus through its schema and back: `build(parse(b)) == b`."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from formats.file_names import FileKind, parse_directory_name
from formats.internal_topics import (
    ControlRecordKey,
    CoordinatorKey,
    CoordinatorValue,
    EndTxnMarker,
    MetadataFrame,
    kraft_value,
)
from formats.message_schema import by_key, schema
from formats.record_batch import Message, Record, RecordBatch
from formats.side_files import OffsetIndex, ProducerSnapshot, TimeIndex, TransactionIndex
from formats.text_files import (
    Checkpoint,
    CleanShutdown,
    MetaProperties,
    PartitionMetadata,
    QuorumState,
)
from kafkalog.files.log_dir import open_path
from kafkalog.io.codecs import decompress
from kafkalog.io.paths.source import Source
from kafkalog.log.batches.framing import scan_batches
from kafkalog.model import Batch
from kafkalog.node.inventory import list_files
from kafkalog.node.unified_log import UnifiedLog

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from tests.conftest import State

WHOLE_FILES = {
    FileKind.OFFSET_INDEX: OffsetIndex,
    FileKind.TIME_INDEX: TimeIndex,
    FileKind.TRANSACTION_INDEX: TransactionIndex,
    FileKind.PRODUCER_SNAPSHOT: ProducerSnapshot,
    FileKind.OFFSET_CHECKPOINT: Checkpoint,
    FileKind.LEADER_EPOCH_CHECKPOINT: Checkpoint,
    FileKind.META_PROPERTIES: MetaProperties,
    FileKind.PARTITION_METADATA: PartitionMetadata,
    FileKind.QUORUM_STATE: QuorumState,
    FileKind.CLEAN_SHUTDOWN: CleanShutdown,
}
FAMILIES = {
    "__consumer_offsets": "offsets",
    "__transaction_state": "transaction-log",
    "__share_group_state": "share-group-state",
}
# Zero padding of preallocated files: enough of it to show that it survives, not 10 MiB of it.
FILE_SIZE_MAX = 96_000


def survives(schema: Any, data: bytes) -> Any:
    parsed = schema.parse(data)
    assert schema.build(parsed) == data
    return parsed


@pytest.mark.sampled(30)
def test_every_file_comes_back_byte_for_byte(any_state: State) -> None:
    """Batches, records of every codec, indexes, snapshots, checkpoints, internal records."""
    counts: Counter[str] = Counter()
    for log_dir in any_state.log_dirs:
        for row in list_files([open_path(str(log_dir))]):
            if row.kind in WHOLE_FILES:
                with open(row.path, "rb") as file:
                    survives(WHOLE_FILES[row.kind], file.read(FILE_SIZE_MAX))
            elif row.kind in (FileKind.LOG, FileKind.KRAFT_SNAPSHOT):
                batches_survive(row.path, counts)
            else:
                assert row.kind == FileKind.LOCK
            counts[row.kind] += 1
    assert counts["records"] > 50
    assert counts[FileKind.OFFSET_INDEX] == counts[FileKind.TIME_INDEX] > 0


def batches_survive(path: str, counts: Counter[str]) -> None:
    directory = parse_directory_name(path.split("/")[-2])
    topic = directory.topic if directory else "__cluster_metadata"
    with Source(path) as source:
        for batch in scan_batches(source, check_crc=True):
            if not isinstance(batch, Batch) or not batch.crc_valid:
                assert "crash" in path, "only crashed logs hold damage"
                continue
            data = source.read(batch.position, batch.size_bytes)
            counts["batches"] += 1
            if batch.magic < 2:
                counts["records"] += messages_survive(batch, data)
                continue
            body = survives(RecordBatch, data).records
            if batch.compression and batch.records:
                body = decompress(body, batch.compression, magic=2)
            rebuilt = b""
            for _ in range(batch.records):
                record = Record.parse(body[len(rebuilt) :])
                rebuilt += Record.build(record)
                payload_survives(topic, batch, record)
                counts["records"] += 1
            assert rebuilt == body


def messages_survive(batch: Batch, data: bytes) -> int:
    wrapper = survives(Message, data)
    if not batch.compression:
        return 1
    body = decompress(wrapper.value, batch.compression, magic=batch.magic)
    rebuilt, count = b"", 0
    while len(rebuilt) < len(body):
        size = 12 + int.from_bytes(body[len(rebuilt) + 8 : len(rebuilt) + 12], "big")
        message = body[len(rebuilt) : len(rebuilt) + size]
        survives(Message, message)
        rebuilt, count = rebuilt + message, count + 1
    return count


def payload_survives(topic: str, batch: Batch, record: Any) -> None:
    if batch.is_control:
        key = survives(ControlRecordKey, record.key)
        survives(EndTxnMarker if key.type < 2 else kraft_value(key.type), record.value)
    elif topic == "__cluster_metadata":
        frame = survives(MetadataFrame, record.value)
        found = by_key("cluster-metadata", frame.api_key)
        survives(schema(found.name, frame.version), frame.message)
    elif topic in FAMILIES:
        key = survives(CoordinatorKey, record.key)
        survives(schema(by_key(FAMILIES[topic], key.type, "key").name, 0), key.message)
        if record.value is not None:
            value = survives(CoordinatorValue, record.value)
            found = by_key(FAMILIES[topic], key.type)
            survives(schema(found.name, value.version), value.message)


def test_the_headers_of_framing_are_those_of_the_schema(corpus_dir: Path) -> None:
    """Framing reads headers on its own, for speed; the schema is the specification."""
    for partition in sorted((corpus_dir / "kafka-4.3" / "compact-2-later-passes").glob("*-0")):
        for batch, opened in UnifiedLog(str(partition)).batches_from(0):
            if batch.magic < 2:
                continue
            parsed = RecordBatch.parse(opened.source.read(batch.position, batch.size_bytes))
            bits = parsed.attributes
            expected = dataclasses.replace(
                batch,
                size_bytes=parsed.batch_length + 12,
                base_offset=parsed.base_offset,
                last_offset=parsed.base_offset + parsed.last_offset_delta,
                magic=parsed.magic,
                crc=parsed.crc,
                leader_epoch=parsed.partition_leader_epoch,
                base_timestamp=parsed.base_timestamp,
                max_timestamp=parsed.max_timestamp,
                producer_id=parsed.producer_id,
                producer_epoch=parsed.producer_epoch,
                base_sequence=parsed.base_sequence,
                records=parsed.records_count,
            )
            assert batch == expected
            assert batch.compression == bits.compression
            assert batch.is_transactional == bits.is_transactional
            assert batch.is_control == bits.is_control
            assert (batch.delete_horizon_timestamp is not None) == bits.has_delete_horizon
