"""A shell completes commands, options, values, and names from the paths that are typed already."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

MAIN = "from kafkalog_cli.main import main; main()"


def completed(*words: str, **variables: str) -> list[str]:
    """Return what completes the last word, as bash asks for it."""
    environ = (
        os.environ
        | variables
        | {
            "_KAFKALOG_COMPLETE": "complete_bash",
            "COMP_WORDS": " ".join(("kafkalog", *words)),
            "COMP_CWORD": str(len(words)),
        }
    )
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
        (("ls", "--color", "a"), ["always", "auto"]),
        (("explain", "tim"), ["times", "time-index-not-monotonic"]),
        (("explain", "segment."), ["segment.bytes", "segment.index.bytes"]),
        (("du", ".", "--config", "retention."), ["retention.bytes", "retention.ms"]),
        (("find", ".", "--value-format", "a"), ["auto", "avro"]),
        (("export", ".", "--accept", ""), ["damage", "gaps", "rejects"]),
        (("compact", ".", "--high-watermark", ""), ["checkpoint", "end"]),
        (("verify", "-o", "p"), ["prometheus"]),
        (("lo",), ["lookup-offset"]),
        (("ls", "/missing", "-t", ""), []),
        (("nothing", "-t", ""), ["ls"]),
    ],
)
def test_names_are_completed(words: tuple[str, ...], wanted: list[str]) -> None:
    """From commands, choices, findings, and directories without reading a log."""
    assert completed(*words)[: len(wanted) or None] == wanted


def test_places_are_completed_and_give_topics(tmp_path: Path) -> None:
    """A config that cannot be read spoils nothing."""
    file = tmp_path / "config.toml"
    file.write_text('[place.prod]\npaths = ["examples/log-dir"]\n[place.test]\npaths = ["x"]\n')
    of_config = {"KAFKALOG_CONFIG": str(file)}
    assert completed("ls", "@", **of_config) == ["@prod", "@test"]
    assert completed("ls", "", **of_config) == []
    assert completed("find", "@prod", "-t", "o", **of_config) == ["orders"]
    file.write_text("what")
    assert completed("find", "@", **of_config) == []
    assert completed("find", "examples/log-dir", "-t", "o", **of_config) == ["orders"]
