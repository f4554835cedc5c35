"""A pager for long output on a terminal: `$KAFKALOG_PAGER`, `$PAGER`, else less as git runs it."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Final

from kafkalog_cli.session import session
from kafkalog_cli.standard_streams import stand_for_terminal

if TYPE_CHECKING:
    import subprocess

_NO_PAGER: Final = ("", "cat")
_pagers: Final[list[subprocess.Popen[bytes]]] = []


def start_pager() -> None:
    """Send the stdout of this process through a pager, if it is a terminal."""
    if _pagers or session().has_no_pager or not sys.stdout.isatty():
        return
    import shutil
    import subprocess

    command = os.environ.get("KAFKALOG_PAGER", os.environ.get("PAGER", "less"))
    is_dumb = os.environ.get("TERM", "dumb") == "dumb"
    if is_dumb or command in _NO_PAGER or shutil.which(command.split()[0]) is None:
        return
    os.environ["COLUMNS"] = str(os.get_terminal_size(sys.stdout.fileno()).columns)
    sys.stdout.flush()
    environ = {"LESS": "FRX", "LV": "-c"} | os.environ
    pager = subprocess.Popen(command, shell=True, stdin=subprocess.PIPE, env=environ)  # noqa: S602 # the user's own command, as git runs it
    assert pager.stdin is not None
    os.dup2(pager.stdin.fileno(), sys.stdout.fileno())
    pager.stdin.close()
    stand_for_terminal()
    _pagers.append(pager)


def end_pager() -> None:
    """Wait until the user has left the pager; Ctrl-C is for it."""
    for pager in _pagers:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.close(1)
        pager.wait()
