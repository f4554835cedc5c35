"""`kafkalog where`: which partition of an internal topic coordinates a name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kafkalog.errors import UsageError
from kafkalog_cli import options as opt
from kafkalog_cli.outcome import Outcome
from kafkalog_cli.output import groups as show
from kafkalog_cli.output.objects import Style
from kafkalog_cli.output.writer import Format, Writer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.files.log_dir import Target


def where(
    paths: opt.PathsArgument,
    group: Annotated[list[str] | None, typer.Option(
        "--group", metavar="ID", help="A group, consumer or other; repeatable.",
    )] = None,
    transactional_id: Annotated[list[str] | None, typer.Option(
        "--transactional-id", metavar="ID", help="A transactional id; repeatable.",
    )] = None,
    share_group: Annotated[list[str] | None, typer.Option(
        "--share-group", metavar="GROUP:TOPIC_ID:PARTITION",
        help="A partition of a share group; repeatable.",
    )] = None,
    form: opt.FormatOption = Format.TABLE,
) -> int:  # fmt: skip
    """Show which partition of an internal topic coordinates a group or a transactional id.

    The partition depends on a hash of the name and on the number of partitions. That number is read
    from __cluster_metadata-0 in one of the PATHs, else from the directories found. The exit status
    is 1 if no PATH has a replica.

    \b
    kafkalog where /var/lib/kafka --group billing
    kafkalog where /var/lib/kafka --transactional-id payments-7
    """
    from formats import topic_names
    from kafkalog.node.state import coordinators as state

    outcome = Outcome()
    wanted = (
        ("group", group, topic_names.CONSUMER_OFFSETS),
        ("transactional-id", transactional_id, topic_names.TRANSACTION_STATE),
        ("share-group", share_group, topic_names.SHARE_GROUP_STATE),
    )
    if not any(names for _, names, _ in wanted):
        raise UsageError("Give --group, --transactional-id or --share-group.")
    for name in share_group or ():
        _require_share(name)
    targets: Sequence[Target] = outcome.open_all(paths, topics=())
    with Writer(show.coordinator_view(Style()), form) as writer:
        for of, names, topic in wanted:
            if names:
                found = state.internal_topic(topic, targets)
                for one in state.coordinators_of(of, names, found):
                    writer.write(one)
                    outcome.fail_if(not one.paths)
                    if (error := found.unlisted.get(one.partition)) is not None:
                        outcome.hear(error)
    return outcome.status


def _require_share(name: str) -> None:
    from kafkalog.files.text_files import uuid_bytes

    _, *rest = name.rsplit(":", 2)  # the id of a group may have colons
    if len(rest) != 2 or uuid_bytes(rest[0]) is None or not rest[1].isdecimal():
        raise UsageError(
            f"{name!r} is not a partition of a share group.", hint="Give GROUP:TOPIC_ID:PARTITION."
        )
