"""A disk with unreadable sectors, with the errors that the kernel reports."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pytest

SECTOR = 4096


class BadDisk:
    """Reads of some sectors of files fail.

    Args:
        patch: undoes the changes at the end of the test.
        is_short: whether a read that begins before a bad sector gives the bytes before it, as from
            the page cache; if not, it fails as a whole, as where a request is as large as the read.

    Attributes:
        failed: how many reads failed.
    """

    def __init__(self, patch: pytest.MonkeyPatch, *, is_short: bool = True) -> None:
        self.failed = 0
        self.is_short = is_short
        self._bad: dict[tuple[int, int], set[int]] = {}
        self._pread, self._preadv = os.pread, os.preadv
        patch.setattr(os, "pread", self.pread)
        patch.setattr(os, "preadv", self.preadv)

    def spoil(self, path: Path, sectors: Sequence[int]) -> None:
        """Make these sectors of the file bad from now on, and all others good."""
        status = path.stat()
        self._bad[status.st_dev, status.st_ino] = set(sectors)

    def pread(self, descriptor: int, size: int, position: int) -> bytes:
        return self._pread(descriptor, self._good(descriptor, size, position), position)

    def preadv(
        self, descriptor: int, buffers: Sequence[memoryview], position: int, *flags: Any
    ) -> int:
        [buffer] = buffers
        size = self._good(descriptor, len(buffer), position)
        return self._preadv(descriptor, [buffer[:size]], position, *flags)

    def _good(self, descriptor: int, size: int, position: int) -> int:
        """Return how many bytes can be read."""
        status = os.fstat(descriptor)
        bad = self._bad.get((status.st_dev, status.st_ino))
        if not bad or not size:
            return size
        for sector in range(position // SECTOR, (position + size - 1) // SECTOR + 1):
            if sector in bad:
                if sector * SECTOR <= position or not self.is_short:
                    self.failed += 1
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
                return sector * SECTOR - position
        return size
