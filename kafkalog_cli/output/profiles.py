"""The output of `profile`: a row per partition, and one for all partitions of a topic."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from kafkalog.files.offsets import name_of
from kafkalog.io.wording import counted
from kafkalog_cli.output import kinds as k
from kafkalog_cli.output.objects import Column, Field, ObjectType
from kafkalog_cli.output.text import (
    bytes_cell,
    bytes_value,
    odd_mark,
    short_time,
    size_text,
    zoned_time,
)
from kafkalog_cli.output.writer import limited

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.tables.profiles.model import Profile
    from kafkalog_cli.output.objects import Style, View

_HOT_KEYS_SHOWN: Final = 3
_SCHEMAS_SHOWN: Final = 5


def _codec_objects(codecs: Any, _: Style) -> object:
    return [{**asdict(codec), "ratio": codec.ratio} for codec in codecs]


def _hot_key_objects(keys: Any, style: Style) -> object:
    return [{**asdict(key), "key": bytes_value(key.key, style.key_form)} for key in keys]


PROFILE: Final[ObjectType[Profile]] = ObjectType(
    "profile",
    "`profile`",
    "The content of a partition or of a topic. Of many keys or producers, the numbers and hot "
    "keys are estimates with bounds.",
    Field("topic", k.TEXT, "from the directory's name"),
    Field("partition", k.INT | None,
          "−1 if the directory's name has none; null for the whole topic"),
    Field("copies", k.INT, "partition directories"),
    Field("segments", k.INT, ""),
    Field("size_bytes", k.SIZE, "all files of the segments"),
    Field("batches", k.INT, ""),
    Field("control_batches", k.INT, ""),
    Field("transactional_batches", k.INT, ""),
    Field("idempotent_batches", k.INT, "with a producer id"),
    Field("records", k.INT, "that a consumer receives"),
    Field("null_keys", k.INT, ""),
    Field("tombstones", k.INT, "with a key"),
    Field("key_size_bytes", k.INT, "uncompressed"),
    Field("value_size_bytes", k.INT, "uncompressed"),
    Field("header_size_bytes", k.INT, "uncompressed"),
    Field("first_offset", k.INT | None, ""),
    Field("last_offset", k.INT | None, ""),
    Field("min_timestamp", k.TIME | None, "of records"),
    Field("max_timestamp", k.TIME | None, "of records"),
    Field("max_batch_records", k.INT, ""),
    Field("max_batch_bytes", k.INT, ""),
    Field("codecs", k.Kind("array", to_json=_codec_objects),
          "per codec: `codec`, its counts, and `ratio`, uncompressed size by size in the log"),
    Field("schemas", k.ARRAY, "`source`, `schema_id`, `records`, with `--registry`"),
    Field("unasked", k.INT,
          "keys and values with ids that the registry was not asked for, after it lacked too many"),
    Field("producers", k.INT, "distinct ids"),
    Field("producers_at_least", k.INT, "bounds"),
    Field("producers_at_most", k.INT, "bounds"),
    Field("keys", k.INT, "distinct"),
    Field("keys_at_least", k.INT, "bounds"),
    Field("keys_at_most", k.INT, "bounds"),
    Field("hot_keys", k.Kind("array", to_json=_hot_key_objects),
          "those with the most records: `key`, `at_least`, `at_most`"),
    Field("bucket_ms", k.INT, "of the histogram"),
    Field("histogram", k.ARRAY, "records by time, without empty buckets"),
    Field("defects", k.INT, "skipped damage and deletions"),
)  # fmt: skip


def profile_view(style: Style, *, schemas: bool = False) -> View[Profile]:
    """Return the view of profiles, with the schemas of keys and values if they were counted."""

    def times(one: Profile) -> str:
        if one.min_timestamp is None or one.max_timestamp is None:
            return "-"
        first, last = one.min_timestamp, one.max_timestamp
        return (
            f"{short_time(first, style)}{odd_mark(first)} to "
            f"{zoned_time(last, style)}{odd_mark(last)}"
        )

    def hot(one: Profile) -> str:
        keys = [
            f"{bytes_cell(key.key, style.key_form)} {_between(key.at_least, key.at_most)}"
            for key in one.hot_keys[:_HOT_KEYS_SHOWN]
        ]
        return f"hot keys {', '.join(keys)}" if keys else "-"

    def batches(one: Profile) -> str:
        if not one.batches:
            return "-"
        size = sum(codec.size_bytes for codec in one.codecs) / one.batches
        return f"{one.records / one.batches:.3g}/{size_text(round(size), style)}"

    return PROFILE.view(
        style,
        Column("PARTITION", _name, least=20, keeps_end=True),
        Column("RECORDS", "records"),
        Column("SIZE", "size_bytes"),
        Column("DATA", lambda one: size_text(one.data_bytes, style), right=True),
        Column("BATCH", batches, right=True),
        Column("KEYS", _keys, right=True),
        Column("CODECS", _codecs, below=True),
        *((Column("SCHEMAS", _schemas, below=True),) if schemas else ()),
        Column("TOMBSTONES", lambda one: counted(one.tombstones, "tombstone"), below=True),
        Column("TIMES", times, below=True),
        Column("HOT KEYS", hot, below=True),
    )


def _name(profile: Profile) -> str:
    if profile.partition is None:
        return f"{profile.topic}-*"
    return name_of(profile.topic, profile.partition)


def _keys(profile: Profile) -> str:
    is_exact = profile.keys_at_least == profile.keys_at_most
    return str(profile.keys) if is_exact else f"~{profile.keys}"


def _codecs(profile: Profile) -> str:
    words = [
        one.codec if one.codec == "none" or not one.ratio else f"{one.codec} {one.ratio:.3g}x"
        for one in profile.codecs
    ]
    return ", ".join(words) or "-"


def _schemas(profile: Profile) -> str:
    words = [f"{one.source} {one.schema_id} in {counted(one.records, 'record')}"
             for one in profile.schemas[:_SCHEMAS_SHOWN]]  # fmt: skip
    return f"schemas: {', '.join(words)}" if words else "no schemas"


def _between(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} to {high}"


def profile_total(profiles: Sequence[Profile], limit: int | None, style: Style) -> str:
    """Return what the partitions come to; sums of topics do not count again."""
    partitions = [one for one in profiles if one.partition is not None]
    records = counted(sum(one.records for one in partitions), "record")
    size = size_text(sum(one.size_bytes for one in partitions), style)
    total = f"{counted(len(partitions), 'partition')}, {records}, {size}"
    return limited(total, len(profiles), limit)
