"""The columns of types with names of Kafka Connect and Debezium, whose values JSON has."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from kafkalog.log.typed.avro_schema import Node
from kafkalog.log.typed.avro_types import conversion, scalar_type
from kafkalog.log.typed.json_columns import Column

if TYPE_CHECKING:
    from collections.abc import Callable


def column_of_logical(logical: str, plain: Callable[[Any], Any], noted: list[str]) -> Column:
    """Return the column of a logical type, as `logical_of` calls it.

    Args:
        plain: checks a value, and returns that of the type without a name; None for a null.
        noted: where what values lose is added to.
    """
    node = Node("", logical=logical)
    losses: Counter[str] = Counter()
    change = conversion(node, node, losses, is_json=False)
    assert change is not None, "it is more than its bytes"

    def convert(value: Any) -> Any:
        found = plain(value)
        if found is None:
            return None
        found = change(found)
        if losses:
            noted.extend(losses)
            losses.clear()
        return found

    return Column(scalar_type(node), convert, "days" if logical == "date" else logical)
