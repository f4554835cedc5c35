"""`kafkalog groups`: groups and their committed offsets, now or as of a moment."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from kafkalog.io.wording import counted, some_of
from kafkalog_cli import options as opt
from kafkalog_cli.outcome import Outcome, show_note
from kafkalog_cli.output import groups as show
from kafkalog_cli.output.objects import Style
from kafkalog_cli.output.progress import byte_progress
from kafkalog_cli.output.writer import Format, Writer, write_all

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kafkalog.node.state.groups import EndOffsets
    from kafkalog.node.state.model import Group, GroupOffset, Groups, OffsetLag


def groups(
    paths: opt.PathsArgument,
    group: Annotated[list[str] | None, typer.Option(
        "--group", metavar="ID",
        help="Show only this group, with its members and offsets; repeatable.",
    )] = None,
    topic: opt.TopicsOption = None,
    at: Annotated[str | None, typer.Option(
        "--at", metavar="TIME|P@OFFSET",
        help="Show the state at a time, or at an offset of partition P of __consumer_offsets.",
    )] = None,
    diff: Annotated[str | None, typer.Option(
        "--diff", metavar="TIME|P@OFFSET", help="Show the offsets that have changed since then.",
    )] = None,
    lag: Annotated[bool, typer.Option(
        "--lag/--no-lag", help="Compare with the high watermarks of the partitions in PATH.",
    )] = True,
    export: opt.ExportOption = None,
    form: opt.FormatOption = Format.TABLE,
    exact: opt.ExactOption = False,
    tz: opt.ZoneOption = "UTC",
    now: opt.NowOption = None,
    quiet: opt.QuietOption = False,
) -> int:  # fmt: skip
    """Show groups and their committed offsets, from __consumer_offsets.

    Give the log directories of all brokers: each coordinates some of the groups. Offsets count as
    they do for a broker; those of open transactions are shown as pending. Nothing expires. The exit
    status is 1 if a group or topic is unknown, or if partitions of __consumer_offsets are missing
    or damaged; 3 if a lag is unknown because a partition in PATH cannot be read.

    \b
    kafkalog groups /var/lib/kafka
    kafkalog groups /var/lib/kafka --group billing
    kafkalog groups /var/lib/kafka --at 2026-11-22T00:00:00Z --export offsets.csv
    kafkalog groups /var/lib/kafka --diff -2h
    """
    from kafkalog.node.state.groups import EndOffsets, read_groups
    from kafkalog.node.state.model import changed_offsets

    zone = opt.parse_zone(tz)
    style = Style(exact, zone)
    moment, before = (
        None if text is None else opt.parse_moment(text, now, zone) for text in (at, diff)
    )
    outcome = Outcome()
    targets = outcome.open_all(paths)
    with byte_progress(targets, enabled=not quiet) as progress:
        read = partial(
            read_groups, targets, defects=outcome.defect, progress=progress, failed=outcome.hear
        )
        found, then = read(at=moment), None if before is None else read(at=before)
    outcome.hear(found)
    if at is not None and not found.groups:
        show_note(f"There was no group at {at}.")
    wanted = _wanted(found, then, group, outcome)
    if then is not None:
        changes = (one for one in changed_offsets(then, found) if one.group in wanted)
        of_topics = (one for one in changes if not topic or one.topic in topic)
        write_all(of_topics, show.change_view(style), form)
        return outcome.status
    ends = EndOffsets(targets if lag else ())
    chosen = [found.groups[name] for name in wanted if name in found.groups]
    if export is not None:
        _export(export, chosen, topic, ends)
    _report_unknown(topic, chosen, outcome)
    _write(chosen, topic, ends, form, style, details=bool(group))
    _report_ends(ends, outcome)
    return outcome.status


def _report_ends(ends: EndOffsets, outcome: Outcome) -> None:
    """Report what logs end before, and which ends are not known."""
    for error in ends.errors:
        show_note(f"no end offset and no lag: {error.path}")
        outcome.hear(error)
    outcome.leaves_out(ends.cut, hint="")


def _write(
    chosen: list[Group],
    topics: list[str] | None,
    ends: EndOffsets,
    form: Format,
    style: Style,
    *,
    details: bool,
) -> None:
    """Write a row per group, or with details per member and offset; objects have all of them."""
    if form == Format.TABLE and details:
        _write_members(chosen, style)
    if form == Format.CSV or (form == Format.TABLE and (details or topics)):
        offsets = (offset for one in chosen for offset in _offsets(one, topics, ends))
        write_all(offsets, show.offset_view(style), form)
        return
    with Writer(show.group_view(style), form) as writer:
        for one in chosen:
            writer.write(show.ShownGroup(one, one.offsets.lag(ends.of, topics)))
            for member in one.members:
                writer.write_object(show.MEMBER.row(show.ShownMember(one.name, member)))
            for offset in _offsets(one, topics, ends):
                writer.write_object(show.OFFSET.row(offset))


def _write_members(chosen: list[Group], style: Style) -> None:
    """Write a table of the members, if there are any; name groups that have nothing to show."""
    members = [show.ShownMember(one.name, member) for one in chosen for member in one.members]
    if members:
        write_all(members, show.member_view(style), Format.TABLE)
        if any(one.offsets for one in chosen):
            typer.echo()
    for one in chosen:
        if not one.members and not one.offsets:
            show_note(f"The group {one.name!r} has no members and no committed offsets.")


def _offsets(group: Group, topics: list[str] | None, ends: EndOffsets) -> Iterator[OffsetLag]:
    yield from map(ends.lag, _of_topics(group.offsets, topics))


def _of_topics(offsets: Iterable[GroupOffset], topics: list[str] | None) -> Iterator[GroupOffset]:
    return (one for one in offsets if not topics or one.topic in topics)


def _wanted(
    found: Groups, then: Groups | None, names: list[str] | None, outcome: Outcome
) -> list[str]:
    known = {**found.groups, **(then.groups if then is not None else {})}
    for name in names or ():
        if name not in known:
            outcome.warn(f"There is no group {name!r}.")
    return sorted(name for name in known if names is None or name in names)


def _report_unknown(topics: list[str] | None, chosen: list[Group], outcome: Outcome) -> None:
    known = {offset.topic for group in chosen for offset in group.offsets}
    for name in topics or ():
        if name not in known:
            outcome.warn(f"There is no committed offset of the topic {name!r}.")


def _export(path: str, chosen: list[Group], topics: list[str] | None, ends: EndOffsets) -> None:
    """Write what `kafka-consumer-groups --reset-offsets --from-file` reads.

    That tool sets an offset outside the log to its nearest end, with a warning.
    """
    from kafkalog_cli.output.lookups import write_reset_offsets

    rows: list[Sequence[str | int | None]] = []
    left_out, outside = 0, list[str]()
    for group in chosen:
        for one in _of_topics(group.offsets, topics):
            if one.is_pending or one.offset is None or one.is_share:
                left_out += 1
                continue
            if (lag := ends.lag(one)).outside is not None:
                outside.append(f"{one.topic}-{one.partition} {one.offset} is {lag.outside}")
            where = (one.topic, one.partition, one.offset)
            # With one `--group`, Kafka's tool expects no column for it.
            rows.append(where if len(chosen) == 1 else (one.group, *where))
    write_reset_offsets(path, rows)
    if left_out:
        why = "pending, not known, or a share group's"
        show_note(f"{counted(left_out, 'offset')} left out of {path}: {why}.")
    if outside:
        show_note(f"offsets in {path} that Kafka's tool will change: {some_of(outside)}")
