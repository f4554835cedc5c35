"""The config files of a user and of the system: which there are, and their contents."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any, Final

from kafkalog.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

_VARIABLE: Final = "KAFKALOG_CONFIG"
_SYSTEM: Final = "/etc/kafkalog/config.toml"
_SIZE_MAX: Final = 1 << 20


def files() -> list[str]:
    """Return the paths of the files; what a later one says comes first."""
    given = os.environ.get(_VARIABLE)
    if given is not None:
        return [given]
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return [_SYSTEM, os.path.join(home, "kafkalog", "config.toml")]


def documents() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the path and the contents of each file that there is. Raises `UsageError`."""
    given = os.environ.get(_VARIABLE)
    must_exist = given not in (None, os.devnull)
    for path in files():
        text = _contents(path, must_exist=must_exist)
        if text is not None:
            yield path, _parsed(text, path)


def _contents(path: str, *, must_exist: bool) -> str | None:
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            if path == os.devnull:
                return None
            raise _refused(path, "is not a regular file")
        if status.st_uid not in (0, os.geteuid()) or status.st_mode & stat.S_IWOTH:
            raise _refused(path, "may be written by others")
        if status.st_size > _SIZE_MAX:
            raise _refused(path, "is larger than 1 MiB")
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError) as error:
        if must_exist:
            raise UsageError(
                f"There is no config file {path}.", hint=f"Unset {_VARIABLE}."
            ) from error
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"The config file cannot be read: {error}.", path=path) from error


def _refused(path: str, why: str) -> UsageError:
    hint = f"{_VARIABLE}=/dev/null does without."
    return UsageError(f"The config file {why}.", path=path, hint=hint)


def _parsed(text: str, path: str) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"The config file is not TOML: {error}.", path=path) from error
