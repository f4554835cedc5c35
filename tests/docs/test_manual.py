"""The manual page and the completions of shells: whole, and understood by what reads them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from docgen.commands import commands, common_rows, option_rows
from docgen.manual import COMPLETIONS, MANUAL, write_share
from tests.sampling import sampled

SUMMARY = "Show the records, batches or entries of any file."


@pytest.fixture(scope="module")
def share(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with the page and the completions."""
    directory = tmp_path_factory.mktemp("manual")
    write_share(directory)
    return directory


def tool(name: str) -> str:
    """Return the path of a program; CI has all of them."""
    found = shutil.which(name)
    if found is None:
        assert not os.environ.get("CI"), f"{name} is not installed"
        pytest.skip(f"{name} is not installed")
    return found


def rendered(page: Path) -> str:
    """Return a page as `man` shows it; any warning of groff's fails."""
    done = subprocess.run(
        [tool("groff"), "-man", "-Kutf8", "-Tutf8", "-ww", "-P-cbou", "-rLL=100n", page],
        check=True, capture_output=True, text=True, env=os.environ | {"LC_ALL": "C.UTF-8"},
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout


def test_the_pages_show_every_command_and_option(share: Path):
    """What a user copies from them is what the command takes, with plain hyphens and quotes."""
    main = rendered(share / MANUAL)
    assert [name for name in commands() if f"kafkalog-{name}(1)" not in main] == []
    names = {*sampled([*commands()], 3), "dump-segment"}
    pages = {name: rendered(page_of(share, name)) for name in names}
    for name in names:
        command = commands()[name]
        for option, _, _ in option_rows(name, command):
            assert shows(pages[name], option), (name, option)
    for option, _, _ in common_rows():
        assert shows(main, option), option
    dump = pages["dump-segment"]
    assert "kafkalog dump-segment orders-0 --key-regex '^user-' --value-format json\n" in dump


def page_of(share: Path, command: str) -> Path:
    return (share / MANUAL).with_name(f"kafkalog-{command}.1")


def shows(page: str, option: str) -> bool:
    return re.search(rf"^\s+{re.escape(option)}(\s|$)", page, re.MULTILINE) is not None


def test_the_pages_have_no_faults(share: Path):
    """`mandoc` is stricter than groff."""
    pages = [share / MANUAL, *(page_of(share, name) for name in commands())]
    done = subprocess.run(
        [tool("mandoc"), "-T", "lint", "-W", "warning", *pages],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


@pytest.fixture
def in_path() -> dict[str, str]:
    """An environment in which `kafkalog` is the one of this Python."""
    return os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def test_bash_completes(share: Path, in_path: dict[str, str]):
    """The first word is completed to commands, a dash to options, and anything else to files."""
    words = "COMP_WORDS=(kafkalog {}); COMP_CWORD={}; _kafkalog_completion kafkalog; "
    code = f". {share / COMPLETIONS['bash']}; complete -p kafkalog; "
    for line, word in (("dum", 1), ("ls --so", 2)):
        code += words.format(line, word) + 'echo "${COMPREPLY[@]}"; '
    done = subprocess.run(["bash", "-c", code], check=True, capture_output=True, text=True,
                          env=in_path)  # fmt: skip
    assert done.stdout.splitlines() == [
        "complete -o default -F _kafkalog_completion kafkalog", "dump-segment", "--sort",
    ]  # fmt: skip
    assert done.stderr == ""


def test_fish_completes(share: Path, in_path: dict[str, str]):
    """It shows the summary of a command next to its name."""
    code = f"source {share / COMPLETIONS['fish']}; complete -C 'kafkalog dum'"
    done = subprocess.run([tool("fish"), "--no-config", "-c", code], check=True,
                          capture_output=True, text=True, env=in_path)  # fmt: skip
    assert done.stdout == f"dump-segment\t{SUMMARY}\n"


def test_zsh_completes(share: Path, in_path: dict[str, str]):
    """What it evaluates is a call of `_arguments` with the commands and their summaries."""
    path = share / COMPLETIONS["zsh"]
    code = (
        f"compdef() {{ :; }}; _arguments() {{ print -r -- $1; }}; . {path}; "
        "words=(kafkalog dum); CURRENT=2; _kafkalog_completion"
    )
    done = subprocess.run([tool("zsh"), "-f", "-c", code], check=True, capture_output=True,
                          text=True, env=in_path)  # fmt: skip
    assert done.stdout == (
        '*: :(("dump-segment":"Show the records, batches or entries of any file."))\n'
    )
    assert done.stderr == ""
