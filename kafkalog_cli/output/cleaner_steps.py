"""The output of `compact --explain`: which log is next, the map, each batch, and every rename."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kafkalog.compaction.explain import ExplainedGroup, FinishedMap, MapStep, cleaner_state
from kafkalog.compaction.model import Action, CleanedBatch
from kafkalog.errors import KafkaLogError
from kafkalog.paths import file_system
from kafkalog.storage import Step, StepKind
from kafkalog.wording import counted, utc_text
from kafkalog_cli.maintenance import print_heading
from kafkalog_cli.output.objects import (
    ARRAY,
    BOOL,
    INT,
    OBJECT,
    RATIO,
    SIZE,
    TEXT,
    TIME,
    Column,
    Field,
    ObjectType,
    size_text,
)
from kafkalog_cli.output.text import Tone
from kafkalog_cli.output.writer import Format, Writer

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.compaction import Candidate
    from kafkalog.compaction.run import CompactionRun
    from kafkalog_cli.outcome import Outcome
    from kafkalog_cli.output.objects import Style, View


@dataclass(frozen=True)
class Turn:
    """A candidate, and when it has its turn; None if it is skipped."""

    candidate: Candidate
    turn: int | None

    @property
    def name(self) -> str:
        """Name of the partition's directory."""
        return _name(self.candidate)


@dataclass(frozen=True)
class Of:
    """A step of a partition's cleaning, and its number among steps of its kind."""

    candidate: Candidate
    found: Any
    number: int = 0

    @property
    def name(self) -> str:
        """Name of the partition's directory."""
        return _name(self.candidate)


def _name(candidate: Candidate) -> str:
    return os.path.basename(file_system.absolute(candidate.partition.path))


def _of_dirty_part(attribute: str) -> Callable[[Turn], Any]:
    return lambda one: one.candidate.cleanable and getattr(one.candidate.cleanable, attribute)


def _state(one: Turn) -> str:
    return cleaner_state(one.candidate.partition)


_TONES: Final = {
    Action.REWRITTEN: Tone.CHANGED,
    Action.EMPTIED: Tone.CHANGED,
    Action.DROPPED: Tone.REMOVED,
}
_PATH: Final[Field[Of]] = Field(
    "path", TEXT, "the partition's directory", "candidate.partition.path"
)

CANDIDATE: Final = ObjectType[Turn](
    "compaction_candidate",
    "`compact --explain`",
    "A partition that a cleaner considers.",
    Field("path", TEXT, "", "candidate.partition.path"),
    Field("turn", INT | None, "1 is cleaned first"),
    Field("ratio", RATIO | None, "dirty ratio", _of_dirty_part("ratio")),
    Field("threshold", RATIO, "`min.cleanable.dirty.ratio`, to be exceeded",
          "candidate.config.min_cleanable_dirty_ratio"),
    Field("clean_bytes", SIZE | None, "before the dirty part",
          _of_dirty_part("clean_bytes")),
    Field("cleanable_bytes", SIZE | None, "of the dirty part; their share of clean and "
                                          "cleanable bytes is the dirty ratio",
          _of_dirty_part("cleanable_bytes")),
    Field("overdue_ms", INT, "past `max.compaction.lag.ms`: above 0 the ratio does not count",
          "candidate.delay_ms"),
    Field("state", TEXT, "of an interrupted cleaner: `cleaning` (`.cleaned` files), `swapping` "
                         "(`.swap` files) or `idle`",
          _state),
    Field("skipped", TEXT | None, "why it is skipped",
          "candidate.why_skipped"),
)  # fmt: skip
MAP_STEP: Final = ObjectType[Of](
    "compaction_map_step",
    "`compact --explain`",
    "The offset map after a segment of the dirty part.",
    _PATH,
    Field("base_offset", INT, "of the segment", "found.base_offset"),
    Field("size", SIZE, "of its log", "found.size_bytes"),
    Field("keys", INT, "so far", "found.keys"),
    Field("slots", INT, "in `--map-memory`, or in 128 MiB",
          "found.slots"),
    Field("load", RATIO, "share of slots in use", "found.load"),
    Field("is_full", BOOL, "the map took no more keys", "found.is_full"),
)  # fmt: skip
MAP: Final = ObjectType[Of](
    "compaction_map",
    "`compact --explain`",
    "The offset map of a pass: the latest offset of each key of the dirty part.",
    _PATH,
    Field("keys", INT, "", "found.keys"),
    Field("load_factor", RATIO, "how far a map is filled", "found.load_factor"),
    Field("kafka_bytes", SIZE, "of Kafka's map: 24 per slot",
          "found.kafka_bytes"),
    Field("own_bytes", SIZE | None, "of the map of `compact`; null if limited", "found.size_bytes"),
)  # fmt: skip
GROUP: Final = ObjectType[Of](
    "compaction_group",
    "`compact --explain`",
    "Segments that become one. Its batches and steps follow.",
    _PATH,
    Field("base_offset", INT, "of the new segment", "found.group.base_offset"),
    Field("sources", ARRAY, "their base offsets", "found.group.sources"),
    Field("bytes_before", SIZE, "their logs", "found.group.bytes_before"),
    Field("bytes_after", SIZE, "of its log", "found.group.bytes_after"),
    Field("batches", OBJECT, "by fate: `copied`, `rewritten`, `emptied`, `dropped`",
          lambda one: {action.value: one.found.actions[action] for action in Action}),
    Field("left_out", INT, "batches beyond `--limit`",
          lambda one: sum(one.found.actions.values()) - len(one.found.batches)),
)  # fmt: skip
BATCH: Final = ObjectType[CleanedBatch](
    "compaction_batch",
    "`compact --explain`",
    "A batch, and what becomes of it.",
    Field("path", TEXT, "the `.log`", "batch.path"),
    Field("position", INT, "", "batch.position"),
    Field("base_offset", INT, "", "batch.base_offset"),
    Field("last_offset", INT, "", "batch.last_offset"),
    Field("action", TEXT, "`copied`, `rewritten`, `emptied` (only its header stays), `dropped`"),
    Field("records", INT, ""),
    Field("kept", INT, ""),
    Field("dropped", OBJECT, "by reason",
          lambda one: {why.value: count for why, count in one.dropped.items()}),
    Field("bytes_before", SIZE, "", "batch.size_bytes"),
    Field("bytes_after", SIZE, ""),
    Field("delete_horizon", TIME | None, "from when its tombstones or marker may go", "horizon_ms"),
    Field("sets_horizon", BOOL, "this pass sets it"),
    Field("why", TEXT, "", lambda one: why(one)),  # noqa: PLW0108 # defined below
)  # fmt: skip
STEP: Final = ObjectType[Of](
    "compaction_step",
    "`compact --explain`",
    "A step that puts a new segment in the place of the old ones.",
    _PATH,
    Field("step", INT, "from 1", "number"),
    Field("action", TEXT, "`create`, `sync`, `rename`, `remove`, `sync-directory`", "found.kind"),
    Field("name", TEXT | None, "null for the directory",
          lambda one: one.found.path or None),
    Field("new_name", TEXT | None, "of a rename", "found.new_path"),
)  # fmt: skip


def why(found: CleanedBatch) -> str:
    """Return why a batch stays, changes or goes."""
    reasons = [f"{count} {why.value.replace('_', ' ')}" for why, count in found.dropped.items()]
    lost = ", ".join(reasons)
    if found.action == Action.DROPPED:
        return f"every record goes: {lost}" if lost else "it has no record, and nobody needs it"
    if found.action == Action.EMPTIED:
        producer = found.batch.producer_id
        need = f"the last batch of producer {producer}" if found.is_last_of_producer else (
            "the last batch before the part that is not cleaned"
        )  # fmt: skip
        return f"every record goes, the header stays: it is {need}"
    words = [lost] if lost else []
    if found.sets_horizon:
        what = "marker" if found.batch.is_control else "tombstones"
        words.append(f"its {what} may go from {utc_text(found.horizon_ms or 0)} on")
    elif found.horizon_ms is not None and found.action == Action.COPIED:
        words.append(f"its delete horizon {utc_text(found.horizon_ms)} has not come")
    return "; ".join(words) or "no later record has one of its keys"


def _candidates_view(style: Style) -> View[Turn]:
    return CANDIDATE.view(
        style,
        Column("PARTITION", lambda one: one.name, fold=True),
        Column("TURN", "turn"),
        Column("RATIO", "ratio"),
        Column("THRESHOLD", "threshold"),
        Column("CLEAN", "clean_bytes"),
        Column("DIRTY", "cleanable_bytes"),
        Column(
            "STATE",
            "state",
            tone=lambda one: None if _state(one) == "idle" else Tone.DOUBTFUL,
        ),
        Column("SKIPPED", "skipped", fold=True, below=True),
    )


def _map_view(style: Style) -> View[Of]:
    return MAP_STEP.view(
        style,
        Column("SEGMENT", "base_offset"),
        Column("SIZE", "size"),
        Column("KEYS", "keys"),
        Column("SLOTS", "slots"),
        Column("LOAD", lambda one: f"{100 * one.found.load:.4g}%", right=True),
        Column("NOTES", lambda one: "full" if one.found.is_full else ""),
    )


def batch_view(style: Style) -> View[CleanedBatch]:
    return BATCH.view(
        style,
        Column("OFFSETS", lambda one: f"{one.batch.base_offset}-{one.batch.last_offset}"),
        Column("FATE", "action", tone=lambda one: _TONES.get(one.action)),
        Column("KEPT", lambda one: f"{one.kept}/{one.records}", right=True),
        Column("BEFORE", "bytes_before"),
        Column("AFTER", "bytes_after"),
        Column("WHY", "why", fold=True, below=True),
    )


def show_explained(
    run: CompactionRun, form: Format, outcome: Outcome, style: Style, limit: int, *, quiet: bool
) -> None:
    """Show which partitions are cleaned in which order, and how."""
    from kafkalog_cli.output.progress import byte_progress

    taken = {id(one): turn for turn, one in enumerate(run.wanted, 1)}
    turns = [Turn(one, taken.get(id(one))) for one in run.candidates]
    view: View[Any] = batch_view(style) if form == Format.CSV else _candidates_view(style)
    show = _Table(outcome, style) if form == Format.TABLE else None
    targets = [one.partition for one in run.wanted] * 3  # each log is read up to three times
    with Writer(view, form, outcome.defect) as writer, byte_progress(
        targets, enabled=not quiet
    ) as progress:  # fmt: skip
        if form != Format.CSV:
            for turn in turns:
                writer.write(turn)
        writer.flush()
        for candidate, found in run.explain(limit, progress):
            if isinstance(found, KafkaLogError):
                outcome.hear(found)
            elif show is not None:
                show.show(candidate, found)
            else:
                _write(writer, form, candidate, found)


def _write(
    writer: Writer[Any], form: Format, candidate: Candidate,
    found: MapStep | FinishedMap | ExplainedGroup,
) -> None:  # fmt: skip
    """Write what was found as objects; in CSV, only batches."""
    if isinstance(found, ExplainedGroup):
        rows = [] if form == Format.CSV else [GROUP.row(Of(candidate, found))]
        rows += [BATCH.row(one) for one in found.batches]
        if form != Format.CSV:
            rows += [STEP.row(Of(candidate, one, n)) for n, one in enumerate(found.steps, 1)]
        for row in rows:
            writer.write_row(row)
    elif form != Format.CSV:
        kind = MAP_STEP if isinstance(found, MapStep) else MAP
        writer.write_row(kind.row(Of(candidate, found)))


class _Table:
    """Shows the steps of each partition for people."""

    def __init__(self, outcome: Outcome, style: Style) -> None:
        self._outcome = outcome
        self._style = style
        self._steps: list[Of] = []
        self._has_steps = False

    def show(self, candidate: Candidate, found: MapStep | FinishedMap | ExplainedGroup) -> None:
        """Show what was found; the segments of a map once it is finished."""
        if isinstance(found, MapStep):
            self._steps.append(Of(candidate, found))
        elif isinstance(found, FinishedMap):
            self._map(candidate, found)
        else:
            self._group(found)

    def _map(self, candidate: Candidate, found: FinishedMap) -> None:
        print_heading(["", f"{_name(candidate)}: the offset map, latest offset by key"])
        with Writer(_map_view(self._style), Format.TABLE, self._outcome.defect) as writer:
            for step in self._steps:
                writer.write(step)
        self._steps = []
        kafkas = size_text(found.kafka_bytes, self._style)
        words = (
            f"{counted(found.keys, 'key')}: {kafkas} in Kafka's map (24 bytes per slot, at most "
        )
        words += f"{100 * found.load_factor:g}% of the slots in use)"
        if found.size_bytes is not None:
            words += f", {size_text(found.size_bytes, self._style)} here"
        print_heading([words])

    def _group(self, found: ExplainedGroup) -> None:
        group = found.group
        sources = ", ".join(map(str, group.sources))
        before, after = (
            size_text(one, self._style) for one in (group.bytes_before, group.bytes_after)
        )
        fates = ", ".join(f"{n} {one.value}" for one in Action if (n := found.actions[one]))
        title = f"new segment {group.base_offset} of {sources}: from {before} to {after}"
        print_heading(["", f"{title}; batches: {fates or 'none'}"])
        with Writer(batch_view(self._style), Format.TABLE, self._outcome.defect) as writer:
            for one in found.batches:
                writer.write(one)
        lines = []
        if left := sum(found.actions.values()) - len(found.batches):
            lines.append(f"{counted(left, 'batch')} more (--limit)")
        if self._has_steps:
            lines.append(f"put in place like the one before, in {len(found.steps)} steps")
        else:
            self._has_steps = True
            lines += map(_step_words, found.steps)
        print_heading(lines)


def _step_words(step: Step) -> str:
    if step.kind == StepKind.SYNC_DIRECTORY:
        return "  sync the directory"
    arrow = f" -> {step.new_path}" if step.new_path else ""
    return f"  {step.kind.value} {step.path}{arrow}"
