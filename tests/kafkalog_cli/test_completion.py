"""A shell completes commands, options, values, and names from the paths that are typed already."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

MAIN = "from kafkalog_cli.main import main; main()"


def completed(*words: str) -> list[str]:
    """Return what completes the last word, as bash asks for it."""
    environ = os.environ | {
        "_KAFKALOG_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(("kafkalog", *words)),
        "COMP_CWORD": str(len(words)),
    }
    done = subprocess.run(
        [sys.executable, "-c", MAIN], env=environ, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("ls", "examples/log-dir", "-t", "o"), ["orders"]),
        (("ls", "examples/log-dir", "-t", "orders", "-p", ""), ["0"]),
        (("ls", "--sort", ""), ["name", "size", "time"]),
        (("explain", "tim"), ["times", "time-index-not-monotonic"]),
        (("lo",), ["lookup-offset"]),
    ],
)
def test_names_are_completed(words: tuple[str, ...], wanted: list[str]) -> None:
    """From commands, choices, findings, and directories without reading a log."""
    assert completed(*words)[: len(wanted)] == wanted
