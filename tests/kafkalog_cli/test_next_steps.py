"""The command that comes after a finding can be copied as it is."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from kafkalog.io.wording import UNSAFE
from kafkalog_cli.output.next_steps import put_command
from tests.builders import copy_tree

NAMES = ["it's", "a b", "$HOME", "\x1b[31mred\u202e", "tab\t'\\", os.fsdecode(b"\xff\n"), "\x85é"]
DAMAGED = Path("examples/damaged").absolute()


def test_a_shell_reads_the_words_that_were_meant(capfdbinary: Any) -> None:
    """Whatever a path has in it; and nothing that a terminal would act on is printed."""
    put_command("next", "verify", *NAMES)
    line = capfdbinary.readouterr().out.decode()
    assert line.startswith("next  kafkalog verify ")
    assert not UNSAFE.search(line.rstrip("\n"))
    words = line.removeprefix("next  kafkalog verify ")
    read = subprocess.run(
        ["bash", "-c", rf"printf '%s\0' {words}"],
        capture_output=True,
        check=True,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
    )
    assert [os.fsdecode(word) for word in read.stdout.split(b"\0")[:-1]] == NAMES


def test_the_choice_of_partitions_goes_on(tmp_path: Path, kafkalog: Any, monkeypatch: Any) -> None:
    """The path that has the damage, of several, and what was chosen of it."""
    monkeypatch.chdir(copy_tree(DAMAGED, tmp_path / "-damaged").parent)
    words = ("verify", "-t", "ord*", "-p", "0-3", "--", "-damaged")
    shown = kafkalog(*words).stdout.decode()
    assert "next  kafkalog salvage ./-damaged -t 'ord*' -p 0-3 --to NEW" in shown
    assert b"next  " not in kafkalog(words[0], "-o", "ndjson", *words[1:]).stdout
