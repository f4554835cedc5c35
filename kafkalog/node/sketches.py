"""Searches in a log as names tell of its segments, where manifests would tell more.

The manifests of Aiven's plugin say how large files are, and which there are. A search needs that of
one segment; the others are not read.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from kafkalog.errors import CorruptDataError, UnreadableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafkalog.node.lookup import Lookup
    from kafkalog.node.unified_log import UnifiedLog


def searched(
    log: UnifiedLog, search: Callable[[UnifiedLog], Lookup], *, shortens: bool = True
) -> Lookup:
    """Search where names tell enough of segments to find the answer, else in the whole log.

    Args:
        log: the log.
        search: looks into a log.
        shortens: whether to look first as if a tier ended where its last segment begins, which is
            then not read.
    """
    # Whatever fails in the sketch is looked up again in the whole log, which says what is wrong.
    with suppress(CorruptDataError, UnreadableError):  # a manifest, perhaps
        for sketch, is_short in _sketches(log, shortens=shortens):
            found = search(sketch)
            if _is_sure(sketch, found) or not (is_short or found.batch):
                return found
    return search(log)


def _sketches(log: UnifiedLog, *, shortens: bool) -> Iterator[tuple[UnifiedLog, bool]]:
    """Yield the log as names tell of it, and whether it was made shorter."""
    sketch = log.partition.sketch
    if sketch is not None:
        partition = replace(log.partition, files=sketch, sketch=None)
        if shortens and partition.is_remote and partition.segments:
            yield log.shown_as(partition, partition.segments[-1].base_offset), True
        yield log.shown_as(partition), False


def _is_sure(sketch: UnifiedLog, found: Lookup) -> bool:
    """Return whether the whole log has the same answer: there, a segment may be cut off earlier."""
    if found.batch is None or found.offset is None:
        return False
    last = found.batch.last_offset
    [here] = (one for one in sketch.segments if one.log.path == found.segment)
    is_kept = here.next_base_offset is None or last < here.next_base_offset
    return is_kept and found.offset <= last
