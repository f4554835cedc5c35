"""The check of `partition.metadata` at a start; follows `PartitionMetadataFile` of Kafka 4.3."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kafkalog.checkpoints import java_number
from kafkalog.metadata_files import uuid_bytes
from kafkalog.recovery.directory import PARTITION_METADATA, text_lines
from kafkalog.recovery.model import StartRefusedError

if TYPE_CHECKING:
    from kafkalog.recovery.directory import Directory


def check_partition_metadata(directory: Directory) -> None:
    """Raise `StartRefusedError` where Kafka cannot read partition.metadata."""
    content = directory.contents.get(PARTITION_METADATA)
    if content is None or content.path is None:
        return
    try:
        lines = text_lines(content.path)
    except UnicodeDecodeError as error:
        raise _metadata_error("it is not UTF-8") from error
    version = _metadata_value(lines, 0)
    number = java_number(version, 32)
    if number is None or number < 0:
        raise _metadata_error(f"version {version!r}")
    topic_id = _metadata_value(lines, 1)
    decoded = uuid_bytes(topic_id)
    if decoded is None:
        raise StartRefusedError("IllegalArgumentException", f"{topic_id[:40]!r} is no topic id")
    if not any(decoded):
        raise _metadata_error("the topic id is zero")


def _metadata_value(lines: list[str], number: int) -> str:
    """What a line says behind its colon."""
    if number >= len(lines):
        raise StartRefusedError(
            "NullPointerException", f"{PARTITION_METADATA} ends before line {number + 1}"
        )
    fields = re.split(r":[ \t\v\f]+", lines[number])
    if len(fields) != 2 or not fields[1]:
        raise _metadata_error(f"line {number + 1} is malformed")
    return fields[1]


def _metadata_error(detail: str) -> StartRefusedError:
    return StartRefusedError(
        "KafkaStorageException",
        f"Error while reading partition metadata file {PARTITION_METADATA}: {detail}",
        is_storage=True,
    )
