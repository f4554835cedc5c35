"""`kafkalog resurrect`: make a log directory that Kafka starts on from what is left of others."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from formats.releases import releases
from kafkalog.change.resurrection.model import Copy, Missing, Retention
from kafkalog.errors import UsageError
from kafkalog_cli import options as opt
from kafkalog_cli.output.progress import byte_progress
from kafkalog_cli.output.writer import Format
from kafkalog_cli.standard_streams import put_work_first

if TYPE_CHECKING:
    from kafkalog.change.resurrection import ResurrectOptions


def resurrect(
    paths: Annotated[list[str], typer.Argument(
        metavar="PATH...", show_default=False,
        help="Log directory, parent of several, result of salvage, or partition directory; also "
        "in s3://, gs:// or abfs://.",
    )],
    to: Annotated[str | None, typer.Option(
        "--to", metavar="DIR", help="The new directory; it must be missing or empty.",
    )] = None,
    into: Annotated[str | None, typer.Option(
        "--into", metavar="LOG_DIR",
        help="Move partitions into this log directory of an existing cluster; its broker must be "
             "down.",
    )] = None,
    in_place: Annotated[bool, typer.Option(
        "--in-place", help="Write only metadata, into PATH itself, a single log directory.",
    )] = False,
    yes: opt.YesOption = False,
    backup: opt.BackupOption = None,
    node_id: Annotated[int, typer.Option(
        "--node-id", metavar="N", help="Id of the new node.",
    )] = 1,
    kafka: Annotated[str | None, typer.Option(
        "--kafka", metavar="|".join(one.name for one in releases()),
        help="The release that is to start; the newest by default.",
    )] = None,
    cluster_id: Annotated[str | None, typer.Option(
        "--cluster-id", metavar="ID|new", help="Id of the new cluster; random by default.",
    )] = None,
    topic: Annotated[list[str] | None, typer.Option(
        "--topic", metavar="TOPIC", help="Only this topic; repeatable. Groups are in "
        "__consumer_offsets.",
    )] = None,
    undelete: Annotated[bool, typer.Option(
        "--undelete",
        help="Also take -delete, -stray and -future directories; deleted topics get new ids.",
    )] = False,
    rename: Annotated[list[str] | None, typer.Option(
        "--rename", metavar="OLD=NEW",
        help="Rename a topic; repeatable. Of a live and a deleted topic OLD, the deleted one "
             "is renamed.",
    )] = None,
    topic_id: Annotated[list[str] | None, typer.Option(
        "--topic-id", metavar="TOPIC=ID|new", help="Give a topic this id, or choose the "
        "directories that have it; repeatable.",
    )] = None,
    as_of_metadata: Annotated[str | None, typer.Option(
        "--as-of-metadata", metavar="LOG_DIR", help="Take the metadata from this log directory, "
        "not from the newest in PATH.",
    )] = None,
    retention: Annotated[Retention, typer.Option(
        "--retention",
        help="keep: delete nothing; original: the topics' own, which may delete old data at "
             "once.",
    )] = Retention.KEEP,
    missing: Annotated[Missing, typer.Option(
        "--missing",
        help="Partitions that have no directory; empty: start at offset 0; offline: have no "
             "leader.",
    )] = Missing.REFUSE,
    copy: Annotated[Copy, typer.Option(
        "--copy", help="auto: share blocks where the file system can, else copy.",
    )] = Copy.AUTO,
    prefer: Annotated[list[str] | None, typer.Option(
        "--prefer", metavar="PATH", help="Take copies below PATH first, however old; repeatable.",
    )] = None,
    salvage: Annotated[bool, typer.Option(
        "--salvage", help="Salvage damaged partitions instead of refusing them.",
    )] = False,
    from_tier: Annotated[list[str] | None, typer.Option(
        "--from-tier", metavar="TIER",
        help="Also copy what this tier has of the logs, as local segments; repeatable.",
    )] = None,
    properties_out: Annotated[str | None, typer.Option(
        "--properties-out", metavar="FILE", help="Also write server.properties here.",
    )] = None,
    dry_run: Annotated[bool, typer.Option(
        "--dry-run", help="Only show the plan; write nothing.",
    )] = False,
    form: opt.FormatOption = Format.TABLE,
    quiet: opt.QuietOption = False,
) -> int:  # fmt: skip
    """Make a new log directory that Kafka 4.4 or 4.3 can start from, using only what is on disk.

    The sources are only read, and no broker may run on them: log directories of one or several
    brokers, single partitions, results of salvage. Of several copies of a partition, the one with
    the latest leader epoch is taken, then the longest; the others are listed. DIR/log gets the
    logs, byte for byte, with rebuilt indexes, and the metadata as bootstrap.checkpoint. Where PATH
    has a metadata log, topics keep ids and configs, and client groups, ACLs, SCRAM credentials,
    quotas and tokens are kept. DIR/server.properties is for a node on this machine that is broker
    and controller; DIR/manifest.ndjson states where everything comes from. DIR appears when all of
    it is written and read back. The last line of the output starts Kafka.

    Features keep the levels that the metadata log gives them, so that Kafka 4.4 starts on what 4.3
    wrote; a downgrade is refused. Without a metadata log they are those of a new cluster.

    A partition is read once, and refused if it is damaged; an incomplete batch at its end, as a
    killed broker leaves it, is cut off. The exit status is 1 if a partition was salvaged, or if a
    part of it was left in remote storage.

    With --from-tier the logs begin with what is in remote storage, and partitions that only the
    tier has are taken, too. The new topics are not tiered.

    With --into, partitions are moved into an existing cluster. Its metadata log must have the
    topics, and is not changed: a partition is refused unless topic id, replicas, leader epoch and
    retention agree. A directory that is already there is replaced only if it has no record.

    With --in-place nothing is copied: PATH, one log directory, becomes that of the new node. Its
    metadata are replaced; --backup keeps the originals, and `kafkalog undo` restores them until a
    broker has started. After a kill no broker starts on PATH until the same command, or undo, has
    been run. A PATH that belongs to a cluster needs --cluster-id; stray and moving directories,
    and files that would keep it from starting, are refused.

    \b
    kafkalog resurrect /var/lib/kafka --to revived
    kafkalog resurrect orders-0 customers-0 --to revived --kafka 4.3 --dry-run
    kafkalog resurrect /var/lib/kafka --in-place --cluster-id new --dry-run
    """
    from kafkalog.change.resurrection import ResurrectOptions, resurrect_into
    from kafkalog.change.resurrection import resurrect as run_resurrect
    from kafkalog.change.resurrection.sources import open_sources
    from kafkalog.io.paths.uris import require_local
    from kafkalog_cli.output.resurrected import ResurrectWriter, show_notes

    place = to if into is None else into
    if [to is None, into is None, not in_place].count(False) != 1:
        raise UsageError("Give either --to DIR, --into LOG_DIR or --in-place.")
    if from_tier and in_place:
        raise UsageError("--in-place takes nothing from a tier.", hint="Use --to.")
    if (yes or backup is not None) and not in_place:
        raise UsageError("--yes and --backup are for --in-place.", hint="Leave them out.")
    if place is not None:
        require_local(place)
    options = ResurrectOptions(
        node_id=node_id,
        cluster_id=cluster_id,
        topics=tuple(topic) if topic else None,
        undelete=undelete,
        rename=opt.parse_pairs(rename, "--rename", "OLD=NEW"),
        topic_ids=opt.parse_pairs(topic_id, "--topic-id", "TOPIC=ID"),
        as_of_metadata=as_of_metadata,
        retention=retention,
        missing=missing,
        copy=copy,
        prefer=tuple(prefer or ()),
        salvage=salvage,
        properties_out=properties_out,
        kafka=kafka,
    )
    if place is None:
        return _in_place(
            paths, options, backup=backup, yes=yes, dry_run=dry_run, form=form, quiet=quiet
        )
    if not dry_run:
        put_work_first()
    writer = ResurrectWriter(form)
    targets = open_sources(paths, from_tier or (), options.topics)
    with byte_progress(targets, enabled=not quiet) as progress:
        work = run_resurrect if into is None else resurrect_into
        summary = work(
            targets, place, options, dry_run=dry_run, tell=writer.take, progress=progress
        )
    show_notes(summary)
    writer.write(summary)
    return int(summary.salvaged_partitions > 0 or summary.shortened_partitions > 0)


def _in_place(
    paths: list[str],
    options: ResurrectOptions,
    *,
    backup: str | None,
    yes: bool,
    dry_run: bool,
    form: Format,
    quiet: bool,
) -> int:
    """Write metadata next to the partitions of one log directory, once the plan is agreed to."""
    from kafkalog.change.resurrection import resurrect_in_place
    from kafkalog.change.resurrection.sources import open_sources
    from kafkalog_cli.maintenance import consents, require_consent
    from kafkalog_cli.output.resurrected import ResurrectWriter, show_notes

    if len(paths) != 1:
        raise UsageError("--in-place takes one PATH.", hint="Give one log directory.")
    if not dry_run:
        require_consent(in_place=True, yes=yes, backup=backup)
        put_work_first()
        if backup is None:
            raise UsageError(
                "--in-place requires --backup.", hint="With one, `kafkalog undo` can restore PATH."
            )
    # With --yes nobody looks at the plan: one pass is enough.
    for is_plan in [True] if dry_run else [False] if yes else [True, False]:
        writer = ResurrectWriter(form)
        with byte_progress(open_sources(paths), enabled=not quiet) as progress:
            summary = resurrect_in_place(
                paths[0],
                options,
                backup=None if is_plan else backup,
                dry_run=is_plan,
                tell=writer.take,
                progress=progress,
                arguments=sys.argv[1:],
            )
        if is_plan or yes:
            show_notes(summary)
            writer.write(summary)
        if is_plan and not dry_run and not consents("Write the metadata?", yes=yes):
            return 0
    return int(summary.shortened_partitions > 0)
