"""Bytes that wait on the local disk until they are whole."""

from __future__ import annotations

from contextlib import contextmanager
from tempfile import TemporaryFile, gettempdir
from typing import TYPE_CHECKING, BinaryIO

from kafkalog.storage.system import unwritable

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def spooled() -> Iterator[BinaryIO]:
    """A file without a name, below `TMPDIR`, that is gone with the block or the process.

    Raises:
        UnwritableError: there is no room for it.
    """
    try:
        with TemporaryFile(prefix="kafkalog-") as file:
            yield file
    except OSError as error:
        raise unwritable(error, gettempdir()) from error
