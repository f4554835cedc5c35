"""What tasks do in a worker of Spark's before their own work."""

from __future__ import annotations

import gc
import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from kafkalog import places

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Called:
    """A function of a module of ours, on its way to a worker.

    Attributes:
        name: `module:function`.
        given: URIs that this process was given: what they say beside a path holds there, too.
    """

    name: str
    given: tuple[str, ...]

    @classmethod
    def of(cls, function: Callable[..., object]) -> Self:
        """What stands for a function."""
        return cls(f"{function.__module__}:{function.__name__}", tuple(places.given()))

    def load(self) -> Callable[..., Any]:
        """The function, in the worker."""
        module, _, function = self.name.partition(":")
        found: Callable[..., Any] = getattr(importlib.import_module(module), function)
        settle(self.given)
        return found


def settle(given: tuple[str, ...]) -> None:
    """Make a worker ready: it knows the URIs, and leaves alone what is loaded anyway."""
    for uri in given:
        places.settle(uri)
    if not gc.get_freeze_count():
        gc.freeze()  # out of the garbage collector's sight, once a worker
