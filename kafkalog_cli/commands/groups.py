"""`kafkalog groups`: groups and their committed offsets, now or as of a moment."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

from formats.late_classes import dataclass
from kafkalog.errors import NotFoundError, UsageError
from kafkalog.io.wording import counted, some_of
from kafkalog_cli import options as opt
from kafkalog_cli.option_sets import SELECT, SHOW
from kafkalog_cli.outcome import Outcome, show_note
from kafkalog_cli.output import groups as view
from kafkalog_cli.output.next_steps import put_command, words_of
from kafkalog_cli.output.progress import byte_progress
from kafkalog_cli.output.sections import write_sections
from kafkalog_cli.output.writer import Format
from kafkalog_cli.session import moment_of, session

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kafkalog.files.log_dir import Target
    from kafkalog.files.topics import PartitionNumbers, Topics
    from kafkalog.node.state.coordinators import Coordinator
    from kafkalog.node.state.groups import EndOffsets
    from kafkalog.node.state.model import Group, Groups, Moment, OffsetLag
    from kafkalog_cli.output.sections import Section


def groups(
    paths: opt.PathsArgument,
    group: Annotated[list[str] | None, opt.option(
        SELECT, "--group", metavar="ID",
        help="Only this group, with coordinator, members and offsets; repeatable.",
    )] = None,
    at: opt.AtOption = None,
    since: opt.SinceOption = None,
    lag: Annotated[bool, opt.option(
        SHOW, "--lag/--no-lag",
        help="Compare with the ends of the partitions in PATH, now or at the time.",
    )] = True,
    *,
    partitions: opt.PartitionNames,
    show: opt.ShowOffsets,
) -> int:  # fmt: skip
    """Show groups and their committed offsets, from __consumer_offsets.

    Give the log directories of all brokers: each coordinates some of the groups. Offsets count as
    they do for a broker; those of open transactions are shown as pending. Nothing expires. --group
    shows first which partition coordinates the group, even if it is unknown; with -t and -p also
    which one coordinates those partitions of a share group.

    \b
    kafkalog groups /var/lib/kafka
    kafkalog groups /var/lib/kafka --group billing
    kafkalog groups /var/lib/kafka --at 2026-11-22T00:00:00Z -o reset-offsets
    kafkalog groups /var/lib/kafka --since -2h
    """
    from kafkalog.node.state.groups import read_groups

    moment, before = moment_of(at), moment_of(since)
    meant = _Meant(partitions.topics, partitions.numbers)
    resets = show.resets
    if resets and since is not None:
        raise UsageError("-o reset-offsets does not go with --since.", hint="Give --at.")
    outcome = Outcome()
    if not (targets := outcome.open_all(paths)):
        return outcome.status
    coordinators = _coordinators(group or (), targets)
    try:
        with byte_progress(targets, enabled=not session().is_quiet) as progress:
            read = partial(
                read_groups, targets, defects=outcome.defect, progress=progress, failed=outcome.hear
            )
            found, then = read(at=moment), None if before is None else read(at=before)
    except NotFoundError:
        if coordinators and not resets:
            _write([(view.coordinator_view(show.style()), coordinators, "coordinator")], show)
        raise
    outcome.hear(found)
    if at is not None and not found.groups:
        show_note(f"There was no group at {at}.")
    known = found.groups if then is None else {**then.groups, **found.groups}
    chosen = _chosen(known, group, outcome)
    shares = _share_coordinators(group or (), known, meant, targets)
    _report_unknown(meant, chosen, outcome, has_coordinators=bool(shares))
    if then is not None:
        if not _write_changes(then, found, {one.name for one in chosen}, meant, show):
            show_note(f"No committed offset has changed since {since}.")
        return outcome.status
    # Kafka's tool compares what it resets with the logs as they are now.
    ends = _ends(targets if lag else (), None if resets else moment)
    if resets:
        _write_reset_offsets(chosen, meant, ends, show.limit)
    else:
        listing = _Listing(chosen, meant, ends, show, is_named=group is not None)
        listing.write([*coordinators, *shares], paths)
        if lag and ends.at_ms is not None:
            show_note(f"END and LAG are those at {at}, by the timestamps of the records.")
    _report_ends(ends, outcome)
    return outcome.status


def _write_changes(
    then: Groups, found: Groups, names: set[str], meant: _Meant, show: opt.ShowOffsets
) -> bool:
    """Write which offsets of groups have changed; return whether any has."""
    from kafkalog.node.state.model import changed_offsets

    every = changed_offsets(then, found)
    changes = [one for one in every if one.group in names and meant(one.topic, one.partition)]
    _write([(view.change_view(show.style()), changes, "change")], show)
    return bool(changes)


def _ends(targets: Sequence[Target], at: Moment | None) -> EndOffsets:
    """Return the ends of logs, now or at a time; an offset of another log is no time of theirs."""
    from kafkalog.node.state.groups import EndOffsets

    if at is None:
        return EndOffsets(targets)
    return EndOffsets(() if at.time_ms is None else targets, at.time_ms)


def _write(sections: Sequence[Section], show: opt.ShowOffsets) -> None:
    write_sections(sections, show.format, show.limit)


def _coordinators(names: Sequence[str], targets: Sequence[Target]) -> list[Coordinator]:
    """Return where groups are coordinated."""
    from formats.topic_names import CONSUMER_OFFSETS
    from kafkalog.node.state.coordinators import coordinators_of, internal_topic

    return [*coordinators_of("group", names, internal_topic(CONSUMER_OFFSETS, targets))]


def _share_coordinators(
    names: Sequence[str], known: dict[str, Group], meant: _Meant, targets: Sequence[Target]
) -> list[Coordinator]:
    """Return where partitions are coordinated that share groups may read, if both are named."""
    from formats.topic_names import SHARE_GROUP_STATE
    from kafkalog.node.state.coordinators import coordinators_of, internal_topic, share_keys

    topic = internal_topic(SHARE_GROUP_STATE, targets)
    if meant.topics is None or meant.numbers is None:
        return []
    shares = (name for name in names if name not in known or known[name].kind == "share")
    keys = [key for name in shares for key in share_keys(name, meant, targets)]
    return [*coordinators_of("share-group", keys, topic)]


@dataclass(frozen=True)
class _Meant:
    """Of which partitions offsets are meant."""

    topics: Topics | None
    numbers: PartitionNumbers | None

    @property
    def is_all(self) -> bool:
        return self.topics is None and self.numbers is None

    def __call__(self, topic: str, partition: int) -> bool:
        is_number = self.numbers is None or partition in self.numbers
        return is_number and (self.topics is None or topic in self.topics)


@dataclass(frozen=True)
class _Listing:
    """A row per group, or of named groups and topics per member and offset; objects have all."""

    chosen: list[Group]
    meant: _Meant
    ends: EndOffsets
    show: opt.ShowOffsets
    is_named: bool

    def write(self, coordinators: list[Coordinator], paths: list[str]) -> None:
        form, style = self.show.format, self.show.style()
        has_offsets = self.is_named or not self.meant.is_all
        groups = (view.group_view(style), self._groups(), "group")
        members = (view.member_view(style), self._members(), "member")
        offsets = (view.offset_view(style), self._offsets(), "offset")
        if form in (Format.NDJSON, Format.JSON):
            sections: list[Section] = [groups, members, offsets]
        elif form == Format.CSV:
            sections = [offsets if has_offsets else groups]
        elif self.is_named:
            sections = [members, offsets]
            self._note_empty()
        else:
            sections = [offsets if has_offsets else groups]
        if form != Format.CSV:
            sections.insert(0, (view.coordinator_view(style), coordinators, "coordinator"))
        _write(sections, self.show)
        committed = (offset for one in self.chosen for offset in one.offsets)
        if form.is_screen and self.is_named and any(one.is_pending for one in committed):
            put_command("next", "transactions", *words_of(paths))

    def _groups(self) -> Iterator[view.ShownGroup]:
        for one in self.chosen:
            is_meant = None if self.meant.is_all else self.meant
            yield view.ShownGroup(one, one.offsets.lag(self.ends.of, is_meant))

    def _members(self) -> Iterator[view.ShownMember]:
        return (view.ShownMember(one.name, each) for one in self.chosen for each in one.members)

    def _offsets(self) -> Iterator[OffsetLag]:
        for one in self.chosen:
            yield from _lags(one, self.meant, self.ends)

    def _note_empty(self) -> None:
        for one in self.chosen:
            if not one.members and not one.offsets:
                show_note(f"The group {one.name!r} has no members and no committed offsets.")


def _lags(group: Group, meant: _Meant, ends: EndOffsets) -> Iterator[OffsetLag]:
    return (ends.lag(one) for one in group.offsets if meant(one.topic, one.partition))


def _report_ends(ends: EndOffsets, outcome: Outcome) -> None:
    """Report what logs end before, and which ends are not known."""
    for error in ends.errors:
        show_note(f"no end offset and no lag: {error.path}")
        outcome.hear(error)
    outcome.leaves_out(ends.cut, hint="")


def _chosen(known: dict[str, Group], names: list[str] | None, outcome: Outcome) -> list[Group]:
    for name in names or ():
        if name not in known:
            outcome.miss(f"There is no group {name!r}.", name, known)
    return [one for name, one in sorted(known.items()) if names is None or name in names]


def _report_unknown(
    meant: _Meant, chosen: list[Group], outcome: Outcome, *, has_coordinators: bool
) -> None:
    """Report what is named and has no committed offset, unless its coordinator is the answer."""
    from kafkalog.files.topics import Topics

    offsets = [(one.topic, one.partition) for group in chosen for one in group.offsets]
    known = {topic for topic, _ in offsets}
    missing = [
        one for one in meant.topics or () if not any(topic in Topics([one]) for topic in known)
    ]
    for name in missing:
        outcome.miss(f"There is no committed offset of the topic {name!r}.", name, known)
    numbers = meant.numbers
    if numbers and not (missing or has_coordinators) and not any(meant(*one) for one in offsets):
        outcome.miss(f"There is no committed offset of partition {', '.join(numbers.texts)}.")


def _write_reset_offsets(
    chosen: list[Group], meant: _Meant, ends: EndOffsets, limit: int | None
) -> None:
    """Write what `kafka-consumer-groups --reset-offsets --from-file` reads.

    That tool sets an offset outside the log to its nearest end, with a warning.
    """
    from kafkalog_cli.output.lookups import write_reset_offsets

    rows: list[Sequence[str | int | None]] = []
    left_out, outside = 0, list[str]()
    for group in chosen:
        for lag in _lags(group, meant, ends):
            one = lag.commit
            if one.is_pending or one.offset is None or one.is_share:
                left_out += 1
                continue
            if lag.outside is not None:
                outside.append(f"{one.topic}-{one.partition} {one.offset} is {lag.outside}")
            where = (one.topic, one.partition, one.offset)
            # With one `--group`, Kafka's tool expects no column for it.
            rows.append(where if len(chosen) == 1 else (one.group, *where))
    write_reset_offsets(rows[:limit])
    if left_out:
        why = "pending, not known, or a share group's"
        show_note(f"{counted(left_out, 'offset')} left out: {why}.")
    if outside:
        show_note(f"offsets that Kafka's tool will change: {some_of(outside)}")
