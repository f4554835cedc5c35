"""`kafkalog metadata`: topics, configs and the rest of a cluster, now or as of a moment."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from formats.late_classes import dataclass
from kafkalog.errors import UsageError
from kafkalog.files.topics import Topics
from kafkalog.io.wording import counted, printable
from kafkalog.model import LogView
from kafkalog_cli import options as opt
from kafkalog_cli.completion import places
from kafkalog_cli.option_sets import SELECT
from kafkalog_cli.outcome import Outcome, show_note, show_warning
from kafkalog_cli.output import metadata as view
from kafkalog_cli.output.progress import byte_progress
from kafkalog_cli.output.sections import write_sections
from kafkalog_cli.output.text import zoned_time
from kafkalog_cli.output.writer import Format
from kafkalog_cli.session import moment_of, session

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalog.node.state.metadata_model import Metadata, MetadataLeaf
    from kafkalog.node.state.model import Moment
    from kafkalog_cli.output.objects import Style
    from kafkalog_cli.output.sections import Section


def metadata(
    path: Annotated[str, typer.Argument(
        metavar="PATH", help="Log directory, __cluster_metadata-0, or a snapshot in it.",
        autocompletion=places,
    )],
    topic: opt.TopicsOption = None,
    configs: Annotated[str | None, opt.option(
        SELECT, "--configs", metavar="RESOURCE",
        help="The configs of a topic, or of BROKER:1, BROKER (all), GROUP:billing.",
    )] = None,
    match: Annotated[str | None, opt.option(
        SELECT, "--match", metavar="TEXT", help="Leaves with this text in their path.",
    )] = None,
    tree: Annotated[str | None, opt.option(
        SELECT, "--tree", metavar="NODE",
        help="A part of the tree, as kafka-metadata-shell shows it: / or /image/topics/byName.",
    )] = None,
    cat: Annotated[str | None, opt.option(
        SELECT, "--cat", metavar="NODE",
        help="The text of a leaf: /image/features/metadataVersion.",
    )] = None,
    at: opt.AtOption = None,
    since: opt.SinceOption = None,
    *,
    show: opt.Show,
) -> int:  # fmt: skip
    """Show the metadata of a cluster: topics, configs, brokers, ACLs, quotas, credentials.

    The metadata is read from a snapshot of __cluster_metadata-0 and the log after it, on any
    controller or broker of the cluster. Records of metadata transactions count once the transaction
    has ended. The exit status is 5 if the log no longer reaches back to the moment asked for.

    \b
    kafkalog metadata /var/lib/kafka
    kafkalog metadata /var/lib/kafka --topic orders --at 2026-11-22T00:00:00Z
    kafkalog metadata /var/lib/kafka --since 2026-11-21T04:00:00Z
    kafkalog metadata /var/lib/kafka --tree /image/cluster
    """
    from formats.topic_names import CLUSTER_METADATA
    from kafkalog.node.choice import live_partitions
    from kafkalog.node.identity import newest_metadata
    from kafkalog.node.state.metadata import read_metadata

    if sum(map(bool, (topic, configs, match, tree, cat, since))) > 1:
        raise UsageError("Give one of --topic, --configs, --match, --tree, --cat and --since.")
    moment, before = _moment_of(at), _moment_of(since)
    outcome = Outcome()
    targets = outcome.open_all([path], topics=())
    if not targets:
        return outcome.status
    newest = newest_metadata(live_partitions(targets, CLUSTER_METADATA))
    places = [one for one in targets if newest is not None and one.path == newest.log_dir]
    target = (places or targets)[0]
    with byte_progress([target], enabled=not session().is_quiet) as progress:
        found = read_metadata(
            target,
            at=moment,
            since=before,
            defects=outcome.defect,
            progress=progress,
            shown=lambda partition: outcome.shown(partition, LogView.RECOVERED),
        )
    _report_gaps(found, outcome, show.style(), says_when=moment is not None)
    shown = _Shown(found, show, outcome)
    if before is not None:
        shown.write((view.change_view(show.style()), found.changes, "change"))
    elif (node := tree or cat) is not None:
        shown.tree(node, only_leaf=cat is not None)
    elif topic:
        shown.topics(Topics(topic))
    elif configs is not None:
        shown.configs(configs)
    elif match is not None:
        shown.match(match)
    else:
        shown.write((view.topic_view(show.style()), found.topics(), "topic"))
    return outcome.status


def _moment_of(text: str | None) -> Moment | None:
    moment = moment_of(text)
    if moment is not None and moment.partition > 0:
        raise UsageError(f"{text!r}: the metadata log has one partition.", hint="Give 0@OFFSET.")
    return moment


@dataclass
class _Shown:
    """Writes parts of the metadata."""

    found: Metadata
    show: opt.Show
    outcome: Outcome

    def write(self, *sections: Section) -> None:
        write_sections(sections, self.show.format, self.show.limit)

    def topics(self, wanted: Topics) -> None:
        """Write partitions and configs of topics; CSV has only the partitions."""
        known = {one.name: one for one in self.found.topics()}
        chosen = [one for name, one in known.items() if name in wanted]
        for name in wanted:
            if not any(one.name in Topics([name]) for one in chosen):
                self.outcome.miss(f"There is no topic {name!r}.", name, known)
        style = self.show.style()
        topics = (view.topic_view(style), chosen, "topic")
        partitions = (
            view.partition_view(style),
            (each for one in chosen for each in one.partitions),
            "partition",
        )
        configs = (
            view.config_view(style),
            (each for one in chosen for each in self.found.configs(f"TOPIC:{one.name}")),
            "config",
        )
        if self.show.format == Format.CSV:
            self.write(partitions)
        elif self.show.format in (Format.NDJSON, Format.JSON):
            self.write(topics, partitions, configs)
        else:
            self.write(partitions, configs)

    def configs(self, of: str) -> None:
        values = list(self.found.configs(of))
        if not values and of.removeprefix("TOPIC:") not in self.found.image.topics:
            self.outcome.miss(
                f"There is no topic {of!r}, and no other resource of that name has configs."
            )
        self.write((view.config_view(self.show.style()), values, "config"))

    def match(self, text: str) -> None:
        leaves = list(self.found.find(text))
        if not leaves:
            self.outcome.miss(f"No name in the tree has {text!r} in it.")
        self._leaves(leaves)

    def tree(self, path: str, *, only_leaf: bool) -> None:
        from kafkalog.node.state.image_tree import Leaf, tree_lines

        node = self.found.node(path)
        if node is None:
            self.outcome.miss(f"There is no {path!r} in the tree.")
        elif only_leaf and not isinstance(node, Leaf):
            raise UsageError(f"{path} is not a leaf of the tree.", hint="Give --tree.")
        elif not self.show.format.is_screen:
            self._leaves(self.found.leaves(path))
        else:
            for line in islice(tree_lines(node), self.show.limit):
                typer.echo(printable(line))

    def _leaves(self, leaves: Iterable[MetadataLeaf]) -> None:
        self.write((view.leaf_view(self.show.style()), leaves, "entry"))


def _report_gaps(found: Metadata, outcome: Outcome, style: Style, *, says_when: bool) -> None:
    image = found.image
    if says_when:
        last = image.provenance
        when = (
            f"last change {zoned_time(last.timestamp, style)}" if last.offset >= 0 else "no record"
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
    outcome.lacks(bool(image.unknown or image.refused) or not image.is_whole)
