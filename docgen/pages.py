"""The generated parts of a page: marked blocks and console sessions.

A block stands between `<!-- generated: NAME -->` and `<!-- end: NAME -->`. A `console` block shows
commands and exactly what they print, stdout before stderr. They run in the root of the project; in
a section with `<!-- scene: NAME -->`, in a directory that `docgen.scenes` makes.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks import page
from docgen.commands import command_sections
from docgen.configs import config_table
from docgen.library import library_sections
from docgen.output import object_sections
from docgen.reference import (
    defect_sections,
    error_table,
    file_table,
    payload_table,
    status_table,
)
from docgen.scenes import scene
from docgen.spark import option_list, table_sections

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT: Final = Path(__file__).parents[1]
DOCS: Final = ROOT / "docs"
BLOCKS: Final[dict[str, Callable[[], str]]] = {
    **page.BLOCKS,
    "commands": command_sections,
    "configs": config_table,
    "defects": defect_sections,
    "errors": error_table,
    "files": file_table,
    "library": library_sections,
    "objects": object_sections,
    "options": option_list,
    "payloads": payload_table,
    "statuses": status_table,
    "tables": table_sections,
}
_BLOCK: Final = re.compile(
    r"^<!-- generated: ([a-z-]+) -->\n(?:.*?\n)??<!-- end: \1 -->$", re.MULTILINE | re.DOTALL
)
_CONSOLE: Final = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SECTION: Final = re.compile(r"^(?=## )", re.MULTILINE)
_SCENE: Final = re.compile(r"^<!-- scene: ([a-z-]+) -->$", re.MULTILINE)
_WIDTH: Final = "80"


@dataclass(frozen=True)
class Command:
    """One command line of a console block and its output, stdout before stderr."""

    line: str
    printed: str


def pages() -> list[Path]:
    """List the pages that show commands or code."""
    return sorted([ROOT / "README.md", ROOT / "examples" / "README.md", *DOCS.rglob("*.md")])


def with_blocks(text: str) -> str:
    """Return a page with its marked blocks regenerated from the code."""
    return _BLOCK.sub(lambda found: _block(found[1]), text)


def blocks_in(text: str) -> list[str]:
    """Return the names of the marked blocks in a page."""
    return [found[1] for found in _BLOCK.finditer(text)]


@dataclass(frozen=True)
class Session:
    """The console blocks of a section, and the scene in which they run, if not in the root."""

    scene: str | None
    blocks: list[list[Command]]


def with_sessions(text: str) -> str:
    """Return a page whose console blocks show the present output of their commands."""
    return "".join(map(_replayed, _SECTION.split(text)))


def sessions(text: str) -> list[Session]:
    """Return the console blocks of a page, section by section."""
    found = [
        Session(_scene(section), [list(_commands(one[1])) for one in _CONSOLE.finditer(section)])
        for section in _SECTION.split(text)
    ]
    return [session for session in found if session.blocks]


@contextmanager
def place(session_scene: str | None) -> Iterator[Path]:
    """Give the directory in which a session runs."""
    with nullcontext(ROOT) if session_scene is None else scene(session_scene) as path:
        yield path


def _scene(section: str) -> str | None:
    found = _SCENE.search(section)
    return None if found is None else found[1]


def _replayed(section: str) -> str:
    if not _CONSOLE.search(section):
        return section
    with place(_scene(section)) as path:
        return _CONSOLE.sub(lambda found: f"```console\n{_session(found[1], path)}```", section)


def _block(name: str) -> str:
    return f"<!-- generated: {name} -->\n\n{BLOCKS[name]().strip()}\n\n<!-- end: {name} -->"


def _session(block: str, path: Path) -> str:
    parts = []
    status = 0
    for command in _commands(block):
        parts.append(f"$ {command.line}\n")
        if command.line == "echo $?":
            parts.append(f"{status}\n")
            continue
        program, *words = shlex.split(command.line)
        python = Path(sys.executable)
        done = subprocess.run(
            [python if program == "python" else python.with_name(program), *words],
            capture_output=True, text=True, check=False, cwd=path,
            env=os.environ | {"COLUMNS": _WIDTH},
        )  # fmt: skip
        status = done.returncode
        parts.append(done.stdout + done.stderr)
    return "".join(parts)


def _commands(block: str) -> Iterator[Command]:
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        line, _, printed = part.partition("\n")
        yield Command(line, printed)
