"""New records as a broker appends them: a search that goes on.

Positions are kept as a stream keeps them (`kafkalog.tables.tailing`): across rolls, deletions,
moves to another directory, and logs that are cut and refilled under another leader.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from kafkalog.answers.search.scanning import Found, plan_within, records_of
from kafkalog.model import Defect, LogView
from kafkalog.tables.merging import sound_parts
from kafkalog.tables.model import Bounds, Request
from kafkalog.tables.moved import Losses
from kafkalog.tables.reading import plan_of_split
from kafkalog.tables.tailing import LossWarnings, Tail

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafkalog.answers.search.run import Search
    from kafkalog.tables.model import Split

PAUSE_S: Final = 0.5
_SIZE_AT_ONCE: Final = 1 << 30


def follow(
    search: Search,
    *,
    wait: Callable[[], object] = lambda: time.sleep(PAUSE_S),
) -> Iterator[Found | Defect]:
    """Yield the records that a search finds from the log start offsets on, then new ones, forever.

    Args:
        search: what is searched; leftovers and single files do not grow and are passed over.
        wait: called when everything has been read.

    Raises:
        KafkaLogError: as `Tail`.
    """
    selection = search.selection
    request = Request(
        bounds=Bounds(search.topics, search.numbers),
        isolation=selection.isolation,
        replicas=search.replicas,
        internal=search.internal,
        view=LogView.RECOVERED,
    )
    tail = Tail([one.path for one in search.targets], request, LossWarnings())
    position = tail.beginning()
    while True:
        end = tail.advance(position, None, _SIZE_AT_ONCE)
        splits = tail.splits(position, end)
        for split in splits:
            yield from _found_in(split, search)
        position = end
        if not splits:
            wait()


def _found_in(split: Split, search: Search) -> Iterator[Found | Defect]:
    number = None if split.partition < 0 else split.partition
    for part in sound_parts(split, search.listener):
        plan = plan_within(plan_of_split(part, Losses(part, search.listener)), search.selection)
        for record in records_of(plan, search.progress, bulk=search.bulk):
            if isinstance(record, Defect):
                yield record
            else:
                yield Found(split.topic, number, record, search.owner_of(record))
