"""How `profile` is shown: a row a partition, one for all partitions of a topic."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from kafkalog_cli.output.objects import Column, View
from kafkalog_cli.output.text import bytes_cell, bytes_value, counted, size_cell, time_cell

if TYPE_CHECKING:
    from datetime import tzinfo

    from kafkalog.profile import Profile
    from kafkalog_cli.output.objects import Row
    from kafkalog_cli.output.text import BytesFormat

_HOT_KEYS_SHOWN = 3


def profile_view(form: BytesFormat, zone: tzinfo, *, exact: bool) -> View[Profile]:
    """One row a partition or topic."""

    def times(one: Profile) -> str:
        if one.earliest is None:
            return "-"
        return f"{time_cell(one.earliest, zone)} to {time_cell(one.latest, zone)}"

    def hot(one: Profile) -> str:
        keys = [
            f"{bytes_cell(key.key, form)} {_between(key.at_least, key.at_most)}"
            for key in one.hot_keys[:_HOT_KEYS_SHOWN]
        ]
        return f"hot keys {', '.join(keys)}" if keys else "-"

    def batches(one: Profile) -> str:
        if not one.batches:
            return "-"
        size = sum(codec.size_bytes for codec in one.codecs) / one.batches
        return f"{one.records / one.batches:.3g}/{size_cell(round(size), exact=exact)}"

    return View(
        (
            Column("PARTITION", _name, fold=True),
            Column("RECORDS", lambda one: one.records, right=True),
            Column("SIZE", lambda one: size_cell(one.size_bytes, exact=exact), right=True),
            Column("DATA", lambda one: size_cell(one.data_bytes, exact=exact), right=True),
            Column("BATCH", batches, right=True),
            Column("KEYS", _keys, right=True),
            Column("CODECS", _codecs, below=True),
            Column("TOMBSTONES", lambda one: counted(one.tombstones, "tombstone"), below=True),
            Column("TIMES", times, below=True),
            Column("HOT KEYS", hot, below=True),
        ),
        lambda one: profile_row(one, form),
    )


def profile_row(profile: Profile, form: BytesFormat) -> Row:
    """The object for a partition, or, with the partition null, for a topic."""
    row = asdict(profile)
    row["codecs"] = [{**asdict(codec), "ratio": codec.ratio} for codec in profile.codecs]
    row["hot_keys"] = [
        {**asdict(key), "key": bytes_value(key.key, form)} for key in profile.hot_keys
    ]
    row["histogram"] = [asdict(bucket) for bucket in profile.histogram]
    return {"type": "profile", **row}


def _name(profile: Profile) -> str:
    return f"{profile.topic}-{'*' if profile.partition is None else profile.partition}"


def _keys(profile: Profile) -> str:
    is_exact = profile.keys_at_least == profile.keys_at_most
    return str(profile.keys) if is_exact else f"~{profile.keys}"


def _codecs(profile: Profile) -> str:
    words = [
        one.codec if one.codec == "none" or not one.ratio else f"{one.codec} {one.ratio:.3g}x"
        for one in profile.codecs
    ]
    return ", ".join(words) or "-"


def _between(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} to {high}"
