"""Paths mean the same for the driver and for workers, which run in other directories."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.builders import batch, record, write_log

if TYPE_CHECKING:
    from pathlib import Path

    from tests.spark.commands import CommandSession


def test_relative_paths_on_a_cluster(commands: CommandSession, tmp_path: Path) -> None:
    """Executors have their own working directories, yet exported files reach the target."""
    for number in range(3):
        write_log(tmp_path / "logs" / f"orders-{number}", batch(0, [record(0, b"k", b"v")] * 5))
    (tmp_path / "logs" / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    query = "select count(*) n, count(distinct partition) p from records"
    exported, asked, profiled, verified = (
        commands.run(tmp_path, *words)
        for words in (
            ("export", "logs", "--to", "lake", "--format", "ndjson", "--spark", "local[*]"),
            ("sql", "-c", query, "logs", "--format", "ndjson"),
            ("profile", "logs", "--format", "ndjson", "--spark", "local[*]"),
            ("verify", "logs", "--format", "ndjson", "--spark", "local[*]"),
        )
    )
    assert (exported[0], exported[2]) == (0, "")
    assert len([*(tmp_path / "lake").glob("topic=orders/*/*.parquet")]) == 3
    assert (tmp_path / "lake" / "_SUCCESS").exists()
    assert asked == (0, '{"n":15,"p":3}\n', "")
    assert profiled[0] == 0, profiled
    rows = [json.loads(line) for line in profiled[1].splitlines()]
    assert sum(row["records"] for row in rows if row["partition"] is None) == 15
    assert verified[0] in (0, 1), verified
