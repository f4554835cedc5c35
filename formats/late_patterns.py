"""Regular expressions as of `re`, compiled when they are first used.

A short command loads 30 to 50 of them, and uses a few; to compile one takes a tenth of a
millisecond.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from re import compile as pattern
else:

    class pattern:  # noqa: N801 # it stands for a function
        """A pattern: see `re.compile`."""

        def __init__(self, text: str | bytes, flags: int = 0) -> None:
            self._arguments = text, flags

        def __getattr__(self, name: str) -> Any:
            value = getattr(re.compile(*self._arguments), name)
            setattr(self, name, value)  # so that it is asked for only once
            return value


__all__ = ["pattern"]
