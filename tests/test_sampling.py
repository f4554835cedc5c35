"""What `make test` draws of a long proof."""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import Any

import pytest

from tests import sampling
from tests.sampling import SEED_VARIABLE, TIER_VARIABLE, sample_of


class Case:
    """A case of a parametrized test, as far as sampling looks at it."""

    def __init__(self, test: str, marks: dict[str, pytest.Mark], params: dict[str, Any]) -> None:
        self.nodeid = f"{test}[{'-'.join(map(str, params.values()))}]"
        self.get_closest_marker = marks.get
        self.callspec = self
        self.params = params


FORMS, SIZES = ("files", "delta", "iceberg"), tuple(range(8))


@pytest.fixture(params=range(5))
def seed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.delenv(TIER_VARIABLE, raising=False)
    monkeypatch.setenv(SEED_VARIABLE, str(request.param))
    return int(request.param)


def cases(name: str, **marks: pytest.MarkDecorator) -> list[Any]:
    """Return a test with a case for each form and size."""
    found = {kind: one.mark for kind, one in marks.items()}
    return [Case(name, found, {"form": form, "size": size}) for form, size in product(FORMS, SIZES)]


@pytest.mark.usefixtures("seed")
def test_each_value_of_each_parameter_is_drawn() -> None:
    """Eight sizes need eight cases, though one in 24 was asked for."""
    drawn, left = sample_of(cases("a", sampled=pytest.mark.sampled(24, each_value=True)))
    assert {one.params["form"] for one in drawn} == set(FORMS)
    assert {one.params["size"] for one in drawn} == set(SIZES)
    assert (len(drawn), len(left)) == (8, 16)


@pytest.mark.usefixtures("seed")
def test_a_share_is_as_large_as_its_mark_says() -> None:
    """Of 24 cases one in five are five; with each value no fewer than without."""
    for sampled in (pytest.mark.sampled(5), pytest.mark.sampled(2, each_value=True)):
        drawn, left = sample_of(cases("a", sampled=sampled))
        assert len(drawn) == -(-24 // sampled.args[0])
        assert Counter(one.nodeid for one in [*drawn, *left]).most_common(1)[0][1] == 1
        assert len(drawn) + len(left) == 24


@pytest.mark.usefixtures("seed")
def test_what_is_thorough_is_left_and_what_has_no_mark_is_not() -> None:
    """Whatever else is drawn."""
    thorough, plain = cases("a", thorough=pytest.mark.thorough("b")), cases("b")
    assert sample_of([*thorough, *plain]) == (plain, thorough)


def test_other_seeds_draw_other_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the same seed the same ones; everything is drawn for `make test-all`."""
    monkeypatch.delenv(TIER_VARIABLE, raising=False)
    shares = set()
    for seed in range(20):
        monkeypatch.setenv(SEED_VARIABLE, str(seed))
        once, again = (sample_of(cases("a", sampled=pytest.mark.sampled(8)))[0] for _ in range(2))
        assert [one.nodeid for one in once] == [one.nodeid for one in again]
        shares.add(tuple(one.nodeid for one in once))
    assert len(shares) > 15
    monkeypatch.setenv(TIER_VARIABLE, "all")
    assert sampling.tries_everything()
    assert len(sample_of(cases("a", sampled=pytest.mark.sampled(8)))[0]) == 24
