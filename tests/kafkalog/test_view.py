"""Views of partition directories: what readers show of a log that was not closed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.errors import Listener
from kafkalog.files.log_dir import LogDirListing, open_partition, open_path
from kafkalog.io.broker_lock import is_broker_running
from kafkalog.io.paths.source import Source
from kafkalog.io.storage import LogDirLock
from kafkalog.log.batches.selection import Selection
from kafkalog.model import Defect, Isolation, LogView, Record, Special
from kafkalog.node.lookup import lookup_special
from kafkalog.node.outcome import summary
from kafkalog.node.reader import plan_reading, read_records
from kafkalog.node.unified_log import UnifiedLog
from kafkalog.node.view import show
from kafkalog.tables import Request, TableName, plan_splits, read_split
from kafkalog.tables.schemas import table_schema
from tests.builders import batch, record, write_log
from tests.sampling import sampled

if TYPE_CHECKING:
    from pathlib import Path

INTERRUPTED = "compact-interrupted-2"
MARKER = [b"\x20\0\0\0\x08\0\0\0\0\x0c\0\0\0\0\0\x0c\0"]  # abort


def rows(path: Path, **selection: Any) -> list[tuple[int, bytes | None, bytes | None]]:
    found = read_records(str(path), Selection(**selection))
    return [(row.offset, row.key, row.value) for row in found if isinstance(row, Record)]


def table_offsets(path: Path, request: Request) -> list[int]:
    schema = table_schema(TableName.RECORDS, ("offset",))
    splits = plan_splits([str(path)], request, Listener())
    tables = [table for split in splits for table in read_split(split, schema, Listener())]
    return [row["offset"] for table in tables for row in table.to_pylist()]


def killed(directory: Path, *batches: bytes) -> Path:
    """Write batches to t-0 of a log directory without the clean shutdown marker; return t-0."""
    write_log(directory / "t-0", *batches)
    (directory / "meta.properties").write_text("version=1\nnode.id=1\n")
    return directory / "t-0"


def test_an_interrupted_swap_is_shown_as_the_broker_completed_it(corpus_dir: Path) -> None:
    """Kafka 4.3 was killed between `.swap` and the end of the swap, and started again."""
    states = corpus_dir / "kafka-4.3"
    path = states / "interrupted-1-swap" / INTERRUPTED
    wanted = rows(states / "interrupted-2-swap-recovered" / INTERRUPTED)
    assert rows(path) == wanted
    assert table_offsets(path, Request()) == [offset for offset, *_ in wanted]
    assert rows(path, view=LogView.AS_IS) != wanted
    difference = show(open_partition(str(path))).difference
    assert difference is not None
    assert (difference.swapped, difference.replaced, difference.hidden_bytes) == (1, 29, 0)


def test_a_swap_is_completed_without_a_log_directory_too(corpus_dir: Path, tmp_path: Path) -> None:
    """For a copy of the partition alone, its file names are enough."""
    states = corpus_dir / "kafka-4.3"
    copy = tmp_path / INTERRUPTED
    shutil.copytree(states / "interrupted-1-swap" / INTERRUPTED, copy)
    assert rows(copy) == rows(states / "interrupted-2-swap-recovered" / INTERRUPTED)


def test_what_a_start_cuts_off_is_hidden_and_counted(tmp_path: Path) -> None:
    """The log of a killed broker is damaged in the middle; the later batches are sound."""
    damaged = bytearray(batch(2, [record(), record(1)]))
    damaged[-2] ^= 1
    path = killed(tmp_path, batch(0, [record(), record(1)]), bytes(damaged), batch(4, [record()]))
    found = list(read_records(str(path)))
    assert [row.offset for row in found if isinstance(row, Record)] == [0, 1]
    (defect,) = [row for row in found if isinstance(row, Defect)]
    assert defect.reference == "view-differs"
    assert "3 records" in defect.detail
    assert "--view as-is" in defect.detail
    shown = show(open_partition(str(path)))
    assert shown.difference is not None
    assert (shown.difference.cut_at, shown.difference.hidden_records) == (2, 3)
    assert UnifiedLog(shown.partition).log_end_offset == 2
    everything = list(read_records(str(path), Selection(view=LogView.AS_IS)))
    assert [row.offset for row in everything if isinstance(row, Record)] == [0, 1, 2, 3, 4]
    assert "batch-crc-mismatch" in {row.reference for row in everything if isinstance(row, Defect)}
    with pytest.warns(UserWarning, match="drop 3 records"):
        plan_splits([str(path)], Request())


@pytest.mark.parametrize("how", ["closed", "copied"])
def test_damage_of_a_log_that_nobody_killed_is_shown_in_place(tmp_path: Path, how: str) -> None:
    """A start after a clean shutdown cuts nothing off; a copy does not say how it was left."""
    damaged = bytearray(batch(2, [record()]))
    damaged[-2] ^= 1
    path = killed(tmp_path, batch(0, [record(), record(1)]), bytes(damaged), batch(3, [record()]))
    path.with_name("t-0").joinpath("00000000000000000000.index").touch()
    if how == "closed":
        (tmp_path / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
    else:
        (tmp_path / "meta.properties").unlink()
    assert [offset for offset, *_ in rows(path)] == [0, 1, 2, 3]


def test_below_the_recovery_point_nothing_is_read_or_cut(tmp_path: Path) -> None:
    """As in a start, flushed data are taken as they are."""
    damaged = bytearray(batch(0, [record()]))
    damaged[-2] ^= 1
    path = killed(tmp_path, bytes(damaged), batch(1, [record()]))
    write_log(path, batch(2, [record()]), name="00000000000000000002")
    for name in ("00000000000000000000", "00000000000000000002"):
        (path / f"{name}.index").touch()
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 2\n")
    assert [offset for offset, *_ in rows(path)] == [0, 1, 2]
    (tmp_path / "recovery-point-offset-checkpoint").unlink()
    assert [offset for offset, *_ in rows(path)] == []


def test_of_a_log_that_was_closed_only_the_end_is_read(tmp_path: Path, monkeypatch: Any) -> None:
    """No other segment is opened for the view, and the view is the listing itself."""
    path = killed(tmp_path, batch(0, [record()]))
    write_log(path, batch(1, [record()]), name="00000000000000000001")
    for name in ("00000000000000000000", "00000000000000000001"):
        (path / f"{name}.index").touch()
    (tmp_path / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
    partition = open_partition(str(path))
    opened: list[str] = []
    open_source = Source._open

    def listen(source: Source) -> None:
        opened.append(source.path)
        open_source(source)

    monkeypatch.setattr(Source, "_open", listen)
    assert show(partition).partition is partition
    assert opened == [str(path / f"00000000000000000001.{kind}") for kind in ("index", "log")]


def locked_by_another(path: Path) -> subprocess.Popen[str]:
    """Start a process that holds the lock of a log directory as a broker does."""
    script = (
        "import fcntl,sys; f=open(sys.argv[1],'a'); fcntl.lockf(f, fcntl.LOCK_EX); "
        "print('held', flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(path / ".lock")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_beside_a_running_broker_nothing_is_cut_off(tmp_path: Path) -> None:
    """The broker is appending a batch: the reader sees the tail of a growing file."""
    path = killed(tmp_path, batch(0, [record()]), batch(1, [record()])[:-1])
    broker = locked_by_another(tmp_path)
    assert is_broker_running(str(tmp_path))
    assert show(open_partition(str(path))).difference is None
    broker.communicate("")
    assert not is_broker_running(str(tmp_path))
    difference = show(open_partition(str(path))).difference
    assert difference is not None
    assert (difference.cut_at, difference.hidden_records) == (1, 0)


def test_to_look_for_a_broker_drops_no_lock_of_this_process(tmp_path: Path) -> None:
    """POSIX drops all locks on a file when the process closes it."""
    path = killed(tmp_path, batch(0, [record()]))
    with LogDirLock(str(tmp_path), writes=True):
        show(open_partition(str(path)))
        script = "import fcntl,sys; fcntl.lockf(open(sys.argv[1],'a'), fcntl.LOCK_EX|fcntl.LOCK_NB)"
        taken = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path / ".lock")],
            capture_output=True,
            check=False,
        )
        assert b"BlockingIOError" in taken.stderr


def test_rebuilt_transaction_indexes_hide_what_was_aborted(tmp_path: Path) -> None:
    """The broker was killed before the entry reached the disk; the marker in the log counts."""
    data = batch(0, [record()], attributes=0x10, producer=(7, 0, 0))
    path = killed(tmp_path, data, batch(1, MARKER, attributes=0x30, producer=(7, 0, -1)))
    for view in (LogView.RECOVERED, LogView.AS_IS):
        assert rows(path, isolation=Isolation.READ_COMMITTED, view=view) == []
    assert [offset for offset, *_ in rows(path, view=LogView.AS_IS)] == [0, 1]
    request = Request(isolation=Isolation.READ_COMMITTED)
    assert table_offsets(path, request) == []


def test_all_also_shows_what_is_left_of_deletions(tmp_path: Path) -> None:
    """Each row names the file and directory it comes from."""
    path = killed(tmp_path, batch(5, [record()]))
    write_log(path, batch(0, [record()])).rename(path / "00000000000000000000.log.deleted")
    write_log(path, batch(5, [record()]))
    deleted = tmp_path / f"u-0.{'0' * 32}-delete"
    write_log(deleted, batch(9, [record()]))
    assert [offset for offset, *_ in rows(path)] == [5]
    assert sorted(offset for offset, *_ in rows(path, view=LogView.ALL)) == [0, 5]
    schema = table_schema(TableName.RECORDS, ("offset", "state"))
    splits = plan_splits([str(tmp_path)], Request(view=LogView.ALL))
    found = [
        row for split in splits for one in read_split(split, schema) for row in one.to_pylist()
    ]
    states = sorted((row["offset"], row["state"]) for row in found)
    assert states == [(0, "deleted"), (5, "live"), (9, "delete")]


def test_a_file_is_read_as_it_is(tmp_path: Path) -> None:
    """A start would change it, but the file is shown unchanged."""
    path = killed(tmp_path, batch(0, [record()]), batch(1, [record()])[:-1])
    log = path / "00000000000000000000.log"
    references = {row.reference for row in read_records(str(log)) if isinstance(row, Defect)}
    assert references == {"torn-tail"}


def test_a_log_that_no_broker_loads_is_shown_as_it_is(tmp_path: Path) -> None:
    """The difference gives the reason, and hides nothing."""
    path = killed(tmp_path, batch(0, [record()]))
    (path / "leader-epoch-checkpoint").write_text("0\n1\nx 5\n")
    plan = plan_reading(str(path), Selection())
    assert plan.difference is not None
    assert "NumberFormatException" in plan.difference.detail
    assert (plan.difference.hidden_records, plan.difference.hidden_bytes) == (0, 0)
    assert [offset for offset, *_ in rows(path)] == [0]


def test_preallocated_zeros_are_no_difference(tmp_path: Path) -> None:
    """A start cuts them off, and nothing is lost."""
    path = killed(tmp_path, batch(0, [record()]), bytes(4096))
    shown = show(open_partition(str(path)))
    assert shown.difference is None
    assert [row.offset for row in read_records(shown) if isinstance(row, Record)] == [0]
    assert not [row for row in read_records(shown) if isinstance(row, Defect)]


def test_the_last_offsets_are_those_after_the_start(tmp_path: Path) -> None:
    """A lookup ends where the start would cut the log."""
    damaged = bytearray(batch(1, [record()]))
    damaged[-2] ^= 1
    path = killed(tmp_path, batch(0, [record()]), bytes(damaged))
    assert lookup_special(UnifiedLog(str(path)), Special.LATEST).offset == 1


def test_a_displaced_batch_is_not_behind_the_log_end(tmp_path: Path) -> None:
    """A start after a clean shutdown takes the end of the last batch; this one is not the last."""
    sound, displaced = (batch(offset, [record()]) for offset in (0, 1 << 20))
    path = killed(tmp_path, sound, displaced, batch(2, [record()]))
    (tmp_path / ".kafka_cleanshutdown").touch()
    assert show(open_partition(str(path))).difference is None
    assert [offset for offset, *_ in rows(path)] == [0, 1, 2]


def test_one_line_says_what_differs_in_many_partitions(corpus_dir: Path) -> None:
    """The line covers a whole log directory that was cut and flipped on purpose."""
    log_dir = open_path(str(corpus_dir / "kafka-4.3" / "crash-1-torn"))
    assert isinstance(log_dir, LogDirListing)
    found = [show(one).difference for one in log_dir.partitions]
    differences = [one for one in found if one is not None]
    text = summary(differences)
    assert text is not None
    assert "\n" not in text
    assert f"{len(differences) - 1} other partitions" in text
    assert "cut 7 logs and drop 56 records" in text


ENDS = {"index_beyond_data_active": 51, "size_huge": 55}
"""Scenarios whose log ends earlier for a start after a clean shutdown than its batches do."""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("mode", ["clean", "unclean"])
def test_the_view_ends_where_the_log_of_kafkas_loader_ends(
    corpus_dir: Path, tmp_path: Path, mode: str
) -> None:
    """Every damaged directory of the corpus, as Kafka 4.3 loaded it; all readers stop there."""
    compared, shorter = 0, {}
    every = sorted((corpus_dir / "recovery").iterdir())
    drawn = sampled(every, 3)
    chosen = [one for one in every if one.name in ENDS or one in drawn]
    for scenario in chosen:
        wanted = json.loads((scenario / "facts.json").read_text())["modes"][mode].get("log")
        # Only its topic's index.interval.bytes decides what becomes of the latter.
        if wanted is None or scenario.name == "duplicated_content":
            continue
        copy = tmp_path / scenario.name
        shutil.copytree(scenario, copy)
        if mode == "clean":
            (copy / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
        shown = show(open_partition(str(copy / "orders-0")))
        log = UnifiedLog(shown.partition)
        bounds = wanted["logStartOffset"], wanted["logEndOffset"]
        assert (log.log_start_offset, log.log_end_offset) == bounds, scenario.name
        read = [offset for offset, *_ in rows(copy / "orders-0")]
        read += table_offsets(copy / "orders-0", Request())
        assert max(read, default=-1) < bounds[1], scenario.name
        compared += 1
        if shown.difference is not None and shown.difference.ends_at is not None:
            shorter[scenario.name] = shown.difference.ends_at
    assert compared > 0.8 * len(chosen)
    assert shorter == (ENDS if mode == "clean" else {})


def test_batches_behind_the_log_end_are_counted(corpus_dir: Path, tmp_path: Path) -> None:
    """The active segment's index ends beyond its batches, and Kafka takes its base offset."""
    scenario = tmp_path / "index_beyond_data_active"
    shutil.copytree(corpus_dir / "recovery" / scenario.name, scenario)
    (scenario / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
    partition = open_partition(str(scenario / "orders-0"))
    difference = show(partition).difference
    assert difference is not None
    assert (difference.hidden_records, difference.hidden_bytes) == (15, 870)
    assert difference.cut_at is None
    wanted = (
        "end the log at offset 51 and hide 15 records (870 bytes), whose offsets new records get"
    )
    assert wanted in difference.detail
    assert "end 2 logs too early and hide 30 records" in (summary([difference] * 2) or "")
