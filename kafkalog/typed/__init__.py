"""Keys and values as typed columns, by a schema in a local file: JSON, Avro, Protobuf.

What does not decode is null there and counted; the bytes stay in the column they came from.
"""

from __future__ import annotations

from kafkalog.typed.model import Framing, TypedColumn, TypedForm

__all__ = ["Framing", "TypedColumn", "TypedForm"]
