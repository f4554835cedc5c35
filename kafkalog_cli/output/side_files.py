"""The output of `dump-segment` for files next to logs: indexes, checkpoints and snapshots."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from formats.file_names import FileKind
from kafkalog_cli.output import kinds as k
from kafkalog_cli.output.objects import Column, Field, ObjectType
from kafkalog_cli.output.text import dumps

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kafkalog.files.log_dir import FileEntry
    from kafkalog.log.batches.selection import Selection
    from kafkalog_cli.output.objects import Style, View


class Entry(NamedTuple):
    """An entry and its file."""

    path: str
    entry: Any


class Fact(NamedTuple):
    """A name and its value in a small file."""

    path: str
    file: FileKind
    name: str
    value: object


_PATH: Final[Field[Any]] = Field("path", k.TEXT, "as given or found")


def _of_entry(name: str, kind: k.Kind, meaning: str) -> Field[Entry]:
    return Field(name, kind, meaning, f"entry.{name}")


def _of_last_batch(name: str, meaning: str) -> Field[Entry]:
    """Return a field of a producer that is null in objects if no batch of it is known."""
    kind = k.Kind(
        "integer or null",
        cell=lambda state, _: getattr(state, name),
        right=True,
        to_json=lambda state, _: getattr(state, name) if state.last_offset >= 0 else None,
    )
    return Field(name, kind, meaning, "entry")


_ORDINAL: Final = _of_entry("entry", k.INT, "from 0")

OFFSET_INDEX_ENTRY: Final = ObjectType[Entry](
    "offset_index_entry",
    "`dump-segment FILE.index`",
    "An entry of an offset index.",
    _PATH,
    _ORDINAL,
    _of_entry("offset", k.INT, "last offset of the batch, absolute"),
    _of_entry("position", k.INT, "in the `.log`"),
)
TIME_INDEX_ENTRY: Final = ObjectType[Entry](
    "time_index_entry",
    "`dump-segment FILE.timeindex`",
    "An entry of a time index.",
    _PATH,
    _ORDINAL,
    _of_entry("timestamp", k.RECORD_TIME, "largest timestamp so far"),
    _of_entry("offset", k.INT, "of its record or batch, absolute"),
)
ABORTED_TRANSACTION: Final = ObjectType[Entry](
    "aborted_transaction",
    "`dump-segment FILE.txnindex`",
    "An entry of a transaction index.",
    _PATH,
    _of_entry("version", k.INT, "0"),
    _of_entry("producer_id", k.INT, ""),
    _of_entry("first_offset", k.INT, ""),
    _of_entry("last_offset", k.INT, "its marker"),
    _of_entry("last_stable_offset", k.INT, "after the marker"),
)
PRODUCER_STATE: Final = ObjectType[Entry](
    "producer_state",
    "`dump-segment FILE.snapshot`",
    "A producer in a producer snapshot.",
    _PATH,
    _of_entry("producer_id", k.INT, ""),
    _of_entry("producer_epoch", k.INT, ""),
    _of_entry("coordinator_epoch", k.INT, "of the last marker, −1 if none"),
    _of_last_batch("first_sequence", "of the last batch"),
    _of_last_batch("last_sequence", "of the last batch"),
    _of_last_batch("last_offset", "of the last batch"),
    _of_entry("offset_delta", k.INT, "of the last batch: from its first to its last record"),
    _of_entry("last_timestamp", k.RECORD_TIME, "of the last batch or marker"),
    _of_entry("current_txn_first_offset", k.INT | None, "of the open transaction"),
)  # fmt: skip
CHECKPOINT_ENTRY: Final = ObjectType[Entry](
    "checkpoint_entry",
    "`dump-segment` of an offset checkpoint",
    "A line of `replication-offset-checkpoint` and the like.",
    _PATH,
    _of_entry("topic", k.TEXT, ""),
    _of_entry("partition", k.INT, ""),
    _of_entry("offset", k.INT, "the file's name says which"),
)
LEADER_EPOCH: Final = ObjectType[Entry](
    "leader_epoch",
    "`dump-segment leader-epoch-checkpoint`",
    "A line of `leader-epoch-checkpoint`.",
    _PATH,
    _of_entry("leader_epoch", k.INT, ""),
    _of_entry("start_offset", k.INT, ""),
)
PROPERTY: Final = ObjectType[Fact](
    "property",
    "`dump-segment` of `meta.properties`, `partition.metadata`, `quorum-state` and other small "
    "files",
    "A name and its value in a small file.",
    _PATH,
    Field("file", k.TEXT, "its kind"),
    Field("name", k.TEXT, ""),
    Field("value", k.ANY, "as in the file"),
)
_TYPES: Final = {
    FileKind.OFFSET_INDEX: (OFFSET_INDEX_ENTRY, "entry offset position"),
    FileKind.TIME_INDEX: (TIME_INDEX_ENTRY, "entry timestamp offset"),
    FileKind.TRANSACTION_INDEX: (
        ABORTED_TRANSACTION,
        "producer_id first_offset last_offset last_stable_offset",
    ),
    FileKind.PRODUCER_SNAPSHOT: (
        PRODUCER_STATE,
        (
            "producer_id producer_epoch last_sequence last_offset last_timestamp "
            "coordinator_epoch current_txn_first_offset"
        ),
    ),
    FileKind.OFFSET_CHECKPOINT: (CHECKPOINT_ENTRY, "topic partition offset"),
    FileKind.LEADER_EPOCH_CHECKPOINT: (LEADER_EPOCH, "leader_epoch start_offset"),
}
"""The type of a file's entries, and the fields that tables show."""


def side_file_view(kind: FileKind, style: Style) -> View[Any]:
    if kind not in _TYPES:
        return PROPERTY.view(
            style,
            Column("NAME", "name", least=12),
            Column("VALUE", _value, least=24, weight=9),
        )
    entry_type, names = _TYPES[kind]
    columns = [Column[Entry](name.replace("_", " ").upper(), name) for name in names.split()]
    return entry_type.view(style, *columns)


def side_file_content(entry: FileEntry, selection: Selection) -> Iterable[Entry | Fact]:
    from kafkalog.files.text_files import read_facts

    path, kind = entry.path, entry.name.kind
    if kind in _TYPES:
        found = selected_entries(_entries(path, kind), selection)
        return (Entry(path, one) for one in found)
    facts = islice(read_facts(path, kind).items(), selection.limit)
    return [Fact(path, kind, name, value) for name, value in facts]


def selected_entries(values: Iterable[Any], selection: Selection) -> Iterator[Any]:
    return islice((value for value in values if _in_range(value, selection)), selection.limit)


def _in_range(value: Any, selection: Selection) -> bool:
    """Return whether an entry is wanted; one without an offset always is."""
    for fact, low, high in (
        (getattr(value, "offset", None), selection.from_offset, selection.to_offset),
        (getattr(value, "timestamp", None), selection.from_time, selection.to_time),
    ):
        if fact is None:
            continue
        if (low is not None and fact < low) or (high is not None and fact >= high):
            return False
    return True


def index_entries(path: str, kind: FileKind) -> Iterator[Any]:
    from kafkalog.files.indexes import OffsetIndex, TimeIndex, read_aborted_transactions

    if kind == FileKind.TRANSACTION_INDEX:
        yield from read_aborted_transactions(path)
        return
    with OffsetIndex(path) if kind == FileKind.OFFSET_INDEX else TimeIndex(path) as index:
        yield from index.entries()


def _entries(path: str, kind: FileKind) -> Iterable[Any]:
    from kafkalog.files.text_files import read_leader_epochs, read_offset_checkpoint
    from kafkalog.log.producers import read_producer_snapshot

    if kind == FileKind.PRODUCER_SNAPSHOT:
        return read_producer_snapshot(path)
    if kind == FileKind.OFFSET_CHECKPOINT:
        return read_offset_checkpoint(path)
    if kind == FileKind.LEADER_EPOCH_CHECKPOINT:
        return read_leader_epochs(path)
    return index_entries(path, kind)


def _value(fact: Fact) -> str:
    return fact.value if isinstance(fact.value, str) else dumps(fact.value)
