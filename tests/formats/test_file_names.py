"""File and directory names as kafka-formats §6.1 to §6.3 lists them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.file_names import (
    OFFSET_CHECKPOINTS,
    DirectoryName,
    DirectoryState,
    FileKind,
    FileName,
    FileState,
    is_in_remote_storage,
    parse_directory_name,
    parse_file_name,
    parse_remote_directory_name,
    partition_name,
    remote_file_name,
    segment_file,
    segment_file_name,
)
from tests.sampling import examples

if TYPE_CHECKING:
    from tests.conftest import State

ZERO = "00000000000000000000"
MAX = "09223372036854775807"
UID = "0123456789abcdef0123456789abcdef"

FILES = {
    f"{ZERO}.log": (FileKind.LOG, FileState.LIVE, 0),
    f"{MAX}.log": (FileKind.LOG, FileState.LIVE, 2**63 - 1),
    "00000000000000000349.index": (FileKind.OFFSET_INDEX, FileState.LIVE, 349),
    "00000000000000000349.timeindex": (FileKind.TIME_INDEX, FileState.LIVE, 349),
    "00000000000000000349.txnindex": (FileKind.TRANSACTION_INDEX, FileState.LIVE, 349),
    "00000000000000000349.snapshot": (FileKind.PRODUCER_SNAPSHOT, FileState.LIVE, 349),
    "00000000000000000007.log.cleaned": (FileKind.LOG, FileState.CLEANED, 7),
    "00000000000000000007.index.swap": (FileKind.OFFSET_INDEX, FileState.SWAP, 7),
    "00000000000000000007.timeindex.deleted": (FileKind.TIME_INDEX, FileState.DELETED, 7),
    "00000000000000000007.snapshot.deleted": (FileKind.PRODUCER_SNAPSHOT, FileState.DELETED, 7),
    "leader-epoch-checkpoint": (FileKind.LEADER_EPOCH_CHECKPOINT, FileState.LIVE, None),
    "leader-epoch-checkpoint.tmp": (FileKind.LEADER_EPOCH_CHECKPOINT, FileState.TEMPORARY, None),
    "partition.metadata": (FileKind.PARTITION_METADATA, FileState.LIVE, None),
    "partition.metadata.tmp": (FileKind.PARTITION_METADATA, FileState.TEMPORARY, None),
    "quorum-state": (FileKind.QUORUM_STATE, FileState.LIVE, None),
    "meta.properties": (FileKind.META_PROPERTIES, FileState.LIVE, None),
    "meta.properties.tmp": (FileKind.META_PROPERTIES, FileState.TEMPORARY, None),
    ".kafka_cleanshutdown": (FileKind.CLEAN_SHUTDOWN, FileState.LIVE, None),
    ".lock": (FileKind.LOCK, FileState.LIVE, None),
    "bootstrap.checkpoint": (FileKind.KRAFT_SNAPSHOT, FileState.LIVE, None),
    "recovery-point-offset-checkpoint": (FileKind.OFFSET_CHECKPOINT, FileState.LIVE, None),
    "replication-offset-checkpoint.tmp": (FileKind.OFFSET_CHECKPOINT, FileState.TEMPORARY, None),
    "remote_log_snapshot": (FileKind.REMOTE_LOG_SNAPSHOT, FileState.LIVE, None),
}
UNKNOWN = [
    "",
    ".",
    "0.log",  # fewer than 20 digits
    f"{ZERO}.LOG",
    f"{ZERO}.log.bak",
    f"{ZERO}.log ",
    f" {ZERO}.log",
    f"-{ZERO}.log",
    f"{ZERO}.log\n",
    "09223372036854775808.log",  # one more than a long can be
    "lost+found",
    "leader-epoch-checkpoint.deleted",
    "meta.properties~",
    f"{ZERO}-1.checkpoint",
    f"{ZERO}-9999999999.checkpoint",  # more than an int can be
]


@pytest.mark.parametrize("name", FILES)
def test_a_file_name_says_kind_state_and_offset(name: str):
    """§6.1 and §6.3."""
    kind, state, offset = FILES[name]
    assert parse_file_name(name) == FileName(name, kind, state, offset)


@pytest.mark.parametrize("name", UNKNOWN)
def test_other_names_are_unknown(name: str):
    """Nothing is guessed: a broker ignores such files."""
    assert parse_file_name(name) == FileName(name, FileKind.UNKNOWN, FileState.LIVE)


def test_a_kraft_snapshot_has_offset_and_epoch():
    """End offset, epoch, and the states of a snapshot that is being written or deleted."""
    stem = "00000000000000000068-0000000001"
    for name, state in (
        (f"{stem}.checkpoint", FileState.LIVE),
        (f"{stem}.checkpoint.deleted", FileState.DELETED),
        (f"{stem}-1234567890.checkpoint.part", FileState.PART),
    ):
        assert parse_file_name(name) == FileName(name, FileKind.KRAFT_SNAPSHOT, state, 68, 1)


def test_a_cached_remote_index_names_its_segment():
    """§6.11: `<offset>_<uuid>.<suffix>`."""
    name = "23_MkTRaEcKTPyRrQqHI1qwhQ.timeindex"
    found = parse_file_name(name)
    assert (found.kind, found.offset) == (FileKind.TIME_INDEX, 23)
    assert found.segment_id == "MkTRaEcKTPyRrQqHI1qwhQ"


@pytest.mark.parametrize(
    ("name", "topic", "partition"),
    [
        ("orders-0", "orders", 0),
        ("a-b-c-17", "a-b-c", 17),
        ("__consumer_offsets-49", "__consumer_offsets", 49),
        ("dotted.topic-2147483647", "dotted.topic", 2**31 - 1),
        ("x--1", "x-", 1),
    ],
)
def test_a_live_directory_is_split_at_the_last_dash(name: str, topic: str, partition: int):
    """§6.2, step 3."""
    assert parse_directory_name(name) == DirectoryName(name, topic, partition)


SEGMENT_ID = "5M8iwiofTIqTAfE-AavnCA"
TOPIC_ID = "qcTm-9etQeKXX6L9q4c_5w"


@pytest.mark.parametrize(
    ("suffix", "kind"),
    [
        ("log", FileKind.LOG),
        ("index", FileKind.OFFSET_INDEX),
        ("timeindex", FileKind.TIME_INDEX),
        ("txnindex", FileKind.TRANSACTION_INDEX),
        ("snapshot", FileKind.PRODUCER_SNAPSHOT),
        ("leader_epoch_checkpoint", FileKind.LEADER_EPOCH_CHECKPOINT),
    ],
)
def test_files_of_remote_segments(suffix: str, kind: FileKind):
    """`RemoteLogSegmentFileset`: base offset, segment id, and the six types of its files."""
    name = f"00000000000000000349-{SEGMENT_ID}.{suffix}"
    assert parse_file_name(name) == FileName(name, kind, offset=349, segment_id=SEGMENT_ID)
    assert is_in_remote_storage(parse_file_name(name))
    cached = parse_file_name(f"349_{SEGMENT_ID}.index")
    assert cached.segment_id == SEGMENT_ID
    assert not is_in_remote_storage(cached)
    for other in (f"{name}.deleted", f"349-{SEGMENT_ID}.{suffix}", name.replace("-A", "-")):
        assert parse_file_name(other).kind == FileKind.UNKNOWN


def test_directories_of_remote_segments():
    """`RemoteTopicPartitionDirectory`: topic, partition and topic id; a broker loads none."""
    name = f"a.b_c-1-17-{TOPIC_ID}"
    wanted = DirectoryName(name, "a.b_c-1", 17, DirectoryState.REMOTE, TOPIC_ID)
    assert parse_remote_directory_name(name) == wanted == partition_name(name)
    assert parse_directory_name(name) is None
    # the last character of an id has two bits
    assert parse_remote_directory_name(name[:-1] + "1") is None
    assert partition_name("orders-0") == parse_directory_name("orders-0")


@pytest.mark.parametrize("state", ["delete", "future", "stray"])
def test_a_moved_directory_is_cut_at_the_last_dot(state: str):
    """§6.2, step 2: topics may hold dots and dashes themselves."""
    name = f"a.b-c-3.{UID}-{state}"
    assert parse_directory_name(name) == DirectoryName(name, "a.b-c", 3, DirectoryState(state), UID)


@pytest.mark.parametrize(
    "name",
    ["", "-", "orders", "orders-", "-0", "orders-x", "lost+found", "remote-log-index-cache",
     "orders-2147483648", "orders-99999999999999999999", f"orders.{UID}-delete", "a-delete",
     f"orders-0{UID}-future", "orders-0.-stray", "orders-1.5"],
)  # fmt: skip
def test_a_broker_does_not_start_on_other_directories(name: str):
    """§6.2: the name does not parse."""
    assert parse_directory_name(name) is None


def test_segment_names_have_twenty_digits():
    """§6.3."""
    assert segment_file_name(0, FileKind.LOG) == f"{ZERO}.log"
    assert segment_file_name(349, FileKind.TIME_INDEX) == "00000000000000000349.timeindex"
    assert segment_file_name(2**63 - 1, FileKind.OFFSET_INDEX) == f"{MAX}.index"
    assert segment_file(349, ".log.swap") == "00000000000000000349.log.swap"
    assert segment_file(-1, ".log") == "-00000000000000000001.log"


def test_names_of_remote_files_are_parsed_as_what_they_name():
    """`RemoteLogSegmentFileset.RemoteLogSegmentFileType` has these suffixes."""
    segment_id = "5M8iwiofTIqTAfE-AavnCA"
    wanted = {
        FileKind.LOG: "log",
        FileKind.OFFSET_INDEX: "index",
        FileKind.TIME_INDEX: "timeindex",
        FileKind.TRANSACTION_INDEX: "txnindex",
        FileKind.PRODUCER_SNAPSHOT: "snapshot",
        FileKind.LEADER_EPOCH_CHECKPOINT: "leader_epoch_checkpoint",
    }
    for kind, suffix in wanted.items():
        name = remote_file_name(349, segment_id, kind)
        assert name == f"00000000000000000349-{segment_id}.{suffix}"
        assert parse_file_name(name).kind == kind
    manifest = remote_file_name(349, segment_id, FileKind.MANIFEST)
    assert manifest == f"00000000000000000349-{segment_id}.rsm-manifest"


@pytest.mark.parametrize("digits", [21, 255, 5000, 100_000])
def test_endless_digits_are_no_number(digits: int):
    """A name on a command line can be longer than any name on a disk."""
    for name in (f"{'9' * digits}.log", f"{'9' * digits}_{'A' * 22}.index",
                 f"{ZERO}-{'9' * digits}.checkpoint"):  # fmt: skip
        assert parse_file_name(name).kind == FileKind.UNKNOWN
    assert parse_directory_name(f"orders-{'9' * digits}") is None


@settings(max_examples=examples(100))
@given(st.text(max_size=300))
def test_any_text_is_taken(name: str):
    """Names come from disk: every name is kept, and none raises."""
    assert parse_file_name(name).name == name
    parsed = parse_directory_name(name)
    assert parsed is None or parsed.name == name


def test_every_name_in_the_corpus_is_known(any_state: State):
    """Brokers wrote them all: 2.8 and 4.3, live, closed, killed, half cleaned."""
    for log_dir in any_state.log_dirs:
        for path in sorted(Path(log_dir).rglob("*")):
            if path.is_dir():
                assert parse_directory_name(path.name), path
            else:
                assert parse_file_name(path.name).kind != FileKind.UNKNOWN, path
    assert len(OFFSET_CHECKPOINTS) == 4
