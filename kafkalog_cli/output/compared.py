"""The output of `diff`: how copies of partitions relate, and the records that differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kafkalog.check.comparison.model import ALIKE, Comparison, Verdict
from kafkalog.io.wording import counted
from kafkalog_cli.output import kinds as k
from kafkalog_cli.output.objects import Column, Field, ObjectType, topic_and_partition
from kafkalog_cli.output.text import bytes_cell, bytes_value, time_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalog.check.comparison.model import FieldDifference, RecordDifference, Side
    from kafkalog_cli.output.objects import Style, View


def _json(value: Any, style: Style) -> object:
    """Return a value of a field or a record for JSON: bytes in their form, headers as objects."""
    if isinstance(value, bytes):
        return bytes_value(value, style.value_form)
    if isinstance(value, tuple | list):
        return [
            # A tuple inside of a list is a header.
            _json({"key": one[0], "value": one[1]} if isinstance(one, tuple) else one, style)
            for one in value
        ]
    if isinstance(value, dict):
        return {name: _json(one, style) for name, one in value.items()}
    return value


def _first(found: Comparison) -> object:
    first = found.first
    if first is None:
        return None
    return {
        "offset": first.offset,
        "left_path": first.left_path,
        "left_position": first.left_position,
        "right_path": first.right_path,
        "right_position": first.right_position,
        "fields": [
            {"level": one.level, "name": one.name, "left": one.left, "right": one.right}
            for one in first.fields
        ],
    }


_VALUES: Final = k.Kind("object", to_json=_json)


def _side(side: Side | None) -> object:
    if side is None:
        return None
    return {
        "path": side.path,
        "log_start_offset": side.log_start_offset,
        "log_end_offset": side.log_end_offset,
        "high_watermark": side.high_watermark,
        "leader_epoch": side.last_epoch,
        "topic_id": side.topic_id,
    }


def _truncation(found: Comparison) -> object:
    one = found.truncation
    if one is None:
        return None
    return {"leader": one.leader, "follower": one.follower, "offset": one.offset}


COMPARISON: Final = ObjectType[Comparison](
    "comparison",
    "`diff`",
    "Two copies of a partition.",
    *topic_and_partition(),
    Field("verdict", k.TEXT, "`identical`, `behind` (one goes on where the other ends), "
                           "`compacted` (the same latest record of every key), `different`, "
                           "`missing`, `other-topic` (other topic id), `unreadable`"),
    Field("left", k.Kind("object") | None, "the first copy: `path`, `log_start_offset`, "
                                         "`log_end_offset`, `high_watermark`, `leader_epoch` "
                                         "(the latest, −1 if none), `topic_id`",
          lambda one: _side(one.left)),
    Field("right", k.Kind("object") | None, "the other copy", lambda one: _side(one.right)),
    Field("identical_up_to", k.INT | None, "below it all batches are the same bytes"),
    Field("first_difference", _VALUES | None, "`offset`, `left_path`, `left_position`, "
          "`right_path`, `right_position` (null on a side that has ended) and `fields`: `level` "
          "(`batch` or `record`), `name`, `left`, `right`", _first),
    Field("last_common_leader_epoch", k.INT | None, "the latest that both know",
          lambda one: None if one.truncation is None else one.truncation.last_common_leader_epoch),
    Field("truncation", k.Kind("object") | None, "what a broker would cut off: `leader` and "
          "`follower` (`left` or `right`; the later leader epoch leads, then the later end), "
          "`offset` (null if the follower keeps all)", _truncation),
    Field("left_only_records", k.INT, "records of the first copy only"),
    Field("right_only_records", k.INT, "records of the other only"),
    Field("differing_records", k.INT, "records that differ at one offset", "differing"),
)  # fmt: skip
RECORD_DIFFERENCE: Final = ObjectType[Any](
    "record_difference",
    "`diff --records`",
    "A record that only one copy has, or that differs.",
    *topic_and_partition(),
    Field("offset", k.INT, ""),
    Field("above_high_watermark", k.BOOL, "a copy that has it notes a high watermark at or below",
          "is_above_high_watermark"),
    Field("left", _VALUES | None, "of the first copy: `offset`, `timestamp`, `key`, `value` "
                                  "and `headers`"),
    Field("right", _VALUES | None, "the same of the other copy"),
)  # fmt: skip


def _name(one: Comparison | RecordDifference) -> str:
    return one.topic if one.partition is None else f"{one.topic}-{one.partition}"


def _span(side: Side | None) -> str:
    return "-" if side is None else f"{side.log_start_offset}-{side.log_end_offset}"


def _value(value: object, style: Style) -> str:
    if isinstance(value, bytes):
        return bytes_cell(value, style.value_form)
    if isinstance(value, tuple):
        return ", ".join(f"{_value(key, style)}={_value(one, style)}" for key, one in value) or "-"
    return "null" if value is None else str(value)


def _field(one: FieldDifference, style: Style) -> str:
    is_time = one.name.endswith("timestamp")
    left, right = (
        time_text(value, style) if is_time and isinstance(value, int) else _value(value, style)
        for value in (one.left, one.right)
    )
    return f"{one.level} {one.name} {left} | {right}"


def _words(found: Comparison, style: Style) -> str:
    """Say where the first difference is, what each side has alone, and who would cut what."""
    words = []
    if (found.left is None) != (found.right is None):
        return f"only in {(found.left or found.right).path}"  # type: ignore[union-attr]
    if found.verdict == Verdict.OTHER_TOPIC and found.left is not None and found.right is not None:
        ids = f"topic id {found.left.topic_id} | {found.right.topic_id}"
        return f"{ids}: offsets of different topics are not compared"
    if found.left is not None and found.identical_up_to is None:
        words.append("no offset in common")
    elif found.left is not None and found.right is not None and starts_differ(found):
        start = max(found.left.log_start_offset, found.right.log_start_offset)
        words.append(f"compared from offset {start} on")
    if found.verdict == Verdict.COMPACTED:
        words.append("the same latest record of every key")
    first = found.first
    if first is not None and first.fields and found.verdict != Verdict.COMPACTED:
        fields = "; ".join(_field(one, style) for one in first.fields)
        words.append(f"first at offset {first.offset}: {fields}")
    for name, count in (("left", found.left_only_records), ("right", found.right_only_records)):
        if count:
            words.append(f"{counted(count, 'record')} only {name}")
    if found.differing:
        words.append(f"{counted(found.differing, 'record')} not the same")
    cut = found.truncation
    if cut is not None and cut.offset is not None:
        words.append(f"led by {cut.leader}, {cut.follower} truncates to {cut.offset}")
    return "; ".join(words)


def comparison_view(style: Style) -> View[Comparison]:
    return COMPARISON.view(
        style,
        Column("PARTITION", _name, least=20, keeps_end=True),
        Column("VERDICT", "verdict"),
        Column("LEFT", lambda one: _span(one.left)),
        Column("RIGHT", lambda one: _span(one.right)),
        Column("SAME UP TO", "identical_up_to"),
        Column("COMMON EPOCH", "last_common_leader_epoch"),
        Column("DIFFERENCE", lambda one: _words(one, style), below=True),
    )


def record_view(style: Style) -> View[RecordDifference]:

    def where(one: RecordDifference) -> str:
        side = "differs" if one.left and one.right else "left" if one.left else "right"
        return f"{side}, above HW" if one.is_above_high_watermark else side

    def value(row: Mapping[str, Any] | None) -> str:
        return "-" if row is None else bytes_cell(row["value"], style.value_form)

    def of_either(one: RecordDifference) -> Mapping[str, Any]:
        return one.left or one.right or {}

    return RECORD_DIFFERENCE.view(
        style,
        Column("PARTITION", _name, least=20, keeps_end=True),
        Column("OFFSET", "offset"),
        Column("ONLY", where),
        Column("TIME", lambda one: of_either(one)["timestamp"], kind=k.RECORD_TIME),
        Column("KEY", lambda one: bytes_cell(of_either(one)["key"], style.key_form), least=12),
        Column("LEFT VALUE", lambda one: value(one.left), least=16),
        Column("RIGHT VALUE", lambda one: value(one.right), least=16),
    )


def starts_differ(found: Comparison) -> bool:
    """Return whether one copy has offsets before the log start of the other."""
    sides = found.left, found.right
    return len({side.log_start_offset for side in sides if side is not None}) > 1


def is_difference(found: Comparison) -> bool:
    """Return whether two copies differ in what consumers get."""
    return found.verdict not in ALIKE
