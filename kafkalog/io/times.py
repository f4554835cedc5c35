"""Times as people give them: milliseconds, a `datetime` with a time zone, or text."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from operator import index
from typing import Final, TypeAlias

from formats.constants import INT64_MAX
from formats.late_patterns import pattern
from kafkalog.errors import UsageError
from kafkalog.io.wording import utc_text
from kafkalog.model import present_ms

Time: TypeAlias = int | datetime | str
"""Milliseconds since 1970, a `datetime` with a time zone, or text that `parse_time` reads."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS_MS: Final = {
    "ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000,
}  # fmt: skip
_PER_SECOND: Final = {"ns": 10**9, "us": 10**6, "ms": 1000, "s": 1}
_SECONDS: Final = pattern(r"@(-?)([0-9]{1,19})(?:\.([0-9]{1,9}))?")
_SINCE_1970: Final = pattern(r"([0-9]{1,19})(ms|us|s)")
_DIGITS_OF_MS: Final = range(12, 15)
"""From 1973 to 5138, or as far before 1970."""
_RELATIVE: Final = pattern(r"([+-])((?:\d{1,18}(?:ms|s|m|h|d|w))+)")
_DURATION: Final = pattern(r"(?:\d{1,18}(?:ms|s|m|h|d|w))+")
_PART: Final = pattern(r"(\d+)(ms|s|m|h|d|w)")
_DAYS_BACK: Final = {"today": 0, "yesterday": 1}


def milliseconds(time: Time) -> int:
    """Return a time as milliseconds since 1970 UTC.

    Raises:
        UsageError: the text is no time, or the `datetime` has no time zone.
    """
    if isinstance(time, str):
        return parse_time(time)
    if not isinstance(time, datetime):
        try:
            return index(time)  # what numpy and pandas hold is no `int`
        except TypeError:
            raise _no_time(str(time)) from None
    if time.tzinfo is None:
        raise UsageError(f"{time} has no time zone.", hint="datetime(…, tzinfo=UTC)")
    return (time - _EPOCH) // timedelta(milliseconds=1)


def clock_ms(now: Time | None) -> int:
    """Return the time that a caller gives as the present; None for the clock's."""
    return present_ms() if now is None else milliseconds(now)


def parse_time(text: str, now: str | int | None = None, zone: tzinfo = UTC) -> int:
    """Parse a time to milliseconds.

    ISO 8601 (without an offset a time in `zone`), `now`, the begin of `today` or `yesterday`,
    relative to now (`-1h30m`), seconds (`@1704067460`), with a unit (`1704067460s`), or
    milliseconds if their digits leave no doubt.

    Raises:
        UsageError: it is none of these, or an integer of which nothing says the unit.
    """
    if match := _RELATIVE.fullmatch(text):
        distance = duration_ms(match[2])
        time = _present(now, zone) + (distance if match[1] == "+" else -distance)
        if abs(time) > INT64_MAX:
            raise _no_time(text)
        return time
    if text == "now":
        return _present(now, zone)
    if text in _DAYS_BACK:
        day = datetime.fromtimestamp(_present(now, zone) / 1000, zone).date()
        day -= timedelta(days=_DAYS_BACK[text])
        return parse_time(day.isoformat(), zone=zone)
    if (since_1970 := _since_1970_ms(text)) is not None:
        # Timestamps of Kafka are int64.
        if abs(since_1970) > INT64_MAX:
            raise _no_time(text)
        return since_1970
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise _no_time(text) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=zone)
    return round(moment.timestamp() * 1000)


def duration_ms(text: str) -> int:
    """Parse a duration to milliseconds: `90s`, `1h30m`. Raises `UsageError`."""
    if not _DURATION.fullmatch(text):
        raise UsageError(f"{text!r} is not a duration.", hint="For example 90s, 10m or 1h30m.")
    return sum(int(number) * _UNITS_MS[unit] for number, unit in _PART.findall(text))


def _present(now: str | int | None, zone: tzinfo) -> int:
    if now is None:
        return present_ms()
    return now if isinstance(now, int) else parse_time(now, zone=zone)


def _since_1970_ms(text: str) -> int | None:
    """Return the milliseconds of a number, None for what is none; raise where its unit is open."""
    if match := _SECONDS.fullmatch(text):
        since = int(match[2]) * 1000 + int((match[3] or "").ljust(3, "0")[:3])
        return -since if match[1] else since
    if match := _SINCE_1970.fullmatch(text):
        return int(match[1]) * 1000 // _PER_SECOND[match[2]]
    if not re.fullmatch(r"-?[0-9]{1,19}", text):
        return None
    if len(text.lstrip("-")) in _DIGITS_OF_MS or int(text) == 0:
        return int(text)
    raise _unit_is_open(text)


def _unit_is_open(text: str) -> UsageError:
    """Return the error that names what a number would be in the units that make sense."""
    moments = {unit: utc_text(int(text) * 1000 // n) for unit, n in _PER_SECOND.items()}
    units = [unit for unit, moment in moments.items() if moment.endswith("Z")][-2:]
    if not units:
        return _no_time(text)
    written = {"s": f"@{text}", "ms": f"{text}ms", "us": f"{text}us"}
    if text.startswith("-"):
        del written["ms"]  # it is relative
    return UsageError(
        f"{text} is {' and '.join(f'{moments[unit]} in {unit}' for unit in units)}.",
        hint=f"Write {' or '.join(written.get(unit, moments[unit]) for unit in reversed(units))}.",
    )


def _no_time(text: str) -> UsageError:
    return UsageError(
        f"{text!r} is not a time.",
        hint="Give ISO 8601 (2026-11-21T04:00:00Z), yesterday, -2h, seconds (@1700000000) or "
        "milliseconds (1700000000000).",
    )
