"""Kafka's internal topics by name: which ones kafkalog decodes, and as what."""

from __future__ import annotations

import os
from enum import StrEnum
from typing import Final

from formats import topic_names
from formats.file_names import BOOTSTRAP, partition_of


class PayloadKind(StrEnum):
    """The topics whose records kafkalog can read; the names are also those in `messages.txt`."""

    OFFSETS = "offsets"
    TRANSACTION_LOG = "transaction-log"
    CLUSTER_METADATA = "cluster-metadata"
    REMOTE_LOG_METADATA = "remote-log-metadata"
    SHARE_GROUP_STATE = "share-group-state"


_TOPICS: Final = {
    topic_names.CONSUMER_OFFSETS: PayloadKind.OFFSETS,
    topic_names.TRANSACTION_STATE: PayloadKind.TRANSACTION_LOG,
    topic_names.CLUSTER_METADATA: PayloadKind.CLUSTER_METADATA,
    topic_names.REMOTE_LOG_METADATA: PayloadKind.REMOTE_LOG_METADATA,
    topic_names.SHARE_GROUP_STATE: PayloadKind.SHARE_GROUP_STATE,
}


def payload_kind(topic: str) -> PayloadKind | None:
    """Return how to read the records of a topic, None for topics that are not Kafka's own."""
    return _TOPICS.get(topic)


def payload_kind_at(path: str, *, is_file: bool) -> PayloadKind | None:
    """Return how the records of a file or a partition directory are read, by its absolute path."""
    if os.path.basename(path) == BOOTSTRAP:
        return PayloadKind.CLUSTER_METADATA
    name = partition_of(os.path.dirname(path) if is_file else path)
    return None if name is None else payload_kind(name.topic)
