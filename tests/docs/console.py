"""The console blocks of the documentation: commands after `$ `, and what they printed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "examples" / "README.md", *ROOT.glob("docs/*.md")])
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Command:
    """One line of a console block; what it printed is stdout, then stderr."""

    line: str
    printed: str


def console_blocks(text: str) -> list[list[Command]]:
    """The commands of each console block of a page."""
    return [_commands(match[1]) for match in _BLOCK.finditer(text)]


def _commands(block: str) -> list[Command]:
    found: list[Command] = []
    for line in block.splitlines(keepends=True):
        if line.startswith("$ "):
            found.append(Command(line[2:].rstrip("\n"), ""))
        else:
            assert found, f"output before the first command: {line!r}"
            found[-1] = Command(found[-1].line, found[-1].printed + line)
    return found
