"""`docs/verify.svg`: the terminal picture of the README, drawn by rich from a command's output."""

from __future__ import annotations

import io
import os
import pty
import sys
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

_COMMAND: Final = ("kafkalog", "verify", "examples/damaged")
_COLUMNS: Final = 110


def terminal_picture() -> str:
    """Run a command in a terminal of its own, and return the screen as SVG."""
    console = Console(
        width=_COLUMNS,
        record=True,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
    )
    console.print(Text("$ ", style="green") + Text(" ".join(_COMMAND)))
    console.print(Text.from_ansi(_screen()))
    return console.export_svg(title=" ".join(_COMMAND), unique_id="kafkalog")


def _screen() -> str:
    program = Path(sys.executable).with_name(_COMMAND[0])
    pid, terminal = pty.fork()
    if pid == 0:
        environment = {
            name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "LINES")
        }
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), 2
        )  # on a slow machine, a progress bar would appear
        environment |= {"TERM": "xterm-256color", "COLUMNS": str(_COLUMNS)}
        os.execve(program, [str(program), *_COMMAND[1:]], environment)
    printed = bytearray()
    while True:
        try:
            part = os.read(terminal, 1 << 16)
        except OSError:  # Linux reports the end of a terminal as EIO
            break
        if not part:
            break
        printed += part
    os.close(terminal)
    os.waitpid(pid, 0)
    return printed.decode().replace("\r\n", "\n")
