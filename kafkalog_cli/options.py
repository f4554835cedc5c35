"""Options that several commands share, and the parsing of their values."""

from __future__ import annotations

import re
from datetime import UTC, tzinfo
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kafkalog.errors import UsageError
from kafkalog.io.times import UNITS_MS
from kafkalog.io.times import parse_time as parse_time  # noqa: PLC0414 # commands take it from here
from kafkalog.model import End, LogView, Replicas
from kafkalog_cli.output.text import BytesFormat
from kafkalog_cli.output.writer import Format

if TYPE_CHECKING:
    from kafkalog.node.state.model import Moment

PathsArgument = Annotated[list[str], typer.Argument(
    metavar="PATH...", show_default=False,
    help="Log directory, parent of several, partition directory or file; local, or in s3://, "
    "gs:// or abfs://.",
)]  # fmt: skip
DirectoryArgument = Annotated[
    str, typer.Argument(metavar="PATH", help="Log directory or partition directory.")
]
DirectoriesArgument = Annotated[list[str], typer.Argument(
    metavar="PATH...", help="Log directory, parent of several, or partition directory.",
    show_default=False,
)]  # fmt: skip
PartitionArgument = Annotated[
    str, typer.Argument(metavar="PARTITION_DIR", help="A partition directory: orders-0.")
]


class RowsFormat(StrEnum):
    """The format of a listing, or of a file of its rows, the last one."""

    TABLE = "table"
    NDJSON = "ndjson"
    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"


TopicsOption = Annotated[list[str] | None, typer.Option(
    "--topic", metavar="TOPIC", help="Only this topic; repeatable.",
)]  # fmt: skip
FromOffsetOption = Annotated[int | None, typer.Option(metavar="N", help="First offset.")]
ToOffsetOption = Annotated[int | None, typer.Option(metavar="N", help="Offset to stop before.")]
FromTimeOption = Annotated[
    str | None, typer.Option(metavar="TIME", help="Earliest timestamp to include.")
]
ToTimeOption = Annotated[str | None, typer.Option(metavar="TIME", help="Timestamp to stop before.")]
KeyOption = Annotated[str | None, typer.Option(
    metavar="TEXT|0xHEX", help="Only records with this key.",
)]  # fmt: skip
KeyRegexOption = Annotated[str | None, typer.Option(
    metavar="REGEX", help="Only records whose key matches.",
)]  # fmt: skip
ValueRegexOption = Annotated[str | None, typer.Option(
    metavar="REGEX", help="Only records whose value matches.",
)]  # fmt: skip
HeaderOption = Annotated[str | None, typer.Option(
    metavar="NAME[=VALUE]", help="Only records with this header.",
)]  # fmt: skip
ReadCommittedOption = Annotated[
    bool, typer.Option("--read-committed", help="Only what a read_committed consumer receives.")
]
ViewOption = Annotated[LogView, typer.Option(
    "--view",
    help="started: the log after the next start of a broker; files: all segments with final "
    "names; all: also leftovers, marked in each row.",
)]  # fmt: skip
EndOption = Annotated[End, typer.Option(
    "--end",
    help="Read up to the high watermark that the broker recorded, or to the end of the log.",
)]  # fmt: skip
ReplicasOption = Annotated[Replicas, typer.Option(
    "--replicas",
    help="Of several copies of a partition, read all, or each record once: from the best "
    "one, or from another where that is damaged.",
)]  # fmt: skip
AnyReplicasOption = Annotated[Replicas | None, typer.Option(
    "--replicas",
    help="Of several copies of a partition, read all, or each record once (the default for "
    "records): from the best one, or from another where that is damaged.",
)]  # fmt: skip
InternalOption = Annotated[
    bool, typer.Option("--internal", help="Include internal topics, such as __consumer_offsets.")
]
FormatOption = Annotated[Format, typer.Option("--format", help="Output format.")]
RowsFormatOption = Annotated[RowsFormat, typer.Option("--format", help="Output format.")]
BytesOption = Annotated[BytesFormat, typer.Option(
    "--bytes",
    help="Show keys and values as text if printable (otherwise as 0x… or base64), or always in "
    "one form.",
)]  # fmt: skip
ExactOption = Annotated[
    bool, typer.Option("--exact", help="Show sizes and times as plain numbers.")
]
ZoneOption = Annotated[str, typer.Option(
    "--tz", metavar="ZONE",
    help="Time zone for tables, and for times given without one, such as Europe/Berlin.",
)]  # fmt: skip
NowOption = Annotated[str | None, typer.Option(
    "--now", metavar="TIME", help="The time that relative times refer to.",
)]  # fmt: skip
ConfigOption = Annotated[list[str] | None, typer.Option(
    "--config", metavar="NAME=VALUE",
    help="Set a config by its name in Kafka; overrides all other sources; repeatable.",
)]  # fmt: skip
PropertiesOption = Annotated[str | None, typer.Option(
    "--properties", metavar="FILE", help="A broker's properties file.",
)]  # fmt: skip
MetadataDirOption = Annotated[str | None, typer.Option(
    "--metadata-dir", metavar="LOG_DIR",
    help="Read __cluster_metadata-0 from this log directory instead of the partition's own.",
)]  # fmt: skip
HighWatermarkOption = Annotated[str | None, typer.Option(
    "--high-watermark", metavar="N|end",
    help="Override the checkpointed high watermark; end: the log end offset.",
)]  # fmt: skip
LogStartOption = Annotated[int | None, typer.Option(
    "--log-start-offset", metavar="N", help="Override the checkpointed log start offset.", min=0,
)]  # fmt: skip
ExportOption = Annotated[str | None, typer.Option(
    "--export", metavar="FILE",
    help="Write the offsets as a CSV for kafka-consumer-groups --reset-offsets --from-file.",
)]  # fmt: skip
ProducerIdOption = Annotated[int | None, typer.Option(
    metavar="N", help="Only what this producer wrote.",
)]  # fmt: skip
LeaderEpochOption = Annotated[int | None, typer.Option(
    metavar="N", help="Only what was written in this leader epoch.",
)]  # fmt: skip
FromPositionOption = Annotated[int | None, typer.Option(
    min=0, metavar="N",
    help="Byte position to start from in each file; reading starts at the next batch.",
)]  # fmt: skip
InPlaceOption = Annotated[
    bool, typer.Option("--in-place", help="Apply the plan instead of only showing it.")
]
YesOption = Annotated[bool, typer.Option("--yes", help="Apply without asking.")]
BackupOption = Annotated[str | None, typer.Option(
    "--backup", metavar="DIR", help="Keep the originals in DIR, for `kafkalog undo`.",
)]  # fmt: skip
QuietOption = Annotated[bool, typer.Option("-q", "--quiet", help="Show no progress.")]

_DURATION = re.compile(r"(\d{1,9})(ms|s|m|h|d|w)")
_SHARE = re.compile(r"(\d{1,3}(?:\.\d{1,9})?)\s*%")
_SIZE = re.compile(r"(\d{1,18})\s*([KMGT]i?B?|B)?", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def parse_moment(text: str, now: str | None = None, zone: tzinfo = UTC) -> Moment:
    """Return the moment that `TIME` or `P@OFFSET` names; raises as `parse_time`."""
    from kafkalog.node.state import model

    return model.parse_moment(text, now, zone)


def parse_size(text: str) -> int:
    """Parse a size to bytes: an integer, or with a unit of 1024 (`512MiB`, `64k`).

    Raises:
        UsageError: it is neither.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is not a size.", hint="Give bytes, or for example 512MiB.")
    unit = (match[2] or "").upper().removesuffix("B").removesuffix("I")
    return int(match[1]) << 10 * _POWERS[unit]


def parse_rate(text: str) -> int:
    """Parse a rate to bytes per second: a size of at least one byte, with or without `/s`."""
    rate = parse_size(text.strip().removesuffix("/s"))
    if not rate:
        raise UsageError("The rate must be above 0.", hint="For example 50MiB.")
    return rate


def parse_duration(text: str) -> float:
    """Parse a duration such as `90s`, `10m` or `2h` to seconds. Raises `UsageError`."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is not a duration.", hint="For example 90s, 10m or 2h.")
    return int(match[1]) * UNITS_MS[match[2]] / 1000


def parse_share(text: str) -> float:
    """Parse a share above 0 and up to 1, given in percent. Raises `UsageError`."""
    match = _SHARE.fullmatch(text.strip())
    if match is None or not 0 < float(match[1]) <= 100:
        raise UsageError(f"{text!r} is not a share.", hint="From 0% (exclusive) to 100%: 5%.")
    return float(match[1]) / 100


def parse_configs(texts: list[str] | None) -> dict[str, str]:
    """Parse `NAME=VALUE` texts; the last of a name counts.

    Values of `...bytes` may have a unit.

    Raises:
        UsageError: a text has another form.
    """
    found = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"{text!r} is not NAME=VALUE.", hint="Try --config retention.ms=1000.")
        # Kafka itself knows no units.
        is_sized = name.endswith(".bytes") and _SIZE.fullmatch(value.strip())
        found[name] = str(parse_size(value)) if is_sized else value
    return found


def parse_pairs(texts: list[str] | None, option: str, form: str) -> dict[str, str]:
    """Parse `NAME=VALUE` texts, each name once. Raises `UsageError`."""
    found: dict[str, str] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise UsageError(f"{text!r} is not {form}.", hint=f"For example {option} {form}.")
        if found.setdefault(name, value) != value:
            raise UsageError(f"{option} names {name} twice.")
    return found


def parse_high_watermark(text: str | None) -> int | Literal["end"] | None:
    """Parse a high watermark: an offset, `end`, or None. Raises `UsageError`."""
    if text is None:
        return None
    if text == "end":
        return "end"
    if not re.fullmatch("[0-9]{1,19}", text):
        raise UsageError(f"{text!r} is not a high watermark.", hint="Give N or end.")
    return int(text)


def parse_zone(name: str) -> tzinfo:
    """Return the time zone of that name. Raises `UsageError`."""
    if name.upper() == "UTC":
        return UTC
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise UsageError(f"{name!r} is not a time zone.", hint="Try Europe/Berlin.") from error


def parse_bytes(text: str) -> bytes:
    """Parse a key to bytes: text, or `0x` and hexadecimal digits."""
    if text.startswith("0x"):
        try:
            return bytes.fromhex(text[2:])
        except ValueError as error:
            raise UsageError(f"{text!r} is not hexadecimal.") from error
    # Arguments that are not UTF-8 come as surrogates, and leave as the same bytes.
    return text.encode("utf-8", "surrogateescape")


def parse_header(text: str | None) -> tuple[bytes, bytes | None] | None:
    """Parse the name of a header, or NAME=VALUE."""
    if not text:
        return None
    name, equals, value = text.partition("=")
    return parse_bytes(name), parse_bytes(value) if equals else None


def parse_regex(text: str | None) -> re.Pattern[bytes] | None:
    """Compile a regular expression over bytes. Raises `UsageError` if it is malformed."""
    if text is None:
        return None
    try:
        return re.compile(text.encode("utf-8", "surrogateescape"))
    except re.error as error:
        raise UsageError(f"{text!r} is not a regular expression: {error}.") from error
