"""The check of `partition.metadata` at a start; follows `PartitionMetadataFile` of Kafka 4.3."""

from __future__ import annotations

from typing import TYPE_CHECKING

from formats import file_names
from kafkalog.metadata_files import NoTopicIdError, read_topic_id
from kafkalog.recovery.model import StartRefusedError

if TYPE_CHECKING:
    from kafkalog.recovery.directory import Directory


def check_partition_metadata(directory: Directory) -> None:
    """Raise `StartRefusedError` where Kafka cannot read partition.metadata."""
    content = directory.contents.get(file_names.PARTITION_METADATA)
    if content is None or content.path is None:
        return
    try:
        read_topic_id(content.path)
    except NoTopicIdError as error:
        raise StartRefusedError(
            error.thrown,
            "Error while reading partition metadata file "
            f"{file_names.PARTITION_METADATA}: {error.message}",
            is_storage=error.thrown == "KafkaStorageException",
        ) from error
