"""Epochs, checkpoints, ids and directories: contradictions have findings, sound ones none."""

from __future__ import annotations

import os
import random
import re
import shutil
import struct
from typing import TYPE_CHECKING

import pytest

from kafkalog.check.verify import Verification
from kafkalog.log.defects.table import REFERENCES
from kafkalog.model import Level
from tests.builders import batch, copy_tree, flip, frames, message, write_log
from tests.kafkalog.check.every_bit import metadata_read_once
from tests.kafkalog.check.moved import foreign, move_replica
from tests.sampling import new_seed, sampled, tries_everything

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from kafkalog.model import Defect

EPOCHS = "txn-0/leader-epoch-checkpoint"
LOG = "txn-0/00000000000000000119.log"
METADATA = "txn-0/partition.metadata"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
FIRST_DIRTY = "cleaner-offset-checkpoint"


def verify(*targets: Path, level: Level = Level.QUICK) -> list[Defect]:
    run = Verification(level)
    return list(run.verify(*targets))


def names(*targets: Path) -> list[str]:
    return [defect.reference for defect in verify(*targets)]


@pytest.fixture
def closed(corpus_dir: Path, tmp_path: Path) -> Path:
    """A copy of a log directory after a clean shutdown, of the only broker of its cluster."""
    return copy_tree(corpus_dir / "kafka-4.3" / "txn", tmp_path / "txn")


def replaced(name: str, pattern: str, new: str) -> Callable[[Path], None]:
    def edit(root: Path) -> None:
        before = (root / name).read_text()
        after, count = re.subn(pattern, new, before, count=1)
        assert count == 1
        assert after != before
        (root / name).write_text(after)

    return edit


def written(name: str, text: str) -> Callable[[Path], None]:
    return lambda root: void((root / name).write_text(text))


def void(_: object) -> None:
    return None


def added(name: str, entry: str) -> Callable[[Path], None]:
    """Return an edit that adds an entry to an offset checkpoint."""

    def edit(root: Path) -> None:
        entries = [*(root / name).read_text().splitlines()[2:], entry]
        (root / name).write_text("\n".join(["0", str(len(entries)), *entries, ""]))

    return edit


def with_epoch(number: int, epoch: int) -> Callable[[Path], None]:
    """Return an edit of one batch's leader epoch, which the checksum does not cover."""

    def edit(root: Path) -> None:
        data = (root / LOG).read_bytes()
        at = frames(data)[number][0] + 12
        (root / LOG).write_bytes(data[:at] + struct.pack(">i", epoch) + data[at + 4 :])

    return edit


def renamed(old: str, new: str) -> Callable[[Path], None]:
    return lambda root: void((root / old).rename(root / new))


def copied(old: str, new: str) -> Callable[[Path], None]:
    return lambda root: void(copy_tree(root / old, root / new))


def without(name: str) -> Callable[[Path], None]:
    return lambda root: (root / name).unlink()


def unassigned(root: Path) -> None:
    """Move the replica of txn-0 to node 2, in the last record of the metadata."""
    move_replica(root, "txn-0", 2)


def aged(root: Path) -> None:
    """Make the mark of the clean shutdown two minutes older than the newest log."""
    mark = root / ".kafka_cleanshutdown"
    time_ns = max(log.stat().st_mtime_ns for log in root.glob("*/*.log")) - 120 * 10**9
    os.utime(mark, ns=(time_ns, time_ns))


# What `verify` finds: reference, and how a sound copy comes to have it.
DAMAGE: dict[str, list[Callable[[Path], None]]] = {
    "batch-leader-epoch-wrong": [
        with_epoch(0, 1), with_epoch(3, 7), with_epoch(3, -7), with_epoch(3, 2**30),
        with_epoch(-1, 4),
    ],
    "leader-epochs-contradict-log": [
        written(EPOCHS, "0\n1\n3 0\n"),
        written(EPOCHS, "0\n2\n0 0\n1 200\n"),
        written(EPOCHS, "0\n2\n0 0\n1 2\n"),
    ],
    "leader-epochs-invalid": [
        written(EPOCHS, "0\n2\n0 0\n0 540\n"),
        written(EPOCHS, "0\n2\n1 0\n0 540\n"),
        written(EPOCHS, "0\n2\n0 9\n1 9\n"),
        written(EPOCHS, "0\n1\n-1 0\n"),
        written(EPOCHS, "0\n1\n0 -1\n"),
    ],
    "leader-epochs-missing": [without(EPOCHS), written(EPOCHS, ""), written(EPOCHS, "0\n0\n")],
    "leader-epoch-beyond-log": [written(EPOCHS, "0\n2\n0 0\n1 541\n")],
    "leader-epochs-start-elsewhere": [written(EPOCHS, "0\n1\n0 5\n")],
    "leader-epoch-beyond-metadata": [written(EPOCHS, "0\n2\n0 0\n2 540\n")],
    "checkpoint-outside-log": [
        replaced(RECOVERY_POINTS, "txn 0 540", "txn 0 541"),
        replaced(RECOVERY_POINTS, "txn 0 540", "txn 0 -1"),
        replaced(HIGH_WATERMARKS, "txn 0 540", "txn 0 5400"),
        replaced(HIGH_WATERMARKS, "txn 0 540", "txn 0 -540"),
        added(FIRST_DIRTY, "txn 0 541"),
        added(FIRST_DIRTY, "txn 0 -1"),
    ],
    "recovery-point-not-at-end": [
        replaced(RECOVERY_POINTS, "txn 0 540", "txn 0 539"),
        replaced(RECOVERY_POINTS, "txn 0 540", "txn 0 0"),
    ],
    "high-watermark-not-at-end": [replaced(HIGH_WATERMARKS, "txn 0 540", "txn 0 539")],
    "log-start-beyond-log": [
        added(LOG_STARTS, "txn 0 541"), added(LOG_STARTS, "txn 0 -1"),
    ],
    "checkpoint-entry-repeated": [added(RECOVERY_POINTS, "txn 0 540")],
    "checkpoint-entry-left": [
        added(RECOVERY_POINTS, "gone 0 5"),
        added(LOG_STARTS, "txn 0 0"),
    ],
    "checkpoint-entry-missing": [
        replaced(HIGH_WATERMARKS, "txn 0 540", "txm 0 540"),
        replaced(RECOVERY_POINTS, "txn 0 540", "txn 3 540"),
        written(HIGH_WATERMARKS, ""),
    ],
    "file-not-as-written": [
        replaced(HIGH_WATERMARKS, "txn 0 540", "txn  0 540"),
        replaced(HIGH_WATERMARKS, "txn 0 540", "txn 0 +540"),
        replaced(EPOCHS, "0 0", "0 00"),
        replaced(METADATA, "topic_id", "topic-id"),
        replaced(METADATA, "version: 0", "version: 1"),
        replaced("meta.properties", "#\n", "#x\n"),
        replaced("meta.properties", "#(Mon|Tue|Wed|Thu|Fri|Sat|Sun) ", "#Day "),
        replaced("meta.properties", "version=1", "version=1\nx=y"),
        replaced("meta.properties", "UTC", "uTC"),
        replaced(".kafka_cleanshutdown", ":0,", ": 0,"),
        replaced("__cluster_metadata-0/quorum-state", ",", ", "),
    ],
    "clean-shutdown-unreadable": [
        written(".kafka_cleanshutdown", "{"),
        written(".kafka_cleanshutdown", '{"version":0}'),
    ],
    "broker-epoch-mismatch": [replaced(".kafka_cleanshutdown", "11", "12")],
    "directory-id-unknown": [
        replaced("meta.properties", "directory.id=....", "directory.id=AAAA")
    ],
    "log-dir-of-other-broker": [replaced("meta.properties", "node.id=1", "node.id=3")],
    "log-dir-not-formatted": [
        without("meta.properties"),
        written("meta.properties", ""),
        replaced("meta.properties", "version=1", "version=0"),
    ],
    "cluster-metadata-missing": [lambda root: shutil.rmtree(root / "__cluster_metadata-0")],
    "partition-not-assigned": [
        copied("txn-0", "txn-9"),
        foreign("elsewhere-0"),
        foreign(f"elsewhere-0.{'0' * 32}-future"),
        unassigned,
    ],
    "topic-id-mismatch": [replaced(METADATA, "topic_id: ....", "topic_id: AAAA")],
    "partition-metadata-missing": [without(METADATA)],
    "partition-in-two-places": [copied("txn-0", "txn-00")],
    "leftover-directory": [
        renamed("txn-0", f"txn-0.{'0' * 32}-delete"),
        renamed("txn-0", f"txn-0.{'0' * 32}-stray"),
        renamed("txn-0", f"txn-0.{'0' * 32}-future"),
    ],
    "changed-after-shutdown": [aged],
    "file-name-not-canonical": [
        copied(LOG, "txn-0/119.log"),
        copied(LOG, "txn-0/copy.log"),
        copied(LOG, "txn-0/000000000000000000119.log"),
        copied(LOG, "txn-0/foo.swap"),
    ],
    "index-without-log": [
        lambda root: (root / "txn-0" / "00000000000000000007.index").touch()
    ],
    "directory-in-partition": [lambda root: (root / "txn-0" / "backup").mkdir()],
}  # fmt: skip


@pytest.mark.sampled(12)
@pytest.mark.parametrize(
    ("reference", "number"), [(name, i) for name, ways in DAMAGE.items() for i in range(len(ways))]
)
def test_each_contradiction_has_its_name(closed: Path, reference: str, number: int):
    """The finding has the severity of the table and the right file, with few other findings."""
    assert reference not in names(closed)
    before = len(names(closed))
    DAMAGE[reference][number](closed)
    found = verify(closed)
    assert reference in {defect.reference for defect in found}, found
    # The end of a log that is named otherwise is missed by two checkpoints of that partition.
    assert len(found) - before <= 4, found
    for defect in found:
        if defect.reference == reference:
            assert defect.severity == REFERENCES[reference].severity
            assert str(closed) in defect.path


def test_a_log_that_is_gone_ends_below_its_high_watermark(closed: Path):
    """A start makes an empty log of it, and a leader with that has its followers cut theirs."""
    for log in closed.glob("txn-0/*.log"):
        log.unlink()
    said = {defect.detail for defect in verify(closed) if HIGH_WATERMARKS in defect.path}
    assert "The high watermark of txn-0 is 540, the log ends at 0." in said


def test_what_brokers_of_all_times_wrote_is_as_written(closed: Path):
    """A cluster id may be any text; before KRaft the file has `broker.id`."""
    before = names(closed)
    replaced("meta.properties", "cluster.id=.*", "cluster.id=my cluster!")(closed)
    assert names(closed) == before
    replaced("meta.properties", "node.id=1", "broker.id=1")(closed)
    replaced("meta.properties", "version=1", "version=0")(closed)
    assert names(closed) == before


def test_a_partition_goes_where_its_topic_id_is_known(closed: Path):
    """Kafka compares topic id and number, not the name; what a start leaves of the metadata counts.

    Unless the node has the rest from other controllers: then a torn log proves nothing.
    """
    copy_tree(closed / "txn-1", closed / "renamed-1")
    assert "partition-not-assigned" not in names(closed)
    shutil.rmtree(closed / "renamed-1")
    copy_tree(closed / "txn-0", closed / "txn-9")
    assert "partition-not-assigned" in names(closed)
    log = max((closed / "__cluster_metadata-0").glob("*.log"))
    log.write_bytes(log.read_bytes() + b"torn")
    assert "partition-not-assigned" in names(closed)
    state = closed / "__cluster_metadata-0" / "quorum-state"
    state.write_text(state.read_text().replace('[{"voterId":1}]', '[{"voterId":1},{"voterId":2}]'))
    assert "partition-not-assigned" not in names(closed)


def test_every_reference_says_what_it_arises_from():
    """A reader who meets the name must learn how it comes about."""
    for reference in [*DAMAGE, *TOGETHER]:
        assert REFERENCES[reference].arises, reference


def jbod(corpus_dir: Path, root: Path) -> tuple[Path, Path]:
    copy_tree(corpus_dir / "kafka-4.3" / "jbod-restarted", root / "jbod")
    return root / "jbod" / "logs-a", root / "jbod" / "logs-b"


def same_directory_id(one: Path, other: Path) -> None:
    identity = re.search("directory.id=(.*)", (one / "meta.properties").read_text())
    assert identity
    replaced("meta.properties", "directory.id=.*", identity[0])(other)


TOGETHER: dict[str, list[Callable[[Path, Path], None]]] = {
    "directory-id-repeated": [same_directory_id],
    "log-dir-of-other-broker": [
        lambda _, other: replaced("meta.properties", "node.id=1", "node.id=2")(other),
        lambda _, other: replaced("meta.properties", "cluster.id=.", "cluster.id=x")(other),
    ],
    "partition-in-two-places": [lambda one, other: void(copy_tree(one / "jbod-2", other))],
    "topic-id-mismatch": [
        lambda _, other: replaced("jbod-0/partition.metadata", "topic_id: .", "topic_id: _")(other)
    ],
    "topic-deleted": [
        lambda one, _: renamed("to-delete-0.0014fb74746940df8c72dd8e33fc2c32-stray", "to-delete-0")(
            one
        )
    ],
}


@pytest.mark.parametrize(
    ("reference", "number"),
    [(name, i) for name, ways in TOGETHER.items() for i in range(len(ways))],
)
def test_log_directories_of_a_broker_fit_together(
    corpus_dir: Path, tmp_path: Path, reference: str, number: int
):
    """These contradictions only show when both directories of a broker are given."""
    one, other = jbod(corpus_dir, tmp_path)
    assert {*names(one, other)} <= {"leftover-directory", "leftover-file", "zero-tail"}
    TOGETHER[reference][number](one, other)
    assert reference in names(one, other)


def test_a_contradiction_is_reported_once(corpus_dir: Path, tmp_path: Path):
    """Each directory has the metadata that say so."""
    copies = [tmp_path / name for name in "ab"]
    for copy in copies:
        copy_tree(corpus_dir / "kafka-4.3" / "default-config-clean", copy)
    replaced("meta.properties", "node.id=1", "node.id=2")(copies[1])
    assert names(*copies).count("log-dir-of-other-broker") == 1


def test_a_future_replica_is_at_home_where_its_partition_is(corpus_dir: Path, tmp_path: Path):
    """A move between directories is in progress; alone, a future replica has nothing to replace."""
    one, other = jbod(corpus_dir, tmp_path)

    def futures(*targets: Path) -> list[str]:
        return [d.path for d in verify(*targets) if d.path.endswith("-future")]

    assert futures(one, other) == []
    assert [os.path.basename(path)[:6] for path in futures(one)] == ["jbod-1"]


def digits(data: bytes, rng: random.Random) -> Iterator[bytes]:
    """Yield the file with one character changed so that it still reads as numbers.

    A sample has two of the nine other digits at each place.
    """
    for i, byte in enumerate(data):
        if chr(byte).isdigit():
            others = [digit for digit in b"0123456789" if digit != byte]
            for digit in others if tries_everything() else rng.sample(others, 2):
                yield data[:i] + bytes([digit]) + data[i + 1 :]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", [RECOVERY_POINTS, HIGH_WATERMARKS, ".kafka_cleanshutdown"])
def test_every_digit_of_a_closed_broker_counts(closed: Path, name: str):
    """After a clean shutdown each number is also known from another place."""
    seed = new_seed()
    data = (closed / name).read_bytes()
    with metadata_read_once():
        for changed in digits(data, random.Random(seed)):
            (closed / name).write_bytes(changed)
            found = verify(closed)
            assert any(defect.path.endswith(name) for defect in found), (changed, seed)


def epochs_file(directory: Path, *entries: tuple[int, int]) -> None:
    lines = [f"{epoch} {offset}" for epoch, offset in entries]
    text = "\n".join(["0", str(len(lines)), *lines, ""])
    (directory / "leader-epoch-checkpoint").write_text(text)


def partition(root: Path, epochs: dict[int, int], count: int = 40) -> Path:
    """Write a partition in batches of 5 offsets; `epochs` has the epochs by base offset."""
    batches, epoch = [], 0
    for base in range(0, 5 * count, 5):
        epoch = epochs.get(base, epoch)
        batches.append(batch(base, [b""], payload=b"", count=5, last_delta=4, epoch=epoch))
    log = write_log(root / "orders-0", *batches)
    log.with_suffix(".index").touch()
    log.with_suffix(".timeindex").touch()
    return log.parent


def test_every_bit_of_a_leader_epoch_is_seen(tmp_path: Path):
    """The first, a middle and the last batch, 32 bits each; one finding each, at that batch."""
    directory = partition(tmp_path, {0: 3, 100: 5})
    epochs_file(directory, (3, 0), (5, 100))
    log = directory / "00000000000000000000.log"
    data = log.read_bytes()
    places = frames(data)
    assert verify(directory) == []
    for number in (0, 7, 19, 20, 30, -1):
        for bit in range(8 * 12, 8 * 16):
            log.write_bytes(flip(data, 8 * places[number][0] + bit))
            found = verify(directory)
            assert [d.reference for d in found] == ["batch-leader-epoch-wrong"], (number, bit)
            assert found[0].position == places[number][0]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("level", Level)
def test_every_other_entry_of_epochs_is_contradicted(tmp_path: Path, level: Level):
    """Any other start offset of an epoch, and any other epoch, contradicts the batches."""
    directory = partition(tmp_path, {0: 3, 100: 5})
    for start in sampled(sorted({*range(1, 200)} - {100}), 6):
        epochs_file(directory, (3, 0), (5, start))
        found = {d.reference for d in verify(directory, level=level)}
        assert "leader-epochs-contradict-log" in found, start
    for epochs in ((3, 4), (3, 6), (2, 5), (4, 5)):
        epochs_file(directory, (epochs[0], 0), (epochs[1], 100))
        assert "leader-epochs-contradict-log" in names(directory), epochs


def test_epochs_without_batches_are_no_finding(tmp_path: Path):
    """Their leader appended nothing: at the end, or in a gap that compaction left."""
    directory = partition(tmp_path, {0: 3, 100: 5})
    epochs_file(directory, (3, 0), (5, 100), (6, 200))
    assert verify(directory) == []
    data = (directory / "00000000000000000000.log").read_bytes()
    places = frames(data)
    kept = data[: places[10][0]] + data[places[25][0] :]
    (directory / "00000000000000000000.log").write_bytes(kept)
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 125\n")
    for start in (50, 77, 100, 125):
        epochs_file(directory, (3, 0), (4, start - 1 if start > 50 else 50), (5, start + 0))
        if start > 50:
            assert verify(directory) == [], start
    for start in (49, 126):
        epochs_file(directory, (3, 0), (5, start))
        assert "leader-epochs-contradict-log" in names(directory), start


def test_old_messages_have_no_epoch(tmp_path: Path):
    """Magic 0 and 1 before the first entry, as after an upgrade."""
    log = write_log(
        tmp_path / "orders-0",
        message(0),
        message(1),
        batch(2, [b""], payload=b"", count=1, epoch=4),
    )
    log.with_suffix(".index").touch()
    log.with_suffix(".timeindex").touch()
    epochs_file(log.parent, (4, 2))
    assert verify(log.parent) == []


def test_a_damaged_batch_is_no_evidence_about_epochs(tmp_path: Path):
    """Its offset may be wrong: that is reported, and nothing about epochs."""
    directory = partition(tmp_path, {0: 3, 100: 5})
    epochs_file(directory, (3, 0), (5, 100))
    log = directory / "00000000000000000000.log"
    data = log.read_bytes()
    at = frames(data)[7][0]
    log.write_bytes(data[:at] + struct.pack(">q", 150) + data[at + 8 :])
    assert {*names(directory)} == {"batch-offset-displaced"}
