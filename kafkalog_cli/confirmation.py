"""Whether a command may change its source: asked on a terminal, told by `--yes` elsewhere."""

from __future__ import annotations

import sys

from kafkalog.errors import UsageError
from kafkalog_cli.standard_streams import require_stdout


def require_consent(*, in_place: bool, yes: bool, backup: str | None = None) -> None:
    """There is a way to learn whether the source may be changed; asked before any work.

    Raises:
        UsageError: nobody is there to be asked, or the options contradict each other.
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
    """Whether the source may be changed, now that the plan was shown."""
    if yes:
        return True
    import typer

    require_stdout()
    return typer.confirm(question, err=True)
