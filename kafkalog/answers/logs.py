"""The objects that `kafkalog.open` returns: a log directory as a mapping of logs, and a log.

Damage reaches the caller in one way. Reading raises the error of the first defect; with `on_event`,
each defect is passed to that function instead, and reading continues with everything that can be
decoded. Notes, and a view that hides nothing, raise no error.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, TypeVar, Unpack

from formats.file_names import FileKind, parse_file_name, partition_of
from formats.late_classes import one_line
from kafkalog.errors import UsageError
from kafkalog.files.log_dir import (
    LogDirListing,
    PartitionDir,
    Segment,
    one_log,
    open_partition,
    open_path,
)
from kafkalog.io.paths import file_system
from kafkalog.io.rows import Rows
from kafkalog.io.times import milliseconds
from kafkalog.log.batches.selection import Selection, segments_of
from kafkalog.log.defects import raise_defect
from kafkalog.model import Batch, Defect, Isolation, Level, LogView, Record, Special, named_member
from kafkalog.node.reader import (
    plan_reading,
    read_batches,
    read_records,
    require_log,
    untold_differences,
)
from kafkalog.node.remote_logs import joined
from kafkalog.node.targets import open_targets
from kafkalog.node.unified_log import LogOffsets, UnifiedLog
from kafkalog.node.view import show_now

if TYPE_CHECKING:
    from kafkalog.answers.verification import Findings
    from kafkalog.errors import OnEvent
    from kafkalog.files.log_dir import AnyPath
    from kafkalog.io.times import Time
    from kafkalog.log.batches.condition import Condition
    from kafkalog.log.batches.selection import ReadPlan
    from kafkalog.node.inventory import PartitionRow
    from kafkalog.node.lookup import Lookup
    from kafkalog.node.outcome import View
    from kafkalog.node.scan import Scan

T = TypeVar("T")


class Wanted(TypedDict, total=False):
    """The keyword arguments that select records: those of `Selection`.

    Times are as for `kafkalog.io.times.milliseconds`, names and patterns text or bytes.
    """

    from_offset: int | None
    to_offset: int | None
    from_time: Time | None
    to_time: Time | None
    from_position: int | None
    limit: int | None
    max_bytes: int | None
    producer_id: int | None
    leader_epoch: int | None
    key: bytes | str | None
    key_regex: bytes | str | re.Pattern[bytes] | None
    value_regex: bytes | str | re.Pattern[bytes] | None
    header: bytes | str | tuple[bytes | str, bytes | str | None] | None
    where: str | Condition | None
    control: bool
    data: bool
    sound: bool
    isolation: Isolation | Literal["read_uncommitted", "read_committed", "log"]
    view: LogView | Literal["recovered", "as-is", "all"]


def open(path: str | os.PathLike[str]) -> LogDir | Log:  # noqa: A001 # as in gzip or tarfile
    """Open a log directory, a partition directory or one segment's `.log` file.

    Nothing is written, and no file stays open.

    Returns:
        A `LogDir` or a `Log`. If you know which, `kafkalog.LogDir(path)` and `kafkalog.Log(path)`
        tell a type checker.

    Raises:
        NotFoundError, UnreadableError: the path does not exist or cannot be listed.
        NotAKafkaFileError: it is nothing that Kafka writes.
        UsageError: it is a file without records, such as an index.
    """
    target = open_path(path)
    if isinstance(target, LogDirListing):
        return LogDir(target)
    require_log(target)
    return Log(path)


class LogDir(Mapping[str, "Log"]):
    """A log directory, an entry of `log.dirs`: its logs by the names of their directories.

    Args:
        path: the directory; listed once, so open it again to see new partitions. A partition that
            cannot be listed is included; using its log raises the error.

    Raises:
        NotFoundError, UnreadableError, NotAKafkaFileError: as `kafkalog.open`.
        UsageError: it is a partition directory or a file.
    """

    def __init__(self, path: AnyPath) -> None:
        found = open_path(path)
        if not isinstance(found, LogDirListing):
            raise UsageError(
                "This is not a log directory.", path=found.path, hint="`kafkalog.Log` opens it."
            )
        self.path = found.path
        paths = [*(partition.path for partition in found.partitions), *found.errors]
        self._paths = {os.path.basename(path): path for path in sorted(paths)}

    def __getitem__(self, name: str) -> Log:
        return Log(self._paths[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)

    @property
    def partitions(self) -> Rows[PartitionRow]:
        """What `ls` lists: the partitions with their sizes and offsets, as a table."""
        from kafkalog.node.inventory import PartitionRow, list_partitions

        return Rows(list_partitions(open_targets([self.path])), PartitionRow)

    def __fspath__(self) -> str:
        return self.path

    def _repr_html_(self) -> str:
        return self.partitions._repr_html_()

    def __repr__(self) -> str:
        logs = f"{len(self)} log{'s'[: len(self) != 1]}"
        return one_line("LogDir", repr(self.path), logs)

    def verify(self, level: Level | str = Level.STANDARD, **options: Any) -> Findings:
        """Check everything in the directory; `kafkalog.verify` describes the arguments."""
        from kafkalog.answers.verification import verify

        return verify(self.path, level=level, **options)


class Log:
    """The log of a partition directory, or of one segment's `.log` file.

    Each call reads the files as they are at that moment, and leaves none of them open.

    Args:
        path: the partition directory or the file.
        tier: tiers that have an older part of the log, or the directories in them that do; it comes
            before the local segments. A log directory among them says by its
            `__remote_log_metadata` which remote segments count; without it their names do.

    Attributes:
        path: the partition directory or the file.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        tier: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
    ) -> None:
        self.path = os.fspath(path)
        self._tiers = [tier] if isinstance(tier, str | os.PathLike) else list(tier)

    def __fspath__(self) -> str:
        return self.path

    def __repr__(self) -> str:
        return one_line("Log", repr(self.path))

    @property
    def name(self) -> str:
        """The name of the directory, such as `orders-0`, or of the single file."""
        return os.path.basename(file_system.absolute(self.path))

    @property
    def topic(self) -> str:
        """The topic; the directory's whole name if that is not a partition's name."""
        return self._directory.topic

    @property
    def partition(self) -> int | None:
        """The partition's number, None if the directory's name has none."""
        return self._directory.partition

    @property
    def _directory(self) -> PartitionDir:
        """The partition directory by its name, not listed: this one, or the one around the file."""
        path = file_system.absolute(self.path)
        if parse_file_name(os.path.basename(path)).kind != FileKind.UNKNOWN:
            path = os.path.dirname(path)
        return PartitionDir(path, partition_of(path), ())

    @property
    def segments(self) -> Rows[Segment]:
        """The live segments by base offset, with their files."""
        if self._tiers:
            return Rows(self._listed().joined().segments, Segment)
        return Rows(segments_of(one_log(open_path(self.path)))[0], Segment)

    def _listed(self) -> PartitionDir:
        """List the partition directory, with its part in the tiers."""
        found = open_partition(self.path)
        if not self._tiers:
            return found
        [whole, *_] = joined([found, *open_targets(self._tiers, by_names=True)], [found.topic])
        assert isinstance(whole, PartitionDir), "the first target stays the first one"
        return whole

    def _readable(self, view: LogView) -> str | View:
        return show_now(self._listed(), view) if self._tiers else self.path

    @property
    def offsets(self) -> LogOffsets:
        """The log's offsets, each with its source: log start, log end, high watermark …."""
        return UnifiedLog(show_now(self._listed()).partition).offsets

    def records(self, *, on_event: OnEvent | None = None, **wanted: Unpack[Wanted]) -> Rows[Record]:
        """Return the records, in log order, read on demand.

        Args:
            on_event: is passed each defect; without it the first one is raised. The records of a
                batch with a wrong checksum come after its defect, as far as they can be decoded,
                unless `sound` is given.
            wanted: which records: `from_offset`, `to_offset`, `from_time`, `to_time`, `limit`,
                `key`, `key_regex`, `isolation`, `view` … as described in
                `kafkalog.log.batches.selection.Selection`.

        Raises:
            CorruptDataError, UnreadableError, LimitExceededError: the records are damaged.
            NotFoundError, UnreadableError, NotAKafkaFileError, UsageError: as `kafkalog.open`.

        Cost:
            A Python object per record: `scan` is some hundred times faster on large logs, and so is
            `to_arrow`.
        """
        selection = selection_of(wanted)
        return self._rows(read_records, Record, selection, on_event)

    def batches(self, *, on_event: OnEvent | None = None, **wanted: Unpack[Wanted]) -> Rows[Batch]:
        """Return the batches, with their checksums computed (`Batch.crc_valid`).

        A batch is selected as a whole if, according to its header, it can hold a wanted record;
        keys, values and headers of records are not examined. Arguments and errors are those of
        `records`.
        """
        selection = selection_of(wanted)
        return self._rows(read_batches, Batch, selection, on_event)

    def _rows(
        self,
        read: Callable[[ReadPlan], Iterator[T | Defect]],
        kind: type[T],
        selection: Selection,
        on_event: OnEvent | None,
    ) -> Rows[T]:
        def plan() -> ReadPlan:
            return plan_reading(self._readable(selection.view), selection)

        planned = [plan()]  # so that errors of the call are raised by the call

        def values() -> Iterator[T]:
            now = planned.pop() if planned else plan()
            return _sound(chain(untold_differences(self.path, now), read(now)), on_event)

        table = partial(self._scan, None, selection, on_event, batches=kind is Batch)
        return Rows(values, kind, table=table)

    def scan(
        self,
        columns: Sequence[str] | None = None,
        *,
        batches: bool = False,
        batch_rows: int = 65536,
        threads: int | None = None,
        on_event: OnEvent | None = None,
        **wanted: Unpack[Wanted],
    ) -> Scan:
        """Return the same records as Arrow columns, read on demand.

        Args:
            columns: names of the columns to build, those of `Scan.schema`; None for all of them.
            batches: read the batches of the log rather than its records.
            batch_rows: maximum number of rows per record batch.
            threads: number of decoding threads; None for one per processor, up to 8.
            on_event: as in `records`.
            wanted: as in `records`.

        Raises:
            UnsupportedError: pyarrow is missing.
            UsageError: a column is unknown.
        """
        return self._scan(
            columns, selection_of(wanted), on_event, batches=batches, batch_rows=batch_rows,
            threads=threads,
        )  # fmt: skip

    def _scan(
        self,
        columns: Sequence[str] | None,
        selection: Selection,
        on_event: OnEvent | None,
        **options: Any,
    ) -> Scan:
        from kafkalog.node.scan import Scan

        path = self._readable(selection.view)
        return Scan(path, columns=columns, selection=selection, on_event=on_event, **options)

    def lookup(
        self,
        *,
        offset: int | None = None,
        timestamp: Time | Special | None = None,
        isolation: Isolation | str = Isolation.READ_UNCOMMITTED,
        high_watermark: int | Literal["end"] | None = None,
    ) -> Lookup:
        """Find where a fetch of an offset starts, or what ListOffsets answers for a timestamp.

        Args:
            offset: an offset; either this or a timestamp.
            timestamp: a time, or one of ListOffsets' special timestamps: `earliest`, `latest`,
                `max-timestamp`, `earliest-local`, `latest-tiered`.
            isolation: how far into the log an answer may lie.
            high_watermark: overrides the checkpoint's: an offset, or `end` for the log end.

        Raises:
            CorruptDataError: the batch that would answer cannot be decoded.
            UsageError: both or neither are given, or the path is not a partition directory.
        """
        from kafkalog.node import lookup

        if (offset is None) == (timestamp is None):
            raise UsageError("Give either an offset or a timestamp.")
        shown = show_now(self._listed()).partition
        log = UnifiedLog(shown, high_watermark=high_watermark)
        bound = named_member(Isolation, isolation)
        if offset is not None:
            return lookup.lookup_offset(log, offset, bound)
        assert timestamp is not None, "one of both is given"
        if isinstance(timestamp, str) and timestamp in tuple(Special):
            return lookup.lookup_special(log, Special(timestamp), bound)
        return lookup.lookup_timestamp(log, milliseconds(timestamp), bound)

    def verify(self, level: Level | str = Level.STANDARD, **options: Any) -> Findings:
        """Check the log; `kafkalog.verify` describes the arguments, and checks several together."""
        from kafkalog.answers.verification import verify

        return verify(self.path, level=level, **options)


def selection_of(wanted: Wanted) -> Selection:
    """Return the selection that keyword arguments describe.

    Raises:
        UsageError: an argument has an invalid value.
        TypeError: there is no such argument.
    """
    named: dict[str, Any] = {**wanted}
    unknown = named.keys() - Wanted.__annotations__.keys()
    if unknown:
        names = ", ".join(Wanted.__annotations__)
        raise TypeError(f"Records cannot be selected by {min(unknown)!r}, only by {names}.")
    for name, convert in _CONVERSIONS.items():
        if named.get(name) is not None:
            named[name] = convert(named[name])
    return Selection(**named)


def _sound(found: Iterator[T | Defect], on_event: OnEvent | None) -> Iterator[T]:
    """Yield everything but defects; pass these on, or raise the first grave one."""
    take = on_event or raise_defect
    for one in found:
        if isinstance(one, Defect):
            take(one)
        else:
            yield one


def _bytes(text: bytes | str) -> bytes:
    return text.encode() if isinstance(text, str) else text


def _pattern(pattern: bytes | str | re.Pattern[bytes]) -> re.Pattern[bytes]:
    if isinstance(pattern, re.Pattern):
        return pattern
    try:
        return re.compile(_bytes(pattern))
    except re.error as error:
        raise UsageError(f"{pattern!r} is no regular expression: {error}.") from error


def _header(header: bytes | str | tuple[bytes | str, bytes | str | None]) -> Any:
    name, value = header if isinstance(header, tuple) else (header, None)
    return _bytes(name), None if value is None else _bytes(value)


def _where(expression: str | Condition) -> Condition:
    from kafkalog.log.batches.condition import Condition

    return Condition(expression) if isinstance(expression, str) else expression


_CONVERSIONS: Final[dict[str, Callable[[Any], Any]]] = {
    "from_time": milliseconds,
    "to_time": milliseconds,
    "key": _bytes,
    "key_regex": _pattern,
    "value_regex": _pattern,
    "header": _header,
    "where": _where,
    "isolation": partial(named_member, Isolation),
    "view": partial(named_member, LogView),
}
