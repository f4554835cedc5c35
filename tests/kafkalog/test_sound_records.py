"""A record that is decoded without its schema is the one that the schema gives."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

import pytest
from construct import ConstructError
from hypothesis import given
from hypothesis import strategies as st

from formats.record_batch import Record
from kafkalog.log.batches.sound_records import record_at
from kafkalog.model import Header
from tests.builders import record
from tests.kafkalog.test_records import BAD_RECORDS

if TYPE_CHECKING:
    from kafkalog.log.batches.sound_records import Fields

HEADERS_MAX = 5
DELTAS = st.integers(-(2**31), 2**31 - 1)
TEXTS = st.none() | st.binary(max_size=200)
RECORDS = st.builds(
    record,
    DELTAS,
    TEXTS,
    TEXTS,
    time_delta=st.integers(-(2**63), 2**63 - 1),
    headers=st.lists(st.tuples(st.binary(max_size=9), TEXTS), max_size=HEADERS_MAX),
)


def by_schema(data: bytes, position: int) -> tuple[Fields, int] | None:
    """Return the record and where it ends; None if the schema refuses it."""
    stream = BytesIO(data)
    stream.seek(position)
    try:
        found = Record.parse_stream(stream)
    except ConstructError:
        return None
    headers = tuple(Header(one.key, one.value) for one in found.headers)
    fields = (found.timestamp_delta, found.offset_delta, found.key, found.value, headers)
    return fields, stream.tell()


@given(st.binary(max_size=5), RECORDS, st.binary(max_size=5))
def test_a_sound_record_is_that_of_the_schema(before: bytes, one: bytes, after: bytes) -> None:
    """None is left to the schema, and it ends where it ends."""
    data = before + one + after
    found = record_at(data, len(before), HEADERS_MAX)
    assert found is not None
    assert found == by_schema(data, len(before))
    assert found[1] == len(before) + len(one)


@given(
    st.lists(RECORDS, min_size=1, max_size=2),
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 255)), max_size=3),
    st.integers(0, 60),
)
def test_what_damage_leaves_is_that_of_the_schema(
    records: list[bytes], flips: list[tuple[int, int]], cut: int
) -> None:
    """Flipped bytes and a missing end: it is accepted by both, with the same fields, or by none."""
    data = bytearray(b"".join(records))
    for position, flip in flips:
        data[position % len(data)] ^= flip
    damaged = bytes(data[: len(data) - cut])
    assert record_at(damaged, 0, len(damaged)) == by_schema(damaged, 0)


@pytest.mark.parametrize("name", BAD_RECORDS)
def test_what_kafka_refuses_is_left_to_the_schema(name: str) -> None:
    """At the end of the data, and before another record."""
    assert record_at(BAD_RECORDS[name], 0, HEADERS_MAX) is None
    following = record(key=b"another")
    assert record_at(BAD_RECORDS[name] + following, 0, HEADERS_MAX) == by_schema(
        BAD_RECORDS[name] + following, 0
    )


def test_too_many_headers_are_left_to_the_schema() -> None:
    """It knows how many are too many."""
    many = record(headers=[(b"", None)] * (HEADERS_MAX + 1))
    assert record_at(many, 0, HEADERS_MAX) is None
    assert record_at(many, 0, HEADERS_MAX + 1) == by_schema(many, 0)
