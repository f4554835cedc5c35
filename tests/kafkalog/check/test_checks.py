"""Healthy logs have no findings; each kind of damage is made here, and has its own finding."""

from __future__ import annotations

import errno
import os
import struct
from pathlib import Path
from typing import TYPE_CHECKING

import crc32c as wheel
import pytest

from kafkalog.check.verify import Verification
from kafkalog.io.codecs import compress, decompress
from kafkalog.log.defects.table import REFERENCES
from kafkalog.model import Defect, Level, Severity
from kafkalog.node.reader import read_records
from tests.builders import batch, copy_tree, flip, frames, healthy, message, record, write_log
from tests.kafkalog.check import test_log_dir_checks
from tests.kafkalog.check.test_next_start import BY_START
from tests.kafkalog.check.test_producer_files import OF_FILES, OF_LOGS
from tests.kafkalog.check.test_segments import DISAGREEMENTS
from tests.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Result, State

LOG = "txn-0/00000000000000000119.log"
INDEX = "txn-0/00000000000000000119.index"
TIME_INDEX = "txn-0/00000000000000000119.timeindex"
TXN_INDEX = "txn-0/00000000000000000119.txnindex"


def verify(target: Path, level: Level = Level.STANDARD) -> list[Defect]:
    run = Verification(level)
    return list(run.verify(target))


def serious(defects: list[Defect]) -> list[Defect]:
    return [defect for defect in defects if defect.severity != Severity.NOTE]


@pytest.mark.sampled(11)
@pytest.mark.parametrize("level", Level)
def test_what_a_broker_left_gives_no_finding(any_state: State, level: Level):
    """Closed, live, killed, compacted, half compacted, recovered, upgraded; all is read."""
    for log_dir in any_state.log_dirs:
        run = Verification(level)
        found = list(run.verify(log_dir))
        if healthy(any_state):
            assert serious(found) == [], log_dir
            assert run.summary.checked_bytes == run.summary.expected_bytes
        elif level == Level.STANDARD:
            assert {d.reference for d in serious(found)} >= {"torn-tail", "batch-crc-mismatch"}


def test_each_scenario_of_the_storage_classes_gives_no_finding(corpus_dir: Path):
    """Logs made by `UnifiedLog` itself: gaps, compaction, ties, old formats."""
    for partition in sorted((corpus_dir / "lookup").glob("**/orders-0")):
        found = {defect.reference for defect in serious(verify(partition))}
        # There the time indexes were removed, and the loader made empty ones.
        was_hurt = partition.parent.name == "timeindex_missing"
        assert found == ({"time-index-incomplete"} if was_hurt else set()), partition


def test_progress_adds_up(corpus_dir: Path):
    """The progress reports add up to the totals of the summary."""
    seen: list[int] = []
    run = Verification(Level.STANDARD, seen.append)
    list(run.verify(corpus_dir / "kafka-4.3" / "txn"))
    assert sum(seen) == run.summary.checked_bytes > 0


@pytest.fixture
def hurt(corpus_dir: Path, tmp_path: Path) -> Path:
    """A copy of a closed log directory, to be damaged."""
    return copy_tree(corpus_dir / "kafka-4.3" / "txn", tmp_path / "txn")


def change(path: Path, edit: Callable[[bytes], bytes]) -> None:
    before = path.read_bytes()
    after = edit(before)
    assert after != before
    path.write_bytes(after)


def rehashed(data: bytes) -> bytes:
    """Recompute the checksum of a batch."""
    return data[:17] + struct.pack(">I", wheel.crc32c(data[21:])) + data[21:]


def in_batch(data: bytes, number: int, edit: Callable[[bytes], bytes]) -> bytes:
    """Return the log with batch `number` edited."""
    position, size = frames(data)[number]
    return data[:position] + edit(data[position : position + size]) + data[position + size :]


def put(at: int, new: bytes) -> Callable[[bytes], bytes]:
    return lambda data: data[:at] + new + data[at + len(new) :]


def swap_batches(data: bytes) -> bytes:
    (first, one), (second, two) = frames(data)[3:5]
    return data[:first] + data[second : second + two] + data[first : first + one] + (
        data[second + two :]
    )  # fmt: skip


def damaged_log(edit: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    return lambda root: change(root / LOG, edit)


def damaged(name: str, edit: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    return lambda root: change(root / name, edit)


def replace_with_directory(root: Path) -> None:
    (root / LOG).unlink()
    (root / LOG).mkdir()


# What `verify` finds: reference, and how a sound copy comes to have it.
DAMAGE: dict[str, list[Callable[[Path], None]]] = {
    "batch-crc-mismatch": [
        damaged_log(lambda data: in_batch(data, 5, lambda b: flip(b, 8 * len(b) - 3))),
        damaged_log(lambda data: in_batch(data, -1, lambda b: flip(b, 8 * 30))),
        damaged_log(lambda data: in_batch(data, 2, lambda b: flip(b, 8 * 17))),
        damaged_log(lambda data: in_batch(data, 2, put(70, bytes(5)))),
    ],
    "batch-length-invalid": [
        damaged_log(lambda data: in_batch(data, 5, put(8, struct.pack(">i", 0)))),
        damaged_log(lambda data: in_batch(data, 5, put(8, struct.pack(">i", 2**31 - 1)))),
        damaged_log(lambda data: in_batch(data, 0, put(8, b"\xff"))),
        damaged_log(lambda data: data[:500] + data[501:]),
    ],
    "magic-unknown": [
        damaged_log(lambda data: in_batch(data, 5, put(16, b"\x03"))),
        damaged_log(lambda data: in_batch(data, 5, put(16, b"\xfe"))),
    ],
    "torn-tail": [
        damaged_log(lambda data: data[:-1]),
        damaged_log(lambda data: data + bytes(17)),
        damaged_log(lambda data: data + data[:60]),
    ],
    "zero-tail": [damaged_log(lambda data: data + bytes(100))],
    "batch-offset-not-increasing": [
        damaged_log(swap_batches),
        damaged_log(lambda data: in_batch(data, 5, lambda b: b + b)),
    ],
    "batch-offset-displaced": [
        damaged_log(lambda data: in_batch(data, 5, put(0, struct.pack(">q", 2**40)))),
        damaged_log(lambda data: in_batch(data, 0, put(0, struct.pack(">q", 3)))),
        damaged_log(lambda data: in_batch(data, 0, put(0, struct.pack(">q", -1)))),
    ],
    "batch-below-base-offset": [
        damaged_log(lambda d: put(0, struct.pack(">q", 3))(d[: frames(d)[0][1]]) + d),
    ],
    "index-size-not-multiple": [
        damaged(INDEX, lambda data: data[:-3]),
        damaged(TIME_INDEX, lambda data: data + b"\1"),
        damaged(TXN_INDEX, lambda data: data[:-33]),
    ],
    "offset-index-not-monotonic": [
        damaged(INDEX, lambda data: data[8:16] + data[:8] + data[16:]),
        damaged(INDEX, lambda data: data[:8] + data),
        damaged(INDEX, put(0, b"\xff")),
        damaged(INDEX, put(4, b"\xff")),
    ],
    "time-index-not-monotonic": [
        damaged(TIME_INDEX, lambda data: data[12:24] + data[:12] + data[24:]),
        damaged(TIME_INDEX, put(0, b"\xff")),
        damaged(TIME_INDEX, put(8, b"\xff")),
    ],
    "index-entry-misses-batch": [
        damaged(INDEX, lambda data: put(7, bytes([data[7] ^ 1]))(data)),
        damaged(INDEX, lambda data: put(len(data) - 4, struct.pack(">i", 2**30))(data)),
        damaged(INDEX, put(0, struct.pack(">i", 0))),
    ],
    "index-entry-beyond-log": [
        damaged(INDEX, lambda data: put(len(data) - 8, struct.pack(">i", 2**30))(data)),
        damaged(TIME_INDEX, lambda d: d + struct.pack(">qi", 2**50, 2**30)),
    ],
    "time-index-entry-wrong": [
        damaged(TIME_INDEX, put(0, struct.pack(">q", 1))),
        damaged(TIME_INDEX, lambda data: flip(data, 8 * (len(data) - 5))),
    ],
    "transaction-index-invalid": [
        damaged(TXN_INDEX, put(0, b"\1")),
        damaged(TXN_INDEX, lambda data: data[34:68] + data[:34] + data[68:]),
        damaged(TXN_INDEX, put(10, struct.pack(">q", 2**40))),
        damaged(TXN_INDEX, put(18, struct.pack(">q", 5))),
    ],
    "producer-snapshot-corrupt": [
        damaged("txn-0/00000000000000000119.snapshot", lambda data: flip(data, 200)),
        damaged("txn-0/00000000000000000119.snapshot", lambda data: data[:-1]),
        damaged("txn-0/00000000000000000119.snapshot", lambda _: b""),
    ],
    "checkpoint-malformed": [
        damaged("replication-offset-checkpoint", lambda data: data + b"\n"),
        damaged("recovery-point-offset-checkpoint", lambda data: b"1" + data[1:]),
        damaged("txn-0/leader-epoch-checkpoint", lambda data: data[:-2]),
    ],
    "file-malformed": [
        damaged("meta.properties", lambda data: data + b"version=9\n"),
        damaged("txn-0/partition.metadata", lambda data: data[:12]),
        damaged("__cluster_metadata-0/quorum-state", lambda data: data[:-1]),
        damaged("meta.properties", lambda data: data.replace(b"node.id", b"node-id")),
        damaged("__cluster_metadata-0/quorum-state", lambda data: data.replace(b"voted", b"Voted")),
        damaged("replication-offset-checkpoint", lambda _: b"\xff\xfe"),
    ],
    "file-unreadable": [
        replace_with_directory,
        lambda root: (root / "txn-0" / "00000000000000000540.index").symlink_to("nowhere"),
        lambda root: os.mkfifo(root / "txn-0" / "00000000000000000540.log"),
    ],
    "leftover-file": [
        lambda root: (root / LOG).rename(root / f"{LOG}.deleted"),
        lambda root: (root / f"{INDEX}.cleaned").touch(),
        lambda root: (root / "meta.properties.tmp").touch(),
    ],
    "copy-unfinished": [
        lambda root: (root / LOG).rename((root / LOG).with_name(f".{0:020}.log.aB3dE9")),
        lambda root: (root / "txn-0" / ".leader-epoch-checkpoint.x1y2z3").touch(),
    ],
    "directory-unknown": [lambda root: (root / "lost+found").mkdir()],
    "file-unknown": [
        lambda root: (root / "txn-0" / "notes.txt").touch(),
        lambda root: (root / LOG).rename(root / f"{LOG}.bak"),
    ],
}  # fmt: skip


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("reference", "number"), [(name, i) for name, ways in DAMAGE.items() for i in range(len(ways))]
)
def test_each_damage_has_its_name(hurt: Path, reference: str, number: int):
    """The finding is there, with the severity of the table and in the damaged file."""
    before = {(d.reference, d.path) for d in verify(hurt)}
    assert not {name for name, _ in before if name == reference}
    DAMAGE[reference][number](hurt)
    found = [defect for defect in verify(hurt) if defect.reference == reference]
    assert found, [defect.reference for defect in verify(hurt)]
    for defect in found:
        assert defect.severity == REFERENCES[reference].severity
        assert str(hurt) in defect.path
        assert defect.detail


def test_a_stray_segment_hides_no_partition(hurt: Path):
    """A `.log` at the top of a log directory does not make it a partition: all is checked."""
    everything = Verification()
    assert not [d for d in everything.verify(str(hurt)) if d.severity != "note"]
    (hurt / "00000000000000000000.log").write_bytes((hurt / LOG).read_bytes())
    again = Verification()
    list(again.verify(str(hurt)))
    assert again.summary.files == everything.summary.files + 1


def test_damage_is_found_at_the_quick_level_too(hurt: Path):
    """It finds everything in headers and indexes that does not need the checksum."""
    for reference in sampled(sorted(DAMAGE.keys() - {"batch-crc-mismatch"}), 4):
        root = copy_tree(hurt, hurt.parent / reference)
        DAMAGE[reference][0](root)
        assert reference in {d.reference for d in verify(root, Level.QUICK)}, reference


def test_a_file_that_fails_while_it_is_read_is_reported(
    hurt: Path, monkeypatch: pytest.MonkeyPatch
):
    """Its bytes were not checked, which is a separate finding; indexes are not blamed."""
    real = os.pread

    def fail(fd: int, size: int, position: int) -> bytes:
        if os.readlink(f"/proc/self/fd/{fd}").endswith(LOG):
            raise OSError(errno.EIO, "I/O")
        return real(fd, size, position)

    monkeypatch.setattr(os, "pread", fail)
    found = verify(hurt)
    assert {d.reference for d in serious(found)} == {"bytes-unreadable", "bytes-not-checked"}


def replaced(number: int, new: bytes) -> Callable[[bytes], bytes]:
    return lambda data: in_batch(data, number, lambda _: new)


def in_record(edit: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """Edit batch 3, which keeps a right checksum."""
    return lambda data: in_batch(data, 3, lambda b: rehashed(edit(b)))


# What reading the records finds behind a right checksum.
UNDECODABLE = {
    "unknown-codec": in_record(put(22, b"\x05")),
    "decompression-failed": in_record(put(22, b"\x04")),
    "record-malformed": in_record(put(61, b"\xff" * 5)),
    "records-count-invalid": in_record(put(57, struct.pack(">i", 2**31 - 1))),
    "records-left-over": replaced(3, batch(123, [record(), record(1)], count=1)),
    "message-set-invalid": replaced(3, message(124, None, None, attributes=1)),
}


@pytest.mark.parametrize("reference", UNDECODABLE)
def test_each_undecodable_batch_has_its_name(hurt: Path, reference: str):
    """The other batches are decoded all the same."""
    assert not [row for row in read_records(hurt / LOG) if isinstance(row, Defect)]
    change(hurt / LOG, UNDECODABLE[reference])
    rows = list(read_records(hurt / LOG))
    found = [row for row in rows if isinstance(row, Defect)]
    assert [defect.reference for defect in found] == [reference]
    assert found[0].severity == Severity.DAMAGE
    assert found[0].position == frames((hurt / LOG).read_bytes())[3][0]
    assert len(rows) > 50


def lookup_mismatch(root: Path) -> list[object]:
    """Make a time index that only knows the offset 15."""
    batches = [batch(i, [record()]) for i in range(20)]
    path = write_log(root / "t-0", *batches)
    path.with_suffix(".index").write_bytes(struct.pack(">ii", 9, 9 * len(batches[0])))
    path.with_suffix(".timeindex").write_bytes(struct.pack(">qi", 5, 15))
    return ["lookup-offset", path.parent, "--no-index", "--timestamp", "6ms"]


def control_record(root: Path) -> list[object]:
    log = write_log(root / "t-0", batch(0, [record(0, b"")], attributes=0x20))
    return ["kafka-dump-log", "--deep-iteration", "--files", log]


def record_without_key(root: Path) -> list[object]:
    log = write_log(root / "__consumer_offsets-0", batch(0, [record(0, None)]))
    return ["kafka-dump-log", "--offsets-decoder", "--files", log]


def bomb(root: Path) -> list[object]:
    payload = compress(bytes(4 << 20), 4)
    log = write_log(root / "t-0", batch(0, payload=payload, count=1, attributes=4))
    return ["dump-segment", log]


# What only a command can find.
BY_COMMAND = {
    "lookup-index-mismatch": lookup_mismatch,
    "control-record-malformed": control_record,
    "decoder-key-missing": record_without_key,
    "limit-exceeded": bomb,
}


@pytest.mark.parametrize("reference", BY_COMMAND)
def test_each_finding_of_a_command_has_its_name(
    tmp_path: Path, kafkalog: Callable[..., Result], reference: str, monkeypatch: pytest.MonkeyPatch
):
    """On stdout or stderr, with the exit status of its kind; the limit is lowered to a mebibyte."""

    def limited(data: bytes, codec: int, *, magic: int, limit: int) -> bytes:
        return decompress(data, codec, magic=magic, limit=min(limit, 1 << 20))

    monkeypatch.setattr("kafkalog.log.batches.records.decompress", limited)
    result = kafkalog(*BY_COMMAND[reference](tmp_path))
    assert reference in result.stdout.decode() + result.stderr
    assert result.status == 8


MADE_IN = {
    "bytes-unreadable": "kafkalog/test_bad_sectors.py",
    "changed-while-reading": "kafkalog/test_living_logs.py",
    "cleaner-stuck": "kafka/test_given_up_partitions.py",
    "deleted-while-reading": "kafkalog/tables/test_other_disks.py",
    "check-failed": "kafkalog/check/test_contained.py",
    "kraft-snapshot-empty": "kafkalog/test_node_start.py",
    "owner-differs": "kafkalog/check/test_owners.py",
    "partition-absent": "kafkalog/test_node_start.py",
    "read-from-copy": "kafkalog/tables/test_merging.py",
    "remote-indexes-wrong": "kafka/test_tiers.py",
    "remote-lineage-gap": "kafka/test_joined_tiers.py",
    "remote-manifest-contradicts": "kafkalog/test_manifests.py",
    "remote-segment-missing": "kafka/test_tiers.py",
    "remote-segment-orphan": "kafka/test_tiers.py",
    "remote-size-wrong": "kafka/test_tiers.py",
    "replicas-fork": "kafkalog/check/test_replicas.py",
    "timestamp-unit-suspected": "kafkalog/check/test_segments.py",
    "view-differs": "kafkalog/test_view.py",
    **dict.fromkeys(
        (
            "foreign-snapshot",
            "kraft-snapshot-torn",
            "metadata-split-brain",
            "quorum-behind",
            "quorum-epoch-below-log",
            "quorum-lost",
            "snapshot-beyond-log",
        ),
        "kafkalog/node/quorum/test_findings.py",
    ),
}
TESTS = Path(__file__).parents[2]


def test_every_reference_is_made_by_a_test():
    """A name in the table that no log can produce would be a promise without proof."""
    made = {*DAMAGE, *UNDECODABLE, *BY_COMMAND, *BY_START, *DISAGREEMENTS, "bytes-not-checked"}
    made |= {*test_log_dir_checks.DAMAGE, *test_log_dir_checks.TOGETHER, "replicas-diverge"}
    made |= {*OF_LOGS, *OF_FILES, *MADE_IN}
    assert made == REFERENCES.keys()
    for reference, name in MADE_IN.items():
        assert reference in (TESTS / name).read_text(), reference


def test_one_call_finds_what_only_all_targets_show(hurt: Path):
    """One call on two directories with the same id reports the conflict, without a second step."""
    other = copy_tree(hurt, hurt.parent / "other")
    found = {defect.reference for defect in Verification().verify(hurt, other)}
    assert "directory-id-repeated" in found
