"""The names of Kafka's own topics.

Follows `Topic` and `TopicBasedRemoteLogMetadataManagerConfig` of Kafka.
"""

from __future__ import annotations

from typing import Final

CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
SHARE_GROUP_STATE: Final = "__share_group_state"
CLUSTER_METADATA: Final = "__cluster_metadata"
CLUSTER_METADATA_ID: Final = "AAAAAAAAAAAAAAAAAAAAAQ"  # the same in every cluster
REMOTE_LOG_METADATA: Final = "__remote_log_metadata"

INTERNAL_TOPICS: Final = (CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE)
"""What Kafka calls internal topics: those of coordinators."""
