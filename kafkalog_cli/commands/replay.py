"""`kafkalog replay`: produce what is in logs into a live cluster, each record once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kafkalog.errors import UsageError
from kafkalog.model import Isolation, LogView
from kafkalog_cli import options as opt
from kafkalog_cli.output.writer import Format

if TYPE_CHECKING:
    from kafkalog.wire.producing.run import Replay, ReplaySummary


def replay(
    paths: opt.PathsArgument,
    bootstrap: Annotated[str | None, typer.Option(
        "--bootstrap", metavar="HOST:PORT",
        help="A broker of the cluster, or several, separated by commas.",
    )] = None,
    progress: Annotated[str | None, typer.Option(
        "--progress", metavar="FILE",
        help="Progress file of the run; created at first, and read when the command is repeated.",
    )] = None,
    dry_run: Annotated[bool, typer.Option(
        "--dry-run", help="Only count records; no cluster is needed.",
    )] = False,
    topic: opt.TopicsOption = None,
    topic_map: Annotated[list[str] | None, typer.Option(
        "--topic-map", metavar="OLD=NEW",
        help="Give a topic another name in the cluster; repeatable.",
    )] = None,
    keep_partitions: Annotated[bool, typer.Option(
        "--keep-partitions",
        help="Keep the partition of each record; without it, keys decide, as in a producer.",
    )] = False,
    keep_timestamps: Annotated[bool, typer.Option(
        "--keep-timestamps/--new-timestamps",
        help="Keep timestamps, or replace them with the current time.",
    )] = True,
    create_topics: Annotated[bool, typer.Option(
        "--create-topics",
        help="Create missing topics, with the partitions and configs found in PATH.",
    )] = False,
    commit_offsets: Annotated[bool, typer.Option(
        "--commit-offsets",
        help="Also commit the groups' offsets, translated; requires --keep-partitions.",
    )] = False,
    refused: Annotated[str | None, typer.Option(
        "--refused", metavar="FILE",
        help="Leave out what a topic's configs refuse, listed in FILE as NDJSON.",
    )] = None,
    rate_limit: Annotated[str | None, typer.Option(
        "--rate-limit", metavar="SIZE", help="Produce at most SIZE per second.",
    )] = None,
    transactions: Annotated[bool, typer.Option(
        "--transactions/--no-transactions",
        help="Produce each record exactly once, even after a kill; or at least once.",
    )] = True,
    producer_config: Annotated[list[str] | None, typer.Option(
        "--producer-config", metavar="FILE|KEY=VALUE",
        help="Properties of librdkafka, such as those for SASL and TLS; repeatable.",
    )] = None,
    isolation: opt.IsolationOption = Isolation.READ_UNCOMMITTED,
    from_offset: opt.FromOffsetOption = None,
    to_offset: opt.ToOffsetOption = None,
    from_time: opt.FromTimeOption = None,
    to_time: opt.ToTimeOption = None,
    from_position: opt.FromPositionOption = None,
    limit: Annotated[int | None, typer.Option(
        min=0, metavar="N", help="Replay at most N records per log.",
    )] = None,
    producer_id: opt.ProducerIdOption = None,
    leader_epoch: opt.LeaderEpochOption = None,
    key: opt.KeyOption = None,
    key_regex: opt.KeyRegexOption = None,
    value_regex: opt.ValueRegexOption = None,
    header: opt.HeaderOption = None,
    internal: opt.InternalOption = False,
    view: opt.ViewOption = LogView.RECOVERED,
    form: opt.FormatOption = Format.TABLE,
    now: opt.NowOption = None,
    exact: opt.ExactOption = False,
    tz: opt.ZoneOption = "UTC",
    quiet: opt.QuietOption = False,
) -> int:  # fmt: skip
    """Produce the records of logs into a live cluster, each record once.

    Keys, values, headers, tombstones and timestamps stay as they are, and records of a partition
    keep their order; transaction markers are not sent. Of several copies of a partition, the best
    one is replayed. Without --read-committed, records of aborted transactions are replayed too.

    To continue a run that was stopped, even by a kill, repeat the command with the same progress
    file: read_committed consumers miss no record and see none twice.

    Damage is reported and left out, and makes the exit status 1.

    \b
    kafkalog replay /var/lib/kafka --dry-run
    kafkalog replay orders-0 --dry-run --topic-map orders=orders-again
    kafkalog replay /var/lib/kafka --bootstrap localhost:9092 --progress run
    """
    from kafkalog.io.wording import counted
    from kafkalog.log.batches.selection import Selection
    from kafkalog.wire.producing.model import Request
    from kafkalog.wire.producing.run import Replay
    from kafkalog_cli.outcome import Outcome, show_note
    from kafkalog_cli.output.objects import Style
    from kafkalog_cli.output.progress import byte_progress
    from kafkalog_cli.output.replayed import replay_listener, report_losses, write_replay
    from kafkalog_cli.standard_streams import put_work_first

    zone = opt.parse_zone(tz)
    selection = Selection(
        from_offset=from_offset,
        to_offset=to_offset,
        from_time=None if from_time is None else opt.parse_time(from_time, now, zone),
        to_time=None if to_time is None else opt.parse_time(to_time, now, zone),
        from_position=from_position,
        limit=limit,
        producer_id=producer_id,
        leader_epoch=leader_epoch,
        key=None if key is None else opt.parse_bytes(key),
        key_regex=opt.parse_regex(key_regex),
        value_regex=opt.parse_regex(value_regex),
        header=opt.parse_header(header),
        isolation=isolation,
        view=view,
    )
    request = Request(
        selection,
        topics=None if topic is None else tuple(topic),
        internal=internal,
        topic_map=opt.parse_pairs(topic_map, "--topic-map", "OLD=NEW"),
        keep_partitions=keep_partitions,
        keep_timestamps=keep_timestamps,
        transactions=transactions,
        create_topics=create_topics,
        commit_offsets=commit_offsets,
        refused_file=refused,
        rate=None if rate_limit is None else opt.parse_rate(rate_limit),
    )
    if not dry_run:
        _require_target(bootstrap, progress)
        put_work_first()
    outcome = Outcome()
    targets = outcome.open_all(paths, topics=topic)
    with byte_progress(targets, enabled=not quiet) as bar:
        planned = Replay(targets, request, replay_listener(outcome, bar))
        outcome.differs(route.target.difference for route in planned.routes)
        outcome.leaves_out(planned.ends())
        if planned.left_out:
            show_note(f"{counted(planned.left_out, 'internal partition')} left out")
        summary = _run(planned, bootstrap, progress, producer_config, dry_run=dry_run)
    write_replay(summary, form, Style(exact, zone), performed=not dry_run)
    report_losses(summary, outcome)
    has_changed = not dry_run and any(one.records for one in summary.logs)
    is_concerned = bool(planned.routes) and not summary.was_complete
    return outcome.of_work(has_changed=has_changed, is_concerned=is_concerned)


def _require_target(bootstrap: str | None, progress: str | None) -> None:
    if bootstrap is None:
        raise UsageError(
            "Say which cluster gets the records.",
            hint="--bootstrap HOST:PORT; --dry-run counts without a cluster.",
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


def _run(
    planned: Replay,
    bootstrap: str | None,
    progress: str | None,
    config: list[str] | None,
    *,
    dry_run: bool,
) -> ReplaySummary:
    if dry_run or not planned.routes:
        return planned.count()
    from kafkalog.wire.producing.cluster import Cluster

    assert bootstrap is not None
    assert progress is not None
    return planned.perform(Cluster(bootstrap, _properties(config)), progress)
