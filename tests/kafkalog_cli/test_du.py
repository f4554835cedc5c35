"""`du` on the command line: the rows, the lines below them, and the objects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.answers.disk_usage import Forecast, disk_usage
from kafkalog_cli.output.disk_usage import sparkline
from tests.builders import BASE_TIME, batch, copy_tree, record, write_log

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Result

    Run = Callable[..., Result]

HOUR_MS = 3_600_000


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """A log that grew by the same amount in each of the last hours."""
    batches = [
        batch(hour, [record(value=b"x" * 1000)], base_time=time, max_time=time)
        for hour, time in enumerate(range(BASE_TIME - 24 * HOUR_MS + 1, BASE_TIME, HOUR_MS))
    ]
    write_log(tmp_path / "orders-0", *batches)
    write_log(tmp_path / f"gone-0.{'a' * 32}-delete", batch(0, [record()]))
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    return tmp_path


def objects(kafkalog: Run, *words: object) -> list[dict[str, Any]]:
    """Return the objects that it prints for programs."""
    result = kafkalog("du", *words, "--format", "ndjson")
    assert result.status == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_a_disk_that_fills_says_when(log_dir: Path, kafkalog: Run) -> None:
    """At a steady rate: free space divided by the growth per hour."""
    size = next((log_dir / "orders-0").glob("*.log")).stat().st_size
    words = ("--forecast", "--now", BASE_TIME, "--config", "retention.ms=-1")
    [*_, disk, total] = objects(kafkalog, log_dir, *words, "--disk-size", "1MiB")
    assert total["growth"] == [size // 24] * 24
    assert disk["growth_per_hour"] == size // 24
    hours = (disk["full_at"] - BASE_TIME) / HOUR_MS
    assert hours == pytest.approx(((1 << 20) - disk["used_bytes"]) / (size / 24), abs=0.01)
    text = kafkalog("du", log_dir, *words, "--disk-size", "1MiB").stdout.decode()
    assert "█" * 24 in text
    assert ": full at 20" in text
    full = kafkalog("du", log_dir, *words, "--disk-size", "1KiB").stdout.decode()
    assert "it is full" in full
    limited = ("--forecast", "--now", BASE_TIME, "--config", "retention.ms=86400000")
    kept = kafkalog("du", log_dir, *limited, "--disk-size", "1MiB").stdout.decode()
    assert "it does not fill at this rate" in kept


def test_rows_add_up_and_say_what_they_are(log_dir: Path, kafkalog: Run) -> None:
    """The largest comes first; files of the log directory itself have no name."""
    for by in ("topic", "partition", "day", "kind"):
        [*shares, total] = objects(kafkalog, log_dir, "--by", by)
        assert {one["by"] for one in shares} == {by}
        for name in ("disk_bytes", "size", "leftover_bytes"):
            assert sum(one[name] for one in shares) == total[name]
        assert total["growth"] == []
        assert total["freed_now"] is None
    names = [one["name"] for one in objects(kafkalog, log_dir)[:-1]]
    assert sorted(name or "" for name in names) == ["", "gone", "orders"]
    days = [one["name"] for one in objects(kafkalog, log_dir, "--by", "day")[:-1]]
    assert days[0] is None
    assert len(days) > 1


def test_leftovers_are_what_could_be_won(log_dir: Path, kafkalog: Run) -> None:
    """A partition that awaits its deletion counts; the line below the table says so."""
    text = kafkalog("du", log_dir, "--exact").stdout.decode()
    [gone] = [line.split() for line in text.splitlines() if line.startswith("gone")]
    assert gone[-1] == gone[2] != "0"
    assert f"could be reclaimed: {gone[-1]} of leftovers" in text


def test_what_makes_no_sense_is_refused(log_dir: Path, kafkalog: Run, tmp_path: Path) -> None:
    """A disk size without a forecast, a directory without logs, a missing path."""
    assert kafkalog("du", log_dir, "--disk-size", "1MiB").status == 2
    (tmp_path / "empty").mkdir()
    assert kafkalog("du", tmp_path / "empty").status == 3
    assert kafkalog("du", tmp_path / "none").status == 2


def test_bars_are_as_high_as_their_numbers() -> None:
    """Zero is a dot, the smallest number has the lowest bar, the largest the highest."""
    assert sparkline([]) == ""
    assert sparkline([0, 1, 500, 1000]) == "·▁▄█"
    assert sparkline([7, 7]) == "██"


def test_a_forecast_counts_the_partitions(tmp_path: Path) -> None:
    """The example has seven."""
    told: list[tuple[int, int]] = []
    log_dir = copy_tree(Path("examples/log-dir"), tmp_path / "logs")
    now_ms = 1_704_067_200_000
    disk_usage(
        log_dir,
        forecast=Forecast(now_ms, now_ms),
        progress=lambda *one: told.append(one),
    )
    assert told == [(number, 7) for number in range(1, 8)]
