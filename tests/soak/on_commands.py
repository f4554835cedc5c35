"""Every command over log directories with correct checksums, with the kernels and without.

Only our own exceptions, no status 70, no hang, little memory; plans, copies and output are equal.
"""

from __future__ import annotations

import hashlib
import shutil
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING
from unittest.mock import patch

from kafkalog.change.compaction import offset_map
from kafkalog.errors import KafkaLogError
from kafkalog.files.log_dir import open_partition
from kafkalog.log.columns import chunks, headers
from kafkalog.node.unified_log import UnifiedLog
from tests.kafkalog_cli.test_terminal_safety import is_safe
from tests.soak import sealed
from tests.soak.on_directories import outcome, small_steps
from tests.soak.on_files import kernels
from tests.soak.target import Place, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from random import Random

    from tests.soak.real import Files

    Line = list[object]

STATUSES = {0, 1, 2, 3, 4, 5, 6, 7, 8}
_NOW = ("--now", "2023-11-15T00:00:00Z")
_DENSE = ("--config", "index.interval.bytes=50")
_SPECIAL = ("earliest", "latest", "max-timestamp")
_COMPACT = ("--config", "cleanup.policy=compact")
_FORMS = ("table", "ndjson", "json", "csv")


def _reading(rng: Random, log_dir: Path, partition: Path, log: Path) -> list[Line]:
    form = ["--format", rng.choice(_FORMS)]
    offset, end = rng.choice((0, 3, 17, 2**62)), _offset_in(partition, rng)
    roll = ("segment.bytes=300", "segment.ms=1000", "segment.index.bytes=40")
    return [
        ["ls", log_dir, *form],
        ["ls", "--segments", log_dir, *form],
        ["dump-segment", rng.choice((partition, log)), *form],
        ["dump-segment", log, "--batches", *form],
        ["dump-segment", partition, "--format", "kafka"],
        ["dump-segment", partition, "--isolation", "read_committed", *form],
        ["kafka-dump-log", "--deep-iteration", "--print-data-log", "--files", log],
        ["kafka-dump-log", "--files", log],
        ["lookup-offset", partition, offset, "--steps", "--show", *form],
        ["lookup-offset", partition, "--timestamp", sealed.BASE_TIME + rng.randrange(3000), *form],
        ["lookup-offset", partition, "--special", rng.choice(_SPECIAL), *form],
        ["verify", log_dir, "--level", rng.choice(("quick", "standard", "deep")), *form],
        ["verify", partition, "--level", "deep", *form],
        ["profile", partition, *form],
        ["retention", log_dir, "--config", "retention.ms=1000",
         "--config", "retention.bytes=500", *_NOW, *form],
        ["simulate-roll", partition, "--config", rng.choice(roll), *form],
        ["simulate-roll", partition, "--config", "segment.jitter.ms=500", *form],
        ["verify", "--compaction", partition, "--limit", 3, *_NOW, *form],
        ["verify", "--compaction", partition, "--cleaner-offset", end, *_NOW, *form],
    ]  # fmt: skip


def _planning(rng: Random, log_dir: Path, partition: Path, log: Path) -> list[Line]:
    form = ["--format", rng.choice(_FORMS)]
    return [
        ["compact", rng.choice((log_dir, partition)), *_COMPACT, *_NOW, *form],
        ["compact", partition, *_COMPACT, "--config", "min.cleanable.dirty.ratio=0",
         "--config", "delete.retention.ms=0", *_NOW, *form],
        ["recover", log_dir, *form],
        ["recover", partition, "--scan", "start", *form],
        ["rebuild-index", rng.choice((partition, log)), *_DENSE, *form],
        ["retention", log_dir, "--config", "retention.ms=1000", *_NOW, *form],
    ]  # fmt: skip


def _copying(rng: Random, _log_dir: Path, partition: Path, _log: Path) -> list[Line]:
    to = partition.parent.parent / "to"
    return [
        ["compact", partition, *_COMPACT, *_NOW, "--to", to],
        ["compact", partition, *_COMPACT, *_NOW, "--to", to],
        ["salvage", partition, "--to", to],
        ["export", partition, "--to", to, "--file-format",
         rng.choice(("ndjson", "csv", "parquet", "arrow"))],
    ]  # fmt: skip


def check_reading(files: Files, rng: Random, place: Place) -> None:
    """Check a command that reads."""
    _check(files, rng, place, _reading)


def check_planning(files: Files, rng: Random, place: Place) -> None:
    """Check a command that says what it would change."""
    _check(files, rng, place, _planning)


def check_copying(files: Files, rng: Random, place: Place) -> None:
    """Check a command that writes to another place: the files are also the same."""
    _check(files, rng, place, _copying)


def check_audit(files: Files, rng: Random, place: Place) -> None:
    """Check an audit of a log against itself, or against one that lost a batch."""
    _check(files, rng, place, _audits)


def _audits(rng: Random, log_dir: Path, partition: Path, log: Path) -> list[Line]:
    original = log_dir.parent / "original" / partition.name
    shutil.copytree(partition, original)
    data = log.read_bytes() if log.exists() else b""
    if rng.random() < 0.6 and len(data) > 12:  # without the first batch
        log.write_bytes(data[12 + int.from_bytes(data[8:12], "big", signed=True) :])
    offset = _offset_in(partition, rng)
    form = ["--format", rng.choice(_FORMS)]
    return [["verify", "--compaction", partition, "--original", original,
             "--cleaner-offset", offset, "--limit", rng.choice((1, 5)), *_NOW, *form]]  # fmt: skip


def _offset_in(partition: Path, rng: Random) -> int:
    """Return an offset of the log, mostly its end, as others are refused at once."""
    with suppress(KafkaLogError):
        log = UnifiedLog(open_partition(str(partition)))
        if log.log_start_offset <= log.log_end_offset:
            return rng.choice((log.log_end_offset, log.log_end_offset, rng.randint(
                log.log_start_offset, log.log_end_offset)))  # fmt: skip
    return 7


def _check(
    files: Files,
    rng: Random,
    place: Place,
    lines: Callable[[Random, Path, Path, Path], list[Line]],
) -> None:
    log_dir = place.put(files, "data")
    partition = log_dir / rng.choice(sorted({name.split("/")[0] for name in files if "/" in name}))
    logs = sorted(partition.glob("*.log")) or [partition / "missing.log"]
    line = rng.choice(lines(rng, log_dir, partition, rng.choice(logs)))
    before = _contents(log_dir)
    to = log_dir.parent / "to"
    with kernels(on=False):
        wanted = outcome(line), _contents(to)
    shutil.rmtree(to, ignore_errors=True)
    with kernels(on=True), small_steps(), few_batches_at_once():
        found = outcome(line), _contents(to)
    assert wanted[0][0] in STATUSES, (line, wanted)
    assert "Traceback" not in wanted[0][2], (line, wanted)
    assert is_safe(wanted[0][2]), line
    assert found[0] == wanted[0], (line, found[0], wanted[0])
    assert found[1] == wanted[1], (line, found[1], wanted[1])
    assert _contents(log_dir) == before, line


@contextmanager
def few_batches_at_once() -> Iterator[None]:
    """Make columns and key tables so small that a few batches fill several."""
    with (
        patch.object(headers, "_BATCHES_AT_ONCE", 3),
        patch.object(headers, "_GATHERED_MIN", 2),
        patch.object(headers, "_ROWS_AT_ONCE", 5),
        patch.object(offset_map, "_ROWS_AT_ONCE", 5),
        patch.object(chunks, "_DECOMPRESSED_AT_ONCE", 64),
        patch.object(chunks, "_ARENA_FULL", 64),
    ):
        yield


def _contents(path: Path) -> dict[str, str]:
    """Return checksums of the files of a tree, without the times in manifests."""
    return {
        str(one.relative_to(path)): hashlib.sha256(one.read_bytes()).hexdigest()
        for one in sorted(path.rglob("*"))
        if one.is_file() and "kafkalog" not in str(one.relative_to(path)) and one.name != ".lock"
    }


TARGETS = (
    Target("sealed-reading", 4_000, sealed.log_dir, check_reading),
    Target("sealed-planning", 1_800, sealed.log_dir, check_planning),
    Target("sealed-copying", 1_000, sealed.log_dir, check_copying),
    Target("sealed-audit", 1_200, sealed.log_dir, check_audit),
)
