"""The compaction of one partition, planned or done, in this process.

Follows `Cleaner.clean` and `LogCleaner.cleanLog` of Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.compaction.model import Skip
from kafkalog.compaction.partition_work import PartitionWork, left_as_it_is
from kafkalog.compaction.passes import judged_passes
from kafkalog.compaction.soundness import require_known_layout
from kafkalog.errors import RefusedError
from kafkalog.storage import require_writable

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.compaction.model import Candidate, Compaction, CompactionRequest
    from kafkalog.runs.run import Run

_HINTS = {
    Skip.NOT_COMPACTED: "If the topic is compacted, add --config cleanup.policy=compact.",
    Skip.NO_HIGH_WATERMARK: "Give --high-watermark N, or `end` if every record is replicated.",
    Skip.REMOTE: "Part of the log is in remote storage; leave it to a broker.",
    Skip.METADATA: "Brokers and controllers maintain it themselves.",
    Skip.NOT_LIVE: "To compact it, copy it elsewhere and rename the copy to TOPIC-PARTITION.",
}


def require_compactable(candidate: Candidate) -> None:
    """Raise `RefusedError` where a partition that was asked for by name must not be compacted."""
    if candidate.skip in _HINTS:
        raise RefusedError(
            f"It is not compacted: {candidate.skip}.",
            path=candidate.partition.path,
            hint=_HINTS[candidate.skip],
        )


def compact_partition(
    candidate: Candidate,
    request: CompactionRequest,
    run: Run | None = None,
    progress: Callable[[int], None] | None = None,
) -> Compaction:
    """Compact a partition, or say exactly what would come of it.

    All of the log is read and judged before anything is written. `.deleted` files that a broker
    left go, as they do when one starts. Then each group of segments is
    written as `.cleaned`, synced, read back, and swapped in; the cleaner offset comes last. After
    a crash a start of a broker finds each group whole, old or new; what was done is done, and the
    rest is cleaned by the next run.

    Args:
        candidate: the partition, as `find_candidate` gave it.
        request: as for `find_candidate`.
        run: holds the lock of the log directory, if there is one. None: nothing is written; where
            a limited map takes several passes, only the first is told.
        progress: called with the number of bytes read since the last call: the log is read to
            judge it, which gives the map, and for the new segments; with a limited map, old formats
            or batches above 64 MB its dirty part also for the map.

    Raises:
        CorruptDataError: a batch is damaged, or what was written does not read back; the group it
            would have been in is as it was.
        RefusedError: the layout is not known, or a start would change something.
        UnwritableError: there is no room, or a step failed.

    Cost:
        Reads what it cleans twice, and the new segments once. Memory: 30 to 60 bytes a key (with
        a limited map, old formats or batches above 64 MB the keys themselves, and a batch), a bit
        for each record of the dirty part, some 10 MB a thread, and the indexes of a group.
    """
    if candidate.skip is not None or candidate.cleanable is None:
        return left_as_it_is(candidate)
    require_known_layout(candidate.partition)
    if run is not None:
        require_writable(candidate.partition.path)
    passes = judged_passes(candidate, request, progress)
    work = PartitionWork(candidate, request, passes)
    if run is None:
        work.plan()
    else:
        with run.partition(candidate.partition, work.touched()) as changing:
            work.perform(changing)
    return work.result(is_done=run is not None)
