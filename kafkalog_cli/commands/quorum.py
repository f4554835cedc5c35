"""`kafkalog quorum`: who of a KRaft quorum is here, who could lead it, and what is proven."""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Final

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
    from collections.abc import Sequence

    from kafkalog.files.log_dir import Target
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
    voters: Annotated[str | None, typer.Option(
        "--voters", metavar="ID@HOST:PORT,…",
        help="Plan how these controllers go on where they listen now.",
    )] = None,
    to: opt.NewDirectoryOption = None,
    allow_loss: opt.AllowLossOption = False,
    properties: opt.PropertiesOption = None,
    *,
    show: opt.Show,
) -> int:  # fmt: skip
    """Show which voters of a KRaft quorum are left, and whether they can elect a leader.

    Give the log directories of all controllers and brokers that are left: each has a copy of the
    cluster's metadata. Records that no disk proves to be committed have a line each. The status is
    1 if no leader can be elected, or something is damaged.

    --standalone plans how one controller leads again when the others are lost; --voters how several
    do that have other addresses: the first gets a new log directory, the others keep theirs. --to
    makes that directory. With --allow-loss also if offsets are lost that no copy has undamaged: the
    status is 1 then. PATH is only read.

    \b
    kafkalog quorum controller1 controller2 broker11
    kafkalog quorum controller1 broker11 --properties server.properties
    kafkalog quorum controller1 broker11 --standalone 1
    kafkalog quorum controller1 broker11 --standalone 1@controller1:9093 --to new-controller1
    kafkalog quorum controller1 controller2 --voters 1@host1:9093,2@host2:9093
    """
    from formats.topic_names import CLUSTER_METADATA
    from kafkalog.node.choice import metadata_logs
    from kafkalog.node.quorum.quorum import read_quorum, voters_in_properties
    from kafkalog.node.quorum.rescue import plan_rescue
    from kafkalog.node.targets import unlisted_of

    if standalone is not None and voters is not None:
        raise UsageError("--standalone and --voters exclude each other.")
    texts = voters.split(",") if voters is not None else []
    wanted = _voters(texts if standalone is None else [standalone])
    for name, is_given in ("--to", to is not None), ("--allow-loss", allow_loss):
        if is_given and not wanted:
            words = f"{name} requires --standalone or --voters."
            raise UsageError(words, hint="Which controller leads first?")
    static = None if properties is None else voters_in_properties(properties)
    outcome = Outcome()
    # A plan says what becomes of all partitions.
    targets = outcome.open_all(paths, topics=None if wanted else {CLUSTER_METADATA})
    if not targets:
        return outcome.status
    for one, error in unlisted_of(targets):
        if one.topic == CLUSTER_METADATA:
            outcome.hear(error)
    with byte_progress(metadata_logs(targets), enabled=not session().is_quiet) as progress:
        found = read_quorum(targets, static=static, progress=progress)
    outcome.answers()
    plan = plan_rescue(found, wanted, allow_loss=allow_loss) if wanted else None
    for defect in found.defects:
        outcome.count(defect, opt.FailOn.WARNING.severities if plan is None else ())
    outcome.answers_no(plan is None and not found.candidates)
    rescued = None if plan is None else _rescued(found, plan, targets, to, outcome)
    _write(found, rescued, show, outcome)
    return outcome.status


_PORT_MAX: Final = 0xFFFF
_VOTER: Final = re.compile(r"(\d{1,9})(?:@(?:\[([\da-fA-F:.%]+)\]|([^\s@:\[\]]+)):(\d{1,5}))?")


def _voters(texts: Sequence[str]) -> dict[int, tuple[str, int] | None]:
    """Return node ids, with the host and port of those that have them. Raises `UsageError`."""
    found: dict[int, tuple[str, int] | None] = {}
    for text in texts:
        match = _VOTER.fullmatch(text)
        if match is None or (match[4] and not 0 < int(match[4]) <= _PORT_MAX):
            hint = "Give ID or ID@HOST:PORT: 1@controller1:9093."
            raise UsageError(f"{text!r} is not a controller.", hint=hint)
        if int(match[1]) in found:
            raise UsageError(f"Controller {match[1]} is given twice.")
        endpoint = (match[2] or match[3], int(match[4])) if match[4] else None
        if endpoint is not None and endpoint in found.values():
            raise UsageError(f"Two controllers would listen at {text.partition('@')[2]}.")
        found[int(match[1])] = endpoint
    return found


def _rescued(
    found: Quorum, plan: Rescue, targets: Sequence[Target], to: str | None, outcome: Outcome
) -> view.Rescued:
    """Say what becomes of partitions by a plan; carry it out if there is a place for it.

    Raises:
        RefusedError: a copy that was given could not be read: it may be the one that counts.
    """
    from formats.topic_names import CLUSTER_METADATA
    from kafkalog.node.quorum.consequences import consequences
    from kafkalog.node.targets import unlisted_of

    then = consequences(found, targets) if plan.steps else None
    files, to = 0, to if plan.steps else None
    if to is not None:
        from kafkalog.change.resurrection.quorum import write_rescue

        if outcome.status:
            raise RefusedError("Not all of PATH could be read, and what counts may be there.",
                               hint="Leave the unreadable copy out of PATH.")  # fmt: skip
        files = write_rescue(found, plan, to)
    for one, error in unlisted_of(targets):
        if one.topic != CLUSTER_METADATA:  # nobody knows whose it is, but the quorum goes on
            outcome.hear(error)
    outcome.answers_no(bool(plan.lost_offsets))
    status = outcome.of_work(has_changed=to is not None, has_plan=True)
    return view.Rescued(plan, then, to, files, status)


def _write(found: Quorum, rescued: view.Rescued | None, show: opt.Show, outcome: Outcome) -> None:
    """Write what is here, then what is not proven to be committed, or the plan."""
    style, form = show.style(), show.format
    nodes = view.replica_view(style), found.replicas, "node"
    more: Section = view.record_view(style), found.records, "record"
    then: list[Section] = []
    if rescued is not None:
        more = view.step_view(style), rescued.plan.steps, "step"
        strays, offline = rescued.then or ((), ())
        then = [
            (view.stray_view(style), strays, "stray"),
            (view.offline_view(style), offline, "offline partition"),
        ]
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
        write_sections([quorum, nodes, defects, more, *then, rescue], form, limit)
        return
    for defect in found.defects:
        outcome.defect(defect)
    if not form.is_screen:  # rows of one kind
        write_sections([nodes if rescued is None else more], form, show.limit)
        return
    write_sections([nodes], form, show.limit)
    is_cut = show.limit is not None and rescued is None  # all of a plan has to be done
    left = max((show.limit or 0) - len(found.replicas), 0) if is_cut else None
    print_lines(view.words(found, None if rescued is None else rescued.plan))
    rows = iter(more[1])
    first = next(rows, None)
    if first is not None and left != 0:
        typer.echo()
        write_sections([(more[0], chain((first,), rows), more[2]), *then], form, left)
    if rescued is not None:
        print_lines(view.result(rescued, style))
