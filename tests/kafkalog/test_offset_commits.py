"""Committed offsets decoded without the schemas, compared with the schema-based decoder.

The column decoder is compared with the one for single records.
"""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from formats.message_schema import schema
from kafkalog.files.payloads.internal_topics import decode
from kafkalog.files.payloads.kinds import PayloadKind
from kafkalog.files.payloads.offset_commits import commit_key, commit_value
from kafkalog.model import Record
from kafkalog.node.reader import read_records
from kafkalog.node.state.offset_columns import (
    commit_keys,
    commit_values,
    group_names,
    partition_names,
)
from tests.builders import flip
from tests.conftest import state

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = ("", "orders", "ü", "\U0001f600", "x" * 126, "x" * 127, "long " * 60)


def require_same(key: bytes, value: bytes) -> bool:
    """Require that both decoders agree; return whether the fast one decoded the value."""
    told = decode(PayloadKind.OFFSETS, key, value)
    whose, what = commit_key(key), commit_value(value)
    if whose is not None:
        assert told.key is not None
        assert whose._asdict() == told.key["data"]
    if whose is None or what is None:
        return False
    assert told.error is None, told
    assert told.value is not None
    data: dict[str, Any] = told.value["data"]
    assert what.offset == data["offset"]
    assert what.leader_epoch == data.get("leaderEpoch", -1)
    assert what.metadata == data["metadata"]
    assert what.commit_timestamp == data["commitTimestamp"]
    assert what.expire_timestamp == data.get("expireTimestamp", -1)
    return True


def require_same_columns(keys: list[bytes | None], values: list[bytes | None]) -> None:
    """Require that columns give what single keys and values give, and that slices are respected."""
    groups, partitions = group_names(), partition_names()
    cut = slice(1, -1)
    is_plain, group, partition = commit_keys(pa.array(keys, pa.binary())[cut], groups, partitions)
    for number, key in enumerate(keys[cut]):
        whose = commit_key(key or b"")
        assert is_plain[number] == (whose is not None), key
        if whose is not None:
            assert groups.names[group[number]] == whose.group
            assert partitions.names[partition[number]] == whose[1:]
    is_plain, offset = commit_values(pa.array(values, pa.binary())[cut])
    for number, value in enumerate(values[cut]):
        what = commit_value(value or b"")
        assert is_plain[number] == (what is not None), value
        assert what is None or offset[number] == what.offset


def random_record(rnd: random.Random) -> tuple[bytes, bytes]:
    key = {"group": rnd.choice(TEXTS), "topic": rnd.choice(TEXTS),
           "partition": rnd.randrange(-(1 << 31), 1 << 31)}  # fmt: skip
    version = rnd.randrange(5)
    value: dict[str, Any] = {
        "offset": rnd.randrange(-(1 << 63), 1 << 63), "metadata": rnd.choice(TEXTS),
        "commitTimestamp": rnd.randrange(1 << 62),
    }  # fmt: skip
    if version >= 3:
        value["leaderEpoch"] = rnd.randrange(-1, 9)
    if version == 1:
        value["expireTimestamp"] = rnd.randrange(-1, 1 << 40)
    if version == 4 and rnd.random() < 0.7:
        value["topicId"] = rnd.choice(("ADXe-tX5TiSTlOLSEajCDg", "A" * 22))
    return (
        struct.pack(">h", 1) + schema("OffsetCommitKey", 0).build(key),
        struct.pack(">h", version) + schema("OffsetCommitValue", version).build(value),
    )


def test_both_decoders_say_the_same() -> None:
    """In every version; the fast decoder leaves only long texts of the newest one to the other."""
    rnd = random.Random(7)
    decoded = [require_same(*random_record(rnd)) for _ in range(500)]
    assert sum(decoded) > 400


def test_damaged_records_are_not_guessed() -> None:
    """Cut at any byte, with a flipped bit, or with bytes after the end."""
    rnd = random.Random(8)
    for _ in range(40):
        key, value = random_record(rnd)
        for end in range(len(key)):
            assert commit_key(key[:end]) is None
        for end in range(len(value)):
            assert commit_value(value[:end]) is None
        assert commit_value(value + b"\0") is None
        for _ in range(40):
            require_same(flip(key, rnd.randrange(8 * len(key))), value)
            require_same(key, flip(value, rnd.randrange(8 * len(value))))


def test_columns_say_what_single_records_say() -> None:
    """Damaged records as well, next to sound ones whose bytes must not be mixed up with theirs."""
    rnd = random.Random(9)
    records = [random_record(rnd) for _ in range(60)]
    for _ in range(20):
        keys: list[bytes | None] = [None, b"", b"\0\1"]
        values: list[bytes | None] = [None, b"", b"\0\4"]
        for key, value in records:
            keys += [key, key[: rnd.randrange(len(key))], key + b"x"]
            values += [value, value[: rnd.randrange(len(value))], value + b"\0"]
            keys.append(flip(key, rnd.randrange(8 * len(key))))
            values.append(flip(value, rnd.randrange(8 * len(value))))
            keys.append(flip(key, rnd.randrange(8 * min(8, len(key)))))
            values.append(flip(value, rnd.randrange(16)))
        rnd.shuffle(keys)
        rnd.shuffle(values)
        require_same_columns(keys, values)
    for nothing in ([], [None] * 3, [b""] * 3):
        require_same_columns(list(nothing), list(nothing))


def test_offsets_of_real_brokers_are_plain(corpus_dir: Path) -> None:
    """The fast decoder handles everything that 4.3 brokers wrote."""
    found = state(corpus_dir, "kafka-4.3", "internal-topics")
    plain = [
        require_same(record.key or b"", record.value)
        for log_dir in found.log_dirs
        for partition in log_dir.glob("__consumer_offsets-*")
        for record in read_records(str(partition))
        if isinstance(record, Record) and record.value and (record.key or b"")[:2] == b"\0\1"
    ]
    assert len(plain) > 5
    assert all(plain)
