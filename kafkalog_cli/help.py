"""The help: `-h` is one screen, `--help` everything; both fit 80 columns, without colours."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final

from kafkalog_cli import panels
from kafkalog_cli.option_sets import COMMON, PANELS, WHAT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_WIDTH: Final = 80
_NAMES_WIDTH: Final = 30
_PROSE_MAX: Final = 6
"""Lines of prose in the help, in whole sentences; the manual has all of it."""
_PANEL_WIDTH: Final = 9
_EXAMPLES_MAX: Final = 3

SHORT: Final = """\
Inspect, verify, rescue and export Kafka's log files, without a broker.
Usage: kafkalog COMMAND PATH... [OPTIONS]    PATH: a log directory, a partition
                                             directory or one file
Look     ls             what is there
         dump-segment   the records of a partition or file
Search   lookup-offset  where an offset or a time is
         find           records by key, value, header or field
Check    verify         everything; what the next start would do
         diff           copies of partitions
Answer   groups         offsets and lag, now or last Tuesday
         sql            any question
Rescue   recover        do what a broker does after a crash
         salvage        copy what is sound past any damage
Change   compact        as a broker's cleaner does
         retention      delete what retention would delete
Move     export         to Parquet, Delta, Iceberg, CSV
Serve    serve          dead disks to any Kafka client

  kafkalog ls /var/lib/kafka
  kafkalog find /var/lib/kafka -k user-42 --from-time -2h
Nothing is changed without --apply. All commands: kafkalog --help
A command in brief: kafkalog COMMAND -h; with everything: --help
"""

_EVERYWHERE: Final = """\
Everywhere
  -o, --format F  table, line, ndjson, json, csv  -n, --limit N  rows at most
  -t, --topic T   only these topics (glob)        -q, -v         say less, more
  @NAME           a place of config.toml          -x             rows as blocks

Common rules: kafkalog explain options|exit-status|times|bounds|formats|config
Exit status: 0 done, 1 the answer is no, 2 usage, 3 unreadable, 4 refused,
5 unsupported, 6 corrupt, 7 limit, 8 incomplete, 70 internal error.
"""

_STATUSES: Final = {
    "Look": "0 all of it, 2 usage, 3 unreadable, 8 something is left out",
    "Search": "0 there, 1 not there, 2 usage, 3 unreadable, 8 some left out",
    "Check": "0 yes, 1 no, 2 usage, 3 unreadable, 8 not all could be checked",
    "Answer": "0 all of it, 1 not there, 2 usage, 3 unreadable, 8 some left out",
    "Rescue": "0 done or planned, 1 --check has a plan, 4 refused, 8 some left out",
    "Change": "0 done or planned, 1 --check has a plan, 4 refused, 8 some left out",
    "Move": "0 all of it, 3 unreadable, 4 refused, 8 something is left out",
    "Serve": "0 stopped, 2 usage, 3 unreadable",
}


def brief_help(context: Any) -> str:
    """Return one screen about a command: usage, examples, options by panel, statuses."""
    command = context.command
    if hasattr(command, "commands"):
        return SHORT
    _, examples = _parts(command)
    lines = [command.short_help, _usage(context), ""]
    lines += [f"  {line}" for line in examples[:_EXAMPLES_MAX]]
    lines.append("")
    for panel, options in _panels(command).items():
        lines += _labelled(panel, "  ".join(_brief(one) for one in options))
    lines += _common(command, context)
    lines.append("")
    lines += _statuses(command.name)
    lines.append(f"All options with their values and defaults: {context.command_path} --help")
    return "\n".join(lines) + "\n"


def full_help(context: Any) -> str:
    """Return everything about a command: what it does, examples, each option and its default."""
    command = context.command
    if hasattr(command, "commands"):
        return _all_commands(context)
    prose, examples = _parts(command)
    if len(prose) > _PROSE_MAX:
        ends = (n for n in range(1, _PROSE_MAX + 1) if not prose[n])
        prose = _sentences(prose[: max(ends, default=_PROSE_MAX)])
    lines = [_usage(context), "", *(f"  {line}".rstrip() for line in prose), ""]
    lines += [f"  {line}" for line in examples[:_EXAMPLES_MAX]]
    lines.append("")
    for panel, options in _panels(command).items():
        lines.append(panel)
        for one in options:
            lines += described(one)
    lines.append("")
    lines += _common(command, context)
    lines += _statuses(command.name)
    return "\n".join(lines) + "\n"


def _sentences(lines: list[str]) -> list[str]:
    """Return lines up to the last end of a sentence."""
    *before, last = lines
    if last.endswith("."):
        return lines
    sentence, stop, _ = last.rpartition(". ")
    return [*before, f"{sentence}."] if stop else _sentences(before)


def panel_of(name: str) -> str:
    """Return the panel of a command."""
    return next(panel for panel, names in panels.PANELS.items() if name in names)


def _all_commands(context: Any) -> str:
    prose, _ = _parts(context.command)
    lines = [
        "Usage: kafkalog COMMAND PATH... [OPTIONS]", "", *(f"  {line}".rstrip() for line in prose),
        "",
    ]  # fmt: skip
    for panel, commands in panels.PANELS.items():
        lines += [panel, *(f"  {name:<16}{text}" for name, text in commands.items())]
    return "\n".join([*lines, "", _EVERYWHERE])


def _parts(command: Any) -> tuple[list[str], list[str]]:
    """Return the prose of a help text in lines of the help's width, and its examples."""
    text = inspect.cleandoc(command.help or "").replace("\b\n", "")
    lines = text.splitlines()
    examples = [line for line in lines if line.startswith("kafkalog ")]
    prose = "\n".join(line for line in lines if not line.startswith("kafkalog ")).strip()
    wrapped: list[str] = []
    for paragraph in prose.split("\n\n"):
        wrapped += _wrapped(" ".join(paragraph.split()), _WIDTH - 2)
    return wrapped, examples


def _usage(context: Any) -> str:
    command = context.command
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    words = " ".join(str(one.metavar or one.name.upper()) for one in arguments)
    return f"Usage: {' '.join(f'{context.command_path} {words}'.split())} [OPTIONS]"


def _panels(command: Any) -> Mapping[str, list[Any]]:
    found: dict[str, list[Any]] = {panel: [] for panel in PANELS}
    for one in command.params:
        panel = one.param_type_name == "option" and (one.rich_help_panel or WHAT)
        if panel and panel != COMMON and not one.hidden:
            found[panel].append(one)
    return {panel: options for panel, options in found.items() if options}


def _common(command: Any, context: Any) -> list[str]:
    """Return the lines of the options that are described once for all commands."""
    own = {id(one) for one in command.params}
    words = [_brief(one) for one in common_of(command)]
    words += [
        _names(one)
        for one in command.get_params(context)
        if id(one) not in own and not one.is_eager  # who reads this knows -h and --help
    ]
    return _labelled("Common", "  ".join([*words, "(explain options)"]))


def common_of(command: Any) -> list[Any]:
    """Return the options of a command that belong to the panel `Common`."""
    return [one for one in command.params if getattr(one, "rich_help_panel", None) == COMMON]


def _names(parameter: Any) -> str:
    """Return the short name of an option, or its long one."""
    return str(parameter.opts[0])


def _brief(parameter: Any) -> str:
    value = _value(parameter)
    return (
        f"{_names(parameter)} {value}".rstrip() if len(value) <= _PANEL_WIDTH else _names(parameter)
    )


def _value(parameter: Any) -> str:
    if parameter.is_flag:
        return ""
    if parameter.metavar:
        return str(parameter.metavar)
    choices = getattr(parameter.type, "choices", None)
    return "|".join(map(str, choices)) if choices else "VALUE"


def described(parameter: Any) -> Iterator[str]:
    """Yield the lines of an option: its names and value, its meaning and default."""
    value, default = _value(parameter), parameter.default
    words = parameter.help or ""
    if default not in (None, False, True, ()) and not callable(default):
        words += f" [{default}]"
    first = f"  {', '.join(parameter.opts)} {value}".rstrip()
    if len(first) >= _NAMES_WIDTH - 1 and not parameter.metavar and "|" in value:
        first, words = f"  {', '.join(parameter.opts)} WORD", f"{value}: {words}"
    texts = _wrapped(words, _WIDTH - _NAMES_WIDTH)
    if len(first) < _NAMES_WIDTH - 1:
        yield first.ljust(_NAMES_WIDTH) + texts.pop(0)
    else:
        yield from _wrapped(first, _WIDTH, hanging=" " * 6)
    for text in texts:
        yield " " * _NAMES_WIDTH + text


def _statuses(name: str) -> list[str]:
    lines = _wrapped(_STATUSES[panel_of(name)], _WIDTH - _PANEL_WIDTH)
    return [f"{'' if i else 'Status':<{_PANEL_WIDTH}}{line}" for i, line in enumerate(lines)]


def _labelled(label: str, words: str) -> list[str]:
    """Return words in lines of the help's width, the first after a label; options stay whole."""
    room, lines = _WIDTH - _PANEL_WIDTH, [""]
    for word in words.split("  "):
        if lines[-1] and len(lines[-1]) + 2 + len(word) > room:
            lines.append("")
        lines[-1] += f"  {word}" if lines[-1] else word
    return [f"{label if not i else '':<{_PANEL_WIDTH}}{line}" for i, line in enumerate(lines)]


def _wrapped(text: str, width: int, hanging: str = "") -> list[str]:
    from textwrap import wrap

    return wrap(
        text, width, break_on_hyphens=False, break_long_words=True, subsequent_indent=hanging
    ) or [""]
