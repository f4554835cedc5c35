"""`kafkalog quorum`: who of a KRaft quorum is here, who could lead it, and what is proven."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Annotated

import typer

from kafkalog_cli import options as opt
from kafkalog_cli.completion import places
from kafkalog_cli.outcome import Outcome, show_note
from kafkalog_cli.output import quorums as view
from kafkalog_cli.output.objects import DEFECT
from kafkalog_cli.output.progress import byte_progress
from kafkalog_cli.output.sections import write_sections
from kafkalog_cli.output.table import print_lines
from kafkalog_cli.output.writer import Format
from kafkalog_cli.session import session

if TYPE_CHECKING:
    from kafkalog.node.quorum.quorum import Quorum
    from kafkalog_cli.output.sections import Section


def quorum(
    paths: Annotated[list[str], typer.Argument(
        metavar="PATH...", show_default=False, autocompletion=places,
        help="Log directories of controllers and brokers, or __cluster_metadata-0 in them.",
    )],
    properties: opt.PropertiesOption = None,
    *,
    show: opt.Show,
) -> int:  # fmt: skip
    """Show which voters of a KRaft quorum are left, and whether they can elect a leader.

    Give the log directories of all controllers and brokers that are left: each has a copy of the
    cluster's metadata. Records that no disk proves to be committed have a line each. The status is
    1 if no leader can be elected, or something is damaged.

    \b
    kafkalog quorum /var/lib/kafka
    kafkalog quorum controller1 controller2 broker11
    kafkalog quorum controller1 broker11 --properties server.properties
    """
    from formats.topic_names import CLUSTER_METADATA
    from kafkalog.node.quorum.quorum import read_quorum, voters_in_properties
    from kafkalog.node.targets import unlisted_of

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
    for defect in found.defects:
        outcome.count(defect, opt.FailOn.WARNING.severities)
    outcome.answers_no(not found.candidates)
    _write(found, show, outcome)
    return outcome.status


def _write(found: Quorum, show: opt.Show, outcome: Outcome) -> None:
    style, form = show.style(), show.format
    nodes = view.replica_view(style), found.replicas, "node"
    records = view.record_view(style), found.records, "record"
    for one in found.copies:
        if one.is_running:
            show_note(f"a broker is running on {one.path}: what it has changes")
    if form in (Format.NDJSON, Format.JSON):
        quorum = view.QUORUM.view(style), [found], "quorum"
        defects = DEFECT.view(style), found.defects, "finding"
        write_sections([quorum, nodes, defects, records], form, show.limit)
        return
    for defect in found.defects:
        outcome.defect(defect)
    write_sections([nodes], form, show.limit)
    if not form.is_screen:  # rows of one kind
        return
    left = None if show.limit is None else max(show.limit - len(found.replicas), 0)
    print_lines(view.words(found))
    rows = iter(found.records)
    first = next(rows, None)
    if first is not None and left != 0:
        typer.echo()
        above: Section = view.record_view(style), chain((first,), rows), records[2]
        write_sections([above], form, left)
