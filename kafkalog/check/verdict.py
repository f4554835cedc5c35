"""What a run may say of its findings, given how deep it looked."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from kafkalog.io.wording import counted
from kafkalog.model import Level, Severity

if TYPE_CHECKING:
    from collections.abc import Mapping


class Looked(StrEnum):
    """How deep a run looked; each includes those before it."""

    NAMES = "names"
    """Names and sizes of files."""
    HEADERS = "headers"
    """Also batch headers and small files."""
    CHECKSUMS = "checksums"
    """Also every byte of every batch."""
    RECORDS = "records"
    """Also every record."""

    @property
    def unread(self) -> str | None:
        """What was left out first; None if everything was read."""
        return _UNREAD.get(self)


LOOKED_AT: Final = {
    Level.QUICK: Looked.HEADERS,
    Level.STANDARD: Looked.CHECKSUMS,
    Level.DEEP: Looked.RECORDS,
}
_UNREAD: Final = {
    Looked.NAMES: "files not read",
    Looked.HEADERS: "checksums not read",
    Looked.CHECKSUMS: "records not decoded",
}
_WHERE: Final = {
    Looked.NAMES: "names",
    Looked.HEADERS: "headers",
    Looked.CHECKSUMS: "headers and checksums",
}
_COUNTED: Final = {
    Severity.DAMAGE: "damage finding",
    Severity.INDEX: "index finding",
    Severity.WARNING: "warning",
    Severity.NOTE: "note",
}


def verdict(looked: Looked, findings: Mapping[Severity, int], *, is_whole: bool = True) -> str:
    """Return the findings in words; without any, how deep nothing is wrong.

    Args:
        is_whole: whether everything was looked at that should be.
    """
    words = [counted(findings[one], _COUNTED[one]) for one in Severity if findings.get(one)]
    if words:
        return ", ".join(words)
    where = "" if looked.unread is None else f" in {_WHERE[looked]} ({looked.unread})"
    rest = "" if is_whole else "; not everything was read"
    return f"nothing wrong{where}{rest}"
