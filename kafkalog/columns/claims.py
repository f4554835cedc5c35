"""Estimates of how much a log holds to decode: a few kilobytes can hold millions of records."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from kafkalog.batches.framing import scan_batches
from kafkalog.errors import KafkaLogError
from kafkalog.jit.fast_path import FAST_SIZE_MIN
from kafkalog.model import Batch
from kafkalog.paths.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterable


_RECORD_SIZE: Final = 32
_LEGACY_RATIO: Final = 100
"""Assumed number of messages in a compressed message of magic 0 or 1, which does not state it."""


def size_to_decode(source: Source, position: int = 0, end: int | None = None) -> int:
    """Estimate the size of an uncompressed log that would take as long to decode.

    Reads the batch headers of a small log, whose claims need not be true.
    """
    end = source.size_bytes if end is None else min(end, source.size_bytes)
    size = min(source.stored_bytes, end - position)
    if size >= FAST_SIZE_MIN:
        return size
    with suppress(KafkaLogError):  # reported by whoever reads the log
        for batch in scan_batches(source, position, end):
            if isinstance(batch, Batch) and batch.compression:
                is_modern = batch.magic >= 2
                size += _RECORD_SIZE * max(batch.count, 0) if is_modern else (
                    _LEGACY_RATIO * batch.size_bytes
                )  # fmt: skip
    return size


def logs_to_decode(paths: Iterable[str]) -> int:
    """Sum `size_to_decode` over several logs; a log that cannot be opened counts as 0."""
    size = 0
    for path in paths:
        with suppress(KafkaLogError), Source(path) as source:
            size += size_to_decode(source)
            if size >= FAST_SIZE_MIN:
                break
    return size
