"""`kafkalog replay`: produce what is in logs into a live cluster, each record once."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from kafkalog.errors import UsageError
from kafkalog.io.wording import counted
from kafkalog.model import Isolation, LogView
from kafkalog_cli import options as opt
from kafkalog_cli.option_sets import CHANGE, CONFIGS, SELECT
from kafkalog_cli.session import session
from kafkalog_cli.values import parse_pairs, parse_rate

if TYPE_CHECKING:
    from kafkalog.wire.producing.cluster import Cluster
    from kafkalog.wire.producing.run import Replay, ReplaySummary


def replay(
    paths: opt.PathsArgument,
    bootstrap: Annotated[str | None, opt.option(
        CHANGE, "--bootstrap", metavar="HOST:PORT",
        help="A broker of the cluster, or several, separated by commas; a plan is checked against "
             "it.",
    )] = None,
    progress: Annotated[str | None, opt.option(
        CHANGE, "--progress", metavar="FILE",
        help="Progress file of the run; created at first, and read when the command is repeated.",
    )] = None,
    topic_map: Annotated[list[str] | None, opt.option(
        CHANGE, "--topic-map", metavar="OLD=NEW",
        help="Give a topic another name in the cluster; repeatable.",
    )] = None,
    keep_partitions: Annotated[bool, opt.option(
        CHANGE, "--keep-partitions",
        help="Keep the partition of each record; without it, keys decide, as in a producer.",
    )] = False,
    new_timestamps: Annotated[bool, opt.option(
        CHANGE, "--new-timestamps", help="Replace timestamps with the current time.",
    )] = False,
    create_topics: Annotated[bool, opt.option(
        CHANGE, "--create-topics",
        help="Create missing topics, with the partitions and configs found in PATH.",
    )] = False,
    commit_offsets: Annotated[bool, opt.option(
        CHANGE, "--commit-offsets",
        help="Also commit the groups' offsets, translated; requires --keep-partitions.",
    )] = False,
    refused: Annotated[str | None, opt.option(
        CHANGE, "--refused", metavar="FILE",
        help="Leave out what a topic's configs refuse, listed in FILE as NDJSON.",
    )] = None,
    no_transactions: Annotated[bool, opt.option(
        CHANGE, "--no-transactions",
        help="Produce each record at least once, instead of exactly once.",
    )] = False,
    producer_config: Annotated[list[str] | None, opt.option(
        CONFIGS, "--producer-config", metavar="FILE|KEY=VALUE",
        help="Properties of librdkafka, such as those for SASL and TLS; repeatable.",
    )] = None,
    limit: Annotated[int | None, opt.option(
        SELECT, "-n", "--limit", min=0, metavar="N", help="At most N records in all.",
    )] = None,
    view: opt.ViewOption = LogView.RECOVERED,
    isolation: opt.IsolationOption = Isolation.READ_UNCOMMITTED,
    rate_limit: opt.RateLimitOption = None,
    *,
    partitions: opt.Partitions,
    records: opt.Records,
    change: opt.Plan,
    shown: opt.Form,
) -> int:  # fmt: skip
    """Produce the records of logs into a live cluster, each record once.

    Keys, values, headers, tombstones and timestamps stay as they are, and records of a partition
    keep their order; transaction markers are not sent. Of several copies of a partition, the best
    one is replayed. To continue a run that was stopped, even by a kill, repeat the command with the
    same progress file: read_committed consumers miss no record and see none twice.

    \b
    kafkalog replay /var/lib/kafka
    kafkalog replay orders-0 --topic-map orders=again --bootstrap localhost:9092
    kafkalog replay /var/lib/kafka --bootstrap host:9092 --progress run --apply
    """
    form = shown.format
    from kafkalog.wire.producing.model import Request
    from kafkalog.wire.producing.run import Replay
    from kafkalog_cli.maintenance import asks, will_apply
    from kafkalog_cli.outcome import Outcome, show_note
    from kafkalog_cli.output.objects import Style
    from kafkalog_cli.output.progress import byte_progress
    from kafkalog_cli.output.replayed import Shown, ShownReplay, report_losses, write_replay

    request = Request(
        records.selection(limit=limit, isolation=isolation, view=view),
        topics=partitions.topics,
        partitions=partitions.numbers,
        internal=partitions.internal,
        topic_map=parse_pairs(topic_map, "--topic-map", "OLD=NEW"),
        keep_partitions=keep_partitions,
        keep_timestamps=not new_timestamps,
        transactions=not no_transactions,
        create_topics=create_topics,
        commit_offsets=commit_offsets,
        refused_file=refused,
        rate=None if rate_limit is None else parse_rate(rate_limit),
    )
    is_applied = will_apply(change)
    if is_applied:
        _require_target(bootstrap, progress)
    outcome = Outcome()
    targets = outcome.open_all(paths, topics=partitions.topics)
    planned = Replay(targets, request, listener := ShownReplay(outcome))
    outcome.differs(route.target.difference for route in planned.routes)
    outcome.leaves_out(planned.ends())
    if planned.left_out:
        show_note(
            f"{counted(planned.left_out, 'internal partition')} left out; --internal includes them"
        )
    cluster = None
    if bootstrap is not None and planned.routes:
        from kafkalog.wire.producing.cluster import Cluster

        cluster = Cluster(bootstrap, _properties(producer_config))
    counts = partial(byte_progress, targets, enabled=not session().is_quiet)
    style = Style(session().exact, session().zone)
    is_shown = False
    if not is_applied or asks(change):
        if cluster is not None:
            planned.check(cluster)
        with counts() as listener.bar:
            summary = planned.count()
        if is_shown := is_applied and form.is_screen:
            write_replay(Shown(summary, performed=False), form, style)
        is_applied = is_applied and _consents(summary, bootstrap)
    if is_applied:
        if request.selection.where is not None:
            request.selection.where.undecodable = 0  # the plan has counted the same values
        with counts() as listener.bar:
            summary = _performed(planned, cluster, progress)
        is_shown = False
    outcome.leaves_undecoded(request.selection.where)
    outcome.lacks(summary.has_losses)
    is_concerned = any(one.records for one in summary.logs)
    status = outcome.of_work(
        has_changed=is_applied and is_concerned, check=change.check, is_concerned=is_concerned
    )
    if not is_shown:
        write_replay(Shown(summary, is_applied, status), form, style)
    report_losses(summary)
    return status


def _consents(summary: ReplaySummary, bootstrap: str | None) -> bool:
    from kafkalog_cli.standard_streams import require_stdout

    require_stdout()
    records = counted(sum(one.records for one in summary.logs), "record")
    return typer.confirm(f"Produce {records} into {bootstrap}?", err=True)


def _performed(planned: Replay, cluster: Cluster | None, progress: str | None) -> ReplaySummary:
    if cluster is None:
        return planned.count()  # nothing
    assert progress is not None, "it is required"
    return planned.perform(cluster, progress)


def _require_target(bootstrap: str | None, progress: str | None) -> None:
    if bootstrap is None:
        raise UsageError(
            "Say which cluster gets the records.",
            hint="--bootstrap HOST:PORT; without --apply no cluster is needed.",
        )
    if progress is None:
        raise UsageError(
            "Say where the progress of the run is kept.",
            hint="--progress FILE: by that file a run that was stopped goes on.",
        )


def _properties(texts: list[str] | None) -> dict[str, str]:
    """Read properties of librdkafka from files and options; the last of a name counts."""
    import os

    from kafkalog.node.configs.sources import read_property_lines

    found: dict[str, str] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if equals and not os.path.exists(text):  # the name of a file may have a `=`
            found[name.strip()] = value
        else:
            found |= {one.name: one.value for one in read_property_lines(text)}
    return found
