"""`kafkalog rebuild-index`: rebuild offset, time and transaction indexes from the log."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from kafkalog.errors import UsageError
from kafkalog.io.wording import counted
from kafkalog_cli import options as opt
from kafkalog_cli.outcome import Outcome
from kafkalog_cli.output.objects import Style
from kafkalog_cli.output.progress import byte_progress
from kafkalog_cli.output.writer import Format, Writer
from kafkalog_cli.standard_streams import put_work_first


def rebuild_index(
    path: Annotated[str, typer.Argument(
        metavar="PATH", help="Log directory, partition directory or .log file.",
    )],
    check: Annotated[bool, typer.Option(
        "--check", help="Only compare, as without --in-place.",
    )] = False,
    in_place: opt.InPlaceOption = False,
    yes: opt.YesOption = False,
    backup: opt.BackupOption = None,
    config: opt.ConfigOption = None,
    properties: opt.PropertiesOption = None,
    metadata_dir: opt.MetadataDirOption = None,
    now: opt.NowOption = None,
    form: opt.FormatOption = Format.TABLE,
    exact: opt.ExactOption = False,
    quiet: opt.QuietOption = False,
) -> int:  # fmt: skip
    """Rebuild .index, .timeindex and .txnindex, as a broker does if one is missing.

    Without --in-place the existing indexes are compared with those built from the log: `same`,
    `padded` (followed by the zeros a killed broker leaves), `different`, `missing`. An index that
    differs need not be wrong: a broker that appends writes other entries than one that scans, and
    the density is a config. The log directory is locked. A damaged log is refused; use recover or
    salvage. The exit status is 1 if an index is missing or differs and was not replaced.

    \b
    kafkalog rebuild-index orders-0 --check
    kafkalog rebuild-index orders-0 --in-place --yes
    """
    from kafkalog.change.repair.rebuild import IndexRun
    from kafkalog.node.configs import ConfigSources
    from kafkalog_cli.maintenance import consents, require_consent
    from kafkalog_cli.output import repairs as show

    require_consent(in_place=in_place, yes=yes, backup=backup)
    if check and in_place:
        raise UsageError("--check and --in-place exclude each other.", hint="Give one of them.")
    sources = ConfigSources(opt.parse_configs(config), properties, metadata_dir=metadata_dir)
    outcome = Outcome()
    run = IndexRun(
        path,
        sources,
        now_ms=opt.parse_time(now if now is not None else "-0s"),
        in_place=in_place,
        backup=backup,
        arguments=sys.argv[1:],
        listener=outcome,
    )
    if in_place:
        put_work_first()
    with run, Writer(show.index_view(Style(exact)), form) as out:
        # One scan is enough if nobody looks at the plan.
        with byte_progress(run.wanted, enabled=not quiet) as progress:
            results = run.apply(progress) if in_place and yes else run.plan(progress)
        for one in results:
            for index in one.indexes:
                out.write(index)
        out.flush()
        if in_place and not yes and run.wanted:
            question = f"Rebuild indexes of {counted(len(run.wanted), 'partition')} in {path}?"
            if consents(question, yes=yes):
                with byte_progress(run.wanted, enabled=not quiet) as progress:
                    results = run.apply(progress)
        summary = show.index_summary(results)
        out.write_object(show.INDEX_SUMMARY.row(summary))
    if form == Format.TABLE:
        show.print_index_summary(summary, in_place=in_place)
    outcome.fail_if(summary.to_write > summary.written)
    return outcome.of_work(has_changed=run.has_changed, is_concerned=summary.to_write > 0)
