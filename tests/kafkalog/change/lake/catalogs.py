"""Shared by the tests of Iceberg catalogs behind servers: a table that grows, and a killed run."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from pyiceberg.catalog import load_catalog

from tests.kafkalog.change.lake.appending import grow, merge_files, noted, rows
from tests.kafkalog.tables.test_other_disks import make_log

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tests.conftest import Result

CATALOG, TABLE = "prod", "kafka.records"


def require_growth(
    kafkalog: Callable[..., Result], log: Path, properties: Mapping[str, str],
    count_files: Callable[[], int],
) -> None:  # fmt: skip
    """Create a table, add to it, kill a run, go on, and merge: each row is there once.

    Args:
        kafkalog: runs the command in this process.
        log: where to make the log directory.
        properties: those of the catalog.
        count_files: returns how many data files the table has, in snapshots or not.
    """
    partition = make_log(log)
    words = words_of(log, properties)

    def run(*more: str) -> None:
        result = kafkalog(*words, *more)
        assert result.status == 0, result.stderr

    run()
    grow(partition, 120, 2)
    run()
    assert rows_of(properties) == rows(0, 126)
    grow(partition, 126, 2)
    before = count_files()
    with subprocess.Popen([sys.executable, "-m", "kafkalog_cli", *words]) as process:
        while count_files() == before and process.poll() is None:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
    assert count_files() > before
    assert rows_of(properties) in (rows(0, 126), rows(0, 132))
    grow(partition, 132, 2)
    run()
    assert rows_of(properties) == rows(0, 138)
    [end] = noted(table_of(properties))["end"].values()
    assert end == [138, 0]
    merge_files(table_of(properties))
    grow(partition, 138, 2)
    run()
    assert rows_of(properties) == rows(0, 144)


def words_of(log: Path, properties: Mapping[str, str]) -> list[str]:
    """Return the words of a command that adds to the table of a catalog."""
    return [
        "export", str(log), "--to", f"{CATALOG}.{TABLE}", "--append", "--as", "iceberg",
        *(f"--set=catalog.{'='.join(one)}" for one in properties.items()),
    ]  # fmt: skip


def table_of(properties: Mapping[str, str]) -> Any:
    return load_catalog(CATALOG, **properties).load_table(TABLE)


def rows_of(properties: Mapping[str, str]) -> list[tuple[int, bytes]]:
    """Return offset and value of each row, sorted."""
    found = table_of(properties).scan(selected_fields=("offset", "value")).to_arrow()
    return sorted((row["offset"], row["value"]) for row in found.to_pylist())
