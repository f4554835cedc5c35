"""The command that comes after a finding or a plan, to be copied."""

from __future__ import annotations

import re
import shlex
import sys
from typing import TYPE_CHECKING, Final

from kafkalog.io.wording import UNSAFE
from kafkalog_cli.output.table import put
from kafkalog_cli.output.text import Tone, painted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalog_cli.options import PartitionNames

_QUOTED: Final = re.compile(f"{UNSAFE.pattern}|['\\\\]")


def put_command(title: str, *words: str) -> None:
    """Print a command on one line, however long: a line break would be copied, too."""
    text = " ".join(["kafkalog", *map(_in_shell, words)])
    put(f"{title:<6}{painted(text, Tone.NAME, sys.stdout)}\n")


def words_of(paths: Iterable[str], partitions: PartitionNames | None = None) -> list[str]:
    """Return paths as a command line names them, and the partitions that were chosen."""
    words = [f"./{path}" if path.startswith("-") else path for path in paths]
    if partitions is not None:
        for name, given in (("-t", partitions.topic), ("-p", partitions.partition)):
            words += [word for one in given or () for word in (name, one)]
    return words


def _in_shell(word: str) -> str:
    """Quote a word; what a terminal must not get is written as Bash reads it: `$'\\x1b'`."""
    if UNSAFE.search(word) is None:
        return shlex.quote(word)
    return "$'" + _QUOTED.sub(_escape, word) + "'"


def _escape(found: re.Match[str]) -> str:
    return "".join(f"\\x{byte:02x}" for byte in found[0].encode("utf-8", "surrogateescape"))
