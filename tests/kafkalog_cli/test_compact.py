"""`compact`: plans, changes in place, copies; options, rows, messages and statuses."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from docgen import output
from kafkalog_cli.output import table
from tests.checkout import ROOT
from tests.conftest import Result
from tests.kafka.broker_data import fingerprint
from tests.kafkalog.change.compaction.oracle import PARTITION, cleanings, segment_files

if TYPE_CHECKING:
    from pathlib import Path

Run = Callable[..., Result]
COMPACTED = ("--config", "cleanup.policy=compact")


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """The examples' log directory; `orders-0` can be compacted with a matching config."""
    target = tmp_path / "log-dir"
    shutil.copytree(ROOT / "examples" / "log-dir", target)
    return target


@pytest.fixture
def many(corpus_dir: Path, tmp_path: Path) -> Path:
    """A log directory of four partitions; the higher the number, the cleaner the partition."""
    target = tmp_path / "many"
    target.mkdir()
    [cleaning, *_] = cleanings(corpus_dir / "compaction", "dedupe_none")
    bases = sorted(int(path.name[:20]) for path in (cleaning.before / PARTITION).glob("*.log"))
    assert len(bases) > 2
    offsets = [0, bases[1], bases[2], bases[-1]]
    for number in range(4):
        shutil.copytree(cleaning.before / PARTITION, target / f"orders-{number}")
    marks = "".join(f"orders {number} 100000\n" for number in range(4))
    (target / "replication-offset-checkpoint").write_text(f"0\n4\n{marks}")
    cleaned = "".join(f"orders {number} {offset}\n" for number, offset in enumerate(offsets))
    (target / "cleaner-offset-checkpoint").write_text(f"0\n4\n{cleaned}")
    return target


def rows(result: Result) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in result.stdout.splitlines()]
    for row in found:
        assert output.mistakes(row) == []
    return found


def test_a_plan_is_what_is_done(log_dir: Path, kafkalog: Run) -> None:
    """The numbers are the same.

    The plan changes nothing, and the second run finds nothing to do.
    """
    before = fingerprint(log_dir)
    words = ("compact", log_dir / "orders-0", *COMPACTED, "--format", "ndjson")
    plan, _ = rows(kafkalog(*words))
    assert fingerprint(log_dir) == before
    result = kafkalog(*words, "--apply", "--yes")
    assert result.status == 0, result.stderr
    done, summary = rows(result)
    assert done.pop("performed")
    assert not plan.pop("performed")
    assert done == plan
    assert done["read_records"] == done["kept_records"] + sum(done["dropped_records"].values())
    assert summary["compacted_partitions"] == 1
    again, _ = rows(kafkalog(*words, "--apply", "--yes"))
    assert again["skipped"] == "nothing to clean"
    assert kafkalog("verify", log_dir, "--level", "deep").status == 0
    [entry] = [
        line
        for line in (log_dir / "cleaner-offset-checkpoint").read_text().splitlines()
        if line.startswith("orders ")
    ]
    assert entry == f"orders 0 {done['next_dirty_offset']}"


def test_what_all_adds_is_counted(log_dir: Path, kafkalog: Run) -> None:
    """A broker cleans what is above the ratio, which nothing is if it is 1."""
    words = ("compact", log_dir, *COMPACTED, "--config", "min.cleanable.dirty.ratio=1")
    broker = kafkalog(*words).stdout.decode()
    every = kafkalog(*words, "--all").stdout.decode()
    assert re.search(r"\n0 of \d partitions would be compacted\n", broker)
    assert re.search(r"\n1 of \d partitions would be compacted, ", every)
    assert "--all adds 1 more that a broker would skip" in broker
    assert "--all adds" not in every


def test_a_copy_is_compacted(log_dir: Path, tmp_path: Path, kafkalog: Run) -> None:
    """The copy is a log directory that a broker could start on; the source is unchanged."""
    before = fingerprint(log_dir)
    result = kafkalog(
        "compact", log_dir, *COMPACTED, "--all", "--to", tmp_path / "new", "--format", "ndjson"
    )
    assert result.status == 0, result.stderr
    places = [row["path"] for row in rows(result) if row["type"] == "compaction"]
    assert places
    assert {os.path.dirname(place) for place in places} == {str(tmp_path / "new")}
    assert fingerprint(log_dir) == before
    kafkalog("compact", log_dir, *COMPACTED, "--all", "--apply", "--yes")
    (log_dir / ".lock").unlink()
    names = {path.name for path in log_dir.iterdir()}
    assert {path.name for path in (tmp_path / "new").iterdir()} == names
    for place in log_dir.glob("*-[0-9]*"):
        if place.is_dir():
            assert segment_files(place) == segment_files(tmp_path / "new" / place.name)
    assert kafkalog("verify", tmp_path / "new").status == 0


def test_one_partition_becomes_a_log_directory(
    log_dir: Path, tmp_path: Path, kafkalog: Run
) -> None:
    """It has its own entries in the checkpoints, and no others."""
    result = kafkalog("compact", log_dir / "orders-0", *COMPACTED, "--to", tmp_path / "new")
    assert result.status == 0, result.stderr
    noted = (tmp_path / "new" / "replication-offset-checkpoint").read_text()
    assert noted == "0\n1\norders 0 1000\n"
    cleaned = (tmp_path / "new" / "cleaner-offset-checkpoint").read_text()
    assert cleaned == "0\n1\norders 0 750\n"
    assert not (tmp_path / "new" / ".lock").exists()


def test_the_filthiest_come_first(many: Path, kafkalog: Run) -> None:
    """First those that a broker would take, then with --all those that it would leave for now."""
    words = ("compact", many, *COMPACTED, "--format", "ndjson")
    *found, summary = rows(kafkalog(*words))
    taken = [row for row in found if row["skipped"] is None]
    ratios = [
        row["cleanable_bytes"] / (row["clean_bytes"] + row["cleanable_bytes"]) for row in taken
    ]
    assert ratios == sorted(ratios, reverse=True)
    assert min(ratios) > 0.5
    reasons = {row["partition"]: row["skipped"] for row in found if row["skipped"]}
    assert reasons[3] == "nothing to clean"
    assert set(reasons.values()) <= {"nothing to clean", "not above min.cleanable.dirty.ratio 0.5"}
    *every, _ = rows(kafkalog(*words, "--all", "--apply", "--yes"))
    assert [row["partition"] for row in every if row["skipped"] is None] == [0, 1, 2]
    assert summary["compacted_partitions"] == len(taken) < 3
    ends = [row["next_dirty_offset"] for row in every if row["skipped"] is None]
    assert len(set(ends)) == 1
    noted = (many / "cleaner-offset-checkpoint").read_text().splitlines()[2:]
    assert sorted(noted) == [f"orders {number} {ends[0]}" for number in range(4)]


def test_a_lag_that_is_too_long_makes_a_partition_eligible(many: Path, kafkalog: Run) -> None:
    """max.compaction.lag.ms makes it eligible, however little of it is dirty."""
    words = ("compact", many, *COMPACTED, "--format", "ndjson")
    *found, _ = rows(kafkalog(*words, "--config", "max.compaction.lag.ms=1000"))
    assert [row["partition"] for row in found if row["skipped"] is None] == [0, 1, 2]


def test_a_damaged_partition_does_not_stop_the_others(many: Path, kafkalog: Run) -> None:
    """The status says partly done; the damaged partition stays as it is."""
    log = next((many / "orders-1").glob("*.log"))
    data = bytearray(log.read_bytes())
    data[-5] ^= 1
    log.write_bytes(data)
    before = segment_files(many / "orders-1")
    result = kafkalog("compact", many, *COMPACTED, "--all", "--apply", "--yes",
                      "--format", "ndjson")  # fmt: skip
    assert result.status == 8
    found = {row.get("partition"): row for row in rows(result)}
    assert found[1]["skipped"].startswith("batch-crc-mismatch")
    assert found[0]["skipped"] is found[2]["skipped"] is None
    assert segment_files(many / "orders-1") == before


@pytest.mark.parametrize(
    ("words", "status", "reference"),
    [
        (("{dir}/orders-0",), 4, "refused"),
        (("{dir}/orders-0", *COMPACTED, "--yes"), 2, "usage"),
        (("{dir}/orders-0", *COMPACTED, "--apply", "--to", "{new}"), 2, "usage"),
        (("{dir}", "--up-to", "5"), 2, "usage"),
        (("{dir}", "--load-factor", "2"), 2, "usage"),
        (("{dir}/orders-0", *COMPACTED, "--map-memory", "10"), 2, "usage"),
        (("{dir}/meta.properties",), 2, "usage"),
        (("{dir}/__cluster_metadata-0", *COMPACTED), 4, "refused"),
        (("{dir}/orders-0", *COMPACTED, "--to", "{dir}/new"), 2, "usage"),
        (("{dir}/orders-0", *COMPACTED, "--to", "{dir}"), 2, "usage"),
    ],
)
def test_statuses(
    words: tuple[str, ...], status: int, reference: str, log_dir: Path, tmp_path: Path,
    kafkalog: Run, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    before = fingerprint(log_dir)
    result = kafkalog(
        "compact", *(word.format(dir=log_dir, new=tmp_path / "new") for word in words)
    )
    assert result.status == status, result.stderr
    assert f"error: {reference}\n" in result.stderr
    after = fingerprint(log_dir)
    after.pop(".lock", None)
    assert after == before


def test_after_a_crash_recover_comes_first(log_dir: Path, kafkalog: Run) -> None:
    """A torn tail is never compacted; after `recover`, no clean shutdown is needed."""
    (log_dir / ".kafka_cleanshutdown").unlink()
    active = max((log_dir / "orders-0").glob("*.log"))
    active.write_bytes(active.read_bytes() + active.read_bytes()[:30])
    words = ("compact", log_dir / "orders-0", *COMPACTED)
    result = kafkalog(*words)
    assert result.status == 6
    assert "kafkalog recover" in result.stderr
    assert kafkalog("recover", log_dir, "--apply", "--yes").status == 0
    assert kafkalog(*words).status == 0


def test_the_table_fits_80_columns(
    log_dir: Path, kafkalog: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "terminal_width", lambda: 80)
    lines = kafkalog("compact", log_dir, *COMPACTED, "--all").stdout.decode().splitlines()
    assert max(map(len, lines)) <= 80
    [orders] = [line for line in lines if line.startswith("orders-0")]
    assert orders.split()[:8] == ["orders-0", "0", "750", "100%", "750", "50", "45.5K", "14.9K"]


def test_what_limits_a_brokers_cleaner_is_counted(log_dir: Path, kafkalog: Run) -> None:
    """Passes and time are least: keys that repeat between others fill the map again."""
    orders = log_dir / "orders-0"
    small = ("log.cleaner.dedupe.buffer.size=480", "log.cleaner.threads=2")
    words = ("compact", orders, *COMPACTED, "--config", "log.cleaner.io.max.bytes.per.second=1000")
    for config in small:
        words += ("--config", config)
    plan, _ = map(json.loads, kafkalog(*words, "-o", "ndjson").stdout.splitlines())
    assert plan["broker_map_keys"] == 9
    assert plan["keys"] == 50
    assert plan["broker_passes"] == 6
    dirty = sum(path.stat().st_size for path in sorted(orders.glob("*.log"))[:-1])
    active = sum(path.stat().st_size for path in sorted(orders.glob("*.log"))[-1:])
    assert plan["broker_ms"] == 2 * dirty + plan["after_bytes"] - active
    assert {one["name"] for one in plan["configs"] if one["source"] == "--config"} == {
        "cleanup.policy",
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.io.max.bytes.per.second",
        "log.cleaner.threads",
    }
    text = kafkalog(*words).stdout.decode()
    assert "a broker's offset map is small: at least 6 passes over orders-0\n" in text
    assert "log.cleaner.io.max.bytes.per.second slows a broker to at least 1 minute" in text
    usual, _ = map(
        json.loads, kafkalog("compact", orders, *COMPACTED, "-o", "ndjson").stdout.splitlines()
    )
    assert usual["broker_map_keys"] == 5_033_164
    assert (usual["broker_passes"], usual["broker_ms"]) == (1, None)
    assert "a broker's offset map" not in kafkalog("compact", orders, *COMPACTED).stdout.decode()
    target = log_dir.parent / "compacted"
    words = ("compact", orders, *COMPACTED, "--map-memory", "240", "--to", target, "-o", "ndjson")
    done, _ = map(json.loads, kafkalog(*words).stdout.splitlines())
    assert done["is_complete"]
    assert done["passes"] >= plan["broker_passes"]


@pytest.mark.parametrize(
    ("noted", "start", "why"),
    [
        (2000, 0, "the checkpointed offset 2000 is larger than the log end offset"),
        (100, 250, "the checkpointed offset 100 is below the log start offset 250"),
        (300, 250, None),
    ],
)
def test_a_plan_says_why_the_first_dirty_offset_is_reset(
    noted: int, start: int, why: str | None, log_dir: Path, kafkalog: Run
) -> None:
    """As `LogCleanerManager.cleanableOffsets`, to the log start offset."""
    (log_dir / "cleaner-offset-checkpoint").write_text(f"0\n1\norders 0 {noted}\n")
    (log_dir / "log-start-offset-checkpoint").write_text(f"0\n1\norders 0 {start}\n")
    words = ("compact", log_dir / "orders-0", *COMPACTED)
    plan, _ = map(json.loads, kafkalog(*words, "-o", "ndjson").stdout.splitlines())
    assert plan["reset_reason"] == why
    assert plan["first_dirty_offset"] == (noted if why is None else start)
    line = f"cleaning begins at the log start of orders-0: {why}\n"
    assert (line in kafkalog(*words).stdout.decode()) == (why is not None)


def split(log_dir: Path, other: Path, *moved: str) -> list[Path]:
    """Move partitions into a second log directory of the same node; return both."""
    other.mkdir()
    for file in (one for one in log_dir.iterdir() if one.is_file()):
        shutil.copy2(file, other)
    for name in moved:
        shutil.move(log_dir / name, other)
    return [log_dir, other]


def test_log_directories_of_a_broker_are_one_queue(
    kafkalog: Run, many: Path, tmp_path: Path
) -> None:
    """The dirtiest of all comes first; each has a backup, and together they are undone."""
    backup = tmp_path / "backup"

    def compacted(*args: object) -> list[tuple[Any, ...]]:
        *found, summary = rows(kafkalog("compact", *args, "--all", *COMPACTED, "-o", "ndjson"))
        assert summary["status"] == 0
        return [(one["partition"], one["kept_records"]) for one in found if not one["skipped"]]

    together = compacted(many)
    both = split(many, tmp_path / "other", "orders-1", "orders-3")
    before = list(map(fingerprint, both))
    assert [number for number, _ in together][:2] == [0, 1]
    assert compacted(*both) == compacted(*reversed(both)) == together
    assert compacted(*both, "--apply", "--backup", backup) == together
    assert list(map(fingerprint, both)) != before
    runs = sorted(backup.iterdir())
    assert len(runs) == 2
    assert kafkalog("undo", backup, "--apply").status == 3
    assert kafkalog("undo", *runs, "--apply").status == 0
    after = list(map(fingerprint, both))
    for one in after:
        del one[".lock"]
    assert after == before
    for more in (("--to", tmp_path / "new"), ("--up-to", 9)):
        assert kafkalog("compact", *both, *more).status == 2
    assert kafkalog("compact", many, many / "orders-0", "--apply").status == 2


@pytest.mark.parametrize("command", ["compact", "rebuild-index", "retention"])
def test_configs_of_all_log_directories_are_in_the_metadata_log(
    kafkalog: Run, log_dir: Path, tmp_path: Path, command: str
) -> None:
    """It is in one of them; without that one the configs are not known."""
    both = split(log_dir, tmp_path / "other", "orders-0")
    for paths, is_known in ((both[1:], False), (both, True)):
        result = kafkalog(command, *paths, "--apply")
        assert result.status == 0
        assert ("has no __cluster_metadata-0" not in result.stderr) == is_known
