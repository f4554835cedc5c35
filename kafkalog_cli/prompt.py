"""The prompt of `kafkalog sql`: with history, completion, and statements of several lines."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from kafkalog.datasets.sql import TABLES, usual_columns
from kafkalog.errors import KafkaLogError, UnsupportedError
from kafkalog_cli.outcome import show_error, show_note
from kafkalog_cli.queries import run_queries

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.datasets.sql import Database
    from kafkalog_cli.output.text import BytesFormat
    from kafkalog_cli.output.writer import Format
    from kafkalog_cli.queries import Damage

_HELP: Final = """\
A statement ends with a semicolon, on any line. Tab completes, Ctrl-R searches what was entered
before, Ctrl-C stops a statement, Ctrl-D ends.
.tables          the tables
.columns TABLE   the columns of a table
.help            this help
.quit            the end
"""
_FIRST: Final = "kafkalog> "
_LATER: Final = "      ...> "


def ask(database: Database, damage: Damage, form: Format, bytes_form: BytesFormat) -> None:
    """Run what is entered until the end; an error costs one statement.

    Raises:
        UnsupportedError: prompt_toolkit is missing.
    """
    session = _session(database)
    show_note("SQL over the tables of the logs; .help lists what else there is")
    while True:
        try:
            text = session.prompt().strip()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        if text.rstrip(";").rstrip() in (".quit", ".exit"):
            return
        try:
            if text.startswith("."):
                _command(text.rstrip(";"))
            elif text.strip("; \n"):
                run_queries(database, text, damage, form, bytes_form)
        except KafkaLogError as error:
            show_error(error)
        except KeyboardInterrupt:
            show_note("stopped")
        sys.stdout.flush()


def is_complete(text: str) -> bool:
    """Return whether what was entered can be run: a statement to its end, a command, nothing."""
    text = text.strip()
    return not text or text.startswith(".") or text.endswith(";")


def _command(text: str) -> None:
    name, _, argument = text.partition(" ")
    tables = {str(table): table for table in TABLES}
    if name == ".tables":
        lines = list(tables)
    elif name == ".columns" and argument.strip() in tables:
        lines = usual_columns(tables[argument.strip()])[1]
    else:
        lines = _HELP.splitlines()
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def _session(database: Database) -> Any:
    """Return the prompt."""
    if importlib.util.find_spec("prompt_toolkit") is None:
        raise UnsupportedError(
            "A prompt needs prompt_toolkit.",
            hint="pip install 'kafkalog[sql]', or give a query: kafkalog sql QUERY PATH",
        )
    from prompt_toolkit import PromptSession
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()

    @keys.add("enter")
    def _(event: Any) -> None:
        buffer = event.current_buffer
        if is_complete(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return PromptSession(
        _FIRST,
        multiline=True,
        prompt_continuation=_LATER,
        key_bindings=keys,
        completer=completer(database),
        complete_while_typing=False,
        history=_history(),
    )


def completer(database: Database) -> Any:
    """Return what completes tables, columns, keywords and commands."""
    from prompt_toolkit.completion import WordCompleter

    words = sorted({*_words(), *database.keywords()})
    # It is searched backwards: the dot of a command is the first character.
    return WordCompleter(words, ignore_case=True, pattern=re.compile(r"\w+(\.$)?"))


def _words() -> Iterator[str]:
    """Yield the names of tables and columns, and the commands."""
    for table in TABLES:
        yield table.value
        yield from usual_columns(table)[1]
    yield from (".tables", ".columns", ".help", ".quit")


def _history() -> Any:
    """Return the history: a private file of the user, or what this prompt remembers."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    home = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    path = os.path.join(home, "kafkalog", "sql-history")
    with suppress(OSError):
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600))
        return FileHistory(path)
    return InMemoryHistory()
