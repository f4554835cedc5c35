"""The manual pages and the completions of shells, from the same help as `docs/commands.md`.

`python -m docgen.manual DIRECTORY` writes them to the places below `share` where systems look.
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
import textwrap
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from typer.completion import get_completion_script  # type: ignore[attr-defined] # used there

from docgen.commands import Row, commands, common_rows, option_rows
from kafkalog_cli.app import command_group
from kafkalog_cli.exit_statuses import EXIT_MEANINGS
from kafkalog_cli.version import commit, version_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MANUAL: Final = "share/man/man1/kafkalog.1"
COMPLETIONS: Final = {
    "bash": "share/bash-completion/completions/kafkalog",
    "zsh": "share/zsh/site-functions/_kafkalog",
    "fish": "share/fish/vendor_completions.d/kafkalog.fish",
}
_VARIABLE: Final = "_KAFKALOG_COMPLETE"
"""By which Typer is asked for completions."""
_WIDTH: Final = 78
_SPECIAL: Final = {"\\": r"\e", "-": r"\-", "'": r"\(aq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti"}


def manual_pages() -> dict[str, str]:
    """Write the manual page, and one for each command, by their places below a directory."""
    root, release = command_group(), _release()
    parts = [
        _head(release, "kafkalog", "read, check and repair the log files of Apache Kafka"),
        ".SH SYNOPSIS\n.B kafkalog\n\\fICOMMAND\\fR \\fIPATH\\fR... [\\fIOPTIONS\\fR]\n",
        ".SH DESCRIPTION\n",
        *_paragraphs(inspect.cleandoc(root.help)),
        ".SH OPTIONS\nAll commands take these, too.\n",
        *_options([*option_rows("", root), *common_rows()]),
        ".SH COMMANDS\n",
    ]
    pages = {}
    for name, command in commands().items():
        parts.append(f".TP\n.BR {_plain(f'kafkalog-{name}')} (1)\n{_text(command.short_help)}")
        page = [
            _head(release, f"kafkalog-{name}", command.short_help.rstrip(".")),
            f".SH SYNOPSIS\n.B kafkalog {_plain(name)}\n[\\fIARGUMENTS\\fR]... [\\fIOPTIONS\\fR]\n",
            ".SH DESCRIPTION\n",
            *_paragraphs(inspect.cleandoc(command.help)),
            ".SH OPTIONS\n",
            *_options(option_rows(name, command)),
            ".SH SEE ALSO\n.BR kafkalog (1)\nhas exit statuses and the options of all commands.\n",
        ]
        pages[MANUAL.replace(".1", f"-{name}.1")] = "".join(page)
    parts.append(".SH EXIT STATUS\n")
    for status, meaning in EXIT_MEANINGS.items():
        parts.append(f".TP\n.B {status}\n{_text(meaning)}")
    return {MANUAL: "".join(parts), **pages}


def _release() -> str:
    """Return what the titles of all pages have in common; in a checkout, git is asked."""
    known = commit()
    time = datetime.fromtimestamp(0 if known is None else known.time, UTC)
    return f'{time:%Y-%m-%d} "kafkalog {_plain(version_text())}" "User Commands"'


def _head(release: str, name: str, summary: str) -> str:
    title = f".TH {_plain(name.upper())} 1 {release}\n"
    return f"{title}.SH NAME\n{_plain(name)} \\- {_plain(summary)}\n"


def completion_script(shell: str) -> str:
    """Write what a shell reads to complete the command line; it asks kafkalog itself."""
    return f"{get_completion_script(prog_name='kafkalog', complete_var=_VARIABLE, shell=shell)}\n"


def write_share(directory: Path) -> None:
    """Write the manual pages and the completions below a directory."""
    texts = manual_pages()
    texts |= {path: completion_script(shell) for shell, path in COMPLETIONS.items()}
    for path, text in texts.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_text(text, encoding="utf-8")


def _paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs of a help text; those after a backspace keep their lines."""
    for number, part in enumerate(re.split(r"\n\n+", text.strip())):
        if number:
            yield ".PP\n"
        if part.startswith("\b\n"):
            lines = "\n".join(_plain(line) for line in part[2:].splitlines())
            yield f".EX\n{lines}\n.EE\n"
        else:
            yield _text(part)


def _options(rows: Iterable[Row]) -> Iterator[str]:
    for option, meaning, default in rows:
        suffix = f" [default: {default}]" if default and default != "required" else ""
        yield f".TP\n.B {_plain(option)}\n{_text(meaning + suffix)}"


def _text(words: str) -> str:
    """Return running text in short lines."""
    lines = textwrap.wrap(words, _WIDTH, break_long_words=False, break_on_hyphens=False)
    return "".join(f"{_plain(line)}\n" for line in lines)


def _plain(line: str) -> str:
    """Return a line that means itself, with signs that can be copied from the page."""
    found = "".join(_SPECIAL.get(sign, sign) for sign in line)
    return f"\\&{found}" if found.startswith(".") else found


def main() -> None:
    """Write them below the directory that is given."""
    parser = argparse.ArgumentParser(prog="python -m docgen.manual", description=__doc__)
    parser.add_argument("directory", type=Path)
    write_share(parser.parse_args(sys.argv[1:]).directory)


if __name__ == "__main__":
    main()
