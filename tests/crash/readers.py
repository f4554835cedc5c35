"""What each reader shows of a log directory as the next start would leave it, before that start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafkalog.answers.search.run import find
from kafkalog.errors import Listener
from kafkalog.files.log_dir import open_partition
from kafkalog.io.engine import LocalEngine
from kafkalog.model import Isolation, Record, Special
from kafkalog.node.inventory import list_partitions, list_segments
from kafkalog.node.lookup import lookup_special
from kafkalog.node.reader import read_records
from kafkalog.node.scan import Scan
from kafkalog.node.unified_log import UnifiedLog
from kafkalog.node.view import show
from kafkalog.tables import Request, TableName, plan_splits, read_split
from kafkalog.tables.datasets.arrow_dataset import Dataset
from kafkalog.tables.datasets.model import Tables
from kafkalog.tables.profiles.run import profile_logs
from kafkalog.tables.schemas import table_schema

if TYPE_CHECKING:
    from pathlib import Path

    from tests.crash.served import Served


@dataclass(frozen=True)
class Seen:
    """What readers show of one partition."""

    dumped: tuple[Any, ...]
    scanned: tuple[tuple[int, bytes | None, bytes | None], ...]
    exported: tuple[tuple[int, bytes | None, bytes | None], ...]
    data: frozenset[int]
    aborted: frozenset[tuple[int, int, int]]
    listed: tuple[int | None, int | None]
    found: tuple[int | None, int | None]
    segments: int
    searched: tuple[tuple[int, bytes | None, bytes | None], ...]
    tabled: tuple[tuple[int, bytes | None, bytes | None], ...]
    profiled: tuple[int, int | None, int | None]

    def require(self, wanted: Served, words: str) -> None:
        """Fail unless the readers show what the log serves once it is loaded."""
        within = range(wanted.start, wanted.end)
        assert tuple(one for one in self.dumped if one[0] in within) == wanted.records, words
        assert all(one[0] < wanted.end for one in self.dumped), words
        pairs = tuple((offset, key, value) for offset, _, key, value, _ in wanted.records)
        assert tuple(one for one in self.scanned if one[0] in within) == pairs, words
        assert self.exported == tuple(one for one in pairs if one[0] in self.data), words
        data = tuple(one for one in pairs if one[0] in self.data)
        assert self.searched == data, words
        assert self.tabled == data, words
        offsets = [offset for offset, _, _ in data]
        bounds = min(offsets, default=None), max(offsets, default=None)
        assert self.profiled == (len(data), *bounds), words
        # An entry below the log's start counts for nobody.
        hidden = {entry for entry in self.aborted if entry[2] >= wanted.start}
        assert hidden == wanted.aborted, words
        assert self.found == (wanted.start, wanted.end), words
        if self.segments:
            assert self.listed == (wanted.start, wanted.end), words


def seen(path: Path) -> Seen:
    """Ask all readers about a partition directory, without writing anything."""
    partition = open_partition(str(path))
    shown = show(partition)
    log = UnifiedLog(shown.partition)
    dumped = [row for row in read_records(shown) if isinstance(row, Record)]
    names = ("offset", "key", "value")
    scanned = Scan(shown, columns=names, on_event=lambda _: None).to_table().to_pylist()
    schema = table_schema(TableName.RECORDS, names)
    request = Request(isolation=Isolation.LOG)
    splits = plan_splits([str(path)], request, Listener())
    exported = [row for split in splits for one in read_split(split, schema, Listener())
                for row in one.to_pylist()]  # fmt: skip
    (listed,) = list_partitions([partition])
    ends = (
        lookup_special(log, Special.EARLIEST),
        lookup_special(log, Special.LATEST, Isolation.LOG),
    )
    found = find(path, data=True, on_event=Listener().hear)
    table = Dataset(
        Tables((str(path),), isolation=Isolation.LOG, listener=Listener()),
        TableName.RECORDS,
    )
    (profile,) = profile_logs(LocalEngine(1), [str(path)], request, listener=Listener())
    return Seen(
        dumped=tuple((r.offset, r.timestamp, r.key, r.value, r.headers) for r in dumped),
        scanned=tuple((row["offset"], row["key"], row["value"]) for row in scanned),
        exported=tuple((row["offset"], row["key"], row["value"]) for row in exported),
        data=frozenset(row.offset for row in dumped if not row.batch.is_control),
        aborted=frozenset((e.producer_id, e.first_offset, e.last_offset)
                          for e in log.aborted_transactions()),
        listed=(listed.log_start_offset, listed.log_end_offset),
        found=(ends[0].offset, ends[1].offset),
        segments=len(list(list_segments([partition]))),
        searched=tuple((one.record.offset, one.record.key, one.record.value) for one in found),
        tabled=tuple((row["offset"], row["key"], row["value"])
                     for row in table.to_table(columns=list(names)).to_pylist()),
        profiled=(profile.records, profile.first_offset, profile.last_offset),
    )  # fmt: skip
