"""The common part of commands that change logs: their reports, and asking for consent."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from kafkalog.errors import UsageError
from kafkalog.targets import Listener
from kafkalog_cli.outcome import show_note
from kafkalog_cli.output.configs import note_metadata
from kafkalog_cli.standard_streams import require_stdout

if TYPE_CHECKING:
    from kafkalog.configs import LogDirConfigs
    from kafkalog.errors import KafkaLogError
    from kafkalog_cli.outcome import Outcome


class ShownListener(Listener):
    """Shows what a run reports besides its results; records what affects the exit status."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome

    def failed(self, error: KafkaLogError) -> None:
        """Report the failure; the run continues."""
        self._outcome.error(error)

    def noted(self, text: str) -> None:
        """Show the note."""
        show_note(text)

    def configured(self, configs: LogDirConfigs) -> None:
        """Report defects of the metadata log."""
        note_metadata(configs, self._outcome)


def require_consent(*, in_place: bool, yes: bool, backup: str | None = None) -> None:
    """Check, before any work, that consent can be obtained.

    Raises:
        UsageError: there is no terminal to ask, or the options contradict each other.
    """
    if yes and not in_place:
        raise UsageError("--yes requires --in-place.", hint="Without it only the plan is shown.")
    if backup is not None and not in_place:
        raise UsageError("--backup requires --in-place.", hint="Without it only the plan is shown.")
    if in_place and not yes and not sys.stdin.isatty():
        raise UsageError(
            "Cannot ask: stdin is not a terminal.",
            hint="--yes applies the plan without asking.",
        )


def consents(question: str, *, yes: bool) -> bool:
    """Ask whether the source may be changed, after the plan was shown."""
    if yes:
        return True
    import typer

    require_stdout()
    return typer.confirm(question, err=True)
