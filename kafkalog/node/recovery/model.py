"""Values of a prediction of a broker's next start on a partition: modes, actions and outcome.

Follows `LoadedLogOffsets`, `LogLoader` and `LogManager` of Kafka.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from formats.late_classes import dataclass
from kafkalog.io.wording import counted
from kafkalog.log.producers import EXPIRATION_MS
from kafkalog.node.outcome import early_end

if TYPE_CHECKING:
    from kafkalog.model import EpochEntry, ProducerState


class StartMode(StrEnum):
    """How a broker starts on the log."""

    CLEAN = "clean"
    """After a clean shutdown: only what must be scanned is scanned."""
    UNCLEAN = "unclean"
    """Without a clean shutdown mark: everything from the recovery point on is scanned."""
    FULL = "full"
    """Like unclean, with recovery point 0: everything is scanned."""


class Verdict(StrEnum):
    """The outcome of a start, worst last."""

    NOTHING = "nothing"
    """Only what every start writes, such as the producer snapshot at the log end."""
    TIDY = "tidy"
    """Leftovers are removed, an interrupted swap is completed, or small files are written."""
    REBUILD = "rebuild"
    """Indexes are rewritten; no record is touched."""
    HIDE = "hide"
    """The log ends before batches that stay on disk and are not served."""
    TRUNCATE = "truncate"
    """The log is cut at its end, or dropped."""
    CREATE = "create"
    """An empty log takes the place of one that is gone."""
    STRAY = "stray"
    """The partition is not assigned to the broker: its directory is renamed and not read."""
    REFUSE = "refuse"
    """The log cannot be loaded."""


class Consequence(StrEnum):
    """How far the failure of a log that cannot be loaded reaches."""

    LOG_DIR_OFFLINE = "the log directory goes offline"
    """If a log takes it offline, a thread that comes to another log there may still end the broker:
    it depends on which is first."""
    BROKER_FAILS = "the broker does not start"


@dataclass(frozen=True, slots=True)
class StartConfig:
    """The configs that a start depends on; the defaults are Kafka's.

    Attributes:
        index_interval_bytes: `index.interval.bytes` of the topic.
        segment_index_bytes: `segment.index.bytes` of the topic.
        producer_id_expiration_ms: `producer.id.expiration.ms` of the broker.
        now_ms: the broker's clock; the clock of this machine if None.
    """

    index_interval_bytes: int = 4096
    segment_index_bytes: int = 10 << 20
    producer_id_expiration_ms: int = EXPIRATION_MS
    now_ms: int | None = None


@dataclass(frozen=True, slots=True)
class RemoveFile:
    """A file is deleted; `routine` if healthy brokers leave such files, too."""

    name: str
    why: str
    routine: bool = False


@dataclass(frozen=True, slots=True)
class RenameFile:
    """A file is renamed, replacing any file of that name."""

    name: str
    new_name: str
    why: str


@dataclass(frozen=True, slots=True)
class WriteFile:
    """A file is written; `routine` if every start writes such a file."""

    name: str
    size_bytes: int
    why: str
    routine: bool = False


@dataclass(frozen=True, slots=True)
class TruncateLog:
    """A segment's log is cut.

    Attributes:
        position: where it is cut, and so its new size.
        offset: offset of the first record that is cut off, where the log continues.
        lost_bytes: number of bytes removed.
        lost_records: records in the batches that begin in these bytes, according to their headers.
        why: what was found at that position.
    """

    base_offset: int
    position: int
    offset: int
    lost_bytes: int
    lost_records: int
    why: str


@dataclass(frozen=True, slots=True)
class RebuildIndexes:
    """The indexes of a segment are rebuilt; the counts are those of the new indexes.

    `changed` names the files whose bytes will differ from those on disk (zero padding aside);
    `routine` if none of them is missing, and every start rebuilds them, even sound ones.
    """

    base_offset: int
    offset_index_entries: int
    time_index_entries: int
    transaction_index_entries: int
    changed: tuple[str, ...]
    why: str
    routine: bool = False


@dataclass(frozen=True, slots=True)
class DeleteSegment:
    """A segment is removed: its log and its existing indexes."""

    base_offset: int
    size_bytes: int
    lost_records: int
    why: str


@dataclass(frozen=True, slots=True)
class CreateSegment:
    """An empty segment is created, because no other is there; `routine` if none ever was."""

    base_offset: int
    why: str
    routine: bool = False


@dataclass(frozen=True, slots=True)
class SegmentPart:
    """One of the segments that another is split into, with its range of bytes there."""

    base_offset: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SplitSegment:
    """A segment whose offsets do not fit is replaced by several, each with new indexes."""

    base_offset: int
    parts: tuple[SegmentPart, ...]
    why: str


Action = (
    RemoveFile
    | RenameFile
    | WriteFile
    | TruncateLog
    | RebuildIndexes
    | DeleteSegment
    | CreateSegment
    | SplitSegment
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a log cannot be loaded: Kafka's exception, its meaning and how far it reaches."""

    error: str
    message: str
    consequence: Consequence


@dataclass(frozen=True, slots=True)
class LoadedSegment:
    """A segment as the broker has it after the start.

    `path` and `start` say where its bytes are now (a split segment begins inside a file); path is
    None for a new segment. Entries are counted as Kafka counts them: the padding of a preallocated
    index that is not rebuilt counts. `max_timestamp` comes from the last entry of the time index,
    or from a scan.
    """

    base_offset: int
    path: str | None
    start: int
    size_bytes: int
    offset_index_entries: int
    time_index_entries: int
    transaction_index_entries: int
    max_timestamp: int


@dataclass(frozen=True, slots=True)
class LoadedLog:
    """What the broker knows of the log after the start.

    Attributes:
        log_start_offset: first readable offset.
        log_end_offset: offset that the next record gets.
        recovery_point: offset below which everything is assumed to be flushed.
        first_unstable_offset: first offset of the earliest transaction that is undecided, or that
            was replayed and is above the high watermark of a start; None if none.
        segments: by base offset; never empty.
        producers: their states by producer id.
        leader_epochs: the entries of leader-epoch-checkpoint.
        snapshots: offsets of the producer snapshots that exist then.
    """

    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    first_unstable_offset: int | None
    segments: tuple[LoadedSegment, ...]
    producers: tuple[ProducerState, ...]
    leader_epochs: tuple[EpochEntry, ...]
    snapshots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Behind:
    """The batches behind a log end that is too early; they stay on disk.

    Nobody can read them until records are appended after them, which get the same offsets.

    Attributes:
        path: the log of the active segment.
        position: where the first of them begins.
        offset: the log end offset.
        records: their number, according to the headers of the batches.
    """

    path: str
    base_offset: int
    position: int
    offset: int
    records: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class PredictedStart:
    """What the next start would do to one partition directory.

    Attributes:
        mode: how the broker starts.
        recovery_point: from the checkpoint, or assumed in its place.
        log_start_checkpoint: from the checkpoint of log start offsets, 0 without an entry.
        assumptions: what could not be read and was assumed, as phrases.
        notes: what the start would not notice or report, but an operator should know.
        actions: the actions in order, up to the refusal if there is one.
        refusal: why the log cannot be loaded, None if it can.
        loaded: the log after the start, None if it is refused.
        stray: why the broker makes the directory a stray once it is loaded; None if it keeps it,
            or if that is unknown.
        behind: the batches that the start leaves behind the log end; None if there are none.
    """

    path: str
    mode: StartMode
    recovery_point: int
    log_start_checkpoint: int
    assumptions: tuple[str, ...]
    notes: tuple[str, ...]
    actions: tuple[Action, ...]
    refusal: Refusal | None
    loaded: LoadedLog | None
    stray: str | None = None
    behind: Behind | None = None

    @property
    def cuts(self) -> tuple[TruncateLog | DeleteSegment, ...]:
        """The actions that lose data."""
        return tuple(
            action for action in self.actions if isinstance(action, TruncateLog | DeleteSegment)
        )

    @property
    def lost_records(self) -> int:
        """Number of records that are cut off, by the headers of their batches."""
        return sum(cut.lost_records for cut in self.cuts)

    @property
    def hidden_records(self) -> int:
        """Number of records behind the log end, by the headers of their batches."""
        return 0 if self.behind is None else self.behind.records

    @property
    def lost_bytes(self) -> int:
        """Bytes of logs that are cut off."""
        return sum(
            cut.lost_bytes if isinstance(cut, TruncateLog) else cut.size_bytes for cut in self.cuts
        )

    @property
    def rebuilt(self) -> tuple[int, ...]:
        """Base offsets of the segments with an index that will change."""
        return tuple(
            action.base_offset
            for action in self.actions
            if isinstance(action, RebuildIndexes) and action.changed and not action.routine
        )

    @property
    def verdict(self) -> Verdict:
        if self.refusal is not None:
            return Verdict.REFUSE
        if self.stray is not None:
            return Verdict.STRAY
        return self.change

    @property
    def change(self) -> Verdict:
        """The change to the log and its files, wherever they end up."""
        if self.cuts:
            return Verdict.TRUNCATE
        if self.behind is not None:
            return Verdict.HIDE
        if self.rebuilt or any(isinstance(action, SplitSegment) for action in self.actions):
            return Verdict.REBUILD
        return Verdict.TIDY if self.tidying else Verdict.NOTHING

    @property
    def tidying(self) -> tuple[Action, ...]:
        """The actions on files that hold no records, without the routine ones."""
        return tuple(
            action
            for action in self.actions
            if isinstance(action, RenameFile)
            or (isinstance(action, RemoveFile | WriteFile | CreateSegment) and not action.routine)
        )


class StartRefusedError(Exception):
    """Kafka's loader would throw; it becomes the `Refusal` that ends a prediction.

    Args:
        error: simple name of Kafka's exception.
        message: its message, without paths.
        is_storage: whether it is an I/O error, which takes the log directory offline.
    """

    def __init__(self, error: str, message: str, *, is_storage: bool = False) -> None:
        super().__init__(message)
        self.error = error
        self.message = message
        self.is_storage = is_storage

    def refusal(self) -> Refusal:
        reach = Consequence.LOG_DIR_OFFLINE if self.is_storage else Consequence.BROKER_FAILS
        return Refusal(self.error, self.message, reach)


_NOTHING: Final = "nothing"
INCOMPLETE: Final = "the last batch is not complete"  # why a log is cut


def start_line(predicted: PredictedStart) -> str:
    """Describe the outcome of a start in one line."""
    if predicted.refusal is not None:
        return refusal_line(predicted.refusal)
    change = _change_line(predicted)
    return change if predicted.stray is None else stray_line(predicted.stray, change)


def stray_line(reason: str, change: str = _NOTHING) -> str:
    """Describe in one line why a directory becomes a stray, and what changes before that."""
    line = f"rename the directory to …-stray: {reason}"
    return line if change == _NOTHING else f"{change}; then {line}"


def _change_line(predicted: PredictedStart) -> str:
    verdict = predicted.change
    if verdict == Verdict.TRUNCATE:
        return _truncation_line(predicted)
    if predicted.behind is not None:
        return end_line(predicted.behind)
    if verdict == Verdict.REBUILD:
        return f"rebuild the indexes of {counted(len(set(predicted.rebuilt)), 'segment')}"
    if verdict == Verdict.TIDY:
        return f"clean up: {_tidying_words(predicted)}"
    return _NOTHING


def end_line(behind: Behind) -> str:
    """Describe in one line where a log ends too early."""
    return early_end(f"the log at offset {behind.offset}", behind.records, behind.size_bytes)


def refusal_line(refusal: Refusal) -> str:
    """Describe in one line why a log or a log directory is refused."""
    return f"refuse: {refusal.error}: {refusal.message}; {refusal.consequence}"


def _tidying_words(predicted: PredictedStart) -> str:
    actions = predicted.tidying
    removed = sum(isinstance(action, RemoveFile) for action in actions)
    renamed = sum(isinstance(action, RenameFile) for action in actions)
    words = []
    if removed:
        words.append(f"remove {counted(removed, 'file')}")
    if renamed:
        words.append(f"complete a swap of {counted(renamed, 'file')}")
    words += sorted({f"write {action.name}" for action in actions if isinstance(action, WriteFile)})
    words += ["create an empty segment" for action in actions if isinstance(action, CreateSegment)]
    return ", ".join(words)


def _truncation_line(predicted: PredictedStart) -> str:
    assert predicted.loaded, "a log that is cut is loaded"
    end = predicted.loaded.log_end_offset
    segments = sum(isinstance(cut, DeleteSegment) for cut in predicted.cuts)
    size = counted(predicted.lost_bytes, "byte")
    if segments:
        size += f", with {counted(segments, 'whole segment')}"
    if not predicted.lost_records and all(cut.why == INCOMPLETE for cut in predicted.cuts):
        # "Losing 0 records" reads as no loss: consumers may have read what the batch had.
        return f"truncate to offset {end}, dropping an incomplete batch ({size})"
    return f"truncate to offset {end}, losing {counted(predicted.lost_records, 'record')} ({size})"
