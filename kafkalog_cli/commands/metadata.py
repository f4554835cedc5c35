"""`kafkalog metadata`: topics, configs and the rest of a cluster, now or as of a moment."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from formats.late_classes import dataclass
from kafkalog.errors import UsageError
from kafkalog.io.wording import counted, printable
from kafkalog.model import LogView
from kafkalog_cli import options as opt
from kafkalog_cli.outcome import Outcome, show_note, show_warning
from kafkalog_cli.output import metadata as show
from kafkalog_cli.output.objects import Style
from kafkalog_cli.output.progress import byte_progress
from kafkalog_cli.output.text import time_text
from kafkalog_cli.output.writer import Format, Writer, write_all

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import tzinfo

    from kafkalog.node.state.metadata_model import Metadata, MetadataLeaf
    from kafkalog.node.state.model import Moment


def metadata(
    path: Annotated[str, typer.Argument(
        metavar="PATH", help="Log directory, __cluster_metadata-0, or a snapshot in it.",
    )],
    image_path: Annotated[str | None, typer.Argument(
        metavar="[IMAGE_PATH]", help="A path in the tree: /image/topics/byName/orders.",
    )] = None,
    topic: Annotated[list[str] | None, typer.Option(
        "--topic", metavar="TOPIC", help="Show the partitions and configs of a topic; repeatable.",
    )] = None,
    configs: Annotated[str | None, typer.Option(
        "--configs", metavar="RESOURCE",
        help="Show the configs of a topic, or of BROKER:1, BROKER (all), GROUP:billing.",
    )] = None,
    find: Annotated[str | None, typer.Option(
        "--find", metavar="NAME", help="Show the leaves with this text in a name on their path.",
    )] = None,
    tree: Annotated[bool, typer.Option(
        "--tree", help="Show the tree as kafka-metadata-shell does.",
    )] = False,
    cat: Annotated[bool, typer.Option(
        "--cat", help="Print the text of the leaf IMAGE_PATH.",
    )] = False,
    at: Annotated[str | None, typer.Option(
        "--at", metavar="OFFSET|TIME",
        help="Show the state at a time, or after the records below an offset.",
    )] = None,
    diff: Annotated[str | None, typer.Option(
        "--diff", metavar="OFFSET|TIME", help="Show what has changed since then.",
    )] = None,
    form: opt.FormatOption = Format.TABLE,
    exact: opt.ExactOption = False,
    tz: opt.ZoneOption = "UTC",
    now: opt.NowOption = None,
    quiet: opt.QuietOption = False,
) -> int:  # fmt: skip
    """Show the metadata of a cluster: topics, configs, brokers, ACLs, quotas, credentials.

    The metadata is read from a snapshot of __cluster_metadata-0 and the log after it, on any
    controller or broker of the cluster. Records of metadata transactions count once the transaction
    has ended. The exit status is 1 if a name is unknown or the log is damaged, and 5 if the log no
    longer reaches back to the time or offset asked for.

    \b
    kafkalog metadata /var/lib/kafka
    kafkalog metadata /var/lib/kafka --topic orders --at 2026-11-22T00:00:00Z
    kafkalog metadata /var/lib/kafka --diff 2026-11-21T04:00:00Z
    kafkalog metadata /var/lib/kafka /image/cluster
    """
    from formats.topic_names import CLUSTER_METADATA
    from kafkalog.node.choice import live_partitions
    from kafkalog.node.identity import newest_metadata
    from kafkalog.node.state.metadata import read_metadata

    flat = (bool(topic), configs is not None, find is not None, diff is not None)
    _require_one_mode(flat, image_path, tree=tree, cat=cat)
    zone = opt.parse_zone(tz)
    moment, since = (
        None if text is None else _parse_moment(text, now, zone) for text in (at, diff)
    )
    outcome = Outcome()
    targets = outcome.open_all([path], topics=())
    if not targets:
        return outcome.status
    newest = newest_metadata(live_partitions(targets, CLUSTER_METADATA))
    places = [one for one in targets if newest is not None and one.path == newest.log_dir]
    target = (places or targets)[0]
    with byte_progress([target], enabled=not quiet) as progress:
        found = read_metadata(
            target,
            at=moment,
            since=since,
            defects=outcome.defect,
            progress=progress,
            shown=lambda partition: outcome.shown(partition, LogView.RECOVERED),
        )
    _report_gaps(found, outcome, style := Style(exact, zone), says_when=moment is not None)
    shown = _Show(found, form, style, outcome)
    if since is not None:
        write_all(found.changes, show.change_view(style), form)
    elif tree or image_path is not None:
        shown.tree(image_path or "/", only_leaf=cat)
    else:
        shown.flat(topic, configs, find)
    return outcome.status


def _require_one_mode(
    flat: tuple[bool, ...], image_path: str | None, *, tree: bool, cat: bool
) -> None:
    """Raise `UsageError` unless the options fit together; `flat` are those without a path."""
    if sum((*flat, tree, cat)) > 1:
        raise UsageError("Give one of --topic, --configs, --find, --tree, --cat and --diff.")
    if image_path is not None and any(flat):
        raise UsageError("An IMAGE_PATH goes with --tree or --cat.")
    if cat and image_path is None:
        raise UsageError("--cat needs an IMAGE_PATH.", hint="/image/features/metadataVersion")


def _parse_moment(text: str, now: str | None, zone: tzinfo) -> Moment:
    """Return the moment that an offset, the digits alone, or a time names."""
    from kafkalog.node.state.model import Moment

    if re.fullmatch(r"[0-9]{1,18}", text):
        return Moment(partition=0, offset=int(text))
    return Moment(opt.parse_time(text, now, zone))


@dataclass
class _Show:
    """Writes parts of the metadata."""

    found: Metadata
    form: Format
    style: Style
    outcome: Outcome

    def flat(self, topics: list[str] | None, configs: str | None, find: str | None) -> None:
        """Write the part that an option names; without one a row per topic."""
        if topics:
            self.topics(topics)
        elif configs is not None:
            self.configs(configs)
        elif find is not None:
            self.find(find)
        else:
            write_all(self.found.topics(), show.topic_view(self.style), self.form)

    def topics(self, names: list[str]) -> None:
        """Write partitions and configs of topics; CSV has only the partitions."""
        chosen = [one for one in self.found.topics() if one.name in names]
        for name in sorted({*names} - {one.name for one in chosen}):
            self.outcome.warn(f"There is no topic {name!r}.")
        values = [value for one in chosen for value in self.found.configs(f"TOPIC:{one.name}")]
        with Writer(show.partition_view(self.style), self.form) as writer:
            for one in chosen:
                writer.write_object(show.TOPIC.row(one))
                for partition in one.partitions:
                    writer.write(partition)
            for value in values:
                writer.write_object(show.CONFIG.row(value))
        if self.form == Format.TABLE and values:
            typer.echo()
            write_all(values, show.config_view(self.style), self.form)

    def configs(self, of: str) -> None:
        values = list(self.found.configs(of))
        if not values and of.removeprefix("TOPIC:") not in self.found.image.topics:
            self.outcome.warn(
                f"There is no topic {of!r}, and no other resource of that name has configs."
            )
        write_all(values, show.config_view(self.style), self.form)

    def find(self, name: str) -> None:
        leaves = list(self.found.find(name))
        if not leaves:
            self.outcome.warn(f"No name in the tree has {name!r} in it.")
        self._leaves(leaves)

    def tree(self, path: str, *, only_leaf: bool) -> None:
        from kafkalog.node.state.image_tree import Leaf, tree_lines

        node = self.found.node(path)
        if node is None:
            self.outcome.warn(f"There is no {path!r} in the tree.")
        elif only_leaf and not isinstance(node, Leaf):
            raise UsageError(f"{path} is not a leaf of the tree.", hint="Give --tree.")
        elif self.form != Format.TABLE:
            self._leaves(self.found.leaves(path))
        else:
            for line in tree_lines(node):
                typer.echo(printable(line))

    def _leaves(self, leaves: Iterable[MetadataLeaf]) -> None:
        write_all(leaves, show.leaf_view(self.style), self.form)


def _report_gaps(found: Metadata, outcome: Outcome, style: Style, *, says_when: bool) -> None:
    image = found.image
    if says_when:
        last = image.provenance
        when = (
            f"last change {time_text(last.timestamp, style)}" if last.offset >= 0 else "no record"
        )
        show_note(f"as of offset {found.end_offset}: {when}.")
    if found.uncommitted:
        show_note(
            f"what was changed from offset {found.committed} on may not be committed: nothing on "
            "disk says how far the quorum had."
        )
    if found.pending:
        show_note(f"{counted(found.pending, 'record')} of an open metadata transaction left out.")
    if image.unknown:
        show_warning(f"{counted(image.unknown, 'record')} of the metadata could not be decoded.")
    if image.refused:
        more = f" (and {len(image.refused) - 1} more)" if len(image.refused) > 1 else ""
        show_warning(f"A record contradicts those before it: {image.refused[0]}{more}")
    outcome.fail_if(bool(image.unknown or image.refused) or not image.is_whole)
