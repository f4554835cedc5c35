"""The text files of this package."""

from __future__ import annotations


def packaged_text(name: str) -> str:
    """Return the content of a file."""
    # Not importlib.resources, which loads much: a small dump needs the names of releases.
    from pkgutil import get_data

    return (get_data("formats", name) or b"").decode()
