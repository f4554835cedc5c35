"""Queries that DuckDB runs: their answers, one after another, and what else is worth knowing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from kafkalog.errors import UsageError
from kafkalog.payloads.internal_topics import payload_kind
from kafkalog.wording import counted
from kafkalog_cli.outcome import report_gaps, show_note
from kafkalog_cli.output.writer import Format

if TYPE_CHECKING:
    from kafkalog.datasets.sql import Database
    from kafkalog.model import Defect
    from kafkalog.state.model import Groups
    from kafkalog.tables.model import PartitionEnd
    from kafkalog.view import Difference
    from kafkalog_cli.outcome import Outcome
    from kafkalog_cli.output.text import BytesFormat

_SHOWN_MAX: Final = 5


class Damage:
    """What reading the tables came across; a table that is read twice is reported once."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self._defects: set[tuple[str, str, int | None]] = set()
        self._differences: dict[str, Difference] = {}
        self._ends: dict[str, PartitionEnd] = {}
        self._groups: Groups | None = None

    def found(self, defect: Defect) -> None:
        """Take a defect, and show the first few."""
        key = (defect.reference, defect.path, defect.position)
        if key not in self._defects:
            self._defects.add(key)
            self._outcome.count(defect)
            if len(self._defects) <= _SHOWN_MAX:
                self._outcome.defect(defect)

    def differs(self, difference: Difference) -> None:
        """Take how the view of a partition differs from its files."""
        self._differences[difference.path] = difference

    def leaves_out(self, end: PartitionEnd) -> None:
        """Take the bounds of a partition whose records are not all in an answer."""
        self._ends[end.name] = end

    def lacks(self, groups: Groups) -> None:
        """Take the groups that a table was read from, with what they lack."""
        self._groups = groups

    def report(self) -> None:
        """Show what belongs to the answers so far, and forget it."""
        self._outcome.differs(self._differences.values())
        self._outcome.leaves_out(self._ends.values())
        if (groups := self._groups) is not None:
            report_gaps(self._outcome, groups.topic, groups.incomplete, groups.undecoded)
            self._groups = None
        more = len(self._defects) - _SHOWN_MAX
        if more > 0:
            show_note(f"{counted(more, 'more defect')}; the table defects lists all of them")
        self._defects.clear()
        self._differences.clear()
        self._ends.clear()


def run_queries(
    database: Database, text: str, damage: Damage, form: Format, bytes_form: BytesFormat
) -> None:
    """Run the statements of a text and write their answers.

    Raises:
        UsageError: there is none, or one is wrong, or a format takes one answer only.
    """
    from kafkalog_cli.output.answers import write_answer

    statements = database.statements(text)
    if not statements:
        raise UsageError("There is no query.", hint="kafkalog sql QUERY PATH")
    if len(statements) > 1 and form in (Format.JSON, Format.CSV):
        raise UsageError(f"--format {form} takes one query, not {len(statements)}.")
    hidden = [name for name in re.findall(r"\b__\w+", text) if payload_kind(name) is not None]
    if hidden and not database.tables.internal:
        show_note(f"{hidden[0]} is an internal topic: --internal includes its records")
    for statement in statements:
        answer = database.run(statement)
        try:
            if answer.names:
                write_answer(answer, form, bytes_form, damage.found)
        finally:
            damage.report()
