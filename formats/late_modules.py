"""Modules that a library imports at its start, and uses for few commands."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Late(ModuleType):
    """Stands for a module that is imported when something of it is used."""

    def __getattr__(self, name: str) -> Any:
        self.step_back()
        return getattr(import_module(self.__name__), name)

    def step_back(self) -> None:
        """Leave the name to the module itself."""
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]


@contextmanager
def imported_late(*names: str) -> Iterator[None]:
    """Have these modules be imported late by what is imported in the block.

    Only what says `import name` waits; `from name import something` needs it at once.
    """
    late = [_Late(name) for name in names if name not in sys.modules]
    sys.modules.update({one.__name__: one for one in late})
    try:
        yield
    finally:
        for one in late:
            one.step_back()
