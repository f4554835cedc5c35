"""What a shell completes: places, and names of topics and partitions in the paths typed so far.

It reads names of directories and no log: a shell waits for it at each press of a key.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

import typer  # noqa: TC002 # it looks at annotations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from formats.file_names import DirectoryName


def one_of(*words: str) -> Callable[[str], list[str]]:
    """Return what completes one of some words."""
    return lambda incomplete: _starting(words, incomplete)


def places(incomplete: str) -> list[str]:
    """Return the places of the config, once a word begins as one; a shell knows files itself."""
    if not incomplete.startswith("@"):
        return []
    return _starting((f"@{name}" for name in _paths_of_places()), incomplete)


def topic_names(context: typer.Context, incomplete: str) -> list[str]:
    """Return the topics in the paths, by the names of directories."""
    return _starting({one.topic for one in _partitions(context)}, incomplete)


def partition_numbers(context: typer.Context, incomplete: str) -> list[str]:
    """Return the partitions in the paths: of the topics that are given, or of all."""
    wanted = context.params.get("topic")
    numbers = {one.partition for one in _partitions(context) if not wanted or one.topic in wanted}
    return [str(one) for one in sorted(numbers) if str(one).startswith(incomplete)]


def payload_formats(incomplete: str) -> list[str]:
    """Return the formats of keys and values."""
    from kafkalog_cli.payloads import FORMS

    return _starting(FORMS, incomplete)


def config_names(incomplete: str) -> list[str]:
    """Return the configs of topics; their definitions take longer to load than a shell waits."""
    import importlib.resources

    lines = importlib.resources.files("formats").joinpath("configs.txt").read_text("utf-8")
    rows = (line.split(" | ") for line in lines.splitlines() if line.startswith("topics |"))
    return _starting((row[1] for row in rows), incomplete)


def _starting(words: Iterable[str], incomplete: str) -> list[str]:
    return sorted(word for word in words if word.startswith(incomplete))


def _paths_of_places() -> dict[str, list[str]]:
    from kafkalog.errors import UsageError
    from kafkalog_cli.config_files import documents

    found: dict[str, list[str]] = {}
    # A file that says something else fails in the command itself.
    with suppress(UsageError, AttributeError, LookupError, TypeError):
        for _, read in documents():
            found |= {name: place["paths"] for name, place in read.get("place", {}).items()}
    return found


def _partitions(context: typer.Context) -> Iterator[DirectoryName]:
    from formats.file_names import DirectoryState, parse_directory_name

    # The option without its value has stopped the parser: arguments are still words.
    for value in (*context.params.values(), context.args):
        for word in value if isinstance(value, list | tuple) else [value]:
            if not isinstance(word, str):
                continue
            for path in _paths_of_places().get(word[1:], ()) if word[:1] == "@" else (word,):
                with suppress(OSError, ValueError):
                    for name in os.listdir(path):
                        found = parse_directory_name(name)
                        if found and found.state == DirectoryState.LIVE:
                            yield found
