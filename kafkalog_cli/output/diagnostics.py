"""Errors, defects and words for people, on stderr."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from kafkalog_cli.output.text import printable

if TYPE_CHECKING:
    from kafkalog.errors import KafkaLogError
    from kafkalog.model import Defect


shows_tracebacks = False
"""Whether an error is shown with where in the code it was raised: `--debug`."""


def show_error(error: KafkaLogError) -> None:
    """An error: what happened, where, what else is known, what to do."""
    show_traceback(error)
    _show("error", error.reference, error.message, error.context, error.note, error.hint)


def show_traceback(error: Exception) -> None:
    """Where in the code an exception was raised, if that is wanted."""
    if shows_tracebacks:
        import traceback

        sys.stdout.flush()
        show_words("".join(traceback.format_exception(error)))


def show_defect(defect: Defect) -> None:
    """A defect, where the data on stdout has no place for it."""
    where = defect.path
    if defect.position is not None:
        where += f", position {defect.position}"
    _show(defect.severity, defect.reference, defect.detail, where, None, defect.hint)


def show_note(text: str) -> None:
    """One line worth knowing."""
    sys.stderr.write(f"note: {printable(text)}\n")


def show_warning(text: str) -> None:
    """One line that someone should act on."""
    sys.stdout.flush()
    sys.stderr.write(f"warning: {printable(text)}\n")
    sys.stderr.flush()


def show_words(text: str) -> None:
    """Lines that another library made, possibly from words of the command line."""
    sys.stderr.write("\n".join(map(printable, text.split("\n"))))


def _show(
    kind: str, reference: str, message: str, where: str | None, note: str | None, hint: str | None
) -> None:
    lines = [f"{kind}: {reference}", f"× {printable(message)}"]
    if where is not None:
        lines.append(f"╰─> {printable(where)}")
    if note is not None:
        lines.append(f"note: {printable(note)}")
    if hint is not None:
        lines.append(f"hint: {printable(hint)}")
    sys.stdout.flush()
    encoding = sys.stderr.encoding or "utf-8"
    text = "\n".join(lines) + "\n"
    sys.stderr.write(text.encode(encoding, "replace").decode(encoding))
    sys.stderr.flush()
