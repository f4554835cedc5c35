"""The command line: each command is loaded when it is asked for."""

from __future__ import annotations

import importlib
import os
from functools import cache
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from kafkalog.errors import as_internal_error
from kafkalog.io.jit.fast_path import require_known_decoder
from kafkalog_cli.common_options import common_options
from kafkalog_cli.config import apply_places, defaults_for, forget_unused_registry
from kafkalog_cli.option_sets import SAFETY, expanded
from kafkalog_cli.panels import ALIASES, COMMANDS, KAFKAS_OWN


def _version(value: bool) -> None:
    if value:
        from kafkalog_cli.version import version_text

        typer.echo(version_text())
        raise typer.Exit


def _root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Inspect, search, verify, repair and export Apache Kafka's log files. No broker needed;
    reading never writes, and nothing is changed without --apply.
    """


def _kafka_dump_log(context: typer.Context) -> int:
    """Print what kafka-dump-log.sh of Kafka prints, with the same options.

    Unlike the original it never writes, continues past damage, and ends with status 8 if it found
    any. `kafka-dump-log --help` lists the options.

    \b
    kafkalog kafka-dump-log --deep-iteration --print-data-log --files 00000000000000000000.log
    kafkalog kafka-dump-log --offsets-decoder --files __consumer_offsets-0/00000000000000000000.log
    """
    from kafkalog_cli.commands.kafka_dump_log import dump_files

    return dump_files(context.args)


def help_text(context: Any) -> str:
    """Return the help of a command, or of all of them."""
    from kafkalog_cli.help import full_help
    from kafkalog_cli.pager import start_pager

    start_pager()
    return full_help(context).rstrip("\n")


class _Command(TyperCommand):
    """A command that treats an `EOFError` as an internal error, except at a prompt."""

    def get_params(self, ctx: Any) -> list[Any]:
        own = super().get_params(ctx)
        return [*own, *common_options(own)]

    def get_help(self, ctx: Any) -> str:
        return help_text(ctx)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options; those that are missing come from the config, paths from places."""
        if ctx.resilient_parsing:  # of a line that is still being typed
            return super().parse_args(ctx, args)
        ctx.default_map = defaults_for(self, ctx)
        rest = super().parse_args(ctx, args)
        apply_places(self, ctx)
        if ctx.params.get("registry") is not None:
            forget_unused_registry(ctx)
        return rest

    def invoke(self, context: Any) -> Any:
        """Run the command; Typer takes any `EOFError` for Ctrl-D and would exit silently."""
        require_known_decoder()
        try:
            return super().invoke(context)
        except EOFError as error:
            raise as_internal_error(error) from error


class _Commands(TyperGroup):
    """The commands, each loaded when it is asked for: most of a short run is loading modules."""

    def get_params(self, ctx: Any) -> list[Any]:
        own = super().get_params(ctx)
        return [*own, *common_options(own)]

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 # Typer's
        return [*COMMANDS]

    def get_help(self, ctx: Any) -> str:
        return help_text(ctx)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command; a path in its place is listed, or shown if it is a file."""
        word = args[0]
        if word not in COMMANDS and word not in ALIASES and os.path.exists(word):
            args = ["ls" if os.path.isdir(word) else "dump-segment", *args]
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        cmd_name = ALIASES.get(cmd_name, cmd_name)
        if cmd_name in COMMANDS and cmd_name not in self.commands:
            self.commands[cmd_name] = _loaded(cmd_name)
        return super().get_command(ctx, cmd_name)


def _loaded(name: str) -> Any:
    """Import the module of a command, and inspect its options."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    if name == KAFKAS_OWN:
        # argparse parses Kafka's own option syntax, with its optional arguments.
        settings = {"ignore_unknown_options": True, "allow_extra_args": True}
        app.command(name=name, cls=_Command, short_help=COMMANDS[name], add_help_option=False,
                    context_settings=settings)(_kafka_dump_log)  # fmt: skip
    else:
        module = name.replace("-", "_")
        command = getattr(importlib.import_module(f"kafkalog_cli.commands.{module}"), module)
        app.command(name=name, cls=_Command, short_help=COMMANDS[name])(expanded(command))
    command = typer.main.get_command(app)
    for one in command.params:
        if one.param_type_name == "option":
            word = max(one.opts, key=len)[2:]
            # Variables have the names of options; none consents to a change.
            one.allow_from_autoenv = False  # type: ignore[attr-defined] # of options
            if word and word not in SAFETY:
                one.envvar = f"KAFKALOG_{name}_{word}".replace("-", "_").upper()
    return command


@cache  # a process that runs many command lines makes each parser once
def command_group() -> Any:
    """Return the commands as one group of Typer's."""
    app = typer.Typer(
        name="kafkalog",
        cls=_Commands,
        callback=_root,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["--help"], "auto_envvar_prefix": "KAFKALOG"},
    )
    return typer.main.get_command(app)


def all_commands() -> dict[str, Any]:
    """Return name and command of each, in the order of the help."""
    group = command_group()
    return {name: group.get_command(None, name) for name in COMMANDS}
