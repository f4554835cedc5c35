"""Usage errors that Typer and argparse find, in the style of all errors of kafkalog."""

from __future__ import annotations

import argparse
import re
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn

from kafkalog.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from typer.exceptions import TyperException

_ALIKE_MAX: Final = 3
_SHOWN_MAX: Final = 60
PEERS: Final = {
    "cat": "dump-segment", "consume": "dump-segment", "read": "dump-segment",
    "head": "dump-segment", "tail": "dump-segment",
    "grep": "find", "search": "find",
    "check": "verify", "fsck": "verify",
    "repair": "recover", "fix": "recover",
    "list": "ls", "topics": "ls",
    "offsets": "groups", "lag": "groups", "consumer-groups": "groups",
    "query": "sql",
    "where": "groups", "audit-compaction": "verify --compaction",
    "apply-retention": "retention --apply",
}  # fmt: skip
"""What other tools call a command, to ours."""
_FILTERS: Final = ("-k", "--key", "--key-regex", "--value-regex", "--header", "--where")
_WRONG: Final = (
    (re.compile(r"(?P<value>.+) is not a valid int", re.DOTALL), "is not an integer"),
    (re.compile(r"(?P<value>.+) is not a valid float", re.DOTALL), "is not a number"),
    (re.compile(r"(?P<value>\S+) is not in the range x>=(?P<least>\S+)\."), "is less than {least}"),
)
"""What Typer says of values, and what we say."""


def usage_error(raised: TyperException, argv: Sequence[str]) -> UsageError:
    """Return what Typer found wrong with a command line.

    Its classes of errors are private: the names of those that exist now are known here, and the
    words of any other are taken as they are.
    """
    found: Any = raised
    context: Any = getattr(found, "ctx", None)
    help_ = f"`{context.command_path if context else 'kafkalog'} --help`"
    kind = type(raised).__name__
    if kind == "NoSuchOption":
        if found.option_name in _FILTERS:
            ours = f"`kafkalog find PATH {found.option_name} …`"
            return UsageError(
                f"There is no option {_brief(found.option_name)}.",
                hint=f"{ours} selects records; --to FILE.parquet writes them.",
            )
        names = (name for one in context.command.params for name in one.opts)
        alike = _did_you_mean(found.option_name, names)
        return UsageError(
            f"There is no option {_brief(found.option_name)}.",
            hint=f"{alike}{help_} shows the usage.",
        )
    if kind == "UsageError" and hasattr(context.command, "commands"):
        # Of a group, only an unknown command is one.
        word = next(word for word in argv if not word.startswith("-"))
        if word in PEERS:
            return UsageError(
                f"There is no command {_brief(word)!r}.", hint=_in_our_words(word, argv)
            )
        alike = _did_you_mean(word, context.command.list_commands(context))
        return UsageError(
            f"There is no command {_brief(word)!r}.", hint=f"{alike}{help_} lists the commands."
        )
    if context is None and argv:
        help_ = f"`kafkalog {argv[0]} --help`"
    return UsageError(_sentence(kind, found), hint=f"{help_} shows the usage.")


def _in_our_words(word: str, argv: Sequence[str]) -> str:
    """Return the command line with our command in place of that of another tool."""
    import shlex

    after = [*argv[argv.index(word) + 1 :]]
    ours = "transactions" if "--transactional-id" in after else PEERS[word]
    return f"kafkalog {ours} {shlex.join(after)}".rstrip()


def _sentence(kind: str, found: Any) -> str:
    text = found.format_message().rstrip(".") + "."
    if kind == "MissingParameter":
        return f"{_name(found.param)} is missing."
    if kind == "BadOptionUsage" and text.endswith("requires an argument."):
        return f"{found.option_name} needs a value."
    if kind == "BadParameter" and found.param is not None:
        return f"{_name(found.param)}: {_judgement(found.message)}."
    extra = text.removeprefix("Got unexpected extra argument(s) (").removesuffix(").")
    return text if extra == text else f"Too many arguments: {_brief(extra)}."


def _name(parameter: Any) -> str:
    if parameter.param_type_name == "option":
        return str(max(parameter.opts, key=len))
    return str(parameter.human_readable_name).partition("...")[0].split()[-1]  # [QUERY] PATH...


def _judgement(message: str) -> str:
    for theirs, ours in _WRONG:
        if found := theirs.match(message):
            value = found["value"].strip("'")
            return f"'{_brief(value)}' {ours.format_map(found.groupdict())}"
    return message.rstrip(".")  # 'x' is not one of 'table', 'ndjson'


def _did_you_mean(word: str, names: Iterable[str]) -> str:
    from difflib import get_close_matches

    alike = get_close_matches(word, list(names), _ALIKE_MAX)
    return f"Did you mean {' or '.join(alike)}? " if alike else ""


def _brief(word: str) -> str:
    return word if len(word) <= _SHOWN_MAX else word[: _SHOWN_MAX - 1] + "…"


class Parser(argparse.ArgumentParser):
    """A parser of argparse that raises `UsageError`."""

    def __init__(self, **options: Any) -> None:
        # Each option is tried with a formatter. The terminal's width, whose module loads all kinds
        # of archives, matters only to what is shown.
        narrow = partial(argparse.HelpFormatter, width=_SHOWN_MAX)
        super().__init__(formatter_class=narrow, **options)

    def format_help(self) -> str:
        self.formatter_class = argparse.HelpFormatter
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        text = message.removeprefix("argument ").rstrip(".") + "."
        raise UsageError(text[0].upper() + text[1:], hint=f"`{self.prog} --help` shows the usage.")
