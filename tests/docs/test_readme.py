"""Every console block of the documentation prints what it shows, run from the root."""

from __future__ import annotations

import doctest
import re
import shlex
import subprocess
import sys
from typing import Any

import pytest

from docgen.pages import DOCS, ROOT, Command, pages, place, sessions
from docgen.terminal import terminal_picture
from formats.releases import newest

PYTHON = re.compile(r"^```pycon\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMES = [str(page.relative_to(ROOT)) for page in pages()]


@pytest.mark.parametrize("name", NAMES)
def test_console_blocks_show_what_is_printed(
    name: str, kafkalog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands are shown with their exact output; `$ echo $?` shows the status of the last one."""
    monkeypatch.setenv("COLUMNS", "80")
    for session in sessions((ROOT / name).read_text()):
        with place(session.scene) as path:
            monkeypatch.chdir(path)
            for block in session.blocks:
                check(block, kafkalog)
            monkeypatch.chdir(ROOT)


def test_the_readme_names_the_newest_release() -> None:
    assert f"\n- Kafka: 0.8 to {newest().name}. " in (ROOT / "README.md").read_text()


def check(block: list[Command], kafkalog: Any) -> None:
    """Run the commands of one block in the current directory."""
    status = 0
    for command in block:
        if command.line == "echo $?":
            assert command.printed == f"{status}\n", block
            continue
        status, printed = run(command, kafkalog)
        assert without_blocks(printed) == without_blocks(command.printed), command.line


def without_blocks(text: str) -> str:
    """Blank sizes on disk: they depend on the file system."""
    lines, column = [], -1
    for line in text.splitlines():
        if "ON DISK" in line:
            column = line.index("ON DISK")
        elif column >= 0 and line.startswith(("total", "note")):
            column = -1
        elif column >= 0:
            line = line[:column] + line[column + len("ON DISK") :]
        lines.append(re.sub(r"[\d.]+[BKMG] (on disk|used|here)", r"\1", line))
    return "\n".join(lines)


def run(command: Command, kafkalog: Any) -> tuple[int, str]:
    """Run one line: kafkalog in this process, a script of `examples/` in its own."""
    words = shlex.split(command.line)
    if words[0] == "kafkalog":
        result = kafkalog(*words[1:])
        return result.status, result.stdout.decode() + result.stderr
    assert words[:1] == ["python"], f"what is this? {command.line}"
    done = subprocess.run(
        [sys.executable, *words[1:]], capture_output=True, text=True, check=False, cwd=ROOT
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_python_examples_give_what_they_show(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The `>>>` examples of a page share their variables, as in one session."""
    monkeypatch.chdir(ROOT)
    text = "\n".join(PYTHON.findall((ROOT / name).read_text()))
    test = doctest.DocTestParser().get_doctest(text, {}, name, name, 0)
    report: list[str] = []
    doctest.DocTestRunner(verbose=False).run(test, out=report.append)
    assert not report, "".join(report)


def test_pages_show_commands() -> None:
    """An empty list of blocks would pass every test above."""
    shown = [one for page in pages() for one in sessions(page.read_text())]
    assert sum(len(block) for session in shown for block in session.blocks) >= 25
    assert PYTHON.search((ROOT / "README.md").read_text())


def test_the_picture_shows_what_verify_prints() -> None:
    """The terminal of the README is drawn by `make docs`."""
    assert (DOCS / "verify.svg").read_text() == terminal_picture()


def test_the_wings_are_where_the_architecture_says() -> None:
    """Each module that the page names exists, and it names each wing of the library."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    modules = re.findall(r"`(kafkalog(?:_cli)?/[a-z_/]+\.py)`", text)
    assert len(modules) > 15
    assert [name for name in modules if not (ROOT / name).is_file()] == []
    wings = {path.parent.name for path in (ROOT / "kafkalog").glob("*/__init__.py")}
    assert {wing for wing in wings if f"`{wing}/`" not in text} == set()
