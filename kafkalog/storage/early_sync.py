"""Syncs a large file while it is written, so that little is left to wait for at its end."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, BinaryIO, Final

from kafkalog.crew import Crew

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from concurrent.futures import Future

_SYNCED_AT_ONCE: Final = 1 << 24


def written(file: BinaryIO, pieces: Iterable[bytes | memoryview]) -> Iterator[memoryview]:
    """Write pieces to a file, and give each on; another thread syncs what was written so far.

    The end of the file is left for its owner to sync.

    Raises:
        OSError: a piece cannot be written, or what was written cannot be synced.
    """
    with Crew(1, "kafkalog-sync") as pool:
        syncing: Future[None] | None = None
        size = 0
        for piece in pieces:
            data = memoryview(piece)
            file.write(data)
            size += len(data)
            if size >= _SYNCED_AT_ONCE and (syncing is None or syncing.done()):
                if syncing is not None:
                    syncing.result()
                file.flush()
                syncing, size = pool.submit(os.fsync, file.fileno()), 0
            yield data
        if syncing is not None:
            syncing.result()
