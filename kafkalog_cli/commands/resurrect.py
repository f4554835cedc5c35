"""`kafkalog resurrect`: make a log directory that Kafka starts on from what is left of others."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from formats.releases import releases
from kafkalog.change.resurrection.model import Copy, Missing, Retention
from kafkalog.errors import UsageError
from kafkalog.io.wording import counted
from kafkalog_cli import options as opt
from kafkalog_cli.completion import places
from kafkalog_cli.outcome import Outcome
from kafkalog_cli.output.progress import byte_progress
from kafkalog_cli.output.writer import Format
from kafkalog_cli.session import session
from kafkalog_cli.values import parse_pairs

if TYPE_CHECKING:
    from kafkalog.change.resurrection import ResurrectOptions, ResurrectSummary
    from kafkalog_cli.output.resurrected import ResurrectWriter


def resurrect(
    paths: Annotated[list[str], typer.Argument(
        metavar="PATH...", show_default=False, autocompletion=places,
        help="Log directory, parent of several, result of salvage, or partition directory; also "
        "in s3://, gs:// or abfs://.",
    )],
    to: opt.NewDirectoryOption = None,
    into: Annotated[str | None, opt.option(
        opt.CHANGE, "--into", metavar="LOG_DIR",
        help="Move partitions into this log directory of an existing cluster, whose broker is "
        "down; with --apply.",
    )] = None,
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
    topic: opt.TopicsOption = None,
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
    from_tier: opt.FromTierOption = None,
    properties_out: Annotated[str | None, typer.Option(
        "--properties-out", metavar="FILE", help="Also write server.properties here.",
    )] = None,
    *,
    change: opt.Change,
    pace: opt.Pace,  # noqa: ARG001 # it holds around the command
    shown: opt.Form,
) -> int:  # fmt: skip
    """Make a log directory that Kafka 4.4 or 4.3 can start from, using only what is on disk.

    The sources are only read: log directories of one or several brokers, partitions, results of
    salvage. Of several copies of a partition the one with the latest leader epoch is taken, then
    the longest. Topics keep ids and configs; groups, ACLs, SCRAM credentials and quotas are kept.
    --to makes a new directory at once, without topics that cannot be read. --apply changes PATH
    itself, with --backup, or moves partitions into the cluster of --into.

    \b
    kafkalog resurrect /var/lib/kafka
    kafkalog resurrect orders-0 customers-0 --to revived --kafka 4.3
    kafkalog resurrect /var/lib/kafka --cluster-id new --apply --backup before
    """
    form = shown.format
    from kafkalog.change.resurrection import ResurrectOptions
    from kafkalog.files.topics import Topics
    from kafkalog.io.paths.uris import require_local
    from kafkalog_cli.maintenance import will_apply

    is_applied = will_apply(change, to=to, backup=change.backup)
    is_in_place = change.apply and into is None
    if to is not None and into is not None:
        raise UsageError("--to and --into exclude each other.", hint="Give one of them.")
    if is_in_place and len(paths) != 1:
        raise UsageError("--apply takes one PATH, or --into.", hint="Give one log directory.")
    if from_tier and is_in_place:
        raise UsageError("--apply takes nothing from a tier.", hint="Use --to.")
    if change.backup is not None and not is_in_place:
        raise UsageError("--backup is for --apply without --into.", hint="Leave it out.")
    if is_applied and is_in_place and change.backup is None:
        raise UsageError(
            "--apply in place requires --backup.",
            hint="With one, `kafkalog undo` can restore PATH.",
        )
    for place in filter(None, (to, into)):
        require_local(place)
    options = ResurrectOptions(
        node_id=node_id,
        cluster_id=cluster_id,
        topics=Topics(topic) if topic else None,
        undelete=undelete,
        rename=parse_pairs(rename, "--rename", "OLD=NEW"),
        topic_ids=parse_pairs(topic_id, "--topic-id", "TOPIC=ID"),
        as_of_metadata=as_of_metadata,
        retention=retention,
        missing=missing,
        copy=copy,
        prefer=tuple(prefer or ()),
        salvage=salvage,
        properties_out=properties_out,
        kafka=kafka,
    )
    work = _Work(paths, options, to, into, tuple(from_tier or ()), change, form)
    return work.run(is_applied=is_applied)


@dataclass(frozen=True)
class _Work:
    """A resurrection, of which one pass plans and the next one, if any, does what was agreed to."""

    paths: list[str]
    options: ResurrectOptions
    to: str | None
    into: str | None
    from_tier: tuple[str, ...]
    change: opt.Change
    form: Format

    def run(self, *, is_applied: bool) -> int:
        """Plan or work, and show it; return the exit status."""
        from kafkalog_cli.maintenance import asks, consents
        from kafkalog_cli.output.resurrected import ResurrectWriter, print_totals, show_notes

        outcome = Outcome()
        is_asked = is_applied and self.to is None and asks(self.change)
        destination = "--apply" if self.change.apply or self.into else "--to NEW"
        is_table = self.form.is_screen
        writer = ResurrectWriter(self.form)
        summary = self._pass(writer, dry_run=is_asked or not is_applied)
        show_notes(summary)
        if is_asked:
            if is_table:
                writer.write(summary, 0)
            verb = "Write the metadata of" if self.into is None else "Move"
            what = counted(summary.partitions, "partition")
            if not consents(self.change, f"{verb} {what} in {summary.destination}?"):
                return 0
            writer = ResurrectWriter(self.form)
            summary = self._pass(writer, dry_run=False)
        outcome.lacks(
            is_applied and bool(summary.salvaged_partitions or summary.shortened_partitions)
        )
        outcome.lacks(summary.unreadable_directories > 0)
        status = outcome.of_work(
            has_changed=is_applied, has_plan=True, check=self.change.check, is_concerned=True
        )
        if is_asked and is_table:
            print_totals(summary)
        else:
            writer.write(summary, status, destination)
        return status

    def _pass(self, writer: ResurrectWriter, *, dry_run: bool) -> ResurrectSummary:
        from kafkalog.change import resurrection as library
        from kafkalog.change.resurrection.sources import open_sources

        targets = open_sources(self.paths, self.from_tier, self.options.topics)
        with byte_progress(targets, enabled=not session().is_quiet) as progress:
            if self.into is not None:
                return library.resurrect_into(
                    targets, self.into, self.options, dry_run=dry_run, tell=writer.take,
                    progress=progress,
                )  # fmt: skip
            if self.change.apply:
                return library.resurrect_in_place(
                    self.paths[0], self.options, backup=None if dry_run else self.change.backup,
                    dry_run=dry_run, tell=writer.take, progress=progress, arguments=sys.argv[1:],
                )  # fmt: skip
            return library.resurrect(
                targets, self.to, self.options, dry_run=dry_run, tell=writer.take,
                progress=progress,
            )  # fmt: skip
