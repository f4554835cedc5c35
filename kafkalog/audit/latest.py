"""The latest offset of each key, by a keyed hash of 128 bits.

The hash has a secret of the run: no data can be made to collide beforehand, as they can be for the
MD5 of Kafka's `SkimpyOffsetMap`. Among 2^40 keys two collide by chance with probability 2^-49.
"""

from __future__ import annotations

import hashlib
import os

_DIGEST_SIZE = 16


class LatestOffsets:
    """Offsets by key.

    Memory:
        Some 200 bytes a distinct key, whatever its length.
    """

    def __init__(self) -> None:
        self._secret = os.urandom(32)
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def put(self, key: bytes, offset: int) -> int | None:
        """A record with the key was met; the offset of the one before, None without one."""
        digest = self._digest(key)
        before = self._offsets.get(digest)
        self._offsets[digest] = offset
        return before

    def get(self, key: bytes) -> int:
        """The latest offset of the key, -1 without one."""
        return self._offsets.get(self._digest(key), -1)

    def _digest(self, key: bytes) -> bytes:
        return hashlib.blake2b(key, digest_size=_DIGEST_SIZE, key=self._secret).digest()
