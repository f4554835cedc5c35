"""Values of options and arguments, parsed from their texts."""

from __future__ import annotations

import re
from datetime import UTC, tzinfo
from typing import TYPE_CHECKING, Literal

from formats.late_patterns import pattern
from kafkalog.errors import UsageError
from kafkalog.io.times import duration_ms

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalog.log.batches.condition import Condition
    from kafkalog_cli.output.decoded import Decoded

_SHARE = pattern(r"(\d{1,3}(?:\.\d{1,9})?)\s*%")
_NUMBER = pattern(r"[0-9]{1,18}")
_SIZE = pattern(r"(\d{1,18})\s*([KMGT]i?B?|B)?", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def is_number(text: str) -> bool:
    """Return whether a text is a number that `int` reads: digits, and not any number of them."""
    return _NUMBER.fullmatch(text) is not None


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
    """Parse a duration such as `90s` or `1h30m` to seconds. Raises `UsageError`."""
    return duration_ms(text.strip()) / 1000


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


def parse_settings(texts: list[str] | None, option: str, what: str) -> dict[str, str]:
    """Parse `NAME=VALUE` texts; the last of a name counts. Raises `UsageError`."""
    found = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"{text!r} is not {what}.", hint=f"{option} NAME=VALUE")
        found[name] = value
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
    """Parse a high watermark: an offset, `end` or `checkpoint`. Raises `UsageError`."""
    if text in (None, "checkpoint"):
        return None
    if text == "end":
        return "end"
    if not re.fullmatch("[0-9]{1,19}", text):
        raise UsageError(f"{text!r} is not a high watermark.", hint="Give N, end or checkpoint.")
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
    if text is None:
        return None
    name, equals, value = text.partition("=")
    return parse_bytes(name), parse_bytes(value) if equals else None


def parse_where(expression: str | None, decoded: Mapping[str, Decoded]) -> Condition | None:
    """Compile a condition. Raises `UsageError` if it is malformed."""
    if expression is None:
        return None
    from kafkalog.log.batches.condition import Condition

    return Condition(expression, **{f"read_{name}": one.reader for name, one in decoded.items()})


def parse_regex(text: str | None) -> re.Pattern[bytes] | None:
    """Compile a regular expression over bytes. Raises `UsageError` if it is malformed."""
    if text is None:
        return None
    try:
        return re.compile(text.encode("utf-8", "surrogateescape"))
    except re.error as error:
        raise UsageError(f"{text!r} is not a regular expression: {error}.") from error
