"""How `rebuild-index` is shown: each index beside the one that the log gives."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from kafkalog_cli.output.configs import print_heading
from kafkalog_cli.output.objects import Column, View
from kafkalog_cli.output.text import file_cell, size_cell

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from kafkalog.repair import IndexComparison
    from kafkalog_cli.output.objects import Row


def index_view(*, exact: bool) -> View[IndexComparison]:
    """One row an index."""

    def size(size_bytes: int | None) -> str:
        return "-" if size_bytes is None else size_cell(size_bytes, exact=exact)

    return View(
        (
            Column("INDEX", lambda index: file_cell(index.path), fold=True),
            Column("SIZE", lambda index: size(index.size_bytes), right=True),
            Column("FROM THE LOG", lambda index: size(index.new_size_bytes), right=True),
            Column("RESULT", lambda index: index.result),
        ),
        index_row,
    )


def index_row(index: IndexComparison) -> Row:
    """The object for an index."""
    return {
        "type": "index_comparison",
        "path": index.path,
        "base_offset": index.base_offset,
        "result": index.result,
        "size": index.size_bytes,
        "new_size": index.new_size_bytes,
    }


@dataclass(frozen=True, slots=True)
class IndexSummary:
    """What all indexes come to: how many, how many are to be written, how many were."""

    indexes: int
    to_write: int
    written: int


def index_summary(indexes: Sequence[IndexComparison], done: Collection[str]) -> IndexSummary:
    """The totals; `done` holds the paths of the partitions that were rebuilt."""
    changed = [index for index in indexes if index.is_changed]
    written = sum(os.path.dirname(index.path) in done for index in changed)
    return IndexSummary(len(indexes), len(changed), written)


def index_summary_row(summary: IndexSummary) -> Row:
    """The last object of a run."""
    return {"type": "index_summary", **asdict(summary)}


def print_index_summary(summary: IndexSummary, *, in_place: bool) -> None:
    """The lines below the table."""
    lines = [f"{summary.indexes} indexes, {summary.to_write} missing or different"]
    if summary.written:
        lines.append(f"{summary.written} written")
    elif summary.to_write and not in_place:
        lines.append("nothing was changed; --in-place applies the plan")
    print_heading(lines)
