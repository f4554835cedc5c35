"""Usage errors that Typer and argparse find, in the style of all errors of kafkalog."""

from __future__ import annotations

import argparse
import re
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn

from kafkalog.errors import UsageError
from kafkalog.io.wording import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typer.exceptions import TyperException

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
OPTIONS_OF_PEERS: Final = {
    "--from-beginning": "Without --from-offset everything is shown.",
    "--max-messages": "-n N shows at most N rows.",
    "--offset": "--from-offset N begins at an offset; `kafkalog lookup-offset PATH N` finds one.",
    "--bootstrap-server": "Files are read without a broker: give its log directory as PATH.",
    "--print-data-log": "`kafkalog kafka-dump-log` has the options of Kafka's tool.",
    "--deep-iteration": "`kafkalog kafka-dump-log` has the options of Kafka's tool.",
    "--output": "-o chooses the format, --to the file.",
    "--json": "-o ndjson writes JSON.",
    "--force": "--apply changes files, -y without a question.",
    "--in-place": "--apply changes files.",
    "export -n": "kafkalog dump-segment PATH -n 3 -o ndjson shows some records.",
    "export --limit": "kafkalog dump-segment PATH -n 3 -o ndjson shows some records.",
    "export --apply": "--to NEW writes the files.",
    "salvage --apply": "PATH stays as it is: --to NEW makes a copy.",
    "salvage --in-place": "PATH stays as it is: --to NEW makes a copy.",
    **{
        f"profile {one}": f"`kafkalog find PATH {one} …` selects records."
        for one in ("-k", "--key", "--key-regex", "--value-regex", "--header", "--where")
    },
}
"""What stands here for an option of another tool, or of another command."""
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
        option = found.option_name
        names = (name for one in context.command.params for name in one.opts)
        peers = (f"{context.info_name} {option}", option)
        known = next((f"{OPTIONS_OF_PEERS[one]} " for one in peers if one in OPTIONS_OF_PEERS), "")
        if not known and option.startswith("--"):  # a letter is like each other letter
            known = did_you_mean(option, names)
        return UsageError(
            f"There is no option {_brief(option)}.", hint=f"{known}{help_} shows the usage."
        )
    if kind == "UsageError" and hasattr(context.command, "commands"):
        # Of a group, only an unknown command is one.
        word = next(word for word in argv if not word.startswith("-"))
        if word in PEERS:
            return UsageError(
                f"There is no command {_brief(word)!r}.", hint=_in_our_words(word, argv)
            )
        alike = did_you_mean(word, context.command.list_commands(context))
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


def _brief(word: str) -> str:
    return word if len(word) <= _SHOWN_MAX else word[: _SHOWN_MAX - 1] + "…"


def hint_for_missing(path: str, words: Sequence[str]) -> str | None:
    """Return what was probably meant by a path that does not exist.

    Args:
        path: the path.
        words: the command line.
    """
    import os

    if not path:
        return "Is a variable of the shell empty?"
    if path.isdecimal():
        return "--from-offset N begins at an offset; `kafkalog lookup-offset PATH N` finds one."
    parent, name = os.path.split(path)
    try:
        names = os.listdir(parent or os.curdir)
    except OSError:
        return None
    if alike := did_you_mean(name, names):
        return alike.rstrip()
    is_topic = not parent and any(os.path.isdir(f"{word}/{path}-0") for word in words)
    return f"A topic is chosen by -t {path}." if is_topic else None


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
