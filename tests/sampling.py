"""What is tried of proofs that are long: a share, or everything in `make soak`."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, TypeVar

from tests.crash.disk import tries_everything

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")


def sampled(cases: Sequence[T], one_of: int) -> Sequence[T]:
    """One of so many cases, evenly from a drawn one on; a test that fails shows which that is."""
    if tries_everything():
        return cases
    first = random.SystemRandom().randrange(one_of)
    print(f"every case of number {first} and {one_of} more each")
    return cases[first::one_of]
