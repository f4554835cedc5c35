"""What a soak tests: a decoder, how its inputs are made, and what must hold."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.soak.real import Files


@dataclass(frozen=True)
class Target:
    """One decoder or one way through several.

    Attributes:
        name: what `--only` selects.
        share: its inputs per hundred thousand.
        make: makes an input, the same one for the same state of the generator.
        run: processes the input; any exception is a failure. The generator is for choosing options,
            the place for files.
    """

    name: str
    share: int
    make: Callable[[Random], Files]
    run: Callable[[Files, Random, Place], None]

    def input(self, seed: int, ordinal: int) -> tuple[Files, Random]:
        """Return input number `ordinal` and its generator."""
        rng = Random(f"{seed}/{self.name}/{ordinal}")
        return self.make(rng), rng


class Place:
    """A directory whose files are replaced for every input."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def put(self, files: Files, directory: str = "t-0") -> Path:
        """Write only these files into a partition directory; return it."""
        for found in os.scandir(self.path):
            if found.is_dir(follow_symlinks=False):
                shutil.rmtree(found.path)
            else:
                os.unlink(found.path)
        target = self.path / directory
        target.mkdir()
        for name, data in files.items():
            path = target / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)
        return target

    def put_one(self, name: str, data: bytes) -> str:
        """Write one file; return its path."""
        path = os.path.join(self.path, name)
        with open(path, "wb") as out:
            out.write(data)
        return path


def only(files: Files) -> bytes:
    """Return the content of the only file."""
    [data] = files.values()
    return data
