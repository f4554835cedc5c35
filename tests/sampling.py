"""How much of long proofs is run: a seeded share in `make test`, everything in `make test-all`."""

from __future__ import annotations

import os
import random
import re
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pytest

T = TypeVar("T")

TIER_VARIABLE = "KAFKALOG_TESTS"
"""`all` for `make test-all`, `soak` for `make soak`, not set for `make test`."""

SEED_VARIABLE = "KAFKALOG_SEED"
SEED = "68295a131589560424f3dbcff8d53cba15c46069e54fe3de1e9723800d02b5ad"
"""Chooses what `make test` draws. Change it to draw other cases."""


def tries_everything() -> bool:
    """Return whether to try every case; if not, a sample is drawn by the seed."""
    return bool(os.environ.get(TIER_VARIABLE))


def soaks() -> bool:
    """Return whether to draw new cases and go on for hours."""
    return os.environ.get(TIER_VARIABLE) == "soak"


def sampled(cases: Sequence[T], one_of: int) -> Sequence[T]:
    """Return every n-th case from a drawn one on, but never none; a failing test prints which."""
    if tries_everything():
        return cases
    first = drawn_for(f"{len(cases)} cases").randrange(min(one_of, len(cases)) or 1)
    print(f"every case of number {first} and {one_of} more each")
    return cases[first::one_of]


def shares(cases: Sequence[T], count: int, kind: Callable[[T], str]) -> list[Sequence[T]]:
    """Return random shares of the cases for some proofs, each case in one, each kind in most.

    All are all cases if everything is tried.
    """
    if tries_everything():
        return [cases] * count
    rng = drawn_for(f"{count} shares of {len(cases)} cases")
    dealt = sorted(rng.sample(range(len(cases)), len(cases)), key=lambda one: kind(cases[one]))
    return [[cases[one] for one in sorted(dealt[first::count])] for first in range(count)]


def examples(count: int) -> int:
    """Return how many examples Hypothesis tries, given the number for `make test-all`."""
    return count if tries_everything() else max(count // 8, 15)


def drawn_for(what: str) -> random.Random:
    """Return the random numbers of one proof, equal in all processes of a run.

    `make test` and `make test-all` draw the same cases in each run, so that a commit does not fail
    by chance. `make soak` draws new ones. Set KAFKALOG_SEED to repeat a draw, or to choose another.
    """
    seed = os.environ.get(SEED_VARIABLE)
    if not seed and soaks():
        return random.Random()
    return random.Random(f"{seed or SEED} {what}")


def new_seed() -> int:
    """Return KAFKALOG_SEED, or a seed that `drawn_for` draws."""
    given = os.environ.get(SEED_VARIABLE)
    return int(given) if given else drawn_for("seed").randrange(1 << 31)


def sample_of(items: Sequence[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Return the tests to run and those left out.

    `make test` runs one case in n of a test marked `sampled(n)`, at least one, and none of a test
    marked `thorough`, which names the test that stands for it. With `each_value=True` each value
    of each parameter is in a case, though not each combination. Where the corpus has a state of
    two releases, it takes one of the two. The id of a case repeats it. All processes of a run draw
    the same cases.
    """
    if tries_everything():
        return list(items), []
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    tests = {name: _of_one_release(name, cases) for name, cases in tests.items()}
    drawn: set[pytest.Item] = set()
    for name, cases in tests.items():
        if cases[0].get_closest_marker("thorough"):
            continue
        mark = cases[0].get_closest_marker("sampled")
        if mark is None:
            drawn.update(cases)
            continue
        [one_of] = mark.args
        rng, count = drawn_for(name), -(-len(cases) // one_of)
        if mark.kwargs.get("each_value"):
            drawn.update(_of_each_value(rng.sample(cases, len(cases)), count))
        else:
            drawn.update(rng.sample(cases, count))
    return [one for one in items if one in drawn], [one for one in items if one not in drawn]


def _of_each_value(cases: list[pytest.Item], count: int) -> list[pytest.Item]:
    """Return that many cases, or as many as it takes for each value of each parameter."""
    rest = {case: _values_of(case) for case in cases}
    lacking = set().union(*rest.values())
    chosen: list[pytest.Item] = []
    while lacking or len(chosen) < count:
        chosen.append(max(rest, key=lambda case: len(rest[case] & lacking)))
        lacking -= rest.pop(chosen[-1])
    return chosen


def _values_of(case: pytest.Item) -> set[tuple[str, str]]:
    """Return the name and value of each parameter of a case."""
    params = case.callspec.params  # type: ignore[attr-defined] # only cases of parameters have it
    return {(name, repr(value)) for name, value in params.items()}


def _of_one_release(test: str, cases: list[pytest.Item]) -> list[pytest.Item]:
    """Return one of the cases whose states of the corpus differ in nothing but the release."""
    alike: dict[str, list[pytest.Item]] = {}
    for case in cases:
        alike.setdefault(re.sub(r"\bkafka-4\.\d-", "", case.nodeid), []).append(case)
    rng = drawn_for(f"releases of {test}")
    return [rng.choice(some) for some in alike.values()]
