"""Tables that other programs compact between runs: the rows stay the same, and runs go on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from tests.kafkalog.change.lake.appending import (
    DELTA,
    ICEBERG,
    append,
    grow,
    iceberg,
    merge_files,
    rows,
    rows_of,
)
from tests.kafkalog.tables.test_other_disks import make_log

if TYPE_CHECKING:
    from pathlib import Path

    from kafkalog.change.lake.model import TableFormat


def all_rows(to: Path, form: TableFormat) -> list[dict[str, Any]]:
    """Return every column of every row."""
    table = DeltaTable(to).to_pyarrow_table() if form == DELTA else iceberg(to).scan().to_arrow()
    found: list[dict[str, Any]] = table.sort_by("offset").to_pylist()
    return found


@pytest.mark.parametrize("form", [DELTA, ICEBERG])
def test_the_next_run_continues(tmp_path: Path, form: TableFormat) -> None:
    """Nothing is new right after a compaction; later the new rows are added, and only these."""
    log, to = tmp_path / "log", tmp_path / "lake"
    partition = make_log(log)
    for first in (120, 123, 126):
        append(log, to=to, form=form)
        grow(partition, first, 1)
    append(log, to=to, form=form)
    before = all_rows(to, form)
    if form == DELTA:
        assert DeltaTable(to).optimize.compact()["numFilesAdded"] == 1
    else:
        merge_files(iceberg(to))
    assert append(log, to=to, form=form)[0].was_complete
    assert all_rows(to, form) == before
    grow(partition, 129, 1)
    assert append(log, to=to, form=form)[0].rows == 3
    assert rows_of(to, form) == rows(0, 132)
