"""The envelopes around messages in Kafka's internal topics: version prefixes and frames.

Follows `CoordinatorRecordSerde` (`__consumer_offsets`, `__transaction_state`,
`__share_group_state`) and `AbstractApiMessageSerde` (`__cluster_metadata`, `__remote_log_metadata`)
of Kafka 4.3. The messages themselves are in `formats.message_schema`.
"""

from __future__ import annotations

from typing import Final

from construct import GreedyBytes, Int16sb, Struct

from formats.primitives import UnsignedVarint

FRAME_VERSION: Final = 1

CoordinatorKey: Final = Struct("type" / Int16sb, "message" / GreedyBytes)
"""Key of a coordinator record: the record type, then a key message of version 0."""

CoordinatorValue: Final = Struct("version" / Int16sb, "message" / GreedyBytes)
"""Value of a coordinator record; its message is chosen by the key's type.

Subscriptions and assignments of the consumer protocol have the same shape.
"""

MetadataFrame: Final = Struct(
    "frame_version" / UnsignedVarint,
    "api_key" / UnsignedVarint,
    "version" / UnsignedVarint,
    "message" / GreedyBytes,
)
"""Value of a record of `__cluster_metadata` or `__remote_log_metadata`; the frame version is 1."""
