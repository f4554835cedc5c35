"""Explanations of references: findings from `kafkalog.log.defects`, errors from their classes."""

from __future__ import annotations

import inspect
import sys
from difflib import get_close_matches
from functools import cache
from typing import Final

from formats.late_classes import dataclass
from kafkalog import errors
from kafkalog.log.defects.table import REFERENCES
from kafkalog.model import Severity
from kafkalog_cli.output import kinds as k
from kafkalog_cli.output.objects import PLAIN, Column, Field, ObjectType, View
from kafkalog_cli.output.table import terminal_width
from kafkalog_cli.output.text import Tone, tone_of, wrapped


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation of a reference; None for fields that do not apply. See `REFERENCE`."""

    reference: str
    severity: Severity | None
    exit_code: int | None
    meaning: str
    arises: str | None = None
    broker: str | None = None
    hint: str | None = None
    example: str | None = None
    command: str | None = None


def error_classes() -> list[type[errors.KafkaLogError]]:
    """Return the errors that have a reference of their own."""
    found = [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, errors.KafkaLogError)
    ]
    return [value for value in found if value.reference != errors.KafkaLogError.reference]


def first_sentence(error: type[errors.KafkaLogError]) -> str:
    return " ".join((inspect.getdoc(error) or "").split("\n\n")[0].split())


@cache
def all_explanations() -> list[Explanation]:
    """Return the explanations of findings, worst first, then of errors, by exit status."""
    exit_codes = {error.reference: error.exit_code for error in error_classes()}
    severities = list(Severity)
    found = [
        Explanation(
            reference=known.name,
            severity=known.severity,
            exit_code=exit_codes.get(known.name),
            meaning=known.meaning,
            arises=known.arises,
            broker=known.broker,
            hint=known.hint,
            example=known.example,
            command=known.command,
        )
        for known in sorted(REFERENCES.values(), key=lambda known: severities.index(known.severity))
    ]
    found += [
        Explanation(error.reference, None, error.exit_code, first_sentence(error))
        for error in sorted(error_classes(), key=lambda error: error.exit_code)
        if error.reference not in REFERENCES
    ]
    return found


def explanation_of(name: str) -> Explanation:
    """Return the explanation of one reference.

    Raises:
        UsageError: there is no such reference; the hint names similar ones.
    """
    known = {explanation.reference: explanation for explanation in all_explanations()}
    if name not in known:
        near = get_close_matches(name, known)
        alike = " or ".join(f"`{match}`" for match in near)
        hint = f"Is it {alike}?" if near else "`kafkalog explain` lists them all."
        raise errors.UsageError(f"There is no reference {name!r}.", hint=hint)
    return known[name]


REFERENCE: Final = ObjectType[Explanation](
    "reference",
    "`explain`",
    "The explanation of a finding or an error.",
    Field("reference", k.TEXT, ""),
    Field("severity", k.TEXT | None, "of a finding"),
    Field("exit_code", k.INT | None, "of an error"),
    Field("meaning", k.TEXT, ""),
    Field("arises", k.TEXT | None, ""),
    Field("broker", k.TEXT | None, "what a broker does"),
    Field("hint", k.TEXT | None, "what to do"),
    Field("example", k.TEXT | None, "`detail` of an example"),
    Field("command", k.TEXT | None, "repairs it, or shows what to decide"),
)


def explanation_view() -> View[Explanation]:
    return REFERENCE.view(
        PLAIN,
        Column(
            "SEVERITY",
            lambda known: known.severity or f"error {known.exit_code}",
            tone=lambda known: tone_of(known.severity or "error"),
        ),
        Column("REFERENCE", "reference", weight=9, tone=lambda _: Tone.NAME),
        Column("MEANING", "meaning", below=True),
    )


def print_explanation(known: Explanation, *, first: bool) -> None:
    """Print an explanation for people; an empty line before all but the first."""
    kind = f"severity {known.severity}" if known.severity else "an error"
    if known.exit_code is not None:
        kind += f", exit status {known.exit_code} if it stops the work"
    parts = {
        "meaning": known.meaning,
        "arises": known.arises,
        "broker": known.broker,
        "to do": known.hint,
        "example": known.example,
        "run": known.command,
    }
    lines = [] if first else [""]
    lines.append(f"{known.reference}: {kind}")
    for title, text in parts.items():
        if text:
            lines += wrapped(text, first=f"  {title:<8}  ", width=terminal_width())
    sys.stdout.buffer.write("".join(f"{line}\n" for line in lines).encode())
