"""The table of commands."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from kafkalog.errors import as_internal_error
from kafkalog.io.jit.fast_path import require_known_decoder

_EPILOG = (
    "Exit status: 0 success, 1 defects or not found, 2 usage, 3 unreadable, 4 refused, "
    "5 unsupported, 6 corrupt, 7 limit exceeded, 8 partly done, 9 nothing to do, "
    "70 internal error."
)

_KAFKAS_OWN: Final = "kafka-dump-log"
_COMMANDS: Final = {
    "ls": "List log directories, partitions, segments or files.",
    "dump-segment": "Show the content of any file Kafka writes.",
    "anatomy": "Explain the bytes of a file, field by field.",
    "lookup-offset": "Find a record by offset or time.",
    "find": "Find records by key, value, header or producer.",
    "serve": "Serve log directories to Kafka clients, read-only.",
    "verify": "Check log directories, partitions or files.",
    "diff": "Compare copies of partitions.",
    "du": "Show what uses disk space, and when a disk will be full.",
    "groups": "Show groups and committed offsets, now or in the past.",
    "transactions": "Show transactional ids and open transactions.",
    "metadata": "Show the cluster's metadata, now or in the past.",
    "where": "Show which partition coordinates a group.",
    "report": "Write a report about log directories as one HTML page.",
    "explain": "Explain a finding or an error.",
    "export": "Write records to Parquet, NDJSON, CSV or Arrow.",
    "replay": "Produce the records of logs into a live cluster.",
    "profile": "Count records, bytes and keys per partition and topic.",
    "sql": "Query logs with SQL.",
    "salvage": "Copy sound batches, even past damage, into a new log.",
    "resurrect": "Make a log directory that Kafka can start from.",
    "recover": "Recover logs as a broker does after an unclean shutdown.",
    "rebuild-index": "Rebuild indexes from the log.",
    "simulate-retention": "Show what retention would delete, when and why.",
    "apply-retention": "Delete the segments that retention would delete.",
    "undo": "Restore what a run with --backup changed.",
    "audit-compaction": "Prove that a log was compacted correctly.",
    "simulate-roll": "Show where segments would end under other configs.",
    "compact": "Compact partitions as a broker's cleaner does.",
    _KAFKAS_OWN: "Print what kafka-dump-log.sh prints.",
}
"""Name to summary; `a-b` is the function `a_b` in the module of that name, but for Kafka's own."""


def _version(value: bool) -> None:
    if value:
        from kafkalog_cli.version import version_text

        typer.echo(version_text())
        raise typer.Exit


def _root(
    context: typer.Context,
    _debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of errors.")] = False,
    tier_key: Annotated[
        list[str] | None,
        typer.Option(
            "--tier-key",
            metavar="FILE.pem",
            help="Private key that decrypts remote segments; repeatable.",
        ),
    ] = None,
    max_requests: Annotated[
        int | None,
        typer.Option(
            "--max-requests",
            metavar="N",
            min=0,
            help="Stop with status 7 rather than send object stores more than N requests.",
            show_default=False,
        ),
    ] = None,
    rate_limit: Annotated[
        str | None,
        typer.Option("--rate-limit", metavar="SIZE", help="Read at most SIZE per second."),
    ] = None,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Leave the page cache to a running broker.")
    ] = False,
    _version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Inspect, search, verify, repair and export Apache Kafka's log files. No broker needed;
    reading never writes.

    \b
    kafkalog ls /var/lib/kafka                       list what is there
    kafkalog dump-segment orders-0 --limit 10        show records
    kafkalog lookup-offset orders-0 --timestamp -2h  find a record
    kafkalog verify /var/lib/kafka                   check everything
    kafkalog salvage orders-0 --to rescued           copy what is sound
    kafkalog recover /var/lib/kafka                  predict the next start
    kafkalog simulate-retention /var/lib/kafka       predict deletions
    kafkalog compact /var/lib/kafka                  predict a compaction
    """
    if rate_limit is not None or no_cache:
        from kafkalog.io.paths.reading import reading
        from kafkalog_cli.options import parse_rate

        rate = None if rate_limit is None else parse_rate(rate_limit)
        context.with_resource(reading(rate_limit=rate, leaves_cache=no_cache, everywhere=True))
    if max_requests is not None:
        from kafkalog.io.paths.requests import requests

        requests().allowed = max_requests
    if tier_key:
        from kafkalog.io.paths.tier_keys import use_keys

        use_keys(tier_key)


def _kafka_dump_log(context: typer.Context) -> int:
    """Print what kafka-dump-log.sh of Kafka prints, with the same options.

    Unlike the original it never writes, continues past damage, and ends with status 1 if it found
    any. `kafka-dump-log --help` lists the options.

    \b
    kafkalog kafka-dump-log --deep-iteration --print-data-log --files 00000000000000000000.log
    kafkalog kafka-dump-log --offsets-decoder --files __consumer_offsets-0/00000000000000000000.log
    """
    from kafkalog_cli.commands.kafka_dump_log import dump_files

    return dump_files(context.args)


class _Command(TyperCommand):
    """A command that treats an `EOFError` as an internal error, except at a prompt."""

    def invoke(self, context: Any) -> Any:
        """Run the command; Typer takes any `EOFError` for Ctrl-D and would exit silently."""
        require_known_decoder()
        try:
            return super().invoke(context)
        except EOFError as error:
            raise as_internal_error(error) from error

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the usage line word by word; Typer would put a required argument in braces."""
        return [
            piece if "|" in piece else piece.removeprefix("{").removesuffix("}")
            for piece in super().collect_usage_pieces(ctx)
        ]


class _Commands(TyperGroup):
    """The commands, each loaded when it is asked for: most of a short run is loading modules."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 # Typer's
        return [*_COMMANDS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in _COMMANDS and cmd_name not in self.commands:
            self.commands[cmd_name] = _loaded(cmd_name)
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 # Typer's
        """List names and summaries, without loading the commands."""
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


def _loaded(name: str) -> Any:
    """Import the module of a command, and inspect its options."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    if name == _KAFKAS_OWN:
        # argparse parses Kafka's own option syntax, with its optional arguments.
        settings = {"ignore_unknown_options": True, "allow_extra_args": True}
        app.command(name=name, cls=_Command, short_help=_COMMANDS[name], add_help_option=False,
                    context_settings=settings)(_kafka_dump_log)  # fmt: skip
    else:
        module = name.replace("-", "_")
        command = getattr(importlib.import_module(f"kafkalog_cli.commands.{module}"), module)
        app.command(name=name, cls=_Command, short_help=_COMMANDS[name])(command)
    return typer.main.get_command(app)


@cache  # a process that runs many command lines makes each parser once
def command_group() -> Any:
    """Return the commands as one group of Typer's."""
    app = typer.Typer(
        name="kafkalog",
        cls=_Commands,
        callback=_root,
        epilog=_EPILOG,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    return typer.main.get_command(app)


def all_commands() -> dict[str, Any]:
    """Return name and command of each, in the order of the help."""
    group = command_group()
    return {name: group.get_command(None, name) for name in _COMMANDS}
