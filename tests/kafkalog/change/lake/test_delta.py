"""Exports as Delta tables: the same files, with the same rows, once."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from kafkalog.change.lake import Export, ExportRequest, FileFormat, Writing
from kafkalog.change.lake.model import TableFormat
from kafkalog.errors import DestinationExistsError, UnsupportedError, UsageError
from kafkalog.io.engine import LocalEngine
from kafkalog.tables import Request, TableName
from tests.conftest import state
from tests.kafkalog.change.lake.exporting import export, files_of, table_of

if TYPE_CHECKING:
    from pathlib import Path

    from kafkalog.change.lake import ExportSummary

ORDER = [(name, "ascending") for name in ("topic", "partition", "offset")]


def export_delta(source: Path, to: Path, request: Request | None = None) -> ExportSummary:
    asked = ExportRequest(
        (str(source),), request or Request(split_bytes=1 << 14), table_format=TableFormat.DELTA
    )
    with Export(asked, str(to)) as one:
        one.run(LocalEngine(2))
        return one.summary()


def tables_in(root: Path) -> dict[str, bytes]:
    return {name: data for name, data in files_of(root).items() if name.endswith(".parquet")}


def test_a_delta_table_has_the_rows_of_the_files(tmp_path: Path, corpus_dir: Path) -> None:
    """deltalake and pyarrow read them; the files equal those of an export without a table."""
    [source] = state(corpus_dir, "kafka-4.3", "codecs").log_dirs
    export_delta(source, tmp_path / "delta")
    export([source], tmp_path / "plain", Request(split_bytes=1 << 14))
    made = [tables_in(tmp_path / name) for name in ("delta", "plain")]
    assert made[0] == made[1]
    found = DeltaTable(tmp_path / "delta")
    assert found.version() == 0
    assert found.metadata().partition_columns == ["topic", "partition"]
    columns = ["topic", "partition", "offset", "key", "value", "timestamp"]
    wanted = table_of(tmp_path / "plain").select(columns).sort_by(ORDER)
    assert found.to_pyarrow_table().select(columns).sort_by(ORDER).to_pylist() == wanted.to_pylist()
    assert len(wanted) > 1000


def test_a_directory_with_an_odd_name(tmp_path: Path, corpus_dir: Path) -> None:
    """Names of directories that are already escaped are not escaped again."""
    [source] = state(corpus_dir, "kafka-4.3", "codecs").log_dirs
    shutil.copytree(source / "codec-none-0", tmp_path / "a b-0")
    for _ in range(2):
        rows = export_delta(tmp_path / "a b-0", tmp_path / "to").rows
        (tmp_path / "to" / "_SUCCESS").unlink()
    found = DeltaTable(tmp_path / "to").to_pyarrow_table()
    assert set(found["topic"].to_pylist()) == {"a b"}
    assert len(found) == rows


def test_a_second_run_commits_nothing(tmp_path: Path, corpus_dir: Path) -> None:
    """It changes nothing else either."""
    [source] = state(corpus_dir, "kafka-4.3", "codecs").log_dirs
    export_delta(source, tmp_path / "to")
    before = files_of(tmp_path / "to")
    assert export_delta(source, tmp_path / "to").was_complete
    assert files_of(tmp_path / "to") == before


def test_a_run_that_was_killed_after_the_commit_goes_on(tmp_path: Path, corpus_dir: Path) -> None:
    """The table exists, the manifest does not: in the end each row exists once."""
    [source] = state(corpus_dir, "kafka-4.3", "codecs").log_dirs
    rows = export_delta(source, tmp_path / "to").rows
    (tmp_path / "to" / "_SUCCESS").unlink()
    some = next((tmp_path / "to").glob("topic=*/*/*.parquet"))
    some.unlink()
    assert export_delta(source, tmp_path / "to").written_files == 1
    table = DeltaTable(tmp_path / "to")
    assert table.version() == 0
    assert len(table.to_pyarrow_table()) == rows


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", [*TableName])
def test_every_table_can_be_one(name: TableName, tmp_path: Path, corpus_dir: Path) -> None:
    """Delta knows all types of columns."""
    [source] = state(corpus_dir, "kafka-4.3", "crash-1-torn").log_dirs
    rows = export_delta(source, tmp_path / "to", Request(name)).rows
    assert len(DeltaTable(tmp_path / "to").to_pyarrow_table()) == rows


def test_what_is_refused(tmp_path: Path, corpus_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal comes before anything is written."""
    [source] = state(corpus_dir, "kafka-4.3", "codecs").log_dirs
    delta = TableFormat.DELTA
    text = ExportRequest((str(source),), writing=Writing(FileFormat.CSV), table_format=delta)
    with pytest.raises(UsageError), Export(text, str(tmp_path / "to")):
        pass
    asked = ExportRequest((str(source),), table_format=delta)
    with pytest.raises(UsageError):
        Export(asked, "s3://key:secret@bucket/lake?region=x")
    export([source], tmp_path / "plain")
    with pytest.raises(DestinationExistsError), Export(asked, str(tmp_path / "plain")):
        pass
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(UnsupportedError, match="not installed"), Export(asked, str(tmp_path / "x")):
        pass
    assert not (tmp_path / "x").exists()
