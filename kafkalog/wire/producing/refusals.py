"""Which records a topic refuses by its configs: `LogValidator` and `UnifiedLog` of Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalog.model import present_ms
from kafkalog.node.configs.definitions import DEFINITIONS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kafkalog.wire.producing.messages import Piece

REFUSED_BEGIN: Final = b'{"topic": '
"""How lines of the file of refused records begin."""
_BATCH_OVERHEAD: Final = 61
_RECORD_OVERHEAD_MIN: Final = 6
"""Bytes of a record besides its key, value and headers: none of its six numbers is shorter."""
_NO_TIMESTAMP: Final = -1


class TopicRules:
    """What a topic takes.

    Args:
        configs: its configs; what is missing has Kafka's default.
        keeps_time: whether records keep their timestamps.
        compresses: whether they are sent in compressed batches.
    """

    def __init__(
        self, configs: Mapping[str, str], *, keeps_time: bool, compresses: bool = False
    ) -> None:
        def number(name: str) -> int:
            return int(configs.get(name) or str(DEFINITIONS[name].default))

        self._is_compacted = "compact" in configs.get("cleanup.policy", "")
        self._size_max = number("max.message.bytes")
        limit = number("max.decompressed.message.bytes")
        self._decompressed_max = limit if compresses else None
        self._is_timed = keeps_time and configs.get("message.timestamp.type") != "LogAppendTime"
        self._past_ms = number("message.timestamp.before.max.ms")
        self._ahead_ms = number("message.timestamp.after.max.ms")

    def refused(self, piece: Piece) -> Iterator[tuple[int, str]]:
        """Yield the offset of each record that it refuses, and why."""
        now = present_ms()
        for offset, value, key, timestamp, headers in piece.messages:
            size = len(key or b"") + len(value or b"")
            size += sum(len(name) + len(one or b"") for name, one in headers or ())
            is_timed = self._is_timed and timestamp != _NO_TIMESTAMP
            if key is None and self._is_compacted:
                yield offset, "cleanup.policy: it has no key"
            elif is_timed and now - timestamp > self._past_ms:
                yield offset, "message.timestamp.before.max.ms: it is too old"
            elif is_timed and timestamp - now > self._ahead_ms:
                yield offset, "message.timestamp.after.max.ms: it is of the future"
            elif size + _BATCH_OVERHEAD > self._size_max:
                yield offset, "max.message.bytes: it is too large"
            elif (
                self._decompressed_max is not None
                and size + _RECORD_OVERHEAD_MIN > self._decompressed_max
            ):
                yield offset, "max.decompressed.message.bytes: it is too large"
