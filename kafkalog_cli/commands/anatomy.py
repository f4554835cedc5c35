"""`kafkalog anatomy`: the bytes of a file, explained field by field."""

from __future__ import annotations

from typing import Annotated

import typer

from kafkalog.errors import UsageError
from kafkalog_cli.option_sets import SHOW
from kafkalog_cli.options import Form, option
from kafkalog_cli.outcome import Outcome
from kafkalog_cli.output.objects import Style
from kafkalog_cli.output.writer import Writer
from kafkalog_cli.pager import start_pager
from kafkalog_cli.session import session


def anatomy(
    what: Annotated[str, typer.Argument(
        metavar="FILE[@POSITION]|PARTITION_DIR[@OFFSET]",
        help="Any file Kafka writes, from a byte position on; the batch that has an offset; or "
             "a partition, to see how it was written.",
    )],
    limit: Annotated[int, option(
        SHOW, "-n", "--limit", metavar="N", min=1,
        help="At most N batches, entries or lines, and N records of each batch.",
    )] = 5,
    to: Annotated[str | None, option(
        SHOW, "--to", metavar="NEW.html", help="Write a page that opens in any browser.",
    )] = None,
    *,
    shown: Form,
) -> int:  # fmt: skip
    """Explain the bytes of a file: which field each belongs to, its value and its meaning.

    Attributes are shown bit by bit, numbers of variable length by their groups of 7 bits, deltas as
    absolute values, and checksums with what they cover. Compressed content follows as a second
    level. The exit status is 8 if the file is damaged.

    For a partition directory, it shows how sequential the writes were: batches in order of offset
    and of time, and pieces of each log on the disk.

    \b
    kafkalog anatomy 00000000000000000000.log -n 1
    kafkalog anatomy orders-0@4711
    kafkalog anatomy orders-0/00000000000000000000.index@64
    kafkalog anatomy orders-0@4711 --to batch.html
    kafkalog anatomy orders-0
    """
    form = shown.format
    from kafkalog.answers.anatomy.dissect import dissect, place_of
    from kafkalog.answers.anatomy.model import Field
    from kafkalog.answers.anatomy.writes import writes_of
    from kafkalog.files.log_dir import PartitionDir
    from kafkalog_cli.output import anatomy as show

    outcome = Outcome()
    target, place = place_of(what)
    if isinstance(target, PartitionDir) and place is None:
        if to is not None:
            raise UsageError("--to needs bytes: a file, or PARTITION_DIR@OFFSET.")
        with Writer(show.writes_view(Style(session().exact)), form) as segments:
            for segment in writes_of(target):
                segments.write(segment)
                show.count_damage(segment, outcome)
        return outcome.status
    items = dissect(target, place, limit)
    if to is not None:
        if not to.endswith(".html"):
            raise UsageError(f"--to {to}: a page is HTML.", hint="--to FILE.html")
        from kafkalog_cli.output.anatomy import write_page

        write_page(to, what, items, outcome)
    elif form.is_screen:
        start_pager()
        show.print_items(items, outcome)
    else:
        with Writer(show.field_view(), form) as writer:
            for item in items:
                show.count_damage(item, outcome)
                if isinstance(item, Field):
                    writer.write(item)
                else:
                    writer.write_object(show.STRUCTURE.row(item))
    return outcome.status
