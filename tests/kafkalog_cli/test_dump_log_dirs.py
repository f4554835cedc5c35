"""`dump-segment` over log directories: each row names its partition, in path or time order."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.log.batches import merged
from tests.builders import BASE_TIME, batch, record, write_log

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Result

    Run = Callable[..., Result]


def rows(kafkalog: Run, *words: object) -> list[dict[str, Any]]:
    """Return the objects that a dump prints."""
    result = kafkalog("dump-segment", *words, "--format", "ndjson")
    assert result.status == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture
def log_dirs(tmp_path: Path) -> Path:
    """Two brokers with three partitions each, and times that sometimes go back."""
    rng = random.Random(7)
    for broker in ("broker-1", "broker-2"):
        for name in ("orders-0", "orders-1", "refunds-0"):
            batches = []
            for offset in range(20):
                time = BASE_TIME + 100 * offset + rng.randrange(-200, 200)
                batches.append(batch(offset, [record()], base_time=time, max_time=time))
            write_log(tmp_path / broker / name, *batches)
        write_log(tmp_path / broker / "__consumer_offsets-0", batch(0, [record()]))
        write_log(tmp_path / broker / f"gone-0.{'a' * 32}-delete", batch(0, [record()]))
    return tmp_path


def place(row: dict[str, Any]) -> tuple[str, int]:
    """Return what identifies a row."""
    return row["path"], row["offset"]


def test_path_order_is_that_of_single_dumps(log_dirs: Path, kafkalog: Run) -> None:
    """Internal topics and deleted directories are left out unless options include them."""
    found = rows(kafkalog, log_dirs)
    names = [(broker, name) for broker in ("broker-1", "broker-2")
             for name in ("orders-0", "orders-1", "refunds-0")]  # fmt: skip
    single = [row for names in names for row in rows(kafkalog, log_dirs.joinpath(*names))]
    assert found == single
    assert {(row["topic"], row["partition"]) for row in found} == {
        ("orders", 0), ("orders", 1), ("refunds", 0)
    }  # fmt: skip
    assert len(rows(kafkalog, log_dirs, "--internal")) == len(found) + 2
    assert len(rows(kafkalog, log_dirs, "--view", "all")) == len(found) + 2
    assert len(rows(kafkalog, log_dirs, "--topic", "refunds", "--limit", "3")) == 3


def test_time_order_merges_logs_without_reordering_them(log_dirs: Path, kafkalog: Run) -> None:
    """Compared with a merge by hand that always takes the oldest of the next rows."""
    queues = {}
    for row in rows(kafkalog, log_dirs):
        queues.setdefault(row["path"], []).append(row)
    wanted = []
    while any(queues.values()):
        heads = [queue[0] for queue in queues.values() if queue]
        first = min(heads, key=lambda row: (row["timestamp"], row["path"]))
        wanted.append(queues[first["path"]].pop(0))
    found = rows(kafkalog, log_dirs, "--sort", "time")
    assert found == wanted
    assert [row["timestamp"] for row in found] != sorted(row["timestamp"] for row in found)
    assert rows(kafkalog, log_dirs, "--sort", "time", "--limit", "7") == wanted[:7]
    batches = rows(kafkalog, log_dirs, "--sort", "time", "--batches")
    assert [(row["path"], row["base_offset"]) for row in batches] == [place(row) for row in wanted]


def test_tables_name_partition_and_directory(log_dirs: Path, kafkalog: Run) -> None:
    """The directory is shown only if there are several; CSV has the fields."""
    for order in ((), ("--sort", "time")):
        one = kafkalog("dump-segment", log_dirs / "broker-1", *order)
        assert one.stdout.decode().split()[:2] == ["PARTITION", "OFFSET"]
        both = kafkalog("dump-segment", log_dirs, *order).stdout.decode()
        assert both.split()[:3] == ["DIRECTORY", "PARTITION", "OFFSET"]
        assert both.count("orders-1 ") == 40
        csv = kafkalog("dump-segment", log_dirs, *order, "--format", "csv")
        assert csv.stdout.decode().splitlines()[0].startswith("type,path,topic,partition,offset,")


def test_internal_and_other_topics_share_a_table(log_dirs: Path, kafkalog: Run) -> None:
    """Their columns differ: path order starts another table, time order shows bytes for all."""
    for order in ((), ("--sort", "time")):
        result = kafkalog("dump-segment", log_dirs, "--internal", *order)
        assert result.status == 0
        assert len(result.stdout.decode().splitlines()) >= 123


def test_more_logs_than_can_be_merged_are_refused(
    log_dirs: Path, kafkalog: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This bounds files and memory; logs without rows do not count."""
    monkeypatch.setattr(merged, "LOGS_MAX", 3)
    assert kafkalog("dump-segment", log_dirs, "--sort", "time").status == 7
    assert kafkalog("dump-segment", log_dirs, "--sort", "time", "--topic", "refunds").status == 0


def test_what_cannot_be_merged_is_refused(log_dirs: Path, kafkalog: Run, tmp_path: Path) -> None:
    """Kafka's text and leftovers; an Arrow file cannot distinguish partitions."""
    for words in (["--format", "kafka"], ["--view", "all"]):
        assert kafkalog("dump-segment", log_dirs, "--sort", "time", *words).status == 2
    to = tmp_path / "rows.parquet"
    result = kafkalog("dump-segment", log_dirs, "--to", to)
    assert result.status == 2
    assert not to.exists()


def test_damage_in_one_log_leaves_the_others(log_dirs: Path, kafkalog: Run) -> None:
    """Each defect is a row at its place; the rest of the log and all other logs follow."""
    log = next((log_dirs / "broker-1" / "orders-0").glob("*.log"))
    data = bytearray(log.read_bytes())
    data[len(data) // 2 + 63] ^= 0x01  # in the record of the eleventh batch
    log.write_bytes(data)
    both = []
    for order in ((), ("--sort", "time")):
        result = kafkalog("dump-segment", log_dirs, *order, "--format", "ndjson")
        assert result.status == 8
        both.append([json.loads(line) for line in result.stdout.splitlines()])
    defects = [[row for row in found if row["type"] == "defect"] for found in both]
    assert defects[0] == defects[1] != []
    assert sorted(map(json.dumps, both[0])) == sorted(map(json.dumps, both[1]))
