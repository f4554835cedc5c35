"""The schema of a record accepts and rejects what Kafka's full parser does."""

from __future__ import annotations

import tracemalloc

import pytest
from construct import ConstructError, GreedyRange
from hypothesis import given
from hypothesis import strategies as st

from formats.record_batch import Record, TooManyHeadersError

# The records of kafka-formats §8.1, §8.2 and §8.3.
WITH_HEADER = bytes.fromhex("22000000046b310a68656c6c6f0202680278")
TOMBSTONE = bytes.fromhex("1200ac0202046b320100")
FAR_FROM_HORIZON = bytes.fromhex("1400ab8abf520202620100")
COMMIT = bytes.fromhex("2000000008000000010c00000000000c00")
SMALLEST = bytes.fromhex("0c000000010100")
ALL = (WITH_HEADER, TOMBSTONE, FAR_FROM_HORIZON, COMMIT, SMALLEST)

INT32 = st.integers(-(2**31), 2**31 - 1)
NULLABLE = st.none() | st.binary(max_size=200)
RECORDS = st.fixed_dictionaries(
    {
        "attributes": st.integers(-128, 127),
        "timestamp_delta": st.integers(-(2**63), 2**63 - 1),
        "offset_delta": INT32,
        "key": NULLABLE,
        "value": NULLABLE,
        "headers": st.lists(
            st.fixed_dictionaries({"key": st.binary(max_size=20), "value": NULLABLE}), max_size=4
        ),
    }
)


def sized(body: str) -> bytes:
    """Prefix a record body of less than 64 bytes with its size."""
    data = bytes.fromhex(body)
    return bytes([2 * len(data)]) + data


def test_every_field_of_a_record_has_its_documented_value():
    """Key, value and a header."""
    record = Record.parse(WITH_HEADER)
    assert (record.length, record.attributes) == (17, 0)
    assert (record.timestamp_delta, record.offset_delta) == (0, 0)
    assert (record.key, record.value) == (b"k1", b"hello")
    assert [(header.key, header.value) for header in record.headers] == [(b"h", b"x")]


def test_a_null_value_is_not_an_empty_one():
    """A tombstone deletes, an empty value does not."""
    assert Record.parse(TOMBSTONE).value is None
    assert Record.parse(sized("000000046b310000")).value == b""
    assert Record.parse(SMALLEST).key is None


def test_a_delta_from_a_delete_horizon_is_far_below_zero():
    """The base timestamp of a compacted batch lies in the future."""
    record = Record.parse(FAR_FROM_HORIZON)
    assert record.timestamp_delta == -86499990
    assert (record.offset_delta, record.key) == (1, b"b")


def test_a_marker_has_a_key_of_four_and_a_value_of_six_bytes():
    """Version and type; version and coordinator epoch."""
    record = Record.parse(COMMIT)
    assert record.key == bytes.fromhex("00000001")
    assert record.value == bytes.fromhex("00000000000c")


@pytest.mark.parametrize("body", ["0000000301 00", "00000001 03 00", "000000 ffffffff0f 01 00"])
def test_any_negative_size_of_key_or_value_is_null(body: str):
    """Kafka tests for a sign, not for -1."""
    record = Record.parse(sized(body))
    assert record.key is None
    assert record.value is None


def test_a_negative_size_of_a_header_value_is_null():
    """The same rule as for the record's own value."""
    assert Record.parse(sized("0000000101 02 0268 03")).headers[0].value is None


@pytest.mark.parametrize(
    "body",
    [
        "0000000101 02 01 00",  # header key of size -1
        "0000000101 01",  # -1 headers
        "0000000101 feffffff0f",  # 2147483647 headers
        "0000000101 04 0268 01",  # two headers, one there
        "0000000101 00 00",  # a byte left
        "00000001 0a 00",  # value beyond the end
        "00000001",  # ends before the value
        "",
    ],
)
def test_a_body_that_does_not_fit_is_refused(body: str):
    """Each is an InvalidRecordException of Kafka's full parser."""
    with pytest.raises(ConstructError):
        Record.parse(sized(body) + bytes(40))


@pytest.mark.parametrize("length", ["01", "7e", "feffffff0f", "ffffffffff", "8080808080"])
def test_a_false_length_is_refused(length: str):
    """Negative, beyond the data, or no number at all."""
    with pytest.raises(ConstructError):
        Record.parse(bytes.fromhex(length) + bytes.fromhex("000000010100"))


def test_a_key_that_spills_into_the_next_record_is_refused():
    """The data goes on, but the record's own length says otherwise."""
    with pytest.raises(ConstructError):
        Record.parse(sized("000000 146b31 01 00") + SMALLEST * 5)


def test_empty_repeated_and_broken_header_keys_are_accepted():
    """Kafka keeps order and duplicates, and decodes UTF-8 only when asked."""
    record = Record.parse(sized("0000000101 06 0000 0000 02ff 0241"))
    assert [header.key for header in record.headers] == [b"", b"", b"\xff"]


def test_a_hostile_count_of_headers_costs_no_memory():
    """Two thousand million headers in a record of eleven bytes."""
    data = sized("0000000101 feffffff0f")
    tracemalloc.start()
    try:
        with pytest.raises(ConstructError):
            Record.parse(data)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_too_many_headers_are_an_error_of_their_own_where_the_limit_has_room():
    """A limit of four headers takes eight bytes; a shorter record that has five is damaged."""
    with pytest.raises(TooManyHeadersError):
        Record.parse(sized("0000000101 0a 0000"), headers_max=4)
    with pytest.raises(ConstructError) as caught:
        Record.parse(sized("0000000101 0a 00"), headers_max=4)
    assert not isinstance(caught.value, TooManyHeadersError)


@pytest.mark.parametrize("data", ALL)
def test_building_what_was_parsed_gives_the_same_bytes(data: bytes):
    """Kafka writes shortest forms, and so does the schema."""
    assert Record.build(Record.parse(data)) == data


def test_records_follow_each_other():
    """A record ends where its length says, so a range of them needs no separator."""
    data = b"".join(ALL)
    records = GreedyRange(Record).parse(data)
    assert len(records) == len(ALL)
    assert GreedyRange(Record).build(records) == data


def test_a_longer_form_of_a_number_is_built_in_its_shortest():
    """The one place where bytes change: Kafka would rewrite it the same way."""
    record = Record.parse(sized("00 8000 00 01 01 00"))
    assert record.length == 7
    assert Record.build(record) == SMALLEST


@given(RECORDS)
def test_every_record_comes_back(fields: dict[str, object]):
    """Nulls, empties, signs and widths survive."""
    data = Record.build(fields)
    parsed = Record.parse(data)
    assert {name: parsed[name] for name in fields} == fields
    assert Record.build(parsed) == data


@pytest.mark.parametrize("data", ALL)
def test_a_cut_record_is_a_construct_error(data: bytes):
    """No prefix of a record is a record."""
    for size in range(len(data)):
        with pytest.raises(ConstructError):
            Record.parse(data[:size])


@given(st.sampled_from(ALL), st.data())
def test_a_flipped_bit_is_another_record_or_a_construct_error(data: bytes, draw: st.DataObject):
    """Damage must not raise any other exception."""
    damaged = bytearray(data)
    damaged[draw.draw(st.integers(0, len(data) - 1))] ^= 1 << draw.draw(st.integers(0, 7))
    try:
        Record.parse(bytes(damaged))
    except ConstructError:
        return


@given(st.binary(max_size=60))
def test_any_bytes_are_a_record_or_a_construct_error(data: bytes):
    """Untrusted bytes come from damaged files."""
    try:
        Record.parse(data)
    except ConstructError:
        return
