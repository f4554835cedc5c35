"""The same compaction in one process and by tasks of an engine: all results are compared."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kafkalog.change.compaction import Compaction, compact_partition, compact_partitions
from kafkalog.change.journal.run import Run
from kafkalog.errors import KafkaLogError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kafkalog.change.compaction import Candidate, CompactionRequest
    from kafkalog.io.engine import Engine


def tree(root: Path) -> dict[str, Any]:
    """Return everything below a directory but the lock: bytes, times, and names of directories.

    Times of checkpoints and transaction indexes are left out: they are those of the run.
    Checkpoints list partitions as they end.
    """
    found: dict[str, Any] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_dir():
            found[name] = None
        elif path.name != ".lock":
            has_no_time = path.name.endswith(("-checkpoint", ".txnindex"))
            mtime_ns = None if has_no_time else os.stat(path).st_mtime_ns
            content: Any = path.read_bytes()
            if name.endswith("-checkpoint"):
                content = sorted(content.splitlines())
            found[name] = (content, mtime_ns)
    return found


def outcome(found: Compaction | KafkaLogError, log_dir: Path) -> Any:
    """Return the result of a partition, without its path."""
    if isinstance(found, KafkaLogError):
        said = (found.message, found.path, found.position, found.note, found.hint)
        words = [str(one).replace(str(log_dir), "") for one in said]
        return (type(found), found.reference, words)
    return replace(found, candidate=found.candidate.cleanable), found.candidate.skip


def in_one_process(
    log_dir: Path, find: Callable[[Path], list[Candidate]], request: CompactionRequest,
    *, writes: bool = True, backup: Path | None = None,
) -> list[Any]:  # fmt: skip
    """Compact each partition of a log directory with the local engine."""
    found: list[Any] = []
    with Run(str(log_dir), command="compact", backup=backup and str(backup)) as run:
        for one in find(log_dir):
            if run.is_done(one.partition):
                continue
            try:
                done = compact_partition(one, request, run if writes else None)
                found.append(outcome(done, log_dir))
            except KafkaLogError as error:
                found.append(outcome(error, log_dir))
    return found


def by_engine(
    engine: Engine, log_dir: Path, find: Callable[[Path], list[Candidate]],
    request: CompactionRequest, *, writes: bool = True, backup: Path | None = None,
    observe: Any = None, **more: Any,
) -> list[Any]:  # fmt: skip
    """Compact each partition by tasks of an engine."""
    with Run(str(log_dir), observe, command="compact", backup=backup and str(backup)) as run:
        candidates = [one for one in find(log_dir) if not run.is_done(one.partition)]
        ended = compact_partitions(candidates, request, engine, run if writes else None, **more)
        return [outcome(found, log_dir) for _, found in ended]
