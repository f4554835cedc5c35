"""Whose a new file is, and who may read it: as the file that it stands for, or its directory.

A broker runs as a user of its own. What root leaves behind that this user cannot open keeps the
broker from starting.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import Final

_OF_A_FILE: Final = 0o666
_OWNERS: Final = 0o600


def take_after(descriptor: int, like: str) -> None:
    """Give an open file or directory the owner, group, permissions and labels of a file.

    What only root may give is left.
    """
    status = os.stat(like, follow_symlinks=False)
    assert not stat.S_ISLNK(status.st_mode), f"{like}: a link says nothing of permissions"
    _give(descriptor, status)
    os.chmod(descriptor, stat.S_IMODE(status.st_mode))
    for label in _labels(like):
        with suppress(OSError):
            value = os.getxattr(like, label, follow_symlinks=False)
            os.setxattr(descriptor, label, value)


def take_after_directory(descriptor: int, around: os.stat_result) -> None:
    """Give a new file or directory owner and group of another, and no more permissions."""
    status = os.fstat(descriptor)
    mode = stat.S_IMODE(status.st_mode)
    given = stat.S_IMODE(around.st_mode)
    if stat.S_ISREG(status.st_mode):
        given = given & _OF_A_FILE | _OWNERS
    else:
        given |= stat.S_IRWXU
    _give(descriptor, around)
    if mode & ~given:
        os.chmod(descriptor, mode & given)


def _give(descriptor: int, status: os.stat_result) -> None:
    """Owner and group, as far as we may give them."""
    now = os.fstat(descriptor)
    if (now.st_uid, now.st_gid) != (status.st_uid, status.st_gid):
        with suppress(PermissionError):
            os.chown(descriptor, status.st_uid, status.st_gid)


def _labels(path: str) -> list[str]:
    try:
        return os.listxattr(path, follow_symlinks=False)
    except OSError:
        return []
