"""Variable-length integers as Kafka writes and tolerates them."""

from __future__ import annotations

import pytest
from construct import ConstructError
from hypothesis import given
from hypothesis import strategies as st

from formats.primitives import UnsignedVarint, Varint, Varlong

# kafka-formats §2.1.
SAMPLES = {
    0: "00",
    -1: "01",
    1: "02",
    -2: "03",
    63: "7e",
    -64: "7f",
    64: "8001",
    -65: "8101",
    150: "ac02",
    2**31 - 1: "feffffff0f",
    -(2**31): "ffffffff0f",
    -86499990: "ab8abf52",
}


@pytest.mark.parametrize(("number", "encoded"), SAMPLES.items())
def test_documented_samples_hold_both_ways(number: int, encoded: str):
    """The values are those of Kafka's `ByteUtils`."""
    for schema in (Varint, Varlong):
        assert schema.parse(bytes.fromhex(encoded)) == number
        assert schema.build(number).hex() == encoded


def test_the_greatest_varlong_takes_ten_bytes():
    """It has 64 bits, seven per byte."""
    encoded = bytes.fromhex("fe" + "ff" * 8 + "01")
    assert Varlong.parse(encoded) == 2**63 - 1
    assert Varlong.build(2**63 - 1) == encoded


def test_longer_forms_are_accepted_and_overflowing_bits_dropped():
    """Kafka reads `80 00` as 0 and takes only four bits of a varint's fifth byte."""
    assert Varint.parse(b"\x80\x00") == 0
    assert Varint.parse(b"\xfe\xff\xff\xff\x7f") == 2**31 - 1
    assert Varlong.parse(b"\xfe" + b"\xff" * 8 + b"\x7f") == 2**63 - 1


@pytest.mark.parametrize(
    ("schema", "size"), [(Varint, 5), (UnsignedVarint, 5), (Varlong, 10)], ids=["32", "u32", "64"]
)
def test_an_encoding_without_end_is_refused(schema: object, size: int):
    """The last byte that the type allows must end the number, and so must the data."""
    for count in range(size + 1):
        with pytest.raises(ConstructError):
            schema.parse(b"\x80" * count)


@given(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1))
def test_every_number_comes_back(small: int, large: int):
    """Zigzag keeps all numbers of the width."""
    assert Varint.parse(Varint.build(small)) == small
    assert Varlong.parse(Varlong.build(large)) == large
