"""The output of `metadata`: topics, partitions, configs, leaves of the tree, and changes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from kafkalog_cli.output import kinds as k
from kafkalog_cli.output.objects import Column, Field, ObjectType
from kafkalog_cli.output.text import time_column, zone_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.node.state.metadata_model import (
        ConfigValue,
        MetadataChange,
        MetadataLeaf,
        Origin,
        PartitionState,
        TopicState,
    )
    from kafkalog_cli.output.objects import Style, View

_RECORD: Final = re.compile(r"\w+[(\[](.*)[)\]]", re.DOTALL)
_FIELD_START: Final = re.compile(r"(?:^|, )(\w+)=")
_PAIRS: Final = {"(": ")", "[": "]", "{": "}"}
_NOTHING: Final = {"[]", "Optional.empty", "null"}
_ORIGIN: Final[tuple[Field[Any], ...]] = (
    Field("offset", k.INT | None, "of the record that changed it last; null if the snapshot has it",
          "origin.offset"),
    Field("timestamp", k.TIME | None, "of that record", "origin.timestamp"),
    Field("committed", k.BOOL, "known to be committed by the quorum", "origin.is_committed"),
)  # fmt: skip

TOPIC: Final = ObjectType[Any](
    "metadata_topic",
    "`metadata`",
    "A topic of the cluster's metadata.",
    Field("topic", k.TEXT, "", "name"),
    Field("topic_id", k.TEXT, ""),
    Field("partitions", k.INT, "", lambda one: len(one.partitions)),
    Field("replication_factor", k.INT, "the largest of its partitions"),
    Field("under_replicated_partitions", k.INT, "partitions with replicas out of sync"),
    Field("leaderless_partitions", k.INT, ""),
    Field("topic_configs", k.OBJECT, "its own, by name", "configs"),
    *_ORIGIN,
)
PARTITION: Final = ObjectType[Any](
    "metadata_partition",
    "`metadata --topic`",
    "A partition of the cluster's metadata: its assignment and its leader.",
    Field("topic", k.TEXT, ""),
    Field("partition", k.INT, ""),
    Field("leader", k.INT, "node id, −1 without one", "state.leader"),
    Field("replicas", k.ARRAY, "node ids", "state.replicas"),
    Field("isr", k.ARRAY, "node ids", "state.isr"),
    Field("adding_replicas", k.ARRAY, "node ids", "state.adding_replicas"),
    Field("removing_replicas", k.ARRAY, "node ids", "state.removing_replicas"),
    Field("elr", k.ARRAY, "eligible leader replicas", "state.elr"),
    Field("last_known_elr", k.ARRAY, "", "state.last_known_elr"),
    Field("directory_ids", k.ARRAY, "directory id of each replica", "state.directories"),
    Field("recovering", k.BOOL, "from an unclean election", "state.is_recovering"),
    Field("leader_epoch", k.INT, "counts elections", "state.leader_epoch"),
    Field("partition_epoch", k.INT, "counts changes", "state.partition_epoch"),
    *_ORIGIN,
)  # fmt: skip
CONFIG: Final = ObjectType[Any](
    "metadata_config",
    "`metadata --configs`, `metadata --topic`",
    "A config of a topic, a broker, a group or another resource.",
    Field("resource", k.TEXT, "`TOPIC:name`, `BROKER:id`, `BROKER` for all brokers, `GROUP:id`, "
          "`CLIENT_METRICS:name`"),
    Field("name", k.TEXT, ""),
    Field("value", k.TEXT, ""),
    *_ORIGIN,
)  # fmt: skip
LEAF: Final = ObjectType[Any](
    "metadata_leaf",
    "`metadata --tree`, `--cat` and `--match`",
    "A leaf of the tree that Kafka's metadata shell shows.",
    Field("path", k.TEXT, ""),
    Field("text", k.TEXT, ""),
    *_ORIGIN,
)
CHANGE: Final = ObjectType[Any](
    "metadata_change",
    "`metadata --since`",
    "A leaf of the tree that differs between two moments.",
    Field("change", k.TEXT, "`added`, `removed` or `changed`"),
    Field("path", k.TEXT, ""),
    Field("before", k.TEXT | None, "at `--since`"),
    Field("after", k.TEXT | None, "now, or at `--at`"),
    *_ORIGIN,
)


def topic_view(style: Style) -> View[TopicState]:
    return TOPIC.view(
        style,
        Column("TOPIC", "topic", least=20),
        Column("TOPIC ID", "topic_id", weight=4),
        Column("PARTITIONS", "partitions"),
        Column("REPLICAS", "replication_factor"),
        Column("UNDER-REPLICATED", "under_replicated_partitions"),
        Column("LEADERLESS", "leaderless_partitions"),
        Column("CONFIGS", lambda one: ", ".join(f"{k}={v}" for k, v in one.configs.items()) or "-",
               below=True),
    )  # fmt: skip


def partition_view(style: Style) -> View[PartitionState]:
    return PARTITION.view(
        style,
        Column("TOPIC", "topic", least=12),
        Column("PARTITION", "partition"),
        Column("LEADER", lambda one: "-" if one.state.leader < 0 else one.state.leader, right=True),
        Column("REPLICAS", lambda one: _nodes(one.state.replicas)),
        Column("ISR", lambda one: _nodes(one.state.isr)),
        Column("EPOCH", "leader_epoch"),
        _changed("CHANGED", style),
        Column("NOTES", _partition_notes, below=True),
    )


def config_view(style: Style) -> View[ConfigValue]:
    return CONFIG.view(
        style,
        Column("RESOURCE", "resource", least=12),
        Column("CONFIG", "name", least=12),
        Column("VALUE", "value", least=12),
        _changed("CHANGED", style),
    )


def leaf_view(style: Style) -> View[MetadataLeaf]:
    return LEAF.view(
        style,
        Column("PATH", "path", least=12, keeps_end=True),
        Column("TEXT", "text", least=24, weight=9),
    )


def change_view(style: Style) -> View[MetadataChange]:
    return CHANGE.view(
        style,
        Column("CHANGE", "change"),
        Column("OFFSET", "offset"),
        _changed("TIME", style),
        Column("PATH", "path", least=12, keeps_end=True),
        Column("WHAT", what_changed, below=True),
    )  # fmt: skip


def what_changed(one: MetadataChange) -> str:
    """Return the fields that differ, or all that say something of a leaf that is new or gone."""
    if one.before is None or one.after is None:
        text = one.after if one.before is None else one.before
        fields = dict(_fields(text or ""))
        told = [f"{name}={value}" for name, value in fields.items() if value not in _NOTHING]
        return ", ".join(told) or text or ""
    before, after = dict(_fields(one.before)), dict(_fields(one.after))
    differing = [
        f"{name}: {before.get(name, '-')} -> {after.get(name, '-')}"
        for name in {**before, **after}
        if before.get(name) != after.get(name)
    ]
    return ", ".join(differing) or f"{one.before} -> {one.after}"


def _fields(text: str) -> Iterator[tuple[str, str]]:
    """Yield the fields of a text such as `Name(a=1, b=[2, 3])`; of any other text nothing."""
    found = _RECORD.fullmatch(text)
    rest = found[1] if found else ""
    while match := _FIELD_START.match(rest):
        end = _end_of_value(rest, match.end())
        yield match[1], rest[match.end() : end]
        rest = rest[end:]


def _end_of_value(text: str, start: int) -> int:
    """Return where a value ends: at the comma before the next field that is in no brackets."""
    closing: list[str] = []
    for at in range(start, len(text)):
        char = text[at]
        if not closing and _FIELD_START.match(text, at):
            return at
        if char in _PAIRS:
            closing.append(_PAIRS[char])
        elif closing and char == closing[-1]:
            closing.pop()
    return len(text)


def _nodes(nodes: tuple[int, ...]) -> str:
    return ",".join(map(str, nodes)) or "-"


def _changed(title: str, style: Style) -> Column[Any]:
    """Return the column that says when something was changed, and if that may not be committed."""

    def cell(one: Any) -> str | None:
        origin: Origin = one.origin
        if origin.timestamp is None:
            return None
        text = time_column(origin.timestamp, style)
        return text if origin.is_committed else f"{text} uncommitted"

    return Column(title, cell, zone="" if style.exact else zone_name(style.zone))


def _partition_notes(one: PartitionState) -> str:
    state = one.state
    notes = [
        f"{what} {_nodes(nodes)}"
        for what, nodes in (
            ("adding", state.adding_replicas),
            ("removing", state.removing_replicas),
            ("ELR", state.elr),
        )
        if nodes
    ]
    return "; ".join([*notes, *(["recovering"] if state.is_recovering else [])])
