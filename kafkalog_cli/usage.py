"""Usage errors that Typer and argparse find, in the style of all errors of kafkalog."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final, NoReturn

from kafkalog.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from typer.exceptions import TyperException

_ALIKE_MAX: Final = 3
_SHOWN_MAX: Final = 60
_INTEGER: Final = "is not an integer"
_WRONG: Final = {
    "int_parsing": _INTEGER,
    "int_parsing_size": _INTEGER,  # of thousands of digits
    "float_parsing": "is not a number",
    "greater_than_equal": "is less than {ge}",
    "less_than_equal": "is greater than {le}",
}
"""Kinds of errors of pydantic, which checks the values of options for Typer."""


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
        names = (name for one in context.command.params for name in one.opts)
        alike = _did_you_mean(found.option_name, names)
        return UsageError(
            f"There is no option {_brief(found.option_name)}.",
            hint=f"{alike}{help_} lists the options.",
        )
    if kind == "UsageError" and hasattr(context.command, "commands"):
        word = next(word for word in argv if not word.startswith("-"))
        alike = _did_you_mean(word, context.command.commands)
        return UsageError(
            f"There is no command {_brief(word)!r}.", hint=f"{alike}{help_} lists the commands."
        )
    if context is None and argv:
        help_ = f"`kafkalog {argv[0]} --help`"
    return UsageError(_sentence(kind, found), hint=f"{help_} shows what it takes.")


def _sentence(kind: str, found: Any) -> str:
    text = found.format_message().rstrip(".") + "."
    if kind == "MissingParameter":
        return f"{_name(found.param)} is missing."
    if kind == "BadOptionUsage" and text.endswith("requires an argument."):
        return f"{found.option_name} needs a value."
    if kind == "BadParameter" and hasattr(found.__cause__, "errors"):
        return f"{_name(found.param)}: {_judgement(found.__cause__.errors()[0])}."
    extra = text.removeprefix("Got unexpected extra argument(s) (").removesuffix(").")
    return text if extra == text else f"Too many arguments: {_brief(extra)}."


def _name(parameter: Any) -> str:
    if parameter.param_type_name == "option":
        return str(max(parameter.opts, key=len))
    return str(parameter.get_error_hint()).strip("'")


def _judgement(error: dict[str, Any]) -> str:
    """Return what is wrong with a value."""
    details = error.get("ctx", {})
    if error["type"] == "value_error":
        return str(details["error"]).rstrip(".")  # 'x' is not one of 'table', 'ndjson'
    wrong = _WRONG.get(error["type"])
    if wrong is None:
        return str(error["msg"])
    return f"{_brief(str(error['input']))!r} {wrong.format_map(details)}"


def _did_you_mean(word: str, names: Iterable[str]) -> str:
    from difflib import get_close_matches

    alike = get_close_matches(word, list(names), _ALIKE_MAX)
    return f"Did you mean {' or '.join(alike)}? " if alike else ""


def _brief(word: str) -> str:
    return word if len(word) <= _SHOWN_MAX else word[: _SHOWN_MAX - 1] + "…"


class Parser(argparse.ArgumentParser):
    """A parser of argparse that raises `UsageError`."""

    def error(self, message: str) -> NoReturn:
        """Raise what is wrong with the arguments."""
        text = message.removeprefix("argument ").rstrip(".") + "."
        raise UsageError(
            text[0].upper() + text[1:], hint=f"`{self.prog} --help` lists the options."
        )
