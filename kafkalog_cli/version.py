"""Which kafkalog this is: its version, and the commit that it was built from.

A build writes the commit into the package; in a checkout git says it. `setup.py` uses this module.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from importlib import metadata
from typing import Final

COMMIT_FILE: Final = "commit.txt"
"""Beside this module in what was built: the name of the commit, and its time."""

_HERE: Final = os.path.dirname(os.path.abspath(__file__))
# No tags: the commit itself.
_DESCRIBE: Final = ("describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")
_GIT_TIMEOUT_S: Final = 10


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit of the sources.

    Attributes:
        name: twelve digits, with `-dirty` if files differ from it.
        time: seconds since 1970.
    """

    name: str
    time: int

    def text(self) -> str:
        return f"{self.name} {self.time}\n"


def version_text() -> str:
    found = commit()
    version = metadata.version("kafkalog")
    return version if found is None else f"{version} ({found.name})"


def commit() -> Commit | None:
    """Return the commit of this package; None if there is neither the file nor a checkout."""
    try:
        with open(os.path.join(_HERE, COMMIT_FILE), encoding="utf-8") as file:
            name, time = file.read().split()
            return Commit(name, int(time))
    except (OSError, ValueError):
        return _commit_of_checkout(os.path.dirname(_HERE))


def _commit_of_checkout(root: str) -> Commit | None:
    # Else git would find any repository above the installed package.
    if not os.path.exists(os.path.join(root, ".git")):
        return None
    try:
        return Commit(_git(root, *_DESCRIBE), int(_git(root, "log", "-1", "--format=%ct")))
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def _git(root: str, *words: str) -> str:
    done = subprocess.run(  # noqa: S603 # made of our own words alone
        # `--dirty` would refresh the index: reading never writes.
        ["git", "--no-optional-locks", "-C", root, *words],  # noqa: S607 # the user's git
        check=True, capture_output=True, text=True, timeout=_GIT_TIMEOUT_S,
    )  # fmt: skip
    return done.stdout.strip()
