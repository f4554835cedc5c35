"""The schemas of Kafka's internal messages against documented bytes and generated values."""

from __future__ import annotations

import base64
import contextlib
import io
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest
from construct import ConstructError
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.internal_topics import (
    ControlRecordKey,
    CoordinatorKey,
    CoordinatorValue,
    EndTxnMarker,
    MetadataFrame,
    kraft_value,
)
from formats.message_schema import (
    AS_KAFKA,
    UNKNOWN_TAGS,
    MessageError,
    by_key,
    message,
    schema,
    schema_with_rest,
)
from formats.message_table import messages, parse_table
from tests.formats.message_vectors import VECTORS, U, unhex
from tests.sampling import examples

if TYPE_CHECKING:
    from formats.message_table import Field, Struct

VERSIONS = [(found.name, version) for found in messages().values() for version in found.versions]


@pytest.mark.parametrize(("name", "version", "data", "meaning"), VECTORS)
def test_documented_bytes_mean_what_the_document_says(
    name: str, version: int, data: str, meaning: dict[str, Any]
):
    """Bytes to values and back, without a difference."""
    codec = schema(name, version)
    assert codec.parse(unhex(data)) == meaning
    assert codec.build(meaning) == unhex(data)


@pytest.mark.parametrize(("name", "version", "data", "meaning"), VECTORS)
def test_bytes_cut_anywhere_are_no_message(
    name: str, version: int, data: str, meaning: dict[str, Any]
):
    """A torn payload is an error, never a shorter value."""
    whole = unhex(data)
    assert schema(name, version).parse(whole) == meaning
    for size in range(len(whole)):
        with pytest.raises(ConstructError):
            schema(name, version).parse(whole[:size])


def test_fields_come_in_the_order_of_the_definition():
    """JSON has this order even for tagged fields, which are last on the wire."""
    data = unhex(next(data for name, version, data, _ in VECTORS if name == "TransactionLogValue"
                      and version == 1))  # fmt: skip
    assert list(schema("TransactionLogValue", 1).parse(data))[:4] == [
        "producerId", "previousProducerId", "nextProducerId", "producerEpoch",
    ]  # fmt: skip


def test_every_record_type_is_known_and_no_other():
    """kafka-formats §5.1 and §7.3 to §7.7."""
    known = {
        "offsets": {*range(9), *range(10, 18), *range(19, 24)},
        "transaction-log": {0},
        "share-group-state": {0, 1},
        "cluster-metadata": {*range(6), *range(7, 13), 14, 15, *range(17, 30)},
        "remote-log-metadata": {0, 1, 2, 3},
        "control": {2, 3, 4, 5, 6},
    }
    for family, keys in known.items():
        assert {key for key in range(-2, 300) if by_key(family, key)} == keys
    for family in ("offsets", "transaction-log", "share-group-state"):
        for key in known[family]:
            found = by_key(family, key, "key")
            assert found is not None
            assert (found.versions, found.flexible_versions) == (range(1), range(0))


@pytest.mark.parametrize(
    ("name", "newest", "flexible"),
    [
        ("LegacyOffsetCommitValue", 0, None),
        ("OffsetCommitValue", 4, 4),
        ("GroupMetadataValue", 4, 4),
        ("ConsumerGroupMetadataValue", 0, 0),
        ("TransactionLogValue", 1, 1),
        ("ShareSnapshotValue", 0, 0),
        ("RegisterBrokerRecord", 4, 0),
        ("PartitionRecord", 2, 0),
        ("PartitionChangeRecord", 2, 0),
        ("BrokerRegistrationChangeRecord", 3, 0),
        ("ConsumerProtocolSubscription", 3, None),
        ("ConsumerProtocolAssignment", 3, None),
        ("LeaderChangeMessage", 1, 0),
    ],
)
def test_versions_are_those_of_the_document(name: str, newest: int, flexible: int | None):
    """kafka-formats §7: newest version and first flexible one."""
    found = message(name)
    assert (found.versions[0], found.versions[-1]) == (0, newest)
    assert next(iter(found.flexible_versions), None) == flexible


def test_an_older_release_knows_some_messages_otherwise():
    """Tags that it does not know are kept as such, and all else is shared."""
    newest, older = messages(), messages("4.3")
    assert {*newest} - {*older} == {"UnregisterControllerRecord"}
    assert [name for name in older if older[name] != newest[name]] == ["StreamsGroupMetadataValue"]
    assert messages("4.4") == newest
    assert by_key("cluster-metadata", 29, release="4.3") is None
    data = schema("StreamsGroupMetadataValue", 0).build(
        {"epoch": 1, "metadataHash": 2, "storedDescriptionTopologyEpoch": -2}
    )
    old = schema("StreamsGroupMetadataValue", 0, "4.3")
    assert old.parse(data)[UNKNOWN_TAGS] == [(2, b"\xff\xff\xff\xfe")]
    assert old.build(old.parse(data)) == data


def test_names_of_metadata_records_are_those_of_kafkas_enum():
    """kafka-formats §7.6, for names with irregular words."""
    names = {message.enum_name for message in messages().values()}
    assert {"NO_OP_RECORD", "CLEAR_ELR_RECORD", "PRODUCER_IDS_RECORD", "TOPIC_RECORD"} <= names
    assert {"ZK_MIGRATION_STATE_RECORD", "ACCESS_CONTROL_ENTRY_RECORD"} <= names


def test_a_version_or_message_that_is_not_there_is_refused():
    """The schema is never guessed from another version."""
    with pytest.raises(ValueError, match="OffsetCommitValue has no version 5"):
        schema("OffsetCommitValue", 5)
    with pytest.raises(KeyError):
        schema("NoSuchRecord", 0)
    assert by_key("offsets", 1, "nothing") is None


@pytest.mark.parametrize(
    "table",
    [
        "    name str\n",
        "offsets 1 key Broken 0 -\n    a str; }\n",
        "offsets 1 key Broken 0 -\n    a []{ b str\n",
        "offsets 1 key Broken 0 -\n    a str!\n",
    ],
)
def test_a_table_that_breaks_its_notation_is_refused(table: str):
    """A typo must not become another schema."""
    with pytest.raises(ValueError, match=r"before the first|after its|not closed|no field"):
        parse_table(table)


# --- generated values


def text() -> st.SearchStrategy[str]:
    """Draw any bytes as text; bytes that are not UTF-8 must survive."""
    return st.binary(max_size=6).map(lambda data: data.decode("utf-8", "surrogateescape"))


SINGLE: dict[str, st.SearchStrategy[Any]] = {
    "str": text() | st.sampled_from(["", "orders", "✓"]),
    "bytes": st.binary(max_size=5),
    "records": st.binary(max_size=5),
    "bool": st.booleans() | st.sampled_from([-128, -1, 2]),
    "i8": st.integers(-(2**7), 2**7 - 1),
    "i16": st.integers(-(2**15), 2**15 - 1),
    "i32": st.integers(-(2**31), 2**31 - 1),
    "i64": st.integers(-(2**63), 2**63 - 1),
    "u16": st.integers(0, 2**16 - 1),
    "f64": st.floats(allow_nan=False),
    "uuid": st.binary(min_size=16, max_size=16).map(
        lambda data: base64.urlsafe_b64encode(data).decode().rstrip("=")
    ),
}
FOREIGN_TAGS = st.lists(st.tuples(st.integers(100, 2**32 - 1), st.binary(max_size=4)), max_size=2)


def values(struct: Struct, version: int, *, flexible: bool) -> st.SearchStrategy[dict[str, Any]]:
    """Draw values of a struct: optional tagged fields, unknown tags in ascending order."""
    fields = struct.fields_of(version)
    optional = {
        field.name: value(field, version, flexible) for field in fields if field.tag is not None
    }
    if flexible:
        tags = FOREIGN_TAGS.map(lambda found: sorted(dict(found).items())).filter(bool)
        optional[UNKNOWN_TAGS] = tags
    return st.fixed_dictionaries(
        {field.name: value(field, version, flexible) for field in fields if field.tag is None},
        optional=optional,
    )


def value(field: Field, version: int, flexible: bool) -> st.SearchStrategy[Any]:
    found = (
        SINGLE[field.type]
        if field.struct is None
        else values(field.struct, version, flexible=flexible)
    )
    if field.array:
        found = st.lists(found, max_size=2)
    return st.none() | found if field.nullable else found


@pytest.mark.sampled(12)
@pytest.mark.parametrize(("name", "version"), VERSIONS)
@settings(max_examples=15)
@given(data=st.data())
def test_values_and_bytes_survive_the_round_trip(name: str, version: int, data: st.DataObject):
    """Every version of every message, unknown tags and odd booleans included."""
    found = message(name)
    flexible = version in found.flexible_versions
    given_values = data.draw(values(found.struct, version, flexible=flexible))
    codec = schema(name, version)
    encoded = codec.build(given_values)
    assert codec.parse(encoded) == given_values
    assert codec.build(codec.parse(encoded)) == encoded
    assert codec.parse(encoded, **AS_KAFKA) == given_values
    parsed = schema_with_rest(name, version).parse(encoded + b"rest")
    assert (parsed.fields, parsed.rest) == (given_values, b"rest")


@settings(max_examples=examples(400))
@given(data=st.binary(max_size=60), which=st.sampled_from(VERSIONS), options=st.booleans())
def test_any_bytes_give_a_message_or_a_construct_error(
    data: bytes, which: tuple[str, int], options: bool
):
    """A schema raises no other exception."""
    with contextlib.suppress(ConstructError):
        schema(*which).parse(data, **(AS_KAFKA if options else {}))


@settings(max_examples=examples(300))
@given(vector=st.sampled_from(VECTORS), at=st.integers(0, 10**6), flip=st.integers(1, 255))
def test_a_changed_byte_gives_a_message_or_a_construct_error(
    vector: tuple[str, int, str, dict[str, Any]], at: int, flip: int
):
    """Damage one step away from sound bytes reaches deeper than random bytes."""
    data = bytearray(unhex(vector[2]))
    data[at % len(data)] ^= flip
    with contextlib.suppress(ConstructError):
        schema(vector[0], vector[1]).parse(bytes(data))


# --- hostile input


@pytest.mark.parametrize(
    ("name", "version", "data"),
    [
        ("ConsumerGroupRegularExpressionValue", 0, "8080808008 0000 00000000"),  # 2^31 - 1 topics
        ("ConsumerGroupTargetAssignmentMemberValue", 0, "ffffffff07 0000000000"),
        ("GroupMetadataValue", 0, "0000 00000000 ffff ffff 7fffffff 00"),
        ("ConsumerProtocolSubscription", 0, "7fffffff 000000000000"),
        ("ConsumerProtocolAssignment", 0, "00000000 7fffffff 00"),
        ("UserScramCredentialRecord", 0, "0275 01 ffffffff07 0000"),
        ("OffsetCommitValue", 4, "000000000000002a 00000007 026d 00000000000003e8 ffffffff0f 0001"),
        ("NoOpRecord", 0, "01 63 ffffffff07 00"),
    ],
)
def test_a_hostile_count_fails_at_once(name: str, version: int, data: str):
    """Counts and sizes are bounded by the bytes left, not believed."""
    codec = schema(name, version)
    tracemalloc.start()
    try:
        with pytest.raises(ConstructError):
            codec.parse(unhex(data))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("name", "version", "data", "reason"),
    [
        ("OffsetCommitKey", 0, "000567", "Error reading byte array of 5 byte(s): only 1 byte(s)"),
        ("OffsetCommitKey", 0, "ffff", "non-nullable field group was serialized as null"),
        ("ConsumerGroupRegularExpressionValue", 0, "0200", "field topics element was serialized"),
        ("TopicRecord", 0, "818002", "string field name had invalid length 32768"),
        ("ConsumerProtocolSubscription", 0, "00000009", "Tried to allocate a collection of size 9"),
        ("RegisterBrokerRecord", 2, f"00000001 00 {U} 0000000000000009 01 01 00 01 00 01 00 01 01",
         "Tag 0 is not valid for version 2"),
        ("TopicRecord", 0, "ffffffffff", "converted value: ffffffff"),
    ],
)  # fmt: skip
def test_the_reason_of_an_error_is_kafkas(name: str, version: int, data: str, reason: str):
    """The texts of dump-log-segments §4.2 and of Kafka's generated readers."""
    with pytest.raises(MessageError) as caught:
        schema(name, version).parse(unhex(data))
    assert reason in caught.value.reason


def test_a_tagged_value_has_to_fill_its_size():
    """A size that lies would shift everything after it; Kafka's own readers accept it."""
    lying = unhex("00000003 01 00 09 fffffffffffffffb ff")
    with pytest.raises(MessageError):
        schema("ConsumerGroupMetadataValue", 0).parse(lying)
    assert schema("ConsumerGroupMetadataValue", 0).parse(lying, **AS_KAFKA) == {
        "epoch": 3,
        "metadataHash": -5,
    }


def test_a_tagged_field_written_with_its_default_is_kept():
    """Brokers write `null` for ClassicMemberMetadata; a round trip must keep it."""
    data = unhex("00 00 0263 0268 01 00 00000005 00 01 00 01 00")
    parsed = schema("ConsumerGroupMemberMetadataValue", 0).parse(data)
    assert parsed["classicMemberMetadata"] is None
    assert schema("ConsumerGroupMemberMetadataValue", 0).build(parsed) == data


@pytest.mark.parametrize(
    "values_given",
    [
        {"group": "g", "topic": "t"},
        {"group": "g", "topic": "t", "partition": 3, "more": 1},
        {"group": None, "topic": "t", "partition": 3},
        {"group": "g" * 32768, "topic": "t", "partition": 3},
        {"group": "\ud800", "topic": "t", "partition": 3},
        {"group": "g", "topic": "t", "partition": 3, UNKNOWN_TAGS: [(9, b"")]},
        {"group": "g", "topic": "t", "partition": 2**31},
    ],
)
def test_values_that_do_not_fit_are_not_built(values_given: dict[str, Any]):
    """Building drops and invents no field either."""
    with pytest.raises(ConstructError):
        schema("OffsetCommitKey", 0).build(values_given)


# --- frames


@pytest.mark.parametrize(
    ("frame", "data"),
    [
        (CoordinatorKey, "0001 000167 000174 00000003 ff"),
        (CoordinatorValue, "0004 000000000000002a"),
        (MetadataFrame, "01 02 00 04666f6f U 00"),
        (ControlRecordKey, "0000 0001"),
        (ControlRecordKey, "0000 0001 ffff"),
        (EndTxnMarker, "0000 0000000c"),
        (EndTxnMarker, "0000 0000000c ff"),
        (kraft_value(2), "0000 00000001 02 00000001 00 02 00000001 00 00 ff"),
    ],
)
def test_frames_keep_every_byte(frame: Any, data: str):
    """Bytes after the known fields are kept; Kafka ignores them."""
    assert frame.build(frame.parse(unhex(data))) == unhex(data)
    stream = io.BytesIO(unhex(data))
    frame.parse_stream(stream)
    assert not stream.read()


def test_frames_name_their_parts():
    """kafka-formats §7.2, §7.6 and §5.1."""
    key = CoordinatorKey.parse(unhex("0001 000167"))
    assert (key.type, key.message) == (1, b"\x00\x01g")
    frame = MetadataFrame.parse(unhex("01 0c 00 aa"))
    assert (frame.frame_version, frame.api_key, frame.version, frame.message) == (1, 12, 0, b"\xaa")
    marker = EndTxnMarker.parse(unhex("0000 0000000c"))
    assert (marker.version, marker.coordinator_epoch, marker.rest) == (0, 12, b"")
    assert kraft_value(0) is None
    assert kraft_value(7) is None
