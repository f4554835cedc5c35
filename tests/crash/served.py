"""What a log serves once it is loaded, and the judges of what a crash left."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from formats.file_names import DirectoryState, is_staging, parse_directory_name
from kafkalog.files.indexes import read_aborted_transactions
from kafkalog.files.log_dir import open_partition
from kafkalog.files.text_files import read_offset_checkpoint
from kafkalog.io.paths.source import Source
from kafkalog.log.batches.framing import scan_batches
from kafkalog.log.batches.records import decode_records
from kafkalog.model import Batch
from kafkalog.node.recovery import StartConfig, StartMode
from tests.kafkalog import replay

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.oracle import Oracle

NOW_MS = 1_700_086_400_000
CONFIG = StartConfig(index_interval_bytes=200, segment_index_bytes=65536, now_ms=NOW_MS)
KAFKAS_CONFIG = {"index.interval.bytes": "200", "segment.index.bytes": "65536"}
CHECKPOINTS = ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint")
CLEANER_OFFSETS = "cleaner-offset-checkpoint"


@dataclass(frozen=True)
class Served:
    """Where a log starts and ends, its records in order, and the hidden transactions."""

    start: int
    end: int
    records: tuple[Any, ...]
    aborted: frozenset[tuple[int, int, int]]


def is_partly_cleaned(found: Served, old: Served, new: Served) -> bool:
    """Check that a log is partly cleaned: no value was lost, and none came back.

    The log has everything that the new log has, and nothing that the old log did not have. The
    latest record of each remaining key is its latest in the old log. Where records remain that an
    entry of the transaction index hides, the entry remains as well.
    """
    if (found.start, found.end) != (old.start, old.end) or (new.start, new.end) != (
        old.start, old.end,
    ):  # fmt: skip
        return False
    if not set(new.records) <= set(found.records) <= set(old.records):
        return False
    latest = {key: offset for offset, _, key, *_ in old.records}
    latest_found = {key: offset for offset, _, key, *_ in found.records}
    if any(latest[key] != offset for key, offset in latest_found.items()):
        return False
    left = {offset for offset, *_ in set(found.records) - set(new.records)}
    hidden = old.aborted - found.aborted
    return found.aborted <= old.aborted and not any(
        left & set(range(first, last + 1)) for _, first, last in hidden
    )


def served(partition: Path, start: int, end: int) -> Served:
    """Read from the batches alone what a loaded log serves from `start` to `end`."""
    records: list[Any] = []
    aborted = set()
    for segment in open_partition(str(partition)).segments:
        with Source(segment.log.path) as source:
            for batch in scan_batches(source, check_crc=True):
                assert isinstance(batch, Batch), f"{segment.log.path}: {batch}"
                assert batch.crc_valid
                records += [
                    (record.offset, record.timestamp, record.key, record.value, record.headers)
                    for record in decode_records(source, batch)
                    if start <= record.offset < end
                ]
        if segment.transaction_index is not None:
            aborted |= {
                (entry.producer_id, entry.first_offset, entry.last_offset)
                for entry in read_aborted_transactions(segment.transaction_index.path)
                if entry.last_offset >= start
            }
    return Served(start, end, tuple(records), frozenset(aborted))


def offset_in(log_dir: Path, checkpoint: str, partition: str) -> int | None:
    path = log_dir / checkpoint
    if not path.exists():
        return None
    name = parse_directory_name(partition)
    assert name is not None
    found = {(entry.topic, entry.partition): entry.offset
             for entry in read_offset_checkpoint(str(path))}  # fmt: skip
    return found.get((name.topic, name.partition))


def partitions(log_dir: Path) -> list[str]:
    return sorted(path.name for path in log_dir.iterdir() if path.is_dir())


def is_live(name: str) -> bool:
    parsed = parse_directory_name(name)
    assert parsed is not None, f"a broker would not start: {name}"
    return parsed.state == DirectoryState.LIVE


def mode_of(log_dir: Path) -> StartMode:
    return StartMode.CLEAN if (log_dir / ".kafka_cleanshutdown").exists() else StartMode.UNCLEAN


def start_of_ours(log_dir: Path, mode: StartMode | None = None) -> dict[str, Served]:
    """Perform our predicted start; return what each live partition then serves."""
    mode = mode or mode_of(log_dir)
    found = {}
    for name in partitions(log_dir):
        if is_staging(name):
            continue  # the broker removes it; Kafka's own start is tried with it
        predicted = replay.predict_and_perform(log_dir / name, mode, CONFIG)
        assert predicted.refusal is None, (name, predicted.refusal)
        if is_live(name):
            assert predicted.loaded is not None
            log = predicted.loaded
            found[name] = served(log_dir / name, log.log_start_offset, log.log_end_offset)
    return found


def load_command(log_dir: Path, name: str) -> list[str]:
    """Return the command for KafkaOracle that loads the partition as a broker would."""
    points = [offset_in(log_dir, checkpoint, name) or 0 for checkpoint in CHECKPOINTS]
    words = ["load", str(log_dir / name), "--recovery-point", str(points[0])]
    words += ["--log-start", str(points[1]), "--now", str(NOW_MS)]
    words += [
        word for key, value in KAFKAS_CONFIG.items() for word in ("--config", f"{key}={value}")
    ]
    return [*words, "--clean"] if mode_of(log_dir) == StartMode.CLEAN else words


def starts_of_kafka(log_dirs: list[Path], oracle: Oracle) -> list[dict[str, Served]]:
    """Return what each live partition serves after a start by Kafka's own loader."""
    wanted = [(log_dir, name) for log_dir in log_dirs for name in partitions(log_dir)]
    answers = [oracle.ask(*load_command(*each)) for each in wanted]
    found: dict[Path, dict[str, Served]] = {log_dir: {} for log_dir in log_dirs}
    for (log_dir, name), answer in zip(wanted, answers, strict=True):
        assert "error" not in answer, (log_dir, name, answer)
        if is_live(name):
            log = answer["log"]
            found[log_dir][name] = served(
                log_dir / name, log["logStartOffset"], log["logEndOffset"]
            )
    return [found[log_dir] for log_dir in log_dirs]


def copy_and_start(log_dir: Path, target: Path, mode: StartMode | None = None) -> dict[str, Served]:
    """Start on a copy, and return what it serves; the original stays unchanged."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(log_dir, target)
    return start_of_ours(target, mode)
