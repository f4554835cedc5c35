"""`kafkalog profile`: its formats and its texts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.builders import BASE_TIME, batch, flip, record, write_log
from tests.conftest import state

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_a_row_a_partition_and_one_a_topic(kafkalog: Callable[..., Any], tmp_path: Path) -> None:
    """The objects have all that is known."""
    for number in range(2):
        records = [record(0, b"k", b"abc", headers=[(b"h", b"vv")]), record(1, b"k", None)]
        write_log(tmp_path / f"orders-{number}", batch(0, records))
    paths = (tmp_path / "orders-0", tmp_path / "orders-1")
    result = kafkalog("profile", "--format", "ndjson", *paths)
    assert (result.status, result.stderr) == (0, "")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(row["topic"], row["partition"]) for row in rows] == [
        ("orders", 0), ("orders", 1), ("orders", None),
    ]  # fmt: skip
    whole = rows[-1]
    assert whole["type"] == "profile"
    assert (whole["records"], whole["tombstones"], whole["keys"]) == (4, 2, 1)
    assert (whole["key_size_bytes"], whole["value_size_bytes"], whole["header_size_bytes"]) == (
        4,
        6,
        6,
    )
    assert whole["hot_keys"] == [{"key": "k", "at_least": 4, "at_most": 4}]
    hour = BASE_TIME // 3_600_000 * 3_600_000
    assert whole["histogram"] == [{"start_timestamp": hour, "records": 4, "data_bytes": 16}]


def test_damage_is_counted_and_told_by_the_status(
    kafkalog: Callable[..., Any], tmp_path: Path
) -> None:
    write_log(tmp_path / "orders-0", flip(batch(0, [record(0, b"k")]), 500), batch(1, [record(0)]))
    result = kafkalog("profile", "--format", "ndjson", tmp_path / "orders-0")
    (row,) = map(json.loads, result.stdout.splitlines())
    assert (result.status, row["defects"], row["records"]) == (8, 1, 1)


def test_a_table_for_people(kafkalog: Callable[..., Any], corpus_dir: Path) -> None:
    """It shows the codec's ratio and the average batch."""
    log = state(corpus_dir, "kafka-4.3", "codecs").root / "codec-zstd-0"
    lines = kafkalog("profile", log).stdout.decode().splitlines()
    assert lines[0].split()[:6] == ["PARTITION", "RECORDS", "SIZE", "DATA", "BATCH", "KEYS"]
    assert lines[1].split()[:4] == ["codec-zstd-0", "2000", "165.2K", "431.5K"]
    assert " zstd 2.64x  74 tombstones  " in lines[1]


def test_only_some_partitions(kafkalog: Callable[..., Any], tmp_path: Path) -> None:
    """By globs and numbers; `-n` counts rows."""
    for name in ("orders-0", "orders-1", "other-0"):
        write_log(tmp_path / name, batch(0, [record(0, b"k")]))

    def names(*words: object) -> list[tuple[str, int | None]]:
        found = kafkalog("profile", tmp_path, *words, "-o", "ndjson").stdout.splitlines()
        return [(row["topic"], row["partition"]) for row in map(json.loads, found)]

    assert names("-t", "!oth*") == [("orders", 0), ("orders", 1), ("orders", None)]
    assert names("-p", "1-7") == [("orders", 1)]
    assert names("-n", 2) == [("orders", 0), ("orders", 1)]
    assert kafkalog("profile", tmp_path, "-t", "oders").status == 1


def test_damage_is_named_also_in_a_directory_of_another_name(kafkalog: Any, tmp_path: Path) -> None:
    (tmp_path / "junk").mkdir()
    (tmp_path / "junk" / f"{0:020d}.log").write_bytes(b"hi")
    result = kafkalog("profile", tmp_path / "junk")
    assert result.status == 8
    assert result.stderr == (
        "warning: 1 defect left out, in junk; "
        "`kafkalog verify` shows what is damaged or cannot be read\n"
    )
