"""Queries that DuckDB runs: the prompt, what statements name, and the display of their answers."""

from __future__ import annotations

import importlib.util
import math
import os
import re
import sys
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import chain, islice, repeat
from typing import TYPE_CHECKING, Any, Final

from kafkalog.errors import KafkaLogError, Listener, UnsupportedError, UsageError
from kafkalog.files.payloads.kinds import payload_kind
from kafkalog.io.wording import counted
from kafkalog.model import Defect
from kafkalog.node.state.model import Groups
from kafkalog.tables.datasets.sql import TABLES, Database, usual_columns
from kafkalog_cli.outcome import Outcome, show_error, show_note, show_warning
from kafkalog_cli.output.objects import Column, View
from kafkalog_cli.output.progress import waiting_for
from kafkalog_cli.output.text import BytesFormat, bytes_cell, bytes_value, dumps
from kafkalog_cli.output.writer import Format, write_all
from kafkalog_cli.session import session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafkalog.errors import Event
    from kafkalog.log.typed import TypedColumn
    from kafkalog.tables.model import Answer

Values = tuple[Any, ...]


class Answers:
    """Writes answers, one after another.

    Args:
        limit: how many rows are written in all; None for all of them.
    """

    def __init__(self, form: Format, limit: int | None = None) -> None:
        self.form = form
        self._left = repeat(None) if limit is None else repeat(None, limit)

    def write(self, answer: Answer) -> None:
        """Write the rows of an answer as they come.

        Raises:
            UsageError: objects would have two fields with one name.
        """
        _require_names(answer, self.form)
        rows = (row for row, _ in zip(answer.rows, self._left, strict=False))
        write_all(rows, _view(answer), self.form)


def _view(answer: Answer) -> View[Values]:
    def cell(number: int) -> Callable[[Values], object]:
        return lambda row: _cell(row[number])

    columns = [
        Column(name, cell(number), right=is_number, least=0 if is_number else 12)
        for number, (name, is_number) in enumerate(zip(answer.names, answer.numeric, strict=True))
    ]
    return View(
        tuple(columns),
        lambda row: {name: _value(value) for name, value in zip(answer.names, row, strict=True)},
    )


def _require_names(answer: Answer, form: Format) -> None:
    """Raise `UsageError` if objects would have two fields with one name."""
    twice = {name for name in answer.names if answer.names.count(name) > 1}
    if twice and form.has_objects:
        raise UsageError(
            f"Two columns have the name {min(twice)!r}.", hint="Name one of them: … AS other."
        )


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bytes):
        return bytes_cell(value, BytesFormat.AUTO)
    plain = _value(value)
    return plain if isinstance(plain, str) else dumps(plain)


def _value(value: Any) -> Any:
    """Convert a value for JSON; numbers that JSON does not have become text."""
    if isinstance(value, bytes):
        return bytes_value(value, BytesFormat.AUTO)
    if isinstance(value, datetime):
        return value.replace(tzinfo=value.tzinfo or UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal) or (isinstance(value, float) and not math.isfinite(value)):
        return str(value)
    if isinstance(value, list):
        return [_value(inner) for inner in value]
    if isinstance(value, dict):
        return {_value(name): _value(inner) for name, inner in value.items()}
    return value if isinstance(value, bool | int | float | str | None) else str(value)


_SHOWN_MAX: Final = 5


class Damage(Listener):
    """What reading the tables came across; a table that is read twice is reported once."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self._defects: set[tuple[str, str, int | None]] = set()
        self._groups: Groups | None = None
        self._undecoded: dict[str, str] = {}

    def hear(self, event: Event) -> None:
        """Take an event; show errors, and the first few defects."""
        match event:
            case Defect():
                self.defect(event)
            case Groups():
                self._groups = event
            case KafkaLogError():
                errors = self._outcome.errors
                if (event.path, event.message) not in {(one.path, one.message) for one in errors}:
                    self._outcome.hear(event)
            case _:
                self._outcome.hear(event)

    def defect(self, defect: Defect) -> None:
        """Take a defect, and show the first few."""
        key = (defect.reference, defect.path, defect.position)
        if key not in self._defects:
            self._defects.add(key)
            self._outcome.count(defect)
            if len(self._defects) <= _SHOWN_MAX:
                self._outcome.defect(defect)

    def undecoded(self, column: TypedColumn, reason: str) -> None:
        """Take that keys or values do not decode, and why one of them does not."""
        self._undecoded.setdefault(f"{column.source}s that are no {column.form}", reason)

    def answered(self) -> None:
        """Take that a statement has ended with an answer."""
        self._outcome.answers()

    def report(self) -> None:
        """Show what belongs to the answers so far, and forget it."""
        self._outcome.report_logs()
        for what, reason in self._undecoded.items():
            show_warning(f"{what} are NULL: {reason}")
        self._outcome.lacks(bool(self._undecoded))
        self._undecoded.clear()
        if self._groups is not None:
            self._outcome.hear(self._groups)
            self._groups = None
        more = len(self._defects) - _SHOWN_MAX
        if more > 0:
            show_note(f"{counted(more, 'more defect')}; the table defects lists all of them")
        self._defects.clear()


def run_queries(database: Database, text: str, damage: Damage, answers: Answers) -> None:
    """Run the statements of a text and write their answers; show that one takes long.

    Raises:
        UsageError: there is none, or one is wrong, or a format takes one answer only.
    """
    statements = database.statements(text)
    if not statements:
        raise UsageError("There is no query.", hint="kafkalog sql PATH -c QUERY")
    form = answers.form
    if len(statements) > 1 and form in (Format.JSON, Format.CSV):
        raise UsageError(f"--format {form} takes one query, not {len(statements)}.")
    hidden = [name for name in re.findall(r"\b__\w+", text) if payload_kind(name) is not None]
    if hidden and not database.tables.internal:
        show_note(f"{hidden[0]} is an internal topic: --internal includes its records")
    for statement in statements:
        try:
            with waiting_for("running the query …", enabled=not session().is_quiet):
                answer = database.run(statement)
                # The query runs while the first row is awaited.
                first = list(islice(answer.rows, 1))
            if answer.names:
                whole = replace(answer, rows=chain(first, answer.rows))
                answers.write(whole)
            damage.answered()
        finally:
            damage.report()


_HELP: Final = """\
A statement ends with a semicolon, on any line. Tab completes, Ctrl-R searches what was entered
before, Ctrl-C stops a statement, Ctrl-D ends.
.tables          the tables
.schema [TABLE]  the columns of a table, or of all of them
.help            this help
exit, quit       the end
"""
_FIRST: Final = "kafkalog> "
_LATER: Final = "      ...> "
_ENDS: Final = ("exit", "quit", ".exit", ".quit")


def ask(database: Database, damage: Damage, answers: Answers) -> None:
    """Run what is entered until the end; an error costs one statement.

    Raises:
        UnsupportedError: prompt_toolkit is missing.
    """
    prompt = _prompt(database)
    show_note("SQL over the tables of the logs; .help lists what else there is")
    while True:
        try:
            text = prompt.prompt().strip()
        except KeyboardInterrupt:  # empties the line, as in a shell
            continue
        except EOFError:
            return
        if text.rstrip(";").rstrip().lower() in _ENDS:
            return
        try:
            if text.startswith("."):
                _command(text.rstrip(";"))
            elif text.strip("; \n"):
                run_queries(database, text, damage, answers)
        except KafkaLogError as error:
            show_error(error)
        except KeyboardInterrupt:
            show_note("stopped")
        sys.stdout.flush()


def is_complete(text: str) -> bool:
    """Return whether what was entered can be run: a statement to its end, a command, nothing."""
    text = text.strip()
    return not text or text.startswith(".") or text.endswith(";") or text.lower() in _ENDS


def _command(text: str) -> None:
    name, _, argument = text.partition(" ")
    tables = {str(table): table for table in TABLES}
    if name == ".tables":
        lines = list(tables)
    elif name == ".schema" and argument.strip() in ("", *tables):
        shown = [argument.strip()] if argument.strip() else tables
        lines = [f"{one} ({', '.join(usual_columns(tables[one])[1])})" for one in shown]
    else:
        lines = _HELP.splitlines()
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def _prompt(database: Database) -> Any:
    if importlib.util.find_spec("prompt_toolkit") is None:
        raise UnsupportedError(
            "A prompt needs prompt_toolkit.",
            hint="pip install 'kafkalog[data]', or give a query: kafkalog sql PATH -c QUERY",
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
    from prompt_toolkit.completion import WordCompleter

    words = sorted({*_words(), *database.keywords()})
    # It is searched backwards: the dot of a command is the first character.
    return WordCompleter(words, ignore_case=True, pattern=re.compile(r"\w+(\.$)?"))


def _words() -> Iterator[str]:
    for table in TABLES:
        yield table.value
        yield from usual_columns(table)[1]
    yield from (".tables", ".schema", ".help", *_ENDS)


def _history() -> Any:
    """Return the history: a private file of the user, or what this prompt remembers."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    home = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    path = os.path.join(home, "kafkalog", "sql-history")
    with suppress(OSError):
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        # `FileHistory` would let others read it.
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600))
        return FileHistory(path)
    return InMemoryHistory()
