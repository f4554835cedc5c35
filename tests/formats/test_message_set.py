"""The schema of messages of magic 0 and 1, against messages whose bytes are known."""

from __future__ import annotations

import pytest
from construct import ConstructError
from hypothesis import given
from hypothesis import strategies as st

from formats.record_batch import Message

# kafka-formats §8.4.
V0 = bytes.fromhex("000000000000000700000010a4ad2011000000000001610000000162")
V1 = bytes.fromhex("0000000000000007000000180446fb0701000000015d3ef7980000000001610000000162")
V0_LZ4 = bytes.fromhex(
    "00000000000000080000004d228138ae0003ffffffff0000003f04224d1860401a30000000120001009107000000"
    "10a4ad20110f0071016100000001620c00300000081c0040d3aa10870d0080000161000000016300000000"
)
V1_GZIP = bytes.fromhex(
    "000000000000000800000050e299660a01010000015d3ef79801ffffffff0000003a1f8b08000000000000ff6360"
    "80030916b7dfec8c400663acddf7192011c644109104950749496c3a2f120857c30857930c00ddbcb16448000000"
)
ALL = (V0, V1, V0_LZ4, V1_GZIP)


def resized(data: bytes, size: int) -> bytes:
    return data[:8] + size.to_bytes(4, "big", signed=True) + data[12:]


def test_every_field_of_a_message_of_magic_0_has_its_documented_value():
    """Magic 0 has no timestamp."""
    message = Message.parse(V0)
    assert (message.offset, message.size, message.crc) == (7, 16, 0xA4AD2011)
    assert (message.magic, message.timestamp) == (0, None)
    assert (message.key, message.value, message.rest) == (b"a", b"b", b"")


def test_every_field_of_a_message_of_magic_1_has_its_documented_value():
    """The timestamp moves key and value by eight bytes."""
    message = Message.parse(V1)
    assert (message.offset, message.size, message.crc) == (7, 24, 0x0446FB07)
    assert (message.magic, message.timestamp) == (1, 1500000000000)
    assert (message.key, message.value, message.rest) == (b"a", b"b", b"")


def test_a_wrapper_has_a_codec_a_null_key_and_the_compressed_set_as_value():
    """Its offset is that of its last message."""
    wrapper = Message.parse(V0_LZ4)
    assert (wrapper.offset, wrapper.attributes.compression, wrapper.key) == (8, 3, None)
    assert wrapper.value[:4] == bytes.fromhex("04224d18")
    wrapper = Message.parse(V1_GZIP)
    assert (wrapper.attributes.compression, wrapper.timestamp) == (1, 1500000000001)
    assert wrapper.value[:3] == bytes.fromhex("1f8b08")


def test_null_and_empty_differ_and_any_negative_size_is_null():
    """Kafka tests for a sign, not for -1."""
    null = V0[:18] + b"\x80\x00\x00\x00" + bytes(4)
    message = Message.parse(resized(null, 14))
    assert message.key is None
    assert message.value == b""


@pytest.mark.parametrize("data", ALL)
def test_bytes_after_the_value_are_kept(data: bytes):
    """Kafka does not reject them, so a message with them must come back whole."""
    longer = resized(data, len(data) - 12 + 3) + b"\x00xy"
    message = Message.parse(longer)
    assert message.rest == b"\x00xy"
    assert Message.build(message) == longer


@pytest.mark.parametrize("data", ALL)
def test_building_what_was_parsed_gives_the_same_bytes(data: bytes):
    """The schema loses nothing of a message, and it can compute the size itself."""
    message = Message.parse(data)
    assert Message.build(message) == data
    del message["size"]
    assert Message.build(message) == data


@given(
    st.sampled_from([0, 1]),
    st.none() | st.binary(max_size=99),
    st.none() | st.binary(max_size=99),
    st.binary(max_size=9),
    st.integers(0, 255),
)
def test_every_message_comes_back(
    magic: int, key: bytes | None, value: bytes | None, rest: bytes, attributes: int
):
    """Unused attribute bits included."""
    fields = {
        "offset": -1,
        "crc": 2**32 - 1,
        "magic": magic,
        "attributes": {
            "unused": attributes >> 4,
            "timestamp_type": attributes >> 3 & 1,
            "compression": attributes & 7,
        },
        "timestamp": -5 if magic else None,
        "key": key,
        "value": value,
        "rest": rest,
    }
    data = Message.build(fields)
    parsed = Message.parse(data)
    assert data[17] == attributes
    assert parsed.size == len(data) - 12
    assert {name: parsed[name] for name in fields} == fields


@pytest.mark.parametrize("data", ALL)
def test_a_cut_message_is_a_construct_error(data: bytes):
    """An incomplete last message must not look like a shorter one."""
    for size in range(len(data)):
        with pytest.raises(ConstructError):
            Message.parse(data[:size])


@pytest.mark.parametrize("size", [-(2**31), -1, 0, 13, 15, 2**31 - 1])
def test_a_size_that_does_not_hold_the_fields_is_refused(size: int):
    """Key and value must end within the message."""
    with pytest.raises(ConstructError):
        Message.parse(resized(V0, size))


@given(st.sampled_from(ALL), st.data())
def test_a_flipped_bit_is_another_message_or_a_construct_error(data: bytes, draw: st.DataObject):
    """Damage must not raise any other exception."""
    damaged = bytearray(data)
    damaged[draw.draw(st.integers(0, len(data) - 1))] ^= 1 << draw.draw(st.integers(0, 7))
    try:
        Message.parse(bytes(damaged))
    except ConstructError:
        return
