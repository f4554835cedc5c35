"""Detect whether a broker is running on a log directory, without taking its lock.

Follows `FileLock` of Kafka: an exclusive lock of POSIX on `.lock`.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import sys
import time
from functools import lru_cache
from typing import Final

from formats import file_names
from kafkalog.io.paths import file_system, uris
from kafkalog.io.paths.reading_errors import reading_error
from kafkalog.io.paths.retry import tried

# `struct flock`, and the index of its `l_type` field, per platform.
_RECENTLY_S: Final = 10
_FLOCK: Final = {"linux": (struct.Struct("hhqqi"), 0), "darwin": (struct.Struct("qqihh"), 3)}

held_here: Final[set[tuple[int, int]]] = set()
"""Device and inode of the lock files that this process has locked.

POSIX releases a process's locks on a file when any of its descriptors for that file is closed, so
these files must not be opened again.
"""


def is_broker_running(log_dir: str) -> bool:
    """Return whether another process, usually a broker, holds a write lock on the log directory.

    Nothing is locked or written. Locks held by other hosts on a network file system may go unseen,
    and a log directory in an object store never counts as locked. A lock file that exists but may
    not be opened counts as locked. If the disk does not answer, the result is False and the error
    goes to `source.on_unreadable`.
    """
    flock = _FLOCK.get(sys.platform)
    path = os.path.join(log_dir, file_names.LOCK)
    if flock is None or uris.is_object(path):
        return False
    try:
        status = tried(path, os.stat, path)
        if (status.st_dev, status.st_ino) in held_here:
            return False
        file = tried(path, os.open, path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        reading_error(error, path)  # reported, unless the file does not exist
        # A lock file of another user that nobody else may open: a broker's, most likely.
        return error.errno == errno.EACCES
    layout, type_index = flock
    asked = [0] * 5
    # As if for reading: only a write lock is in the way, such as a broker takes.
    asked[type_index] = fcntl.F_RDLCK
    try:
        answer = fcntl.fcntl(file, fcntl.F_GETLK, layout.pack(*asked))
    except OSError:
        return False  # this file system has no locks
    finally:
        os.close(file)
    return int(layout.unpack(answer)[type_index]) == fcntl.F_WRLCK


def is_of_running_broker(path: str) -> bool:
    """Return whether a file of a partition belongs to a broker that ran within the last seconds.

    Only where the system lets programs control the page cache, which is what this is asked for.
    """
    if sys.platform != "linux" or uris.is_object(path):
        return False
    log_dir = os.path.dirname(os.path.dirname(file_system.absolute(path)))
    return _ran_recently(log_dir, int(time.monotonic() / _RECENTLY_S))


@lru_cache(256)
def _ran_recently(log_dir: str, _moment: int) -> bool:
    return is_broker_running(log_dir)
