"""How `ls` shows log directories, partitions, segments and files."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING

from kafkalog_cli.render.text import file_cell, size_cell, time_cell
from kafkalog_cli.render.writer import Column, View

if TYPE_CHECKING:
    from datetime import tzinfo

    from kafkalog.inventory import FileRow, LogDirRow, PartitionRow, SegmentRow
    from kafkalog_cli.render.rows import Row


def log_dir_heading(log_dir: LogDirRow) -> list[str]:
    """The lines above a log directory's table."""
    meta = log_dir.meta
    facts = []
    if meta is not None:
        facts.append(f"{'node' if meta.version else 'broker'} {_dash(meta.node_id)}")
        facts.append(f"cluster {_dash(meta.cluster_id)}")
        if meta.directory_id:
            facts.append(f"directory {meta.directory_id}")
    facts.append("closed cleanly" if log_dir.clean_shutdown else "not shut down cleanly")
    checkpoints = [
        f"{name.removesuffix('-checkpoint')} {'unreadable' if count is None else count}"
        for name, count in log_dir.checkpoints.items()
    ]
    lines = [f"{log_dir.path}: {', '.join(facts)}"]
    if checkpoints:
        lines.append(f"checkpoint entries: {', '.join(checkpoints)}")
    if log_dir.others:
        lines.append(f"other directories: {', '.join(log_dir.others)}")
    return lines


def directory_of(path: str, depth: int = 1) -> str:
    """Return the directory so far above a path, as the path was given."""
    for _ in range(depth):
        path = os.path.dirname(path)
    return path or "."


def log_dir_row(log_dir: LogDirRow) -> Row:
    """The object for a log directory."""
    meta = log_dir.meta
    return {
        "type": "log_dir",
        "path": log_dir.path,
        "node_id": meta.node_id if meta else None,
        "cluster_id": meta.cluster_id if meta else None,
        "directory_id": meta.directory_id if meta else None,
        "clean_shutdown": log_dir.clean_shutdown,
        "partitions": log_dir.partition_count,
        "size": log_dir.size_bytes,
        "checkpoints": log_dir.checkpoints,
        "other_directories": list(log_dir.others),
    }


def partition_view(*, exact: bool) -> View[PartitionRow]:
    """One row a partition."""

    def odd(row: PartitionRow) -> str:
        words = [] if row.state == "live" else [row.state]
        words += [f"{count} {state}" for state, count in row.odd_files.items()]
        return ", ".join(words)

    return View(
        (
            Column("PARTITION", lambda row: f"{row.topic}-{_dash(row.partition)}", fold=True),
            Column("SEGMENTS", lambda row: row.segment_count, right=True),
            Column("SIZE", lambda row: size_cell(row.size_bytes, exact=exact), right=True),
            Column("START", lambda row: _dash(row.log_start_offset), right=True),
            Column("END", lambda row: _dash(row.log_end_offset), right=True),
            Column("HW", lambda row: _dash(row.high_watermark), right=True),
            Column("CLEANED", lambda row: _dash(row.cleaner_offset), right=True),
            Column("STATE", odd, fold=True),
        ),
        lambda row: _row("partition", row),
    )


def segment_view(zone: tzinfo, *, exact: bool, states: bool = False) -> View[SegmentRow]:
    """One row a segment; with `states` where each lives."""

    def size(size_bytes: int | None) -> str:
        return "-" if size_bytes is None else size_cell(size_bytes, exact=exact)

    state: tuple[Column[SegmentRow], ...] = (Column("STATE", lambda row: row.state),)
    return View(
        (
            *(state if states else ()),
            Column("PARTITION", lambda row: f"{row.topic}-{_dash(row.partition)}", fold=True),
            Column("BASE", lambda row: row.base_offset, right=True),
            Column("SIZE", lambda row: size(row.size_bytes), right=True),
            Column("INDEX", lambda row: size(row.index_size_bytes), right=True),
            Column("TIMEIDX", lambda row: size(row.timeindex_size_bytes), right=True),
            Column("TXNIDX", lambda row: size(row.txnindex_size_bytes), right=True),
            Column("MAX TIME", lambda row: _time(row.largest_timestamp, zone, exact)),
        ),
        lambda row: _row("segment", row),
    )


def file_view(zone: tzinfo, *, exact: bool) -> View[FileRow]:
    """One row a file."""
    return View(
        (
            Column("FILE", lambda row: file_cell(row.path), fold=True),
            Column("KIND", lambda row: row.kind),
            Column("STATE", lambda row: row.error or row.state, fold=True),
            Column("SIZE", lambda row: size_cell(row.size_bytes, exact=exact), right=True),
            Column("MODIFIED", lambda row: _time(row.mtime_ms, zone, exact)),
        ),
        lambda row: _row("file", row),
    )


def _row(kind: str, row: PartitionRow | SegmentRow | FileRow) -> Row:
    return {"type": kind} | {
        name.replace("size_bytes", "size"): value for name, value in asdict(row).items()
    }


def _time(timestamp_ms: int | None, zone: tzinfo, exact: bool) -> str:
    if exact:
        return _dash(timestamp_ms)
    return time_cell(timestamp_ms, zone)


def _dash(value: object) -> str:
    return "-" if value is None else str(value)
