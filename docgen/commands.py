"""`docs/commands.md`: every command and its options, from the command table itself."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from kafkalog_cli.app import all_commands
from kafkalog_cli.commands.kafka_dump_log import _parser

if TYPE_CHECKING:
    from collections.abc import Iterator


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


def option_rows(name: str, command: Any) -> Iterator[tuple[str, str, str]]:
    """Yield name, meaning and default of each option and argument."""
    if name == "kafka-dump-log":
        for action in _parser()._actions:  # argparse has no public list of them  # noqa: SLF001
            value = f" {action.metavar or action.dest.upper()}" if action.nargs != 0 else ""
            if action.nargs == "?":
                value = f" [{value.strip()}]"
            default = "" if action.default in (None, False, "==SUPPRESS==") else action.default
            yield f"{', '.join(action.option_strings)}{value}", action.help or "", str(default)
        return
    for parameter in command.params:
        if getattr(parameter, "hidden", False):
            continue
        if parameter.param_type_name == "argument":
            yield parameter.metavar, parameter.help, "required" if parameter.required else ""
            continue
        names = ", ".join(reversed(parameter.opts))
        if parameter.secondary_opts:
            names += " / " + ", ".join(parameter.secondary_opts)
        default = parameter.default
        kind = None if isinstance(default, bool) or parameter.is_flag else _value(parameter)
        shown = "" if default in (None, False) else str(default)
        yield names if kind is None else f"{names} {kind}", parameter.help, shown


def _value(parameter: Any) -> str:
    if parameter.metavar:
        return str(parameter.metavar)
    return "|".join(map(str, parameter.type.choices))


def command_sections() -> str:
    """Write a section per command."""
    parts = []
    for name, command in commands().items():
        text = help_of(command)
        examples = example_lines(text)
        prose = "\n".join(
            line for line in text.splitlines() if not line.strip().startswith("kafkalog ")
        ).strip()
        parts.append(f"\n## `kafkalog {name}`\n\n{prose}\n\n```sh\n")
        parts.append(
            "\n".join(examples) + "\n```\n\n| option | meaning | default |\n|---|---|---|\n"
        )
        for option, meaning, default in option_rows(name, command):
            cells = [f"`{option}`", meaning, f"`{default}`" if default else ""]
            parts.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n")
        if name != "kafka-dump-log":
            parts[-1] += "| `-h, --help` | Show the help. |  |\n"
    return "".join(parts)
