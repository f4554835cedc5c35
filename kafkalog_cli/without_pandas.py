"""Keeps pandas from being imported where no command needs it."""

from __future__ import annotations

import sys


class _NoPandas:
    """Hides pandas: pyarrow imports it at the first value that it converts, if it is installed."""

    def find_spec(self, name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("It is hidden, since no command needs it.", name=name)


def hide_pandas() -> None:
    """Keep pyarrow from importing pandas, which takes longer than a small command."""
    sys.meta_path.insert(0, _NoPandas())


def show_pandas() -> None:
    """Let pandas be imported again: Spark may need it."""
    sys.meta_path[:] = [one for one in sys.meta_path if not isinstance(one, _NoPandas)]
