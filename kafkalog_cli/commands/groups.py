"""`kafkalog groups`: groups and their committed offsets, now or as of a moment."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from kafkalog_cli import options as opt
from kafkalog_cli.output.writer import Format

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kafkalog.state.groups import EndOffsets
    from kafkalog.state.model import Group, GroupOffset, Groups
    from kafkalog_cli.outcome import Outcome
    from kafkalog_cli.output.groups import ShownOffset
    from kafkalog_cli.output.objects import Style


def groups(
    paths: opt.PathsArgument,
    group: Annotated[list[str] | None, typer.Option(
        "--group", metavar="ID", help="Only this group, with its members and offsets; repeatable.",
    )] = None,
    topic: opt.TopicsOption = None,
    at: Annotated[str | None, typer.Option(
        "--at", metavar="TIME|P@OFFSET",
        help="As of a time; or as of an offset of partition P of __consumer_offsets.",
    )] = None,
    diff: Annotated[str | None, typer.Option(
        "--diff", metavar="TIME|P@OFFSET", help="Show the offsets that differ from those then.",
    )] = None,
    lag: Annotated[bool, typer.Option(
        "--lag/--no-lag", help="Compare with the high watermarks of the partitions in PATH.",
    )] = True,
    export: Annotated[str | None, typer.Option(
        "--export", metavar="FILE",
        help="Write the offsets as a CSV for kafka-consumer-groups --reset-offsets --from-file.",
    )] = None,
    form: opt.FormatOption = Format.TABLE,
    exact: opt.ExactOption = False,
    utc: opt.UtcOption = False,
    tz: opt.ZoneOption = "UTC",
    now: opt.NowOption = None,
    quiet: opt.QuietOption = False,
) -> int:  # fmt: skip
    """Show groups and their committed offsets, as __consumer_offsets has them.

    Give the log directories of all brokers: each coordinates a part of the groups. Offsets count as
    for a broker: what a transaction committed from its end on, nothing that was aborted; offsets
    of open transactions are shown as pending. Nothing expires. Status 1 if a group is unknown, or
    partitions of __consumer_offsets are missing or damaged.


    \b
    kafkalog groups /var/lib/kafka
    kafkalog groups /var/lib/kafka --group billing
    kafkalog groups /var/lib/kafka --at 2026-11-22T00:00:00Z --export offsets.csv
    kafkalog groups /var/lib/kafka --diff -2h
    """
    from kafkalog.state.groups import EndOffsets, read_groups
    from kafkalog.state.model import changed_offsets
    from kafkalog_cli.outcome import Outcome, report_gaps
    from kafkalog_cli.output import groups as show
    from kafkalog_cli.output.objects import Style
    from kafkalog_cli.output.progress import byte_progress
    from kafkalog_cli.output.writer import Writer

    zone = opt.parse_zone("UTC" if utc else tz)
    style = Style(exact, zone)
    moment, before = (
        None if text is None else opt.parse_moment(text, now, zone) for text in (at, diff)
    )
    outcome = Outcome()
    targets = outcome.open_all(paths)
    with byte_progress(targets, enabled=not quiet) as progress:
        read = partial(
            read_groups, targets, defects=outcome.defect, progress=progress, failed=outcome.error
        )
        found, then = read(at=moment), None if before is None else read(at=before)
    report_gaps(outcome, found.topic, found.incomplete, found.undecoded)
    wanted = _wanted(found, then, group, outcome)
    if then is not None:
        with Writer(show.change_view(style), form, outcome.defect) as changes:
            for change in changed_offsets(then, found):
                if change.group in wanted and (not topic or change.topic in topic):
                    changes.write(change)
        return outcome.status
    ends = EndOffsets(targets if lag else ())
    chosen = [found.groups[name] for name in wanted if name in found.groups]
    if export is not None:
        _export(export, chosen, topic)
    _write(chosen, topic, ends, form, style, outcome, details=bool(group))
    return outcome.status


def _write(
    chosen: list[Group],
    topics: list[str] | None,
    ends: EndOffsets,
    form: Format,
    style: Style,
    outcome: Outcome,
    *,
    details: bool,
) -> None:
    """Write a row per group, or with details a row per offset; objects have all of them."""
    from kafkalog_cli.output import groups as show
    from kafkalog_cli.output.writer import Writer

    if form == Format.CSV or (form == Format.TABLE and (details or topics)):
        with Writer(show.offset_view(style), form, outcome.defect) as offsets:
            for one in chosen:
                for offset in _offsets(one, topics, ends):
                    offsets.write(offset)
        return
    with Writer(show.group_view(style), form, outcome.defect) as writer:
        for one in chosen:
            shown = list(_offsets(one, topics, ends))
            lags = [offset.lag for offset in shown if not offset.commit.is_pending]
            total = None if None in lags else sum(filter(None, lags))
            writer.write(show.ShownGroup(one, total))
            if form != Format.TABLE:
                for member in one.members:
                    writer.write_row(show.MEMBER.row(show.ShownMember(one.name, member)))
                for offset in shown:
                    writer.write_row(show.OFFSET.row(offset))


def _offsets(group: Group, topics: list[str] | None, ends: EndOffsets) -> Iterator[ShownOffset]:
    from kafkalog_cli.output.groups import ShownOffset

    for one in _of_topics(group.offsets, topics):
        yield ShownOffset(one, ends.of(one.topic, one.partition))


def _of_topics(offsets: Iterable[GroupOffset], topics: list[str] | None) -> Iterator[GroupOffset]:
    return (one for one in offsets if not topics or one.topic in topics)


def _wanted(
    found: Groups, then: Groups | None, names: list[str] | None, outcome: Outcome
) -> list[str]:
    """Return the names of the groups to show; report those that are unknown."""
    from kafkalog_cli.outcome import show_warning

    known = {**found.groups, **(then.groups if then is not None else {})}
    for name in names or ():
        if name not in known:
            show_warning(f"There is no group {name!r}.")
            outcome.fail_if(True)
    return sorted(name for name in known if names is None or name in names)


def _export(path: str, chosen: list[Group], topics: list[str] | None) -> None:
    """Write what `kafka-consumer-groups --reset-offsets --from-file` reads."""
    import csv
    import io

    from kafkalog.plurals import counted
    from kafkalog.storage import NewFile
    from kafkalog_cli.outcome import show_note

    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    left_out = 0
    for group in chosen:
        for one in _of_topics(group.offsets, topics):
            if one.is_pending or one.offset is None:
                left_out += 1
                continue
            where = [one.topic, one.partition, one.offset]
            rows.writerow(where if len(chosen) == 1 else [one.group, *where])
    with NewFile(path) as new:
        new.file.write(text.getvalue().encode())
    if left_out:
        show_note(f"{counted(left_out, 'offset')} left out of {path}: pending, or not known.")
