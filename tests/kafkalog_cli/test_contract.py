"""Every command keeps to one vocabulary, and its help to its bounds."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

import pytest

from kafkalog_cli.app import all_commands
from kafkalog_cli.common_options import common_options
from kafkalog_cli.option_sets import SAFETY
from kafkalog_cli.panels import ALIASES, PANELS
from kafkalog_cli.usage import PEERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Result

    Run = Callable[..., Result]

KAFKAS: Final = "kafka-dump-log"
"""Parsed by argparse, with Kafka's own options."""
COMMANDS: Final = [name for name in all_commands() if name != KAFKAS]
LETTERS: Final = {
    "-t": "--topic", "-p": "--partition", "-k": "--key", "-r": "--registry", "-o": "--format",
    "-x": None, "-f": "--template", "-n": "--limit", "-w": "--wrap", "-y": "--yes",
    "-c": "--command", "-q": "--quiet", "-v": "--verbose", "-h": None,
}  # fmt: skip
OPTIONS_MAX: Final = {"dump-segment": 42, "export": 40, "verify": 30}
USES_MAX: Final = 650
BRIEF_LINES_MAX: Final = 24
HELP_LINES_MAX: Final = 1100
WIDTH: Final = 80
OWN_MEANING: Final = frozenset(("--to", "--limit", "--format", "--listen"))
"""Options whose words say what a command writes or stops at."""


def options_of(name: str) -> list[Any]:
    command = all_commands()[name]
    own = [one for one in command.params if one.param_type_name == "option"]
    return [*own, *common_options()]


def long_name(option: Any) -> str | None:
    return next((name for name in option.opts if name.startswith("--")), None)


def test_there_are_28_commands_in_eight_panels() -> None:
    """Three aliases are all that may stand for one of them."""
    assert len(PANELS) == 8
    assert len([name for panel in PANELS.values() for name in panel]) == 28
    assert sorted(ALIASES) == ["dump", "lookup", "simulate-retention"]


def test_a_letter_has_one_meaning() -> None:
    """Those of the peers, and no others."""
    for name in COMMANDS:
        for option in options_of(name):
            for letter in (one for one in option.opts if not one.startswith("--")):
                assert LETTERS[letter] == long_name(option), (name, letter)


def test_a_word_has_one_meaning() -> None:
    """Whatever the command, an option takes the same kind of value, and has the same help."""
    seen: dict[str, set[tuple[str, Any]]] = defaultdict(set)
    for name in COMMANDS:
        for option in options_of(name):
            word = long_name(option) or option.opts[0]
            if word not in OWN_MEANING:
                seen[word].add((option.help, str(option.metavar or option.type)))
    several = {word: found for word, found in seen.items() if len(found) > 1}
    assert not several


def test_options_are_given_where_somebody_needs_them() -> None:
    """The contract bounds three commands, and all of them together."""
    own = {
        name: [one for one in all_commands()[name].params if one.param_type_name == "option"]
        for name in COMMANDS
    }
    over = {name: len(own[name]) for name, most in OPTIONS_MAX.items() if len(own[name]) > most}
    assert not over
    assert sum(map(len, own.values())) <= USES_MAX


def test_consent_comes_from_the_command_line_alone() -> None:
    """No variable gives an option about safety."""
    for name in COMMANDS:
        for option in options_of(name):
            if (long_name(option) or "")[2:] in SAFETY:
                assert not option.allow_from_autoenv, (name, option.opts)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_brief_help_is_one_screen(kafkalog: Run, name: str) -> None:
    """Of 80 columns and 24 lines, with an example."""
    shown = kafkalog(name, "-h")
    lines = shown.stdout.decode().splitlines()
    assert shown.status == 0
    assert len(lines) <= BRIEF_LINES_MAX
    assert max(map(len, lines)) <= WIDTH
    assert f"  kafkalog {name}" in shown.stdout.decode()


def test_the_whole_help_stays_short(kafkalog: Run) -> None:
    """What a command does and why is in its manual page."""
    texts = {name: kafkalog(name, "--help").stdout.decode().splitlines() for name in COMMANDS}
    for name, lines in texts.items():
        assert lines[lines.index("", 2) - 1].endswith("."), f"{name} ends within a sentence"
    assert max(len(line) for lines in texts.values() for line in lines) <= WIDTH
    assert sum(map(len, texts.values())) <= HELP_LINES_MAX
    prose = {name: lines[2 : lines.index("", 2)] for name, lines in texts.items()}
    assert [name for name, lines in prose.items() if not lines[-1].endswith(".")] == []


def test_the_first_screen_names_commands_that_exist(kafkalog: Run) -> None:
    """Without a command it is shown on stderr, with the status of a wrong usage."""
    shown = kafkalog("-h").stdout.decode()
    assert kafkalog().stderr == shown
    assert kafkalog().status == 2
    assert len(shown.splitlines()) <= BRIEF_LINES_MAX
    named = {line[9:24].strip() for line in shown.splitlines()[3:17]}
    assert len(named) == 14
    assert named <= {*COMMANDS}
    assert all(name in kafkalog("--help").stdout.decode() for name in COMMANDS)


@pytest.mark.parametrize(("word", "ours"), [*PEERS.items()])
def test_words_of_peers_lead_to_ours(kafkalog: Run, word: str, ours: str) -> None:
    """The hint is a command line to copy; no word is taken for a command."""
    result = kafkalog(word, "examples/log-dir", "--some")
    assert (result.status, result.stdout) == (2, b"")
    assert f"hint: kafkalog {ours} examples/log-dir --some" in result.stderr
    assert ours.split(maxsplit=1)[0] in all_commands()


def test_a_path_alone_is_listed_or_shown(kafkalog: Run) -> None:
    """As sqlite3 and duckdb open what they are given."""
    log = "examples/log-dir/orders-0/00000000000000000000.log"
    assert kafkalog("examples/log-dir").stdout == kafkalog("ls", "examples/log-dir").stdout
    assert kafkalog(log, "-n", "3").stdout == kafkalog("dump-segment", log, "-n", "3").stdout
