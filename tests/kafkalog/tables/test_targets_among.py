"""A second request reuses the logs found for the first, and asks the store nothing."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.stores import PREFIX, log_dir
from kafkalog.io.paths import file_system
from kafkalog.model import Replicas
from kafkalog.tables import Bounds, Request
from kafkalog.tables.model import TableName
from kafkalog.tables.planning import find_targets, targets_among
from tests.counted_store import counted_store


def test_what_was_found_once_answers_narrower_requests():
    """The result equals a new search. Only a request for other logs asks the store."""
    objects = log_dir(4, 2) | {
        name.replace("topic-0-0", "__consumer_offsets-0"): data
        for name, data in log_dir(1, 2).items()
    }
    wide = Request(replicas=Replicas.ALL)
    bounds = (Bounds(partitions=frozenset({1, 3})), Bounds(from_offset=50, to_offset=60), Bounds())
    narrower = [
        replace(wide, bounds=one, replicas=replicas, gaps_when_read=True)
        for one in bounds
        for replicas in (Replicas.ALL, Replicas.BEST)
    ]
    others = [
        replace(wide, table=TableName.SEGMENTS),
        replace(wide, table=TableName.DEFECTS),
        replace(wide, internal=True),
        replace(wide, bounds=Bounds(topics=frozenset({"__consumer_offsets"}))),
    ]
    with counted_store(objects) as store:
        paths = [store.uri(PREFIX)]
        with file_system.listings_held(paths):
            found = find_targets(paths, wide)
            assert len(found) == 4
            for one in (*narrower, *others):
                expected = find_targets(paths, one)
                assert targets_among(found, wide, paths, one) == expected
        asked = len(store.asked)
        for one in narrower:
            targets_among(found, wide, paths, one)
        assert len(store.asked) == asked
