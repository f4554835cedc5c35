"""Every wrong command line ends with status 2 and one error in the common style."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog_cli.app import all_commands
from kafkalog_cli.panels import COMMANDS
from tests.checkout import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import Result

    Run = Callable[..., Result]

STYLE = re.compile(r"error: usage\n× [^\n]+\.\n(╰─> [^\n]+\n)?(note: [^\n]+\n)?(hint: [^\n]+\n)?")
DUMP = "kafka-dump-log"
"""The one command that argparse parses."""


def wrong_lines(name: str) -> Iterator[tuple[list[str], str]]:
    """Yield each kind of mistake with each parameter of a command, and what the error names."""
    command = all_commands()[name]
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one.param_type_name == "option"]
    given = ["x" for one in arguments if one.required]
    needed = [w for one in options if one.required for w in (one.opts[-1], "x")]
    sound = [*given, *needed]
    yield [*sound, "--no-such-option"], "--no-such-option"
    yield [*sound, "-~"], "-~"
    for n, one in enumerate(given):
        metavar = command.params[n].metavar or one
        yield [*given[:n], *needed], metavar.partition("...")[0].split()[-1]
    for one in options:
        option = max(one.opts, key=len)
        if one.required:
            yield given, option
        if one.is_flag:
            if option.startswith("--"):
                yield [*sound, f"{option}=x"], option
            continue
        yield [*sound, option], option
        kind = one.type
        if hasattr(kind, "choices") or kind.name.startswith(("int", "float")):
            yield [*sound, option, "x~"], "'x~'"
        if (least := getattr(kind, "min", None)) is not None:
            yield [*sound, option, str(least - 1)], str(least - 1)
    if all(one.nargs == 1 for one in arguments):
        yield [*["x" for _ in arguments], "one-too-many", *needed], "one-too-many"


def assert_in_style(result: Result, named: str) -> None:
    assert (result.status, result.stdout) == (2, b"")
    assert STYLE.fullmatch(result.stderr), result.stderr
    assert named in result.stderr


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - {DUMP}))
def test_every_mistake_with_every_parameter(name: str, kafkalog: Run):
    tried = 0
    for words, named in wrong_lines(name):
        assert_in_style(kafkalog(name, *words), named)
        tried += 1
    assert tried > 3


def test_a_hostile_word_is_data(kafkalog: Run):
    """It is quoted, shortened if long, and never reaches the terminal raw."""
    lines = (
        ["\x1b[31mred\n"],
        ["ls", "x", "--\x1b[2J"],
        ["dump-segment", "x", "--limit", "9" * 5000],
        ["ls", "x", "--format", "\x1b]0;t\x07"],
        ["metadata", "x", "\x1b[1m\n"],
    )
    for words in lines:
        result = kafkalog(*words)
        assert_in_style(result, "error")
        assert "\x1b" not in result.stderr
        assert len(result.stderr) < 400


def test_our_own_messages_are_sentences():
    """A `UsageError` of ours says in one line what is wrong, however it is shown."""
    judged = 0
    for path in sorted(
        [*(ROOT / "kafkalog").rglob("*.py"), *(ROOT / "kafkalog_cli").rglob("*.py")]
    ):
        text = path.read_text()
        for call in ast.walk(ast.parse(text)) if "UsageError(" in text else ():
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "UsageError":
                message = call.args[0]
                if isinstance(message, ast.JoinedStr):
                    message = message.values[-1]
                if isinstance(message, ast.Constant):
                    assert re.fullmatch(r"[^\n]*[.?]", message.value), (path, call.lineno)
                    judged += 1
    assert judged > 80


def test_no_words_at_all_show_the_help(kafkalog: Run):
    result: Any = kafkalog()
    assert (result.status, result.stdout) == (2, b"")
    assert "\nUsage: kafkalog COMMAND PATH... [OPTIONS]" in result.stderr
