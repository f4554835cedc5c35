"""`.kafka_cleanshutdown`: the mark of a clean stop, with the broker's epoch since Kafka 3.7.

Follows `CleanShutdownFileHandler` of Kafka 4.3. Older brokers leave the file empty.
"""

from __future__ import annotations

from typing import Any, Final

from construct import GreedyBytes

from formats.quorum_state import JsonObject


class CleanShutdownAdapter(JsonObject):
    """A JSON object, or None for an empty file."""

    def split(self, text: str) -> Any:
        """Parse the object in a text."""
        return super().split(text) if text else None

    def join(self, obj: Any) -> str:
        """Serialize an object."""
        return "" if obj is None else super().join(obj)


CleanShutdown: Final = CleanShutdownAdapter(GreedyBytes)
