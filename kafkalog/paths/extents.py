"""How many pieces of a disk a file lies in: its extents, as Linux reports them (FIEMAP).

Asking needs no privilege and changes nothing: the file is not synced, so what is not on the disk
yet may count as one extent.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from typing import Final

from kafkalog.paths.uris import is_object

_FIEMAP: Final = 0xC020660B  # FS_IOC_FIEMAP
_REQUEST: Final = struct.Struct("=QQIIII")  # start, length, flags, mapped, room, reserved
_EVERYTHING: Final = 2**64 - 1


def extent_count(path: str) -> int | None:
    """Return the number of extents of a file; None if the file system does not say."""
    if is_object(path):
        return None
    try:
        import fcntl
    except ImportError:  # not a POSIX system
        return None
    request = bytearray(_REQUEST.pack(0, _EVERYTHING, 0, 0, 0, 0))
    with suppress(OSError):
        opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            fcntl.ioctl(opened, _FIEMAP, request)
            return int(_REQUEST.unpack(request)[3])
        finally:
            os.close(opened)
    return None
