"""Which batches to give up if some contradict others: as few as possible, and the right ones."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING

import numpy as np
import pytest

from kafkalog.change.rescue.log_copy import EpochsInLog
from kafkalog.change.rescue.pieces import FIELDS, longest_chain
from kafkalog.model import EpochEntry
from tests.builders import batch, record, write_log
from tests.kafkalog.change.rescue.test_salvage import manifest_of, rows, salvaged

if TYPE_CHECKING:
    from pathlib import Path

Spans = list[tuple[int, int]]


def chosen(spans: Spans, floor: int = -1) -> list[int]:
    low, high = np.array(spans, np.int64).reshape(-1, 2).T
    return np.flatnonzero(longest_chain(low.copy(), high.copy(), floor)).tolist()


@pytest.mark.parametrize(
    ("spans", "kept"),
    [
        ([(0, 9), (10, 19), (20, 29)], [0, 1, 2]),
        ([(0, 9), (1 << 40, (1 << 40) + 9), (20, 29), (30, 39)], [0, 2, 3]),
        ([(0, 9), (15, 24), (20, 29), (30, 39)], [0, 2, 3]),
        ([(0, 9), (3, 12), (20, 29)], [0, 2]),
        ([(0, 9), (10, 19), (10, 19), (20, 29)], [0, 1, 3]),
        ([(0, 9), (80, 89), (90, 99), (30, 39), (40, 49), (50, 59), (60, 69)], [0, 3, 4, 5, 6]),
        ([(5, 9), (0, 4)], [1]),
        ([], []),
    ],
    ids=["in order", "far ahead", "overlaps the next", "overlaps the one before", "twice",
         "another block", "swapped", "nothing"],
)  # fmt: skip
def test_the_odd_ones_are_given_up(spans: Spans, kept: list[int]):
    """A wrong offset costs its own batch, and not those after it."""
    assert chosen(spans) == kept


def test_no_chain_is_longer():
    """All subsets are tried, on small inputs from a seed."""
    rng = random.Random(7)
    for _ in range(300):
        spans = [(low, low + rng.randrange(3)) for low in (rng.randrange(12) for _ in range(7))]
        kept = chosen(spans, floor=1)
        assert follows([spans[i] for i in kept], 1)
        longest = max(
            count
            for count in range(len(spans) + 1)
            for some in itertools.combinations(spans, count)
            if follows(list(some), 1)
        )
        assert len(kept) == longest


def follows(spans: Spans, floor: int) -> bool:
    ends = [floor, *(high for _, high in spans)]
    return all(low > end for (low, _), end in zip(spans, ends, strict=False))


def test_a_wrong_leader_epoch_is_corrected_where_others_prove_the_right_one(tmp_path: Path):
    """The field has no checksum; a high one would make consumers wait for a leader of that epoch.

    Provokes the reference `batch-leader-epoch-wrong` where the batch may be of either leader.
    """
    epochs = [0, 0, 99, 0, 7, 3, 1 << 20]
    batches = [batch(i, [record()], epoch=epoch) for i, epoch in enumerate(epochs)]
    write_log(tmp_path / "t-0", *batches)
    write_log(tmp_path / "t-0", batch(7, [record()], epoch=3), name=f"{7:020}")
    salvaged(tmp_path / "t-0", tmp_path / "out")
    lost = rows(manifest_of(tmp_path / "out"), "lost_range")
    assert [(row["reason"], row["first_offset"]) for row in lost] == [
        ("batch-leader-epoch-wrong", 4),
    ]
    fixed = [row for row in rows(manifest_of(tmp_path / "out"), "copied_range") if row["corrected"]]
    assert [(row["base_offset"], row["corrected"]) for row in fixed] == [
        (2, "leader epoch 99: 0 is right"),
        (6, "leader epoch 1048576: 3 is right"),
    ]
    checkpoint = tmp_path / "out" / "log" / "t-0" / "leader-epoch-checkpoint"
    assert checkpoint.read_text() == "0\n2\n0 0\n3 5\n"


def test_old_leader_epochs_stay_where_no_batch_contradicts_them():
    """One has no batch, and one begins before the first remaining batch."""
    table = np.zeros((FIELDS, 3), np.int64)
    table[2] = table[3] = (10, 20, 30)
    table[4] = (1, 1, 4)
    log = EpochsInLog()
    log.add(table)
    known = [EpochEntry(0, 0), EpochEntry(1, 5), EpochEntry(2, 21), EpochEntry(4, 25)]
    assert log.entries(known) == known
    assert log.entries([EpochEntry(1, 11), EpochEntry(4, 15)]) == [
        EpochEntry(1, 10),
        EpochEntry(4, 30),
    ]
    assert log.entries([EpochEntry(4, 25), EpochEntry(1, 5)]) == [
        EpochEntry(1, 10),
        EpochEntry(4, 30),
    ]
