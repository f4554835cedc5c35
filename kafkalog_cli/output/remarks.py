"""What typed columns have another type for, and what their values lost, as lines for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalog.io.wording import counted
from kafkalog.log.typed.remarks import LOCAL_AS_UTC, LOST_DIGITS, UNKNOWN_FIELDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafkalog.log.typed.remarks import Remark

_SHOWN_MAX: Final = 24
_WORDS: Final = {
    LOST_DIGITS: "lost digits (nanoseconds, or more than a float or double has)",
    LOCAL_AS_UTC: f"had {LOCAL_AS_UTC}",
    UNKNOWN_FIELDS: f"had {UNKNOWN_FIELDS}",
}


def remark_lines(remarks: Sequence[Remark]) -> list[str]:
    """Return a line for each of the first remarks, whose paths begin with a column."""
    lines = [f"{one.path}: {one.type}, because {one.reason}" for one in remarks[:_SHOWN_MAX]]
    more = len(remarks) - len(lines)
    return [*lines, f"and {more} more parts of the schema"] if more else lines


def loss_lines(losses: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return a line for each kind of loss, given how many values of each column lost what."""
    return [
        f"{name}: {counted(count, 'value')} {_WORDS.get(loss, loss)}"
        for name, counts in losses.items()
        for loss, count in counts.items()
    ]
