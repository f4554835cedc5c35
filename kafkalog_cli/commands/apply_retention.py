"""`kafkalog apply-retention`: delete what retention would (with --in-place)."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from kafkalog.io.wording import counted
from kafkalog_cli import options as opt
from kafkalog_cli.outcome import Outcome
from kafkalog_cli.output.objects import Style
from kafkalog_cli.output.writer import Format
from kafkalog_cli.standard_streams import put_work_first


def apply_retention(
    path: opt.DirectoryArgument,
    in_place: opt.InPlaceOption = False,
    yes: opt.YesOption = False,
    backup: opt.BackupOption = None,
    keep_deleted: Annotated[bool, typer.Option(
        "--keep-deleted", help="Leave .deleted files; a broker deletes them when it starts.",
    )] = False,
    config: opt.ConfigOption = None,
    properties: opt.PropertiesOption = None,
    metadata_dir: opt.MetadataDirOption = None,
    high_watermark: opt.HighWatermarkOption = None,
    log_start_offset: opt.LogStartOption = None,
    now: opt.NowOption = None,
    form: opt.FormatOption = Format.TABLE,
    exact: opt.ExactOption = False,
    tz: opt.ZoneOption = "UTC",
) -> int:  # fmt: skip
    """Delete the segments that simulate-retention says a broker would delete.

    Without --in-place only the plan is shown. The log directory is locked as a broker locks it;
    after a crash, run `kafkalog recover` first. Segments go from the front of the log, with
    .deleted files that a broker left. After a kill the next start finds the old log or the new one.
    The active segment stays: only a broker rolls it. With --log-start-offset the log starts there,
    as after DeleteRecords.

    \b
    kafkalog apply-retention /var/lib/kafka
    kafkalog apply-retention orders-0 --config retention.ms=60000 --in-place --yes
    """
    from kafkalog.change.retention.run import RetentionRun
    from kafkalog.node.configs import ConfigSources
    from kafkalog_cli.maintenance import consents, require_consent
    from kafkalog_cli.output import retention as show
    from kafkalog_cli.output.trims import RETENTION_APPLIED, print_trims

    require_consent(in_place=in_place, yes=yes, backup=backup)
    zone = opt.parse_zone(tz)
    style = Style(exact, zone)
    now_ms = opt.parse_time(now if now is not None else "-0s", zone=zone)
    sources = ConfigSources(opt.parse_configs(config), properties, metadata_dir=metadata_dir)
    outcome = Outcome()
    run = RetentionRun(
        path,
        sources,
        now_ms=now_ms,
        high_watermark=opt.parse_high_watermark(high_watermark),
        log_start_offset=log_start_offset,
        keep_deleted=keep_deleted,
        in_place=in_place,
        backup=backup,
        arguments=sys.argv[1:],
        listener=outcome,
    )
    if in_place:
        put_work_first()
    summary = show.RetentionSummary(now_ms, now_ms)
    with run, show.RetentionWriter(summary, form, style) as writer:
        for one in run.plan():
            writer.write_partition(one.plan.found)
        writer.flush()
        if in_place and run.wanted:
            of_all = counted(len(run.results), "partition")
            question = f"Change {len(run.wanted)} of {of_all} in {path}?"
            if consents(question, yes=yes):
                run.apply()
        for one in run.results:
            writer.write_object(RETENTION_APPLIED.row(one))
        writer.end()
    if form == Format.TABLE:
        print_trims(run.results, style, in_place=in_place)
    return outcome.of_work(has_changed=run.has_changed, is_concerned=bool(run.wanted))
