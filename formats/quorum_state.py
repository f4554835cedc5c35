"""`quorum-state`: what a KRaft node knows of the quorum, as one line of JSON.

Follows `FileQuorumStateStore` and `QuorumStateData.json` of Kafka 4.3. The keys are Kafka's own. A
file as Kafka writes it round-trips exactly; other spacing of the JSON does not.
"""

from __future__ import annotations

import json
from typing import Any, Final

from construct import FormatFieldError, GreedyBytes

from formats.checkpoint import Utf8Text


def _refuse_constant(name: str) -> None:
    # Python accepts NaN and Infinity, JSON does not.
    raise ValueError(f"{name} is no JSON")


class JsonObject(Utf8Text):
    """A JSON object as a dict in the order of the file, written without spaces."""

    def _decode(self, obj: bytes, context: Any, path: str) -> Any:
        try:
            return super()._decode(obj, context, path)
        except (ValueError, RecursionError) as error:
            raise FormatFieldError(f"no JSON object: {error}", path=path) from error

    def _encode(self, obj: Any, context: Any, path: str) -> bytes:
        try:
            return bytes(super()._encode(obj, context, path))
        except (TypeError, ValueError, RecursionError) as error:
            raise FormatFieldError(f"no JSON object: {error}", path=path) from error

    def split(self, text: str) -> Any:
        """Parse the object in a text."""
        parsed = json.loads(text, parse_constant=_refuse_constant)
        if not isinstance(parsed, dict):
            raise ValueError(f"a {type(parsed).__name__}")  # noqa: TRY004 # becomes a ConstructError
        return parsed

    def join(self, obj: Any) -> str:
        """Serialize an object."""
        return json.dumps(obj, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


QuorumState: Final = JsonObject(GreedyBytes)
