"""The envelopes around generated messages: control records, keys and values of internal topics.

Follows `CoordinatorRecordSerde` (`__consumer_offsets`, `__transaction_state`,
`__share_group_state`) and `AbstractApiMessageSerde` (`__cluster_metadata`, `__remote_log_metadata`)
of Kafka. The messages themselves are in `formats.message_schema`.

Follows `ControlRecordType`, `EndTransactionMarker` and `ControlRecordUtils` of Kafka: fields
after the known ones are ignored there and kept here as `rest`.
"""

from __future__ import annotations

from typing import Final

from formats.constructs import Construct, GreedyBytes, Int16sb, Int32sb, Struct
from formats.message_schema import by_key, schema_with_rest
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


LEADER_CHANGE: Final = 2
SNAPSHOT_HEADER: Final = 3
SNAPSHOT_FOOTER: Final = 4
KRAFT_VERSION: Final = 5
KRAFT_VOTERS: Final = 6

ControlRecordKey: Final = Struct("version" / Int16sb, "type" / Int16sb, "rest" / GreedyBytes)
"""Key of every control record."""

EndTxnMarker: Final = Struct(
    "version" / Int16sb, "coordinator_epoch" / Int32sb, "rest" / GreedyBytes
)
"""Value of the markers ABORT and COMMIT, which end a transaction."""


def kraft_value(type_id: int) -> Construct | None:
    """Return the schema (`fields`, `rest`) of a KRaft control record's value, None for other types.

    Kafka always reads version 0, whatever the message's own first field says.
    """
    found = by_key("control", type_id)
    return None if found is None else schema_with_rest(found.name, 0)
