"""Everything that reads, run over a path: only our own errors may result, whatever is there."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from formats.file_names import FileKind
from kafkalog.change.audit import audit_partition
from kafkalog.change.retention import judge_partition
from kafkalog.change.roll.simulate import replay_partition, roll_settings
from kafkalog.check.verify import Verification
from kafkalog.errors import KafkaLogError
from kafkalog.files.indexes import OffsetIndex, TimeIndex, read_aborted_transactions
from kafkalog.files.log_dir import FileEntry, LogDirListing, PartitionDir, open_partition, open_path
from kafkalog.files.text_files import (
    read_clean_shutdown,
    read_leader_epochs,
    read_meta_properties,
    read_number_pairs,
    read_offset_checkpoint,
    read_properties,
    read_quorum_state,
    read_remote_log_file,
    read_topic_id,
)
from kafkalog.io.paths.source import Source, read_file
from kafkalog.log.batches.framing import scan_batches
from kafkalog.log.batches.selection import Selection
from kafkalog.log.producers import read_producer_snapshot
from kafkalog.model import Batch, Defect, Isolation, Level, Record, Special
from kafkalog.node import inventory, lookup
from kafkalog.node.configs import ConfigSources
from kafkalog.node.reader import read_batches, read_records
from kafkalog.node.unified_log import UnifiedLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.conftest import Result

FILE_READERS: tuple[Callable[[str], object], ...] = (
    read_file,
    read_offset_checkpoint,
    read_leader_epochs,
    read_number_pairs,
    read_properties,
    read_meta_properties,
    read_topic_id,
    read_quorum_state,
    read_clean_shutdown,
    read_producer_snapshot,
    lambda path: read_remote_log_file(path, FileKind.REMOTE_LOG_SNAPSHOT),
    lambda path: read_remote_log_file(path, FileKind.REMOTE_LOG_OFFSETS),
    lambda path: list(read_aborted_transactions(path)),
)
# Kafka's statuses of `docs/exit-codes.md` that a read command can end with.
STATUSES = {0, 1, 3, 5, 6, 7, 8}


def covers(found: Iterable[Batch | Defect], size: int) -> bool:
    """Return whether batches and defects cover every byte exactly once, in order."""
    position = 0
    for item in found:
        if item.position != position or not item.size_bytes:
            return False
        position += item.size_bytes
    return position == size


def read_file_in_every_way(path: Path) -> None:
    """Run each reader of single files on any kind of file."""
    for reader in FILE_READERS:
        with suppress(KafkaLogError):
            reader(str(path))
    for index in (OffsetIndex, TimeIndex):
        with suppress(KafkaLogError), index(str(path)) as opened:
            list(opened.entries())
            for target in (-1, 0, 5, 2**62):
                opened.lookup(target)
    with suppress(KafkaLogError), Source(str(path)) as source:
        for check_crc in (False, True):
            assert covers(scan_batches(source, check_crc=check_crc), source.size_bytes)


def read_log_in_every_way(path: Path) -> list[Record | Batch | Defect]:
    """Read batches, records and selections of a file or partition directory."""
    rows: list[Record | Batch | Defect] = []
    for selection in (
        Selection(),
        Selection(from_offset=5, to_offset=30),
        Selection(from_time=1_700_000_000_000),
        Selection(isolation=Isolation.READ_COMMITTED),
        Selection(from_position=61, max_bytes=700),
    ):
        for read in (read_records, read_batches):
            with suppress(KafkaLogError):
                rows.extend(read(path, selection))
    return rows


def look_up_in_every_way(path: Path) -> None:
    """Look up offsets, times and special times, with and without indexes."""
    with suppress(KafkaLogError):
        partition = open_partition(str(path))
        for use_index in (True, False):
            log = UnifiedLog(partition, use_index=use_index)
            for query in (0, 17, 47, 2**62):
                for answer in (lookup.lookup_offset, lookup.lookup_timestamp):
                    with suppress(KafkaLogError):
                        answer(log, query)
            for special in Special:
                with suppress(KafkaLogError):
                    lookup.lookup_special(log, special, Isolation.READ_COMMITTED)
            with suppress(KafkaLogError):
                log.aborted_transactions()


def verify_at_every_level(path: Path) -> list[Defect]:
    """Return the findings of both levels."""
    found = []
    for level in Level:
        with suppress(KafkaLogError):
            run = Verification(level)
            found += list(run.verify(path))
    return found


def simulate_in_every_way(path: Path) -> None:
    """Simulate retention now and long ago, and rolls under tight limits."""
    with suppress(KafkaLogError):
        partition = open_partition(str(path))
        given = {"retention.ms": "1", "retention.bytes": "50", "segment.bytes": "500"}
        configs = ConfigSources(given).in_log_dir(str(path.parent)).of_topic("orders")
        for now_ms in (0, 1 << 50):
            with suppress(KafkaLogError):
                judge_partition(partition, configs, now_ms)
        with suppress(KafkaLogError):
            replay_partition(partition, [roll_settings(configs)[0]])


def audit_in_every_way(path: Path) -> None:
    """Audit a log against itself, up to its end and to its middle."""
    with suppress(KafkaLogError):
        partition = open_partition(str(path))
        log = UnifiedLog(partition)
        for offset in (log.log_end_offset, (log.log_start_offset + log.log_end_offset) // 2):
            with suppress(KafkaLogError):
                audit_partition(partition, partition, now_ms=1 << 50, cleaner_offset=offset)


def list_in_every_way(path: Path) -> None:
    """List log directories, partitions, segments and files."""
    with suppress(KafkaLogError):
        targets: list[LogDirListing | PartitionDir | FileEntry] = [open_path(str(path))]
        list(inventory.list_log_dirs(targets))
        list(inventory.list_partitions(targets))
        list(inventory.list_segments(targets))
        list(inventory.list_files(targets))


def sweep(path: Path) -> None:
    """Run all of the library over a partition directory and its files."""
    list_in_every_way(path)
    verify_at_every_level(path)
    read_log_in_every_way(path)
    look_up_in_every_way(path)
    simulate_in_every_way(path)
    audit_in_every_way(path)


def command_lines(directory: Path, files: Iterable[Path]) -> list[list[object]]:
    """Return every read command over a directory and some of its files."""
    lines: list[list[object]] = [
        ["lookup-offset", directory, "0", "17", "--timestamp", "1700000000000", "--steps"],
        ["lookup-offset", directory, "--special", "latest", "--no-index", "--format", "ndjson"],
        ["ls", "--sort", "size", directory],
        ["ls", directory, "--format", "ndjson"],
        ["ls", "--segments", directory],
        ["ls", "--files", directory],
        ["ls", "--files", directory, "--format", "csv"],
        ["verify", directory],
        ["verify", directory, "--level", "quick", "--format", "ndjson"],
        ["retention", directory, "--config", "retention.ms=1", "--format", "ndjson"],
        ["simulate-roll", directory, "--config", "segment.bytes=1000"],
    ]
    forms = ("table", "ndjson", "json", "csv", "kafka")
    for target in (directory, *files):
        lines += [["dump-segment", target, "--format", form] for form in forms]
        lines.append(["dump-segment", target, "--batches"])
    for path in files:
        lines.append(["verify", path])
        lines.append(["kafka-dump-log", "--print-data-log", "--files", path])
        lines.append(["kafka-dump-log", "--index-sanity-check", "--files", path])
    return lines


def run_some(kafkalog: Callable[..., Result], path: Path) -> None:
    """Run a few commands, each with another renderer, over a log file and its partition."""
    for line in (
        ["dump-segment", path.parent, "--format", "ndjson"],
        ["dump-segment", path, "--batches"],
        ["kafka-dump-log", "--print-data-log", "--files", path],
        ["lookup-offset", path.parent, "0", "--timestamp", "1700000000000", "--steps"],
        ["verify", path.parent],
    ):
        result = kafkalog(*line)
        assert result.status in STATUSES, (line, result)


def run_all(kafkalog: Callable[..., Result], directory: Path, files: Iterable[Path]) -> set[int]:
    """Run every read command; require statuses of the contract, and return them."""
    statuses = set()
    for line in command_lines(directory, list(files)):
        result = kafkalog(*line)
        assert result.status in {*STATUSES, 2}, (line, result)
        assert "Traceback" not in result.stderr, (line, result)
        statuses.add(result.status)
    return statuses


def small_log(corpus_dir: Path, target: Path) -> Path:
    """Copy a small partition with all kinds of files, and its log directory's files."""
    origin = corpus_dir / "lookup" / "transactions"
    target.mkdir(parents=True, exist_ok=True)
    for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
        [found] = origin.rglob(name)
        shutil.copy(found, target / name)
    [found] = [path for path in origin.rglob("orders-0") if path.is_dir()]
    return Path(shutil.copytree(found, target / "orders-0"))
