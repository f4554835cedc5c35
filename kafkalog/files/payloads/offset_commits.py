"""Committed offsets without the schemas: the records that `__consumer_offsets` has millions of.

A twin of `internal_topics.decode` for keys of type 1 and their values, many times as fast; what is
in any way unusual is left to that one.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from formats import decoder

_SHORT: Final = struct.Struct(">h").unpack_from
_INT: Final = struct.Struct(">i").unpack_from
_LONG: Final = struct.Struct(">q").unpack_from
_OFFSET_AND_EPOCH: Final = struct.Struct(">qi").unpack_from
_KEY_TYPE: Final = b"\0\1"
_NO_EPOCH_MAX: Final = 2  # the newest version without a leader epoch
_EXPIRING: Final = 1  # only version 1 stores when the offset expires
_FLEXIBLE: Final = 4  # strings have varint sizes, and tagged fields follow, from this version on
_ONE_BYTE: Final = 0x80  # a varint below that has one byte
_TOPIC_ID: Final = b"\1\0\x10"  # one tagged field, tag 0, 16 bytes
_TOPIC_ID_SIZE: Final = 16


class CommitKey(NamedTuple):
    """Whose offset it is."""

    group: str
    topic: str
    partition: int


class CommitValue(NamedTuple):
    """What was committed; `expire_timestamp` and `leader_epoch` are -1 if they are not stored."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int


def commit_key(data: bytes) -> CommitKey | None:
    """Decode the key of an offset; None for all that is no plain key of one."""
    if data[:2] != _KEY_TYPE:
        return None
    try:
        group_end = 4 + _SHORT(data, 2)[0]
        topic_end = group_end + 2 + _SHORT(data, group_end)[0]
        # A size may be negative, or that of null.
        if not 4 <= group_end <= topic_end - 2 or topic_end + 4 != len(data):
            return None
        group, topic = data[4:group_end].decode(), data[group_end + 2 : topic_end].decode()
        return CommitKey(group, topic, _INT(data, topic_end)[0])
    except (struct.error, UnicodeDecodeError):
        return None


def commit_value(data: bytes) -> CommitValue | None:
    """Decode the value of an offset; None for one that is not plain."""
    try:
        version = _SHORT(data)[0]
        if version == _FLEXIBLE:
            return None if decoder.BY_SCHEMA else _flexible(data)
        if not 0 <= version < _FLEXIBLE:
            return None
        if version > _NO_EPOCH_MAX:
            (offset, epoch), at = _OFFSET_AND_EPOCH(data, 2), 14
        else:
            offset, epoch, at = _LONG(data, 2)[0], -1, 10
        end = at + 2 + _SHORT(data, at)[0]
        size = end + (16 if version == _EXPIRING else 8)
        if end < at + 2 or size != len(data):
            return None
        expires = _LONG(data, end + 8)[0] if version == _EXPIRING else -1
        return CommitValue(offset, epoch, data[at + 2 : end].decode(), _LONG(data, end)[0], expires)
    except (struct.error, UnicodeDecodeError):
        return None


def _flexible(data: bytes) -> CommitValue | None:
    """Decode version 4, with a text of up to 126 bytes, and with or without a topic id."""
    offset, epoch = _OFFSET_AND_EPOCH(data, 2)
    size = data[14] if len(data) > 14 else 0
    if not 0 < size < _ONE_BYTE:  # 0 would be null, which is not allowed here
        return None
    end = 14 + size
    tags = data[end + 8 : end + 11]
    if tags == _TOPIC_ID:
        if len(data) != end + 11 + _TOPIC_ID_SIZE:
            return None
    elif tags != b"\0" or len(data) != end + 9:
        return None
    return CommitValue(offset, epoch, data[15:end].decode(), _LONG(data, end)[0], -1)
