"""`kafkalog spark-warmup`: Spark's Java classes, archived, so that later sessions start faster."""

from __future__ import annotations

from typing import Annotated

import typer

from kafkalog_cli.options import ExactOption, QuietOption


def spark_warmup(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say where the archive is or would be.")
    ] = False,
    exact: ExactOption = False,
    quiet: QuietOption = False,
) -> int:
    """Make sessions of Spark start faster: archive the Java classes that they load (AppCDS).

    Takes half a minute and some 190 MB in the user's cache directory, which nobody else can enter.
    Every later session with a driver on this machine uses the archive, as long as Java and pyspark
    are those it was made with; it changes no result. After an update of either, run this again.

    \b
    kafkalog spark-warmup --dry-run
    """
    from kafkalog.spark.class_archive import existing_archive, write_archive
    from kafkalog_cli.render.task_progress import waiting_for
    from kafkalog_cli.render.text import size_cell

    if dry_run:
        archive = existing_archive()
        verb = "is there"
    else:
        with waiting_for("running Spark once and archiving its classes …", enabled=not quiet):
            archive = write_archive()
        verb = "written"
    if archive.size_bytes is None:
        typer.echo(f"no archive yet; it would be {archive.path}")
    else:
        size = size_cell(archive.size_bytes, exact=exact)
        typer.echo(f"{verb}: {archive.path}, {size}")
    typer.echo(f"fits Java {archive.java} and pyspark {archive.spark}")
    return 0
