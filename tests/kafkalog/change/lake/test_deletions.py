"""What a broker deletes between plan and read is reported, never left out silently."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.io.engine import LocalEngine
from tests.builders import batch, record, write_log
from tests.kafkalog.change.lake.exporting import table_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.conftest import Result

    Kafkalog = Callable[..., Result]


@pytest.fixture
def partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two segments of thirty records; the first one is deleted after the plan."""
    partition = tmp_path / "logs" / "orders-0"
    for base in (0, 30):
        batches = [
            batch(base + n, [record(i, b"k", b"v") for i in range(3)]) for n in range(0, 30, 3)
        ]
        write_log(partition, *batches, name=f"{base:020}")
    (partition.parent / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    run = LocalEngine.run

    def deleting(*arguments: Any, **options: Any) -> Iterator[Any]:
        (partition / f"{0:020}.log").unlink(missing_ok=True)
        return run(*arguments, **options)

    monkeypatch.setattr(LocalEngine, "run", deleting)
    return partition


def test_an_export_names_what_it_lacks(partition: Path, tmp_path: Path, kafkalog: Kafkalog) -> None:
    """The status is 1, as for damage; the manifest names it, too."""
    lake = tmp_path / "lake"
    words = ("--to", lake, "--format", "ndjson")
    result = kafkalog("export", partition.parent, *words)
    assert result.status == 8
    assert sorted(row["offset"] for row in table_of(lake).to_pylist()) == [*range(30, 60)]
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    [defect] = [row for row in rows if row["type"] == "defect"]
    assert (defect["reference"], defect["severity"]) == ("deleted-while-reading", "note")
    assert defect["detail"].startswith("Offsets 0 to 29 of orders-0 were deleted after")
    manifest = json.loads((lake / "_kafkalog" / "manifest.json").read_text())
    assert [one["detail"] for part in manifest["parts"] for one in part["defects"]] == [
        defect["detail"]
    ]


def test_an_export_that_is_to_fail_fast_ends(
    partition: Path, tmp_path: Path, kafkalog: Kafkalog
) -> None:
    words = ("--to", tmp_path / "lake", "--fail-fast")
    result = kafkalog("export", partition.parent, *words)
    assert result.status == 4
    assert "error: changed-since" in result.stderr
    assert "Its log starts at offset 30 now" in result.stderr


def test_a_profile_counts_what_it_lacks(partition: Path, kafkalog: Kafkalog) -> None:
    """They are counted once, although the profile reads twice."""
    result = kafkalog("profile", partition, "--format", "ndjson")
    assert result.status == 8
    [row] = map(json.loads, result.stdout.splitlines())
    assert (row["records"], row["batches"], row["defects"]) == (30, 10, 1)
