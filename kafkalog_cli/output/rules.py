"""What `explain` says of the rules of all commands, of the config, and of configs of Kafka's."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from formats.late_patterns import pattern
from kafkalog_cli.exit_statuses import EXIT_MEANINGS
from kafkalog_cli.output.text import wrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafkalog.node.configs.definitions import Definition

_WIDTH: Final = 80
_NAMES_WIDTH: Final = 26


def _times() -> Iterator[str]:
    yield from (
        "2024-01-01T00:04:20Z, 2024-01-01 00:04   ISO 8601, without a zone in that of --tz",
        "now, today, yesterday                    in the zone of --tz",
        "-2h, +7d, -1h30m                         from now, or from --now",
        "@1704067460, @1704067460.5               seconds since 1970",
        "1704067460s, 1704067460000ms, …us        with a unit",
        "1704067460000                            12 to 14 digits are milliseconds",
        "",
        "Durations: 90s, 10m, 1h30m, 7d. Sizes: 512MiB, 64k (units of 1024).",
        "Rates: 50MiB or 50MiB/s. Shares: 5%.",
    )


def _bounds() -> Iterator[str]:
    yield from (
        "--view recovered   the log after the next start of a broker",
        "--view as-is       the files under their final names, as they lie there",
        "--view all         also files that await deletion or were never finished",
        "",
        "--isolation log               everything in the view",
        "--isolation read_uncommitted  below the high watermark",
        "--isolation read_committed    below the last stable offset, without aborted records",
        "",
        "--replicas best    each record once: from the best copy of one cluster and topic id, or",
        "                   from another copy where that is damaged",
        "--replicas all     every copy",
        "",
        "--high-watermark N|end   in place of the one that the broker recorded",
    )


def _formats() -> Iterator[str]:
    yield from (
        "-o table    for people: fits the terminal; on a pipe nothing is cut",
        "-o line     a row as a block, nothing cut (-x)",
        "-o ndjson   one JSON object a line",
        "-o json     one JSON array",
        "-o csv      with a header",
        "-f TEXT     a line per row: '{partition}\\t{offset}\\t{value.user}'",
        "--columns   fields in this order, in every format; +NAME, -NAME, all",
        "",
        "Rows are the same in all of them: docs/output.md, kafkalog explain record --schema.",
    )


def _statuses() -> Iterator[str]:
    for status, meaning in EXIT_MEANINGS.items():
        yield from wrapped(meaning, first=f"{status:<5}", width=_WIDTH)


def _options() -> Iterator[str]:
    from kafkalog_cli.app import all_commands
    from kafkalog_cli.common_options import common_options
    from kafkalog_cli.help import common_of, described

    for option in (*common_of(all_commands()["ls"]), *common_options()):
        yield from described(option)


def _without_passwords(text: str) -> str:
    """Return text whose URLs lack names and passwords."""
    return pattern(r"://[^\s'\"]*@").sub("://***@", text)


def _config() -> Iterator[str]:
    from kafkalog.log.typed.remote_registry import SECRET_VARIABLES
    from kafkalog_cli.config import config
    from kafkalog_cli.config_files import files

    for path in files():
        yield f"{path}{'' if os.path.exists(path) else ': does not exist'}"
    found = config()
    sections = {"defaults": found.defaults}
    sections |= {f"command.{name}": values for name, values in found.commands.items()}
    sections |= {f"place.{name}": values for name, values in found.places.items()}
    for section, values in sections.items():
        for name, value in values.items():
            full = f"{section}.{name}"
            yield f"{full} = {_without_passwords(repr(value))}  ({found.origins[full]})"
    for name in sorted(os.environ):
        if name.startswith("KAFKALOG_"):
            shown = "***" if name in SECRET_VARIABLES else repr(os.environ[name])
            yield f"{name} = {_without_passwords(shown)}  (environment)"
    yield "An option on the command line comes first, then KAFKALOG_COMMAND_OPTION, then the files."


RULES: Final[dict[str, Callable[[], Iterator[str]]]] = {
    "options": _options,
    "exit-status": _statuses,
    "times": _times,
    "bounds": _bounds,
    "formats": _formats,
    "config": _config,
}
"""Name to the lines of a rule."""


def config_lines(name: str) -> list[str]:
    """Return what is known of a config of Kafka's; nothing if it has none of that name."""
    from kafkalog.node.configs.definitions import DEFINITIONS, value_text

    known = DEFINITIONS.get(name)
    if known is None:
        return []
    facts = {
        "type": known.kind.value,
        "default": value_text(known.default),
        "values": _values(known),
        "also": ", ".join(one.name for one in known.synonyms),
        "scope": "brokers" if known.is_of_broker else "topics",
        "since": f"Kafka {known.since}" if known.since else "",
    }
    lines = [f"{name}: a config of Kafka's"]
    for title, text in facts.items():
        if text:
            lines += wrapped(text, first=f"  {title:<8}  ", width=_WIDTH)
    return lines


def _values(known: Definition) -> str:
    if known.choices:
        return ", ".join(known.choices)
    low = "" if known.low is None else f"from {known.low:g}"
    return f"{low}{'' if known.high is None else f' to {known.high:g}'}".strip()
