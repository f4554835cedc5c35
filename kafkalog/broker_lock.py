"""Whether a broker is running on a log directory, found out without a lock of our own.

Follows `FileLock` of Kafka 4.3: an exclusive lock of POSIX on `.lock`.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import sys
from typing import Final

from formats import file_names
from kafkalog.paths import uris
from kafkalog.paths.reading_errors import reading_error

# `struct flock`, with the positions of the type in what is asked and in the answer.
_FLOCK: Final = {"linux": (struct.Struct("hhqqi"), 0), "darwin": (struct.Struct("qqihh"), 3)}

held_here: Final[set[tuple[int, int]]] = set()
"""The lock files, by device and inode, that this process has locked.

POSIX drops a lock when its process closes any descriptor of the file: these must not be opened.
"""


def is_broker_running(log_dir: str) -> bool:
    """Return whether another process keeps a log directory locked for writing: a broker, as a rule.

    Nothing is locked or written. Not guaranteed: locks of other hosts, on network file systems. In
    an object store nobody runs. A file that is there and cannot be opened, for want of permission,
    counts as locked. A disk that does not say counts as a no, and is announced to
    `source.on_unreadable`.
    """
    flock = _FLOCK.get(sys.platform)
    path = os.path.join(log_dir, file_names.LOCK)
    if flock is None or uris.is_object(path):
        return False
    try:
        status = os.stat(path)
        if (status.st_dev, status.st_ino) in held_here:
            return False
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        reading_error(error, path)  # announced, unless it is not there
        return error.errno == errno.EACCES
    layout, type_index = flock
    asked = [0] * 5
    asked[type_index] = fcntl.F_RDLCK
    try:
        answer = fcntl.fcntl(file, fcntl.F_GETLK, layout.pack(*asked))
    except OSError:
        return False  # a file system without locks
    finally:
        os.close(file)
    return int(layout.unpack(answer)[type_index]) == fcntl.F_WRLCK
