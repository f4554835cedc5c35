"""What is tried of proofs that are long: a share, or everything in `make soak`."""

from __future__ import annotations

import os
import random
from itertools import groupby
from typing import TYPE_CHECKING, TypeVar

from tests.crash.disk import tries_everything

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

T = TypeVar("T")


def sampled(cases: Sequence[T], one_of: int) -> Sequence[T]:
    """Return every n-th case, from a random one on; a failing test shows which."""
    if tries_everything():
        return cases
    first = drawn_for(f"{len(cases)} cases").randrange(one_of)
    print(f"every case of number {first} and {one_of} more each")
    return cases[first::one_of]


def examples(count: int) -> int:
    """Return how many examples Hypothesis is to try of so many in `make soak`."""
    return count if tries_everything() else max(count // 4, 15)


def drawn_for(what: str) -> random.Random:
    """Return random numbers for this run: other ones each time, the same in all its processes."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or random.SystemRandom().randbytes(8).hex()
    return random.Random(f"{run} {what}")


def sample_of(items: Sequence[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Return the tests to run and those left out: of a test marked `sampled(n)` one case in n runs.

    The id of a case repeats it, since at least one case of a test is kept. All processes of a run
    draw the same cases.
    """
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for name, cases in groupby(items, lambda item: item.nodeid.partition("[")[0]):
        of_test = list(cases)
        mark = of_test[0].get_closest_marker("sampled")
        if mark is None or tries_everything():
            kept += of_test
            continue
        [one_of] = mark.args
        drawn = drawn_for(name).sample(of_test, -(-len(of_test) // one_of))
        kept += [one for one in of_test if one in drawn]
        left_out += [one for one in of_test if one not in drawn]
    return kept, left_out
