"""Keys and values as typed columns, by a schema in a local file: JSON, Avro, Protobuf.

A value that does not decode is null there, and reported with the reason.
"""

from __future__ import annotations

from kafkalog.log.typed.framing import Framing, TypedForm
from kafkalog.log.typed.model import TypedColumn

__all__ = ["Framing", "TypedColumn", "TypedForm"]
