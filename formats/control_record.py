"""Control records: transaction markers and what KRaft writes into its log and snapshots.

Follows `ControlRecordType`, `EndTransactionMarker` and `ControlRecordUtils` of Kafka 4.3: fields
after the known ones are ignored there and kept here as `rest`.
"""

from __future__ import annotations

from typing import Final

from construct import Construct, GreedyBytes, Int16sb, Int32sb, Struct

from formats.message_schema import by_key, schema_with_rest

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
