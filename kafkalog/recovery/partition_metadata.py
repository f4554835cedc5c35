"""The check of `partition.metadata` at a start; follows `PartitionMetadataFile` of Kafka 4.3."""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, Final

from kafkalog.recovery.directory import PARTITION_METADATA, text_lines
from kafkalog.recovery.model import StartRefusedError

if TYPE_CHECKING:
    from kafkalog.recovery.directory import Directory

_UUID_TEXT_MAX: Final = 24


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
    if not re.fullmatch(r"\+?\d{1,9}", version):
        raise _metadata_error(f"version {version!r}")
    topic_id = _metadata_value(lines, 1)
    try:
        if not re.fullmatch(r"[A-Za-z0-9_-]*={0,2}", topic_id) or len(topic_id) > _UUID_TEXT_MAX:
            raise binascii.Error
        decoded = base64.urlsafe_b64decode(topic_id + "=" * (-len(topic_id) % 4))
    except binascii.Error:
        decoded = b""
    if len(decoded) != 16:
        raise StartRefusedError(
            "IllegalArgumentException", f"{topic_id[:_UUID_TEXT_MAX]!r} is no topic id"
        )
    if not any(decoded):
        raise _metadata_error("the topic id is zero")


def _metadata_value(lines: list[str], number: int) -> str:
    """What a line says behind its colon."""
    if number >= len(lines):
        raise StartRefusedError(
            "NullPointerException", f"{PARTITION_METADATA} ends before line {number + 1}"
        )
    fields = re.split(r":\s+", lines[number])
    if len(fields) != 2 or not fields[1]:
        raise _metadata_error(f"line {number + 1} is malformed")
    return fields[1]


def _metadata_error(detail: str) -> StartRefusedError:
    return StartRefusedError(
        "KafkaStorageException",
        f"Error while reading partition metadata file {PARTITION_METADATA}: {detail}",
        is_storage=True,
    )
