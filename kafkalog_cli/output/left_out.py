"""What records of the logs an answer does not hold, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.tables.model import LeftOut

_NAMES_MAX: Final = 5


def left_out_lines(left: LeftOut) -> Iterator[str]:
    """Say where records begin and end otherwise than the log does, a line a bound."""
    for what, offsets in (
        (
            "records above the high watermark left out (--end log includes them)",
            left.above_watermark,
        ),
        (
            "records of open transactions and after them left out (--read-committed)",
            left.above_last_stable,
        ),
    ):
        if offsets:
            names = [f"{name} from {offset}" for name, offset in offsets.items()]
            yield f"{what}: {some_of(names)}"
    if left.below_log_start:
        names = [f"{name} up to {offset}" for name, offset in left.below_log_start.items()]
        yield f"records below the log start offset left out: {some_of(names)}"


def some_of(names: list[str]) -> str:
    """The first few names."""
    return ", ".join(names[:_NAMES_MAX]) + (", …" if len(names) > _NAMES_MAX else "")
