"""`docs/commands.md`: every command and its options, from the command table itself."""

from __future__ import annotations

import inspect
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from kafkalog_cli.app import all_commands
from kafkalog_cli.commands.kafka_dump_log import _parser
from kafkalog_cli.common_options import common_options

if TYPE_CHECKING:
    from collections.abc import Iterator

Row = tuple[str, str, str]
"""An option or argument with what it takes, its meaning, and its default."""
_SHARED_BY_MIN: Final = 3


def example_lines(text: str) -> list[str]:
    """Return the example command lines of a help text, without their explanations."""
    lines = [line.strip() for line in text.splitlines()]
    return [line.split("  ")[0] for line in lines if line.startswith("kafkalog ")]


def commands() -> dict[str, Any]:
    """Return name and click command, in the order of the help."""
    return all_commands()


def help_of(command: Any) -> str:
    """Return the help text of a command, as its docstring has it."""
    return inspect.cleandoc(command.help or "").replace("\b\n", "")


def option_rows(name: str, command: Any) -> Iterator[Row]:
    """Yield name, meaning and default of each option and argument."""
    if name == "kafka-dump-log":
        for action in _parser()._actions:  # argparse has no public list of them  # noqa: SLF001
            value = f" {action.metavar or action.dest.upper()}" if action.nargs != 0 else ""
            if action.nargs == "?":
                value = f" [{value.strip()}]"
            default = "" if action.default in (None, False, "==SUPPRESS==") else action.default
            yield f"{', '.join(action.option_strings)}{value}", action.help or "", str(default)
        return
    yield from map(_row, (one for one in command.params if not getattr(one, "hidden", False)))


def common_rows() -> Iterator[Row]:
    """Yield those of the options of all commands."""
    return map(_row, common_options())


def _row(parameter: Any) -> Row:
    if parameter.param_type_name == "argument":
        return parameter.metavar, parameter.help, "required" if parameter.required else ""
    names = ", ".join(parameter.opts)
    if parameter.secondary_opts:
        names += " / " + ", ".join(parameter.secondary_opts)
    default = parameter.default
    kind = None if isinstance(default, bool) or parameter.is_flag else _value(parameter)
    shown = "" if default in (None, False, ()) else str(default)
    return names if kind is None else f"{names} {kind}", parameter.help, shown


def _value(parameter: Any) -> str:
    if parameter.metavar:
        return str(parameter.metavar)
    return "|".join(map(str, parameter.type.choices))


def command_sections() -> str:
    """Write the options that many commands share, then a section per command."""
    listed = {name: list(option_rows(name, command)) for name, command in commands().items()}
    shared = shared_options(listed)
    parts = ["## Options of all commands\n\n", *map(_line, common_rows())]
    parts += ["\n## Shared options\n\n", *map(_line, shared.values())]
    for name, command in commands().items():
        text = help_of(command)
        examples = "\n".join(example_lines(text))
        prose = "\n".join(
            line for line in text.splitlines() if not line.strip().startswith("kafkalog ")
        ).strip()
        parts.append(f"\n## `kafkalog {name}`\n\n{prose}\n\n```sh\n{examples}\n```\n\n")
        own = [row for row in listed[name] if row != shared.get(_name(row))]
        parts += map(_line, own)
        links = [f"`{_name(row)}`" for row in listed[name] if row not in own]
        if links:
            parts.append(f"- [Shared](#shared-options): {', '.join(links)}\n")
    return "".join(parts)


def shared_options(listed: dict[str, list[Row]]) -> dict[str, Row]:
    """Return by name the options that several commands have with the same meaning.

    Where a name has several meanings, the most common one is the shared one.
    """
    found: dict[str, Row] = {}
    for row, count in Counter(row for rows in listed.values() for row in rows).most_common():
        if count >= _SHARED_BY_MIN:
            found.setdefault(_name(row), row)
    return found


def _name(row: Row) -> str:
    """Return how other places call an option: its long name, or an argument as it is."""
    words = row[0].replace(",", "").split()
    return next((word for word in words if word.startswith("--")), row[0])


def _line(row: Row) -> str:
    option, meaning, default = row
    if default not in ("", "required"):
        stop = "." if meaning.endswith(".") else ""
        meaning = f"{meaning.removesuffix('.')}; default `{default}`{stop}"
    return f"- `{option}`: {meaning}\n"
