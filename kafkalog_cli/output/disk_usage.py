"""The output of `du`: parts of what uses space, disks, and partitions above their limits."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kafkalog.io.wording import counted
from kafkalog_cli.output import kinds as k
from kafkalog_cli.output.objects import Column, Field, ObjectType
from kafkalog_cli.output.text import size_text, zoned_time

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkalog.answers.disk_usage.model import Disk, Report, Share, Usage
    from kafkalog_cli.output.objects import Style, View

_BARS: Final = "▁▂▃▄▅▆▇█"
_OVER_SHOWN: Final = 10


def _sums(prefix: str) -> tuple[Field[Any], ...]:
    """Return the fields of a sum; `prefix` leads to it from the value."""

    def ahead(name: str) -> Callable[[Any], object]:
        def get(value: Any) -> object:
            usage: Usage = getattr(value, prefix) if prefix else value
            return getattr(usage, name) if usage.growth_bytes else None

        return get

    at = f"{prefix}." if prefix else ""
    return (
        Field("disk_bytes", k.SIZE, "blocks on disk; in an object store, size", f"{at}disk_bytes"),
        Field("size_bytes", k.SIZE, "length of the files", f"{at}size_bytes"),
        Field("leftover_bytes", k.SIZE, "blocks that nothing reads: `.deleted` and `.cleaned` "
                                      "files, deleted and stray partitions", f"{at}leftover_bytes"),
        Field("copies", k.INT, "partition directories; 0 by day and by kind", f"{at}copies"),
        Field("growth_bytes", k.ARRAY, "bytes appended in each of the last 24 hours, oldest first; "
                               "empty if not measured", f"{at}growth_bytes"),
        Field("hourly_growth_bytes", k.SIZE | None, "their mean", f"{at}hourly_growth_bytes"),
        Field("freed_now_bytes", k.SIZE | None, "by retention at its next check",
              ahead("freed_now_bytes")),
        Field("freed_later_bytes", k.SIZE | None, "by time alone until the end of the forecast",
              ahead("freed_later_bytes")),
        Field("dirty_bytes", k.SIZE | None, "that the cleaner may compact; it frees at most these",
              ahead("dirty_bytes")),
    )  # fmt: skip


DISK_USAGE: Final = ObjectType["Share"](
    "disk_usage",
    "`du`",
    "A part of what uses disk space. By day and by kind, only the total has growth and forecast.",
    Field("by", k.TEXT, "`topic`, `partition`, `day` or `kind`"),
    Field("name", k.TEXT | None, "topic, directory, day of the segment's latest record, or kind "
                               "of file or leftover; null for files of a log directory itself"),
    Field("topic", k.TEXT | None, "by topic and by partition"),
    Field("partition", k.INT | None, "by partition"),
    Field("log_dir", k.TEXT | None, "by partition"),
    *_sums("usage"),
)  # fmt: skip
DISK_USAGE_TOTAL: Final = ObjectType["Usage"](
    "disk_usage_total",
    "`du`",
    "The sum of all parts.",
    *_sums(""),
)
OVER_LIMIT: Final = ObjectType[Any](
    "over_limit",
    "`du --forecast`",
    "A partition that stays larger or older than its retention allows after the next check.",
    Field("path", k.TEXT, ""),
    Field("topic", k.TEXT, "from the directory's name"),
    Field("partition", k.INT | None, "null if the directory's name has none"),
    Field("over_bytes", k.SIZE, "above the limit"),
    Field("reason", k.TEXT, "what keeps them"),
)
DISK: Final = ObjectType["Disk"](
    "disk",
    "`du --forecast`",
    "A disk, or with `--disk-size` that of one log directory, and when it is full.",
    Field("log_dirs", k.ARRAY, "log directories on it"),
    Field("used_bytes", k.SIZE, "their blocks"),
    Field("free_bytes", k.SIZE | None, "null in an object store"),
    Field("hourly_growth_bytes", k.SIZE, "bytes, mean of the last 24 hours"),
    Field("full_timestamp", k.TIME | None,
          "if that goes on and retention works; null if not within ten years"),
)  # fmt: skip


def sparkline(numbers: Sequence[int]) -> str:
    """Return a bar per number, the tallest for the largest; a dot for none."""
    top = max(numbers, default=0)
    return "".join(
        "·" if number <= 0 else _BARS[(number * len(_BARS) - 1) // top] for number in numbers
    )


def share_view(style: Style, by: str, *, ahead: bool, directories: bool) -> View[Share]:
    """Return the view with a row per part."""
    columns: list[Column[Share]] = []
    if directories:
        columns.append(Column("DIRECTORY", "log_dir", least=12, keeps_end=True))
    nameless = "(undated)" if by == "day" else "(log directory)"
    columns.append(Column(by.upper(), lambda one: one.name or nameless, least=12))
    if by == "topic":
        columns.append(Column("COPIES", lambda one: one.usage.copies or "-", right=True))
    columns += [
        Column("ON DISK", "disk_bytes"),
        Column("SIZE", "size_bytes"),
        Column("LEFTOVERS", "leftover_bytes"),
    ]
    if ahead:
        columns += [
            Column("PER HOUR", "hourly_growth_bytes"),
            Column(
                "LAST 24 HOURS", lambda one: sparkline(one.usage.growth_bytes) or "-", below=True
            ),
            Column("AHEAD", lambda one: _ahead_text(one.usage, style), below=True),
        ]
    return DISK_USAGE.view(style, *columns)


def _ahead_text(usage: Usage, style: Style) -> str:
    """Return what retention frees and compaction may win, `-` if that is nothing."""
    size = partial(size_text, style=style)
    words = [f"{size(usage.freed_now_bytes)} freed now"] if usage.freed_now_bytes else []
    words += [f"{size(usage.freed_later_bytes)} freed later"] if usage.freed_later_bytes else []
    words += [f"{size(usage.dirty_bytes)} dirty"] if usage.dirty_bytes else []
    return ", ".join(words) or "-"


def report_lines(report: Report, by: str, style: Style, until_ms: int | None) -> list[str]:
    """Return what is above its limits, what could be reclaimed, the disks, and the total."""
    size = partial(size_text, style=style)
    total = report.total
    lines = [
        f"{one.path}: {size(one.over_bytes)} above its limit: {one.reason}"
        for one in report.over[:_OVER_SHOWN]
    ]
    if len(report.over) > _OVER_SHOWN:
        others = counted(len(report.over) - _OVER_SHOWN, "other partition")
        lines.append(f"{others} above the limit: -o ndjson lists all")
    if until_ms is not None:
        lines.append(
            f"retention frees {size(total.freed_now_bytes)} at its next check, "
            f"{size(total.freed_later_bytes)} more by {zoned_time(until_ms // 1000 * 1000, style)}"
        )
    won = []
    if total.leftover_bytes:
        won.append(f"{size(total.leftover_bytes)} of leftovers")
    if total.dirty_bytes:
        won.append(f"up to {size(total.dirty_bytes)} by compaction")
    if won:
        lines.append(f"could be reclaimed: {', '.join(won)}")
    lines += [_disk_line(disk, style) for disk in report.disks]
    parts = counted(sum(share.name is not None for share in report.shares), by)
    on_disk, apparent = size(total.disk_bytes), size(total.size_bytes)
    return [*lines, f"{parts}, {on_disk} on disk, {apparent} apparent"]


def _disk_line(disk: Disk, style: Style) -> str:
    size = partial(size_text, style=style)
    line = f"disk of {', '.join(disk.log_dirs)}: {size(disk.used_bytes)} used"
    if disk.free_bytes is None:
        return f"{line}, grows {size(disk.hourly_growth_bytes)} per hour"
    line += (
        f", {size(max(0, disk.free_bytes))} free, grows {size(disk.hourly_growth_bytes)} per hour: "
    )
    if disk.full_timestamp is None:
        return f"{line}it does not fill at this rate"
    if disk.free_bytes <= 0:
        return f"{line}it is full"
    return f"{line}full at {zoned_time(disk.full_timestamp // 1000 * 1000, style)}"
