"""The small files of a directory: ids, markers and producer snapshots (§6.6b, §6.7 to §6.10)."""

from __future__ import annotations

import contextlib
import json
import random
import struct
import time
import tracemalloc
from typing import TYPE_CHECKING

import crc32c as wheel
import javaproperties
import pytest

from formats.file_names import FileKind
from kafkalog.errors import CorruptDataError, KafkaLogError, NotAKafkaFileError, NotFoundError
from kafkalog.files.text_files import (
    PLAIN_PROPERTIES,
    MetaProperties,
    NoTopicIdError,
    read_clean_shutdown,
    read_meta_properties,
    read_properties,
    read_quorum_state,
    read_remote_log_file,
    read_topic_id,
)
from kafkalog.log.producers import read_producer_snapshot
from kafkalog.model import ProducerState
from tests.builders import flip
from tests.counted_work import counted_work

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import State

CLUSTER = "MkTRaEcKTPyRrQqHI1qwhQ"
SNAPSHOT = bytes.fromhex(
    "00018d2fa8a7000000020000000000000fa10003000000090000000000000029000000010000018bcfe56be80000"
    "000c00000000000000280000000000000fa20000ffffffffffffffffffffffff000000000000018bcfe56fd0ffff"
    "ffffffffffffffffffff"
)
HANGING_S = 30.0
"""Far more than a linear parser needs for the largest text here, and less than a quadratic one."""
READERS: dict[str, Callable[[str], object]] = {
    "meta.properties": read_meta_properties,
    "partition.metadata": read_topic_id,
    "quorum-state": read_quorum_state,
    ".kafka_cleanshutdown": read_clean_shutdown,
    "00000000000000000042.snapshot": read_producer_snapshot,
    "remote_log_snapshot": lambda path: read_remote_log_file(path, FileKind.REMOTE_LOG_SNAPSHOT),
    "_rlmm_committed_offsets": lambda path: read_remote_log_file(path, FileKind.REMOTE_LOG_OFFSETS),
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "file"


def meta(file: Path, text: str) -> MetaProperties:
    file.write_text(text, encoding="iso-8859-1")
    return read_meta_properties(str(file))


def test_meta_properties_of_both_versions(file: Path):
    """§6.8: `node.id` since version 1, `broker.id` before; a missing version is 0."""
    text = f"#\n#Tue Jul 01 10:00:00 UTC 2025\nversion=1\ncluster.id={CLUSTER}\n"
    text += "directory.id=AAAAAAAAAAAAAAAAAAAABQ\nnode.id=1\nbroker.id=9\n"
    assert meta(file, text) == MetaProperties(1, CLUSTER, 1, "AAAAAAAAAAAAAAAAAAAABQ")
    assert meta(file, "broker.id=7\n") == MetaProperties(0, None, 7, None)
    assert meta(file, "") == MetaProperties(0, None, None, None)


def test_properties_are_escaped_as_java_does(file: Path):
    """§6.8: escapes, continued lines, Latin-1, the last of equal keys."""
    file.write_bytes(b"a\\:b=\\u0041\\\n  x\nk=\xe9\nk=2\n! comment\n")
    assert read_properties(str(file)) == {"a:b": "Ax", "k": "2"}


def test_plain_properties_are_those_of_the_library(file: Path):
    """What is read without the library is what it reads, and what is not plain goes to it."""
    rng = random.Random(11)
    pieces = ["#", "!", "\n", "=", "a", "b.c", ":", "/x", " ", "\\", "\r", "\x85", "1=2\n", "#a\n"]
    plain = 0
    for _ in range(4000):
        text = "".join(rng.choices(pieces, k=rng.randrange(1, 9)))
        file.write_text(text, encoding="iso-8859-1", newline="")
        assert read_properties(str(file)) == javaproperties.loads(text), text
        plain += bool(PLAIN_PROPERTIES.fullmatch(text))
    assert plain > 100


@pytest.mark.parametrize(
    "text",
    ["version=2\n", "version=x\n", "version=-1\n", "node.id=x\nversion=1\n", "broker.id=\n",
     "version=" + "1" * 5000, "a=\\u00zz\n", "version=1\nnode.id=1_0\n",
     "version=1\nnode.id=2147483648\n", "version=1\nnode.id=1\n", "version=1\ncluster.id=x\n",
     "directory.id=MkTRaEcKTPyRrQqHI1qwh\n"],
)  # fmt: skip
def test_properties_a_broker_refuses(file: Path, text: str):
    """Unknown versions, values that are not numbers, and numbers that do not fit an int."""
    with pytest.raises(CorruptDataError):
        meta(file, text)


def test_a_topic_id_is_22_characters(file: Path):
    """§6.7: two lines, no newline at the end."""
    file.write_bytes(b"version: 0\ntopic_id: MkTRaEcKTPyRrQqHI1qwhQ")
    assert read_topic_id(str(file)) == CLUSTER
    file.write_bytes(b"version: 1\nTopic id: MkTRaEcKTPyRrQqHI1qwhQ\nmore")
    assert read_topic_id(str(file)) == CLUSTER
    topic = b"topic_id: MkTRaEcKTPyRrQqHI1qwhQ"
    for damaged in (
        b"", b"version: 0\n", b"version: 0\ntopic_id:", b"\xff", b"\nversion: 0\n" + topic,
        b"version:0\n" + topic, b"version: x\n" + topic, b"version: -1\n" + topic,
        b"version: 0\n" + topic[:-1], b"version: 0\n" + topic + b"A",
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", b"version: 0\n" + topic + b" ",
    ):  # fmt: skip
        file.write_bytes(damaged)
        with pytest.raises(CorruptDataError):
            read_topic_id(str(file))


TOPIC_ID = b"version: 0\ntopic_id: MkTRaEcKTPyRrQqHI1qwhQ"


@pytest.mark.parametrize(
    ("content", "thrown"),
    [
        (TOPIC_ID + b"\n\xc3", None),  # cut off by the end, after the last line that is read
        (TOPIC_ID + b"\r\xed\xa0", None),
        (TOPIC_ID + b"\xc3", "KafkaStorageException"),
        (TOPIC_ID + b"\n\xc3\n", "KafkaStorageException"),  # malformed, decoded with the lines
        (TOPIC_ID + b"\n\xff", "KafkaStorageException"),
        (TOPIC_ID + b"\n" + b"x" * 9000 + b"\xff", None),  # decoded after them
        (TOPIC_ID + b"\n" + b"x" * (8192 - 45) + b"\xff", "KafkaStorageException"),
        (TOPIC_ID + b"\n" + b"x" * (8192 - 44) + b"\xff", None),
        (b"version: 0\nversion: 0\n2\xc3", "IllegalArgumentException"),
        (b"version: 0: \nid: MkTRaEcKTPyRrQqHI1qwhQ:  ", None),  # empty fields at the end
        (b"version: 0: 1\nid: MkTRaEcKTPyRrQqHI1qwhQ", "KafkaStorageException"),
        (b"version: 0\n", "NullPointerException"),
        (b"\xc3", "KafkaStorageException"),
    ],
)
def test_a_topic_id_is_read_as_kafka_reads_it(file: Path, content: bytes, thrown: str | None):
    """The expected results are Kafka 4.3's on Java 17. It decodes ahead, and reads what it must."""
    file.write_bytes(content)
    if thrown is None:
        assert read_topic_id(str(file)) == CLUSTER
        return
    with pytest.raises(NoTopicIdError) as caught:
        read_topic_id(str(file))
    assert caught.value.thrown == thrown


def test_json_files_are_objects(file: Path):
    """§6.9, §6.10: Kafka up to 3.6 writes an empty marker."""
    file.write_bytes(b'{"version":0,"brokerEpoch":77}')
    assert read_clean_shutdown(str(file)) == {"version": 0, "brokerEpoch": 77}
    file.write_bytes(b"")
    assert read_clean_shutdown(str(file)) == {}
    with pytest.raises(CorruptDataError):
        read_quorum_state(str(file))


STATE = {"leaderId": 1, "leaderEpoch": 2, "votedId": -1, "votedDirectoryId": CLUSTER}


def test_the_fields_of_a_quorum_state_go_by_its_version(file: Path):
    """§6.10: the fields that `FileQuorumStateStore` needs, each of its type; line 1 counts."""
    state = {**STATE, "data_version": 1}
    file.write_text(json.dumps(state) + "\nmore")
    assert read_quorum_state(str(file)) == state
    for wrong in (
        STATE, {**STATE, "data_version": 0}, {**STATE, "data_version": 2},
        {**STATE, "data_version": 1, "leaderId": "1"}, {**STATE, "data_version": True},
    ):  # fmt: skip
        file.write_text(json.dumps(wrong))
        with pytest.raises(CorruptDataError):
            read_quorum_state(str(file))


def test_a_clean_shutdown_needs_its_broker_epoch_only(file: Path):
    """`CleanShutdownFileHandler`: without a broker epoch it is a shutdown of unknown epoch."""
    file.write_bytes(b'{"brokerEpoch":77,"x":1}')
    assert read_clean_shutdown(str(file))["brokerEpoch"] == 77
    for wrong in (b'{"version":0}', b'{"brokerEpoch":"77"}', b"{"):
        file.write_bytes(wrong)
        with pytest.raises(CorruptDataError) as caught:
            read_clean_shutdown(str(file))
        assert caught.value.reference == "clean-shutdown-unreadable"


@pytest.mark.parametrize(
    "data",
    [b"[]", b"1", b'"x"', b"{", b'{"a":NaN}', b"[" * 200_000, b'{"a":' * 200_000, b"\xff\xfe",
     b'{"a":' + b"9" * 5000 + b"}", b'{"a":1}x', b"\0" * 64],
)  # fmt: skip
def test_other_json_is_malformed(file: Path, data: bytes):
    """This includes deep nesting and endless numbers."""
    file.write_bytes(data)
    for read in (read_quorum_state, read_clean_shutdown):
        with pytest.raises(CorruptDataError):
            read(str(file))


def test_a_producer_snapshot_is_read(file: Path):
    """§8.4: one producer with an open transaction, one with only a marker."""
    file.write_bytes(SNAPSHOT)
    first, second = read_producer_snapshot(str(file))
    assert first == ProducerState(4001, 3, 12, 9, 41, 1, 1700000001000, 40)
    assert first.first_sequence == 8
    assert second == ProducerState(4002, 0, -1, -1, -1, 0, 1700000002000, None)


def test_each_flip_and_cut_of_a_snapshot_is_found(file: Path):
    """Version, checksum and everything after them."""
    for damaged in (
        *(flip(SNAPSHOT, bit) for bit in range(8 * len(SNAPSHOT))),
        *(SNAPSHOT[:size] for size in range(len(SNAPSHOT))),
    ):
        file.write_bytes(damaged)
        with pytest.raises(CorruptDataError) as caught:
            read_producer_snapshot(str(file))
        assert caught.value.reference == "producer-snapshot-corrupt"


@pytest.mark.parametrize("count", [2**31 - 1, -1, -(2**31), 3])
def test_a_false_count_of_producers_is_found(file: Path, count: int):
    """The checksum is correct, and no memory is allocated for 2^31 producers."""
    rest = struct.pack(">i", count) + SNAPSHOT[10:]
    file.write_bytes(struct.pack(">hI", 1, wheel.crc32c(rest)) + rest)
    tracemalloc.start()
    with pytest.raises(CorruptDataError):
        read_producer_snapshot(str(file))
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()


def test_leftovers_of_tiered_storage(file: Path):
    """§6.11: the offset at which a snapshot was taken, and its number of entries."""
    file.write_bytes(struct.pack(">hiqi", 0, 3, 42, 1) + struct.pack(">i", 3) + b"abc")
    assert read_remote_log_file(str(file), FileKind.REMOTE_LOG_SNAPSHOT) == {
        "version": 0, "metadata_partition": 3, "metadata_partition_offset": 42, "entries": 1,
    }  # fmt: skip
    file.write_bytes(b"0\n1\n7 99\n")
    assert read_remote_log_file(str(file), FileKind.REMOTE_LOG_OFFSETS) == {"7": 99}
    for count in (2**31 - 1, -1, 2):
        file.write_bytes(struct.pack(">hiqi", 0, 3, 42, count) + struct.pack(">i", 3) + b"abc")
        with pytest.raises(CorruptDataError):
            read_remote_log_file(str(file), FileKind.REMOTE_LOG_SNAPSHOT)


@pytest.mark.parametrize("name", READERS)
def test_readers_say_what_is_missing_or_too_large(tmp_path: Path, name: str):
    """A sparse gibibyte is too large for a small file: it is not read."""
    path = tmp_path / name
    with pytest.raises(NotFoundError):
        READERS[name](str(path))
    with path.open("wb") as out:
        out.truncate(3 << 30)
    with pytest.raises(NotAKafkaFileError):
        READERS[name](str(path))


@pytest.mark.sampled(4, each_value=True)
@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("unit", [b"\\\n", b"\n", b"a", b"=", b" ", b"#\r", b"\\u0041", b"\0"])
def test_repetitive_texts_take_no_time(tmp_path: Path, name: str, unit: bytes):
    """Half a mebibyte of one repeated text would reveal quadratic parsers.

    Regular expressions make no calls: a quadratic one takes more than a hundred times as long as
    any of these.
    """
    path = tmp_path / name
    path.write_bytes(unit * ((1 << 16) // len(unit)))
    with counted_work() as work, contextlib.suppress(KafkaLogError):
        READERS[name](str(path))
    assert work.calls < 40 * (1 << 16)
    path.write_bytes(unit * ((1 << 19) // len(unit)))
    started = time.thread_time()
    with contextlib.suppress(KafkaLogError):
        READERS[name](str(path))
    assert time.thread_time() - started < HANGING_S


@pytest.mark.sampled(3)
def test_corpus_files_are_read(any_state: State):
    """Every broker's own files, compared with a few lines of Python."""
    for path in sorted(any_state.root.rglob("*")):
        if path.name == "meta.properties":
            lines = [line for line in path.read_text().splitlines() if line[:1] != "#"]
            wanted = dict(line.replace("\\", "").split("=", 1) for line in lines)
            assert read_properties(str(path)) == wanted
            got = read_meta_properties(str(path))
            assert got.version == int(wanted.get("version", "0"))
            assert str(got.node_id) in (wanted.get("node.id"), wanted.get("broker.id"))
        elif path.name == "partition.metadata":
            assert read_topic_id(str(path)) == path.read_text().split()[-1]
        elif path.name in ("quorum-state", ".kafka_cleanshutdown"):
            wanted = json.loads(path.read_text() or "{}")
            assert READERS[path.name](str(path)) == wanted
        elif path.suffix == ".snapshot":
            data = path.read_bytes()
            states = read_producer_snapshot(str(path))
            assert len(states) == struct.unpack_from(">i", data, 6)[0] == (len(data) - 10) // 46
            for number, state in enumerate(states):
                entry = struct.unpack_from(">qhiqiqiq", data, 10 + 46 * number)
                assert (state.producer_id, state.producer_epoch) == entry[:2]
                assert (state.last_sequence, state.last_offset, state.offset_delta) == entry[2:5]
                assert (state.last_timestamp, state.coordinator_epoch) == entry[5:7]
                first = state.current_txn_first_offset
                assert (-1 if first is None else first) == entry[7]
