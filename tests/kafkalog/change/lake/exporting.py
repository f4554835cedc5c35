"""Shared by the tests of exports: run one, and read its results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds

from kafkalog.change.lake import Export, ExportRequest, ExportSummary, Writing
from kafkalog.io.engine import LocalEngine
from kafkalog.tables import Request

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from kafkalog.io.engine import Engine

HIVE = ds.partitioning(
    pa.schema([("topic", pa.string()), ("partition", pa.int32())]), flavor="hive"
)


def export(
    paths: Iterable[Path],
    to: Path | str,
    request: Request | None = None,
    *,
    columns: Sequence[str] | None = None,
    writing: Writing | None = None,
    engine: Engine | None = None,
    fail_fast: bool = False,
) -> ExportSummary:
    asked = ExportRequest(
        tuple(map(str, paths)),
        request or Request(),
        None if columns is None else tuple(columns),
        writing or Writing(),
    )
    with Export(asked, str(to), fail_fast=fail_fast) as one:
        one.run(engine or LocalEngine(2))
        return one.summary()


def files_of(root: Path) -> dict[str, bytes]:
    """Return everything in the directory, whatever its name."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def table_of(root: Path, form: str = "parquet") -> Any:
    """Read the directory as one table with pyarrow."""
    return ds.dataset(root, format=form, partitioning=HIVE).to_table()
