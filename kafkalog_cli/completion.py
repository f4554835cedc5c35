"""What a shell completes: names of topics and partitions in the paths that are typed already."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

import typer  # noqa: TC002 # it looks at annotations

if TYPE_CHECKING:
    from collections.abc import Iterator

    from formats.file_names import DirectoryName


def topic_names(context: typer.Context, incomplete: str) -> list[str]:
    """Return the topics in the paths, by the names of directories."""
    names = {one.topic for one in _partitions(context)}
    return sorted(name for name in names if name.startswith(incomplete))


def partition_numbers(context: typer.Context, incomplete: str) -> list[str]:
    """Return the partitions in the paths: of the topics that are given, or of all."""
    wanted = context.params.get("topic")
    numbers = {one.partition for one in _partitions(context) if not wanted or one.topic in wanted}
    return [str(one) for one in sorted(numbers) if str(one).startswith(incomplete)]


def _partitions(context: typer.Context) -> Iterator[DirectoryName]:
    from formats.file_names import DirectoryState, parse_directory_name

    # The option without its value has stopped the parser: arguments are still words.
    for value in (*context.params.values(), context.args):
        for path in value if isinstance(value, list | tuple) else [value]:
            if not isinstance(path, str):
                continue
            with suppress(OSError):
                for name in os.listdir(path):
                    if (found := parse_directory_name(name)) and found.state == DirectoryState.LIVE:
                        yield found
