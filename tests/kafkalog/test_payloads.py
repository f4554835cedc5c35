"""Records of internal topics, compared with the output of Kafka's own tool."""

from __future__ import annotations

import json
import struct
from itertools import product
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from formats.message_schema import UNKNOWN_TAGS, by_key, schema
from formats.releases import Release, releases
from kafkalog.errors import CorruptDataError
from kafkalog.files.payloads.internal_topics import (
    Decoded,
    control_record,
    control_text,
    decode,
    kafka_text,
)
from kafkalog.files.payloads.java_text import java_double, java_json, java_text
from kafkalog.files.payloads.kinds import PayloadKind, payload_kind
from kafkalog.model import Batch, ControlRecord, Record, TimestampType
from tests.sampling import examples


def lines_of(name: str) -> list[tuple[str, ...]]:
    """Return what DumpLogSegments of a release printed, see the head of the file."""
    text = Path(__file__).with_name(name).read_text("utf-8")
    return [tuple(line.split("\t")) for line in text.splitlines() if not line.startswith("#")]


LINES = lines_of("payload_lines.tsv")
NEWER, OLDER = releases()
DIFFERENT = {line[:4]: line for line in lines_of("payload_lines-4.3.tsv")}
PAYLOADS = [line for line in LINES if line[0] != "control"]
OLD_PAYLOADS = [DIFFERENT.get(line[:4], line) for line in PAYLOADS]
JSON_LINES = [
    DIFFERENT.get(line[:4], line) if line[0] == "transaction-log" else line  # states as numbers
    for line in PAYLOADS
    if line[0] != "remote-log-metadata" and '"version":9' not in line[4]  # see below
]
CONTROLS = [line for line in LINES if line[0] == "control"]
BYTES = st.none() | st.binary(max_size=50)


def record(key: bytes | None, value: bytes | None, offset: int = 0) -> Record:
    batch = Batch("a.log", 77, 99, offset, offset, 2, 0, 0, 0, 0, 0, -1, -1, -1, 1)
    return Record(batch, offset, 0, TimestampType.CREATE_TIME, key, value)


def unhex(text: str) -> bytes | None:
    return None if text == "null" else bytes.fromhex(text)


def data_of(line: tuple[str, ...]) -> tuple[bytes | None, bytes | None]:
    return unhex(line[2]), unhex(line[3])


def recorded(line: tuple[str, ...]) -> Record:
    return record(*data_of(line), int(line[1]))


def coordinator(kind: str, key_type: int, key: dict, version: int, value: dict | None) -> Record:
    """Make a coordinator record with bytes from the schemas (tests/formats covers these)."""
    key_message, value_message = by_key(kind, key_type, "key"), by_key(kind, key_type, "value")
    encoded = struct.pack(">h", key_type) + schema(key_message.name, 0).build(key)
    if value is None:
        return record(encoded, None)
    built = schema(value_message.name, version).build(value)
    return record(encoded, struct.pack(">h", version) + built)


# --- equal to Kafka's tool


@pytest.mark.sampled(2, each_value=True)
@pytest.mark.parametrize(
    ("release", "line"),
    [*product([NEWER], PAYLOADS), *product([OLDER], OLD_PAYLOADS)],
    ids=lambda one: getattr(one, "name", None),
)
def test_payloads_print_like_kafkas_tool(release: Release, line: tuple[str, ...]):
    """Every message family, including errors, byte for byte."""
    assert kafka_text(PayloadKind(line[0]), recorded(line), release) == line[4]


def test_without_a_release_the_newest_tool_counts():
    """What a line prints in only one release tells them apart."""
    of_newest = [line for line in LINES if line[:4] in DIFFERENT]
    assert len(of_newest) == len(DIFFERENT) > 20
    for line in of_newest:
        assert kafka_text(PayloadKind(line[0]), recorded(line)) == line[4]


@pytest.mark.parametrize("line", CONTROLS)
def test_control_records_print_like_kafkas_tool(line: tuple[str, ...]):
    """All types, a claimed version 1 and trailing bytes."""
    assert control_text(recorded(line)) == line[4]


@pytest.mark.parametrize("line", JSON_LINES)
def test_values_are_those_of_the_printed_json(line: tuple[str, ...]):
    """Where Kafka prints JSON, `decode` has the same values; where it prints an error, an error."""
    text = line[4]
    decoded = decode(PayloadKind(line[0]), *data_of(line))
    if "skipping." in text:
        assert decoded.error
        assert decoded.value is None
    else:
        key_text, _, payload = text.removeprefix(" key: ").rpartition(" payload: ")
        assert decoded.error is None
        assert decoded.key == (json.loads(key_text) if key_text else None)
        assert decoded.value == (None if payload == "<DELETE>" else json.loads(payload))
        assert java_json(decoded.value) == ("null" if payload == "<DELETE>" else payload)


# --- the documented lines: dump-log-segments §4.2 and §4.3

TOPIC_ID = "MkTRaEcKTPyRrQqHI1qwhQ"
DOCUMENTED = [
    (
        ("offsets", 8, {"groupId": "cg", "memberId": "m"}, 0, {
            "memberEpoch": 3, "previousMemberEpoch": 2, "state": 0,
            "assignedPartitions": [
                {"topicId": TOPIC_ID, "partitions": [0, 1], "assignmentEpochs": [3, 2]}
            ],
            "partitionsPendingRevocation": [],
        }),
        (' key: {"type":"8","data":{"groupId":"cg","memberId":"m"}} payload: {"version":"0","data":'
        '{"memberEpoch":3,"previousMemberEpoch":2,"state":0,"assignedPartitions":[{"topicId":'
        '"MkTRaEcKTPyRrQqHI1qwhQ","partitions":[0,1],"assignmentEpochs":[3,2]}],'
        '"partitionsPendingRevocation":[]}}'),
    ),
    (
        ("transaction-log", 0, {"transactionalId": "tx"}, 1, {
            "producerId": 4001, "previousProducerId": 4000, "nextProducerId": 4002,
            "producerEpoch": 3, "nextProducerEpoch": 0, "transactionTimeoutMs": 60000,
            "transactionStatus": 1,
            "transactionPartitions": [{"topic": "t", "partitionIds": [0, 1]}],
            "transactionLastUpdateTimestampMs": 1000, "transactionStartTimestampMs": 900,
            "clientTransactionVersion": 2,
        }),
        (' key: {"type":"0","data":{"transactionalId":"tx"}} payload: {"version":"1","data":'
        '{"producerId":4001,"previousProducerId":4000,"nextProducerId":4002,"producerEpoch":3,'
        '"nextProducerEpoch":0,"transactionTimeoutMs":60000,"transactionStatus":"Ongoing",'
        '"transactionPartitions":[{"topic":"t","partitionIds":[0,1]}],'
        '"transactionLastUpdateTimestampMs":1000,"transactionStartTimestampMs":900,'
        '"clientTransactionVersion":2}}'),
    ),
    (
        ("share-group-state", 1, {"groupId": "sg", "topicId": TOPIC_ID, "partition": 1}, 0, {
            "snapshotEpoch": 1, "leaderEpoch": 2, "startOffset": -1, "deliveryCompleteCount": 9,
            "stateBatches": [],
        }),
        (' key: {"type":"1","data":{"groupId":"sg","topicId":"MkTRaEcKTPyRrQqHI1qwhQ","partition":1'
        '}} payload: {"version":"0","data":{"snapshotEpoch":1,"leaderEpoch":2,"startOffset":-1,'
        '"deliveryCompleteCount":9,"stateBatches":[]}}'),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("made_of", "text"), DOCUMENTED)
def test_documented_lines_are_printed(made_of: tuple, text: str):
    """Fields in definition order, tagged fields in place, versions and types as strings."""
    assert kafka_text(PayloadKind(made_of[0]), coordinator(*made_of)) == text


def test_a_documented_metadata_record_is_printed():
    """dump-log-segments §4.3: version as a number, type by name."""
    fields = {
        "partitionId": 0, "topicId": TOPIC_ID, "replicas": [1, 2], "isr": [1],
        "removingReplicas": [], "addingReplicas": [], "leader": 1, "leaderRecoveryState": 1,
        "leaderEpoch": 0, "partitionEpoch": 0,
        "directories": [TOPIC_ID, "AAAAAAAAAAAAAAAAAAAAAQ"],
        "eligibleLeaderReplicas": [2], "lastKnownElr": [],
    }  # fmt: skip
    value = b"\x01\x03\x02" + schema("PartitionRecord", 2).build(fields)
    assert kafka_text(PayloadKind.CLUSTER_METADATA, record(None, value)) == (
        ' payload: {"type":"PARTITION_RECORD","version":2,"data":{"partitionId":0,"topicId":'
        '"MkTRaEcKTPyRrQqHI1qwhQ","replicas":[1,2],"isr":[1],"removingReplicas":[],'
        '"addingReplicas":[],"leader":1,"leaderRecoveryState":1,"leaderEpoch":0,"partitionEpoch":'
        '0,"directories":["MkTRaEcKTPyRrQqHI1qwhQ","AAAAAAAAAAAAAAAAAAAAAQ"],'
        '"eligibleLeaderReplicas":[2],"lastKnownElr":[]}}'
    )


# --- decode


@pytest.mark.parametrize(
    ("topic", "kind"),
    [
        ("__consumer_offsets", "offsets"),
        ("__transaction_state", "transaction-log"),
        ("__cluster_metadata", "cluster-metadata"),
        ("__remote_log_metadata", "remote-log-metadata"),
        ("__share_group_state", "share-group-state"),
        ("orders", None),
        ("__consumer_offsets2", None),
    ],
)
def test_the_topic_decides_the_kind(topic: str, kind: str | None):
    """Only Kafka's own topics have one."""
    assert payload_kind(topic) == kind


def test_unknown_versions_are_never_guessed():
    """Kafka's tool prints TopicRecord version 9 as version 0; values from that would be wrong."""
    topic = bytes.fromhex("01020904666f6f3244d168470a4cfc91ad0a87235ab08500")
    decoded = decode(PayloadKind.CLUSTER_METADATA, None, topic)
    assert decoded == Decoded(None, None, "Unknown version 9 of TOPIC_RECORD")
    assert '"version":9' in kafka_text(PayloadKind.CLUSTER_METADATA, record(None, topic))


def test_a_readable_key_stays_when_the_value_is_not():
    """As much as possible is decoded."""
    key = bytes.fromhex("000100016700017400000003")
    decoded = decode(PayloadKind.OFFSETS, key, b"\x00\x05\x00")
    assert decoded.key == {"type": "1", "data": {"group": "g", "topic": "t", "partition": 3}}
    assert decoded.value is None
    assert decoded.error == "Found an unknown record version 5 for 1 type"


def test_a_tombstone_has_neither_value_nor_error():
    """A null value means deleted, not damaged."""
    key = bytes.fromhex("000100016700017400000003")
    decoded = decode(PayloadKind.OFFSETS, key, None)
    assert (decoded.value, decoded.error) == (None, None)
    assert decoded.key is not None


def test_a_coordinator_record_without_key_stops_kafkas_tool():
    """dump-log-segments §4.2, with the text of Kafka's exception."""
    with pytest.raises(CorruptDataError) as caught:
        kafka_text(PayloadKind.OFFSETS, record(None, b"x", 5))
    assert caught.value.reference == "decoder-key-missing"
    assert caught.value.message == (
        "Failed to decode message at offset 5 using the specified decoder "
        "(message had a missing key)"
    )
    assert decode(PayloadKind.OFFSETS, None, b"x").error == "The key is missing"


def test_unknown_tags_and_odd_booleans_do_not_show():
    """Kafka's JSON omits unknown tagged fields; every byte but 0 is true."""
    fields = {"entity": [], "key": "k", "value": 1.0, "remove": 7, UNKNOWN_TAGS: [(200, b"x")]}
    value = b"\x01\x0e\x00" + schema("ClientQuotaRecord", 0).build(fields)
    decoded = decode(PayloadKind.CLUSTER_METADATA, None, value)
    assert decoded.value == {
        "type": "CLIENT_QUOTA_RECORD",
        "version": 0,
        "data": {"entity": [], "key": "k", "value": 1.0, "remove": True},
    }


def test_remote_log_metadata_has_values_too():
    """Kafka prints Java's toString; `decode` returns the fields."""
    line = next(line for line in LINES if "state=DELETE_SEGMENT_STARTED" in line[4])
    decoded = decode(PayloadKind.REMOTE_LOG_METADATA, *data_of(line))
    assert decoded.value == {
        "type": "REMOTE_LOG_SEGMENT_METADATA_UPDATE_RECORD",
        "version": 0,
        "data": {
            "remoteLogSegmentId": {
                "topicIdPartition": {"name": "t", "id": TOPIC_ID, "partition": 3},
                "id": "AAAAAAAAAAAAAAAAAAAAAQ",
            },
            "brokerId": 1,
            "eventTimestampMs": 18,
            "customMetadata": None,
            "remoteLogSegmentState": 2,
        },
    }


def test_a_state_that_nobody_knows_stays_a_number():
    """Kafka's tool cannot represent such a record, but its fields can be read."""
    line = next(line for line in LINES if "state can not be null" in line[4])
    decoded = decode(PayloadKind.REMOTE_LOG_METADATA, *data_of(line))
    assert decoded.value is not None
    assert decoded.value["data"]["remoteLogSegmentState"] == 9
    assert decoded.error is None


@settings(max_examples=examples(400))
@given(kind=st.sampled_from(PayloadKind), key=BYTES, value=BYTES)
def test_no_bytes_break_the_decoders(kind: PayloadKind, key: bytes | None, value: bytes | None):
    """Random bytes give a value or an error, and valid JSON either way."""
    check_decoders(kind, record(key, value))


@settings(max_examples=examples(600))
@given(
    line=st.sampled_from(PAYLOADS),
    in_key=st.booleans(),
    at=st.integers(0, 10**6),
    flip=st.integers(0, 255),
    cut=st.booleans(),
)
def test_no_damage_breaks_the_decoders(
    line: tuple[str, ...], in_key: bool, at: int, flip: int, cut: bool
):
    """Sound records with one byte flipped, or truncated."""
    key, value = unhex(line[2]), unhex(line[3])
    data = bytearray((key if in_key else value) or b"\0")
    at %= len(data)
    data[at] ^= flip
    damaged = bytes(data[:at] if cut else data)
    kind = PayloadKind(line[0])
    check_decoders(kind, record(damaged, value) if in_key else record(key, damaged))


def check_decoders(kind: PayloadKind, given_record: Record) -> None:
    decoded = decode(kind, given_record.key, given_record.value)
    assert decoded.error is None or decoded.value is None
    json.dumps([decoded.key, decoded.value], allow_nan=False).encode()
    if kind in {PayloadKind.CLUSTER_METADATA, PayloadKind.REMOTE_LOG_METADATA} or given_record.key:
        kafka_text(kind, given_record).encode()


# --- control records


def test_a_marker_says_type_and_coordinator_epoch():
    """kafka-formats §8.3."""
    marker = record(bytes.fromhex("00000001"), bytes.fromhex("00000000000c"))
    assert control_record(marker) == ControlRecord(1, "COMMIT", coordinator_epoch=12)
    assert control_text(marker) == " endTxnMarker: COMMIT coordinatorEpoch: 12"


def test_a_kraft_record_says_its_fields():
    """kafka-formats §5.3."""
    version = record(bytes.fromhex("00000005"), bytes.fromhex("0000000100"))
    expected = ControlRecord(5, "KRAFT_VERSION", fields={"version": 0, "kRaftVersion": 1})
    assert control_record(version) == expected


@pytest.mark.parametrize("type_id", [7, 200, -1, -32768])
def test_an_unknown_control_type_keeps_its_number(type_id: int):
    """Later releases may add types; the value is ignored."""
    unknown = record(b"\0\0" + type_id.to_bytes(2, "big", signed=True), None)
    assert control_record(unknown) == ControlRecord(type_id, None)
    assert control_text(unknown) == f" controlType: UNKNOWN({type_id})"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("null", "00000000000c"),
        ("", "00000000000c"),
        ("000000", "00000000000c"),
        ("ffff0001", "00000000000c"),
        ("ffff0007", "null"),
        ("00000001", "null"),
        ("00000001", "0000000000"),
        ("00000001", "ffff0000000c"),
        ("00000002", "null"),
        ("00000002", "0000"),
        ("00000004", "0000"),
        ("00000002", "000000000001ffffffff0f"),
    ],
)
def test_a_malformed_control_record_is_corrupt(key: str, value: str):
    """All of these end Kafka's tool with an exception [checked with 4.3.0]."""
    with pytest.raises(CorruptDataError) as caught:
        control_text(record(unhex(key), unhex(value), 3))
    assert caught.value.reference == "control-record-malformed"
    assert "offset 3" in caught.value.message
    assert (caught.value.path, caught.value.position) == ("a.log", 77)


@settings(max_examples=examples(300))
@given(type_id=st.integers(0, 7), key_rest=st.binary(max_size=3), value=BYTES)
def test_no_bytes_break_control_records(type_id: int, key_rest: bytes, value: bytes | None):
    """The result is a text or a damage error, nothing else."""
    control = record(struct.pack(">hh", 0, type_id) + key_rest, value)
    try:
        text = control_text(control)
    except CorruptDataError:
        return
    assert text.startswith(" ")


# --- Java's text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1024.0, "1024.0"),
        (1e7, "1.0E7"),
        (9999999.0, "9999999.0"),
        (0.001, "0.001"),
        (1e-4, "1.0E-4"),
        (1.5e-5, "1.5E-5"),
        (-0.0, "-0.0"),
        (0.0, "0.0"),
        (100.0, "100.0"),
        (-12345678.9, "-1.23456789E7"),
        (1e23, "1.0E23"),  # JDK 19 and later
        (5e-324, "4.9E-324"),  # Double.MIN_VALUE in the JDK's documentation
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
    ],
)
def test_doubles_are_written_as_java_does(number: float, text: str):
    """dump-log-segments §4.1."""
    assert java_double(number) == text
    finite = text[-1].isdigit()
    assert java_json(number) == (text if finite else f'"{text}"')


@given(st.floats(allow_nan=False, allow_infinity=False))
@example(1e22)
def test_a_written_double_reads_back(number: float):
    """The text has enough digits."""
    assert float(java_double(number)) == number


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("61", "a"),
        ("e29c93", "✓"),
        ("ff61", "�a"),
        ("eda080", "�"),  # one in Java, three in Python
        ("edbfbf61", "�a"),
        ("eda061", "�a"),
        ("ed9fbf", "\ud7ff"),
        ("f0908080", "\U00010000"),
        ("e29c", "�"),
        ("c080", "��"),
        ("f0808080", "����"),
    ],
)
def test_malformed_utf8_is_replaced_as_java_does(data: str, text: str):
    """dump-log-segments §2; the number of replacement characters matters."""
    assert java_text(bytes.fromhex(data)) == text


def test_json_strings_are_escaped_as_jackson_does():
    """dump-log-segments §4.1: upper-case hex, everything from 0x20 on raw."""
    assert java_json('"\\\b\t\n\f\r\x00\x1b\x1f/\x7f\u2028é😀') == (
        '"\\"\\\\\\b\\t\\n\\f\\r\\u0000\\u001B\\u001F/\x7f\u2028é😀"'
    )


def test_json_is_compact_and_keeps_the_order():
    """No spaces, no sorting."""
    assert java_json({"b": [1, True, None], "a": {"x": []}}) == '{"b":[1,true,null],"a":{"x":[]}}'
    with pytest.raises(TypeError):
        java_json(b"bytes")
