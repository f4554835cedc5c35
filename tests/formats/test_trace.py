"""Traces: the fields of a schema tile its bytes, and are those that the schema parses."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pytest
from construct import Struct
from hypothesis import given
from hypothesis import strategies as st

from formats.constants import RECORD_BATCH_HEADER
from formats.message_schema import schema
from formats.record_batch import Message, Record, RecordBatchHeader
from formats.side_files import ProducerSnapshot
from formats.trace import Trace, Tracer, bits_of
from tests import builders
from tests.formats.message_vectors import VECTORS, unhex

if TYPE_CHECKING:
    from construct import Construct


def traced(codec: Construct, data: bytes, limit: int | None = None) -> Trace:
    return Tracer(codec, limit).trace(io.BytesIO(data))


def assert_tiles(trace: Trace, end: int) -> None:
    position = 0
    for one in trace.fields:
        assert one.position == position
        assert one.length > 0
        position = one.end
    assert position == end


@given(
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-(2**63), 2**63 - 1),
    st.binary(max_size=200) | st.none(),
    st.binary(max_size=200) | st.none(),
    st.lists(st.tuples(st.binary(max_size=9), st.binary(max_size=9) | st.none()), max_size=4),
)
def test_fields_of_a_record_are_those_that_were_written(
    delta: int, time: int, key: bytes | None, value: bytes | None,
    headers: list[tuple[bytes, bytes | None]],
) -> None:  # fmt: skip
    """Positions come from the walk, values from bytes that no schema wrote."""
    data = builders.record(delta, key, value, time_delta=time, headers=headers)
    trace = traced(Record, data)
    assert_tiles(trace, len(data))
    found = {one.path: one for one in trace.fields}
    assert (found["offset_delta",].value, found["timestamp_delta",].value) == (delta, time)
    for name, content in (("key", key), ("value", value)):
        assert found[name, "length"].value == (-1 if content is None else len(content))
        assert ((name,) in found) == bool(content)
        if content:
            one = found[name,]
            assert data[one.position : one.end] == one.value == content
    for number, (name, content) in enumerate(headers):
        for part, wanted in (("key", name), ("value", content)):
            if wanted:
                assert found["headers", number, part].value == wanted


def test_a_header_has_the_fields_of_its_layout() -> None:
    """Names and positions are those of the layout, and the attributes split into their bits."""
    data = builders.batch(7, [builders.record()], attributes=0b1010100)[:61]
    trace = traced(RecordBatchHeader, data)
    assert {one.path[0]: one.position for one in trace.fields} == RECORD_BATCH_HEADER.positions
    [attributes] = [one for one in trace.fields if one.path == ("attributes",)]
    bits = {one.name: (one.lowest, one.width, one.value) for one in
            bits_of(attributes.codec, attributes.value)}  # fmt: skip
    assert bits["compression"] == (0, 3, 4)
    assert bits["has_delete_horizon"] == (6, 1, 1)
    assert bits["is_transactional"] == (4, 1, 1)
    assert bits["unused"] == (7, 9, 0)


@pytest.mark.parametrize(("name", "version", "text", "meaning"), VECTORS)
def test_fields_of_messages_tile_their_bytes(
    name: str, version: int, text: str, meaning: dict[str, Any]
) -> None:
    """Compact lengths, tagged fields, nullable structs; and every cut ends at a whole field."""
    codec, data = schema(name, version), unhex(text)
    trace = traced(codec, data)
    assert trace.error is None
    assert trace.value == meaning
    assert_tiles(trace, len(data))
    for end in range(len(data)):
        cut = traced(codec, data[:end])
        assert cut.error is not None
        assert_tiles(cut, cut.fields[-1].end if cut.fields else 0)


def test_an_unknown_tag_before_damage_is_a_field() -> None:
    """Its two bytes have no schema, and the next tag says more bytes than there are."""
    sound = unhex("000000000000002a 00000007 026d 00000000000003e8")
    data = sound + bytes([2, 7, 2, 0xAA, 0xBB, 8, 9])
    trace = traced(schema("OffsetCommitValue", 4), data)
    assert trace.error is not None
    assert_tiles(trace, len(data))


@pytest.mark.parametrize("magic", [0, 1])
def test_fields_of_a_message_tile_it(magic: int) -> None:
    """Magic 0 has no timestamp."""
    data = builders.message(3, b"k", b"value", magic=magic)
    trace = traced(Message, data)
    assert_tiles(trace, len(data))
    assert (("timestamp",) in {one.path for one in trace.fields}) == bool(magic)


def test_the_limit_leaves_out_elements() -> None:
    """The fields end at the first element above the limit."""
    entry = dict.fromkeys(
        ("producer_id", "producer_epoch", "last_sequence", "last_offset", "offset_delta",
         "timestamp", "coordinator_epoch", "current_txn_first_offset"), 1,
    )  # fmt: skip
    data = ProducerSnapshot.build({"version": 1, "crc": 0, "entries": [entry] * 9, "rest": b""})
    trace = traced(ProducerSnapshot, data, 2)
    assert trace.is_cut
    assert trace.error is None
    assert_tiles(trace, 10 + 2 * 46)
    assert {one.path[1] for one in trace.fields if one.path[0] == "entries"} == {"count", 0, 1}


def test_tracing_leaves_the_schema_as_it_is() -> None:
    """A tracer works on a copy."""
    codec = Struct("record" / Record)
    data = builders.record(1, b"k")
    before = codec.parse(data)
    traced(codec, data)
    assert codec.parse(data) == before
