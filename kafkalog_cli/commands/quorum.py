"""`kafkalog quorum`: who of a KRaft quorum is here, who could lead it, and what is proven."""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING, Annotated

import typer

from kafkalog.errors import RefusedError, UsageError
from kafkalog_cli import options as opt
from kafkalog_cli.completion import places
from kafkalog_cli.outcome import Outcome, show_note, show_warning
from kafkalog_cli.output import quorums as view
from kafkalog_cli.output.objects import DEFECT
from kafkalog_cli.output.progress import byte_progress
from kafkalog_cli.output.sections import write_sections
from kafkalog_cli.output.table import print_lines
from kafkalog_cli.output.writer import Format
from kafkalog_cli.session import session

if TYPE_CHECKING:
    from kafkalog.node.quorum.quorum import Quorum
    from kafkalog.node.quorum.rescue import Rescue
    from kafkalog_cli.output.sections import Section


def quorum(
    paths: Annotated[list[str], typer.Argument(
        metavar="PATH...", show_default=False, autocompletion=places,
        help="Log directories of controllers and brokers, or __cluster_metadata-0 in them.",
    )],
    standalone: Annotated[str | None, typer.Option(
        "--standalone", metavar="ID[@HOST:PORT]",
        help="Plan how this controller leads again, alone.",
    )] = None,
    to: opt.NewDirectoryOption = None,
    properties: opt.PropertiesOption = None,
    *,
    show: opt.Show,
) -> int:  # fmt: skip
    """Show which voters of a KRaft quorum are left, and whether they can elect a leader.

    Give the log directories of all controllers and brokers that are left: each has a copy of the
    cluster's metadata. Records that no disk proves to be committed have a line each. The status is
    1 if no leader can be elected, or something is damaged. --standalone plans how one controller
    leads again when the others are lost; --to makes its log directory, of a new directory id. PATH
    is only read.

    \b
    kafkalog quorum controller1 controller2 broker11
    kafkalog quorum controller1 broker11 --properties server.properties
    kafkalog quorum controller1 broker11 --standalone 1
    kafkalog quorum controller1 broker11 --standalone 1@controller1:9093 --to new-controller1
    """
    from formats.topic_names import CLUSTER_METADATA
    from kafkalog.node.quorum.quorum import read_quorum, voters_in_properties
    from kafkalog.node.quorum.rescue import plan_rescue
    from kafkalog.node.targets import unlisted_of

    leader = None if standalone is None else _leader(standalone)
    if to is not None and leader is None:
        raise UsageError("--to requires --standalone.", hint="Which controller leads first?")
    static = None if properties is None else voters_in_properties(properties)
    outcome = Outcome()
    targets = outcome.open_all(paths, topics={CLUSTER_METADATA})
    if not targets:
        return outcome.status
    for one, error in unlisted_of(targets):
        if one.topic == CLUSTER_METADATA:
            outcome.hear(error)
    with byte_progress(targets, enabled=not session().is_quiet) as progress:
        found = read_quorum(targets, static=static, progress=progress)
    outcome.answers()
    plan = None if leader is None else plan_rescue(found, *leader)
    for defect in found.defects:
        outcome.count(defect, opt.FailOn.WARNING.severities if plan is None else ())
    outcome.answers_no(plan is None and not found.candidates)
    rescued = None if plan is None else _rescued(found, plan, to, outcome)
    _write(found, rescued, show, outcome)
    return outcome.status


def _leader(text: str) -> tuple[int, tuple[str, int] | None]:
    """Return the node id, and the host and port if they are given. Raises `UsageError`."""
    found = re.fullmatch(r"(\d{1,9})(?:@(.+):(\d{1,5}))?", text)
    if found is None:
        raise UsageError(
            f"{text!r} is not a controller.", hint="Give ID or ID@HOST:PORT: 1@controller1:9093."
        )
    return int(found[1]), None if found[2] is None else (found[2], int(found[3]))


def _rescued(found: Quorum, plan: Rescue, to: str | None, outcome: Outcome) -> view.Rescued:
    """Carry out a plan if there is a place for it.

    Raises:
        RefusedError: a copy that was given could not be read: it may be the one that counts.
    """
    if to is None:
        return view.Rescued(plan, None, 0, outcome.status)
    from kafkalog.change.resurrection.quorum import write_rescue

    if outcome.status:
        raise RefusedError("Not all of PATH could be read, and what counts may be there.",
                           hint="Leave the unreadable copy out of PATH.")  # fmt: skip
    files = write_rescue(found, plan, to)
    return view.Rescued(plan, to, files, outcome.of_work(has_changed=True))


def _write(found: Quorum, rescued: view.Rescued | None, show: opt.Show, outcome: Outcome) -> None:
    """Write what is here, then what is not proven to be committed, or the plan."""
    style, form = show.style(), show.format
    nodes = view.replica_view(style), found.replicas, "node"
    more: Section = view.record_view(style), found.records, "record"
    if rescued is not None:
        more = view.step_view(style), rescued.plan.steps, "step"
        for warning in rescued.plan.warnings:
            show_warning(warning)
    for one in found.copies:
        if one.is_running:
            show_note(f"a broker is running on {one.path}: what it has changes")
    if form in (Format.NDJSON, Format.JSON):
        quorum = view.QUORUM.view(style), [found], "quorum"
        defects = DEFECT.view(style), found.defects, "finding"
        rescue = view.RESCUE.view(style), [] if rescued is None else [rescued], "plan"
        limit = show.limit if rescued is None else None  # steps are few, and lead to a summary
        write_sections([quorum, nodes, defects, more, rescue], form, limit)
        return
    for defect in found.defects:
        outcome.defect(defect)
    if not form.is_screen:  # rows of one kind
        write_sections([nodes if rescued is None else more], form, show.limit)
        return
    write_sections([nodes], form, show.limit)
    left = None if show.limit is None else max(show.limit - len(found.replicas), 0)
    print_lines(view.words(found))
    rows = iter(more[1])
    first = next(rows, None)
    if first is not None and left != 0:
        typer.echo()
        write_sections([(more[0], chain((first,), rows), more[2])], form, left)
    if rescued is not None:
        print_lines(view.result(rescued))
