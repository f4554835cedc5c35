"""Watches what this process writes: nothing outside of the allowed places."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Event -> the arguments that are paths, each with that of its directory descriptor.
_EVENTS: dict[str, tuple[tuple[int, int | None], ...]] = {
    "os.rename": ((0, 2), (1, 3)),
    "os.link": ((1, 3),),
    "os.symlink": ((1, 2),),
    "os.remove": ((0, 1),),
    "os.rmdir": ((0, 1),),
    "os.mkdir": ((0, 2),),
    "os.chmod": ((0, 2),),
    "os.chown": ((0, 3),),
    "os.utime": ((0, 3),),
    "os.truncate": ((0, None),),
    "os.setxattr": ((0, None),),
    "shutil.rmtree": ((0, 1),),
}

_allowed: list[str] = []
_strays: list[str] = []
_is_hooked: list[bool] = []


class StrayWriteError(AssertionError):
    """Something was written outside of the allowed places."""


@contextmanager
def written_only_below(*places: Path) -> Iterator[None]:
    """Raise at the end of the block if anything was written elsewhere."""
    if not _is_hooked:
        sys.addaudithook(_hook)
        _is_hooked.append(True)
    _allowed[:] = [os.path.realpath(place) for place in places]
    _strays.clear()
    try:
        yield
    finally:
        _allowed.clear()
    if _strays:
        raise StrayWriteError("\n".join(_strays))


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if not _allowed:
        return
    if event == "open":
        path, _, flags = arguments
        # A relative name goes with a descriptor that the event does not tell: one name, no path.
        if isinstance(flags, int) and flags & _WRITES and isinstance(path, str | bytes):
            name = os.fsdecode(path)
            if os.path.isabs(name) or os.sep in name or name in (os.curdir, os.pardir):
                _judge(event, name, None)
        return
    for at, directory in _EVENTS.get(event, ()):
        given = arguments[directory] if directory is not None else None
        _judge(event, arguments[at], given)


def _judge(event: str, path: Any, directory: Any) -> None:
    if isinstance(path, int):
        found = os.readlink(f"/proc/self/fd/{path}")
    else:
        around = os.getcwd()
        if isinstance(directory, int) and directory >= 0:
            around = os.readlink(f"/proc/self/fd/{directory}")
        name = os.path.join(around, os.fsdecode(path))
        # The last name is taken as it is: it may be that of a link.
        found = os.path.join(os.path.realpath(os.path.dirname(name)), os.path.basename(name))
    if not any(f"{found}/".startswith(f"{place}/") for place in _allowed):
        _strays.append(f"{event} of {found}")
