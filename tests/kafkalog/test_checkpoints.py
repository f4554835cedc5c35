"""Text checkpoints: what Kafka reads is accepted, what it calls malformed is rejected (§6.7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafkalog.errors import CorruptDataError, KafkaLogError
from kafkalog.files.text_files import read_leader_epochs, read_number_pairs, read_offset_checkpoint
from kafkalog.model import CheckpointEntry, EpochEntry

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import State

OFFSETS = b"0\n2\nmy.topic 0 5\nmy.topic 11 7\n"
EPOCHS = b"0\n2\n0 0\n3 42\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


def test_entries_come_in_file_order(file: Path):
    """§8.4."""
    file.write_bytes(OFFSETS)
    assert read_offset_checkpoint(str(file)) == [
        CheckpointEntry("my.topic", 0, 5), CheckpointEntry("my.topic", 11, 7),
    ]  # fmt: skip
    file.write_bytes(EPOCHS)
    assert read_leader_epochs(str(file)) == [EpochEntry(0, 0), EpochEntry(3, 42)]
    assert read_number_pairs(str(file)) == [(0, 0), (3, 42)]


@pytest.mark.parametrize(
    ("data", "entries"),
    [
        (b"", []),
        (b"0", []),
        (b"0\n", []),
        (b"0\n0\n", []),
        (b"0\r\n1\r\nt 0 5\r\n", [("t", 0, 5)]),
        (b"0\n1\nt\t 0  \t5", [("t", 0, 5)]),
        (b"0\n1\nt 0 -1\n", [("t", 0, -1)]),
        (b"0\n1\nt 0 5 \n", [("t", 0, 5)]),
        (b"0\n1\nt 0 9223372036854775807\n", [("t", 0, 2**63 - 1)]),
    ],
)
def test_texts_that_kafka_accepts(file: Path, data: bytes, entries: list[tuple[str, int, int]]):
    """Empty, version only, any whitespace, negative offsets."""
    file.write_bytes(data)
    assert read_offset_checkpoint(str(file)) == [CheckpointEntry(*entry) for entry in entries]


@pytest.mark.parametrize(
    "data",
    [
        b"1\n0\n",
        b"-1\n",
        b"\n",
        b"x\n",
        b"0 0\n",
        b"0 \n1\nt 0 5\n",
        b"0\n1\t\nt 0 5\n",
        b"0\nx\n",
        b"0\n1 1\nt 0 5\n",
        b"0\n1\n",
        b"0\n0\nt 0 5\n",
        b"0\n2\nt 0 5\n",
        b"0\n-1\n",
        b"0\n1\nt 0 5\n\n",
        b"0\n1\n t 0 5\n",
        b"0\n1\nt 0\n",
        b"0\n1\nt 0 5 6\n",
        b"0\n1\nt x 5\n",
        b"0\n1\nt 0 5.0\n",
        b"0\n1\nt 0 \n",
        b"0\n1\nt 0 0x5\n",
        b"0\n1\nt 0 1_000\n",
        b"0\n1\nt 0 --5\n",
        b"0\n1\nt 0 9223372036854775808\n",
        b"0\n1\nt 0 -9223372036854775809\n",
        b"0\n1\nt 2147483648 5\n",
        b"0\n1\nt 0 " + b"9" * 5000 + b"\n",
        b"9" * 5000 + b"\n",
        b"0\n" + b"9" * 5000 + b"\n",
        b"0\n1\nt\xff 0 5\n",
        b"\0" * 100,
    ],
)
def test_texts_that_kafka_calls_malformed(file: Path, data: bytes):
    """A wrong version, count, field or number takes the whole log directory offline."""
    file.write_bytes(data)
    with pytest.raises(CorruptDataError) as caught:
        read_offset_checkpoint(str(file))
    assert caught.value.path == str(file)
    assert caught.value.reference in ("checkpoint-malformed", "file-malformed")


def test_epochs_are_ints_and_offsets_longs(file: Path):
    """§6.7: `Integer.parseInt` for the epoch."""
    file.write_bytes(b"0\n1\n2147483647 9223372036854775807\n")
    assert read_leader_epochs(str(file)) == [EpochEntry(2**31 - 1, 2**63 - 1)]
    file.write_bytes(b"0\n1\n2147483648 0\n")
    with pytest.raises(CorruptDataError):
        read_leader_epochs(str(file))


@given(
    st.binary(max_size=60) | st.text(alphabet="0123 \n\r\tat-+\u0663", max_size=40).map(str.encode)
)
@example(b"0\n1\n\xd9\xa3 0 5\n")
def test_any_bytes_give_entries_or_our_error(file: Path, data: bytes):
    """Any text gives entries or an error of ours, nothing else."""
    file.write_bytes(data)
    for read in (read_offset_checkpoint, read_leader_epochs, read_number_pairs):
        try:
            entries = read(str(file))
        except KafkaLogError:
            continue
        assert len(entries) <= data.count(b"\n") + data.count(b"\r")


@pytest.mark.sampled(3)
def test_corpus_checkpoints_are_read(any_state: State):
    """Compared with a plain split into lines and fields."""
    for path in sorted(any_state.root.rglob("*checkpoint")):
        if not path.is_file() or path.suffix == ".checkpoint":
            continue
        lines = path.read_text().splitlines()
        if path.name == "leader-epoch-checkpoint":
            got = [f"{e.leader_epoch} {e.start_offset}" for e in read_leader_epochs(str(path))]
        else:
            got = [f"{e.topic} {e.partition} {e.offset}" for e in read_offset_checkpoint(str(path))]
        assert got == lines[2:], path
