"""Times in messages: ISO 8601 in UTC, with milliseconds."""

from __future__ import annotations

from datetime import UTC, datetime


def utc_text(timestamp_ms: int) -> str:
    """Return a time as text; one outside the calendar as a number."""
    try:
        moment = datetime.fromtimestamp(timestamp_ms // 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    text = moment.replace(microsecond=timestamp_ms % 1000 * 1000).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")
