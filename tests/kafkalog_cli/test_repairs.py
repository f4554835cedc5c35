"""`recover` and `rebuild-index`: plans, refusals, statuses, the way back."""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from docgen import output
from kafkalog_cli.output.progress import ByteProgress
from tests.checkout import ROOT
from tests.kafkalog.change.repair.test_recover import files
from tests.kafkalog.test_recovery import Scenario, scenarios

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["scenarios"]

SETTINGS = ("--config", "index.interval.bytes=200", "--config", "segment.index.bytes=65536")
SETTINGS = (*SETTINGS, "--now", "1700086400000")
IN_PLACE = (*SETTINGS, "--apply", "--yes")
METADATA = "__cluster_metadata-0"


@pytest.fixture
def damaged(scenarios: list[Scenario], tmp_path: Path) -> Any:
    def copy(name: str) -> Path:
        return next(found for found in scenarios if found.name == name).copy(tmp_path)

    return copy


def test_a_plan_changes_nothing_and_says_all(damaged: Any, kafkalog: Any) -> None:
    partition = damaged("crc_active_mid")
    before = files(partition)
    result = kafkalog("recover", partition, *SETTINGS, "--format", "ndjson")
    assert result.status == 0
    recovery, summary = map(json.loads, result.stdout.splitlines())
    assert not output.mistakes(recovery) + output.mistakes(summary)
    assert (recovery["verdict"], recovery["log_end_offset"]) == ("truncate", 56)
    assert (recovery["lost_from"], recovery["lost_records"]) == (56, 10)
    assert recovery["scan_bytes"] == (partition / f"{51:020}.log").stat().st_size
    assert summary["scan_ms"] == summary["scan_bytes"] * 1000 // (200 << 20)
    assert files(partition) == before
    assert (summary["status"], summary["changed"]) == (0, 0)
    assert kafkalog("recover", partition, *SETTINGS, "--check").status == 1


def test_the_time_is_that_of_a_rate_that_is_assumed(damaged: Any, kafkalog: Any) -> None:
    partition = damaged("crc_active_mid")
    size = (partition / f"{51:020}.log").stat().st_size
    words = ("recover", partition, *SETTINGS, "--scan-rate", "1k")
    summary = json.loads(kafkalog(*words, "--format", "ndjson").stdout.splitlines()[-1])
    assert (summary["scan_bytes_per_second"], summary["scan_ms"]) == (1024, size * 1000 // 1024)
    assert b"at an assumed 1.0K per second" in kafkalog(*words, "-v").stdout


def test_what_limits_the_unflushed_part_is_listed_where_it_is_set(
    damaged: Any, kafkalog: Any
) -> None:
    words = ("recover", damaged("crc_active_mid"), "--format", "ndjson", *SETTINGS)

    def flushed_by(*more: str) -> dict[str, int]:
        [plan, *_] = map(json.loads, kafkalog(*words, *more).stdout.splitlines())
        return {one["name"]: one["value"] for one in plan["configs"] if "flush" in one["name"]}

    assert flushed_by() == {}
    assert flushed_by("--config", "log.flush.interval.ms=1000") == {"flush.ms": 1000}


@pytest.mark.parametrize(
    "words",
    [
        ("recover", "--check", "--scan", "start"),
        ("recover", "--apply", "--yes", "--scan", "start"),
        ("rebuild-index",),
        ("rebuild-index", "--apply", "--yes"),
    ],
)
def test_progress_is_counted_to_its_end(
    words: tuple[str, ...], damaged: Any, kafkalog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes of a partition that a step does not read count when the step is over."""
    partition = damaged("index_missing_all")
    bars: list[ByteProgress] = []

    @contextmanager
    def counting(targets: Any, *, enabled: bool) -> Iterator[ByteProgress | None]:
        bars.append(ByteProgress(sum(target.size_bytes for target in targets)))
        yield bars[-1] if enabled else None

    command = words[0].replace("-", "_")
    monkeypatch.setattr(f"kafkalog_cli.commands.{command}.byte_progress", counting)
    kafkalog(words[0], partition, *SETTINGS, *words[1:])
    assert bars
    assert all(bar.done == bar.total > 0 for bar in bars)
    kafkalog(words[0], partition, *SETTINGS, *words[1:], "--quiet")
    assert bars[-1].done == 0


def test_what_is_below_the_high_watermark_is_not_cut_off(damaged: Any, kafkalog: Any) -> None:
    """Other replicas may have these records; only --allow-loss cuts them off."""
    partition = damaged("crc_active_mid")
    before = files(partition)
    watermark = partition.parent / "replication-offset-checkpoint"
    watermark.write_text("0\n1\norders")
    unknown = kafkalog("recover", partition, *IN_PLACE)
    assert (unknown.status, "no high watermark is known" in unknown.stderr) == (4, True)
    watermark.write_text("0\n1\norders 0 60\n")
    refused = kafkalog("recover", partition, *IN_PLACE)
    assert refused.status == 4
    assert "Offsets 56 to 59" in refused.stderr
    assert "replicate it again" in " ".join(refused.stderr.split())
    assert files(partition) == before
    assert kafkalog("recover", partition, *IN_PLACE, "--allow-loss").status == 0
    again = kafkalog("recover", partition, *SETTINGS)
    assert (again.status, b"nothing" in again.stdout) == (0, True)


def test_no_empty_log_takes_the_place_of_committed_records(damaged: Any, kafkalog: Any) -> None:
    """Somebody removed the logs: nothing is cut off, but a start would lead with nothing."""
    partition = damaged("intact")
    (partition.parent / "replication-offset-checkpoint").write_text("0\n1\norders 0 60\n")
    for log in partition.glob("*.log"):
        log.unlink()
    refused = kafkalog("recover", partition, *IN_PLACE)
    assert (refused.status, b"1 must not be recovered" in refused.stdout) == (4, True)
    assert "Offsets 0 to 59, which are below the high watermark 60, are missing." in " ".join(
        refused.stderr.split()
    )
    done = kafkalog("recover", partition, *IN_PLACE, "--allow-loss")
    assert (done.status, b"no record is lost" in done.stdout) == (0, False)
    done = kafkalog("recover", partition, *IN_PLACE)
    assert done.status == 0, "there is nothing left to change"
    assert b"1 ends below the high watermark" in done.stdout
    assert b"no record is lost" not in done.stdout


def test_checkpoints_say_nothing_beyond_the_log(damaged: Any, kafkalog: Any) -> None:
    """Recovery point and cleaner offset are lowered to the log end, other partitions' are kept."""
    partition = damaged("crc_active_mid")
    log_dir = partition.parent
    for name in ("recovery-point-offset-checkpoint", "cleaner-offset-checkpoint"):
        (log_dir / name).write_text("0\n2\norders 0 64\nothers 1 99\n")
    (log_dir / "replication-offset-checkpoint").write_text("0\n0\n")
    assert kafkalog("recover", partition, *IN_PLACE, "--scan", "start").status == 0
    for name in ("recovery-point-offset-checkpoint", "cleaner-offset-checkpoint"):
        lines = (log_dir / name).read_text().splitlines()
        assert sorted(lines[2:]) == ["orders 0 56", "others 1 99"], name


def test_the_mark_of_a_clean_shutdown_goes_and_never_comes(damaged: Any, kafkalog: Any) -> None:
    partition = damaged("crc_active_mid")
    mark = partition.parent / ".kafka_cleanshutdown"
    mark.write_text("{}")
    kafkalog("recover", partition, *IN_PLACE, "--scan", "none")
    assert mark.exists(), "a clean start changes nothing that the mark is not true of"
    assert kafkalog("recover", partition, *IN_PLACE).status == 0
    assert mark.exists(), "the start of a broker trusts it, too"
    kafkalog("recover", partition, *IN_PLACE, "--allow-loss", "--scan", "checkpoint")
    assert not mark.exists()
    assert kafkalog("recover", partition, *IN_PLACE).status == 0
    assert not mark.exists()


def test_undo_brings_a_recovered_partition_back(
    damaged: Any, kafkalog: Any, tmp_path: Path
) -> None:
    """A truncated log kept by a hard link is replaced by a copy, so the link stays whole."""
    partition = damaged("crc_old_segment")
    before = files(partition)
    backup = tmp_path / "backup"
    words = ("recover", partition, *IN_PLACE, "--allow-loss", "--scan", "start", "--backup", backup)
    result = kafkalog(*words)
    assert result.status == 0, result.stderr
    assert files(partition) != before
    undone = kafkalog("undo", backup, "--apply", "--yes")
    assert undone.status == 0, undone.stderr
    assert files(partition) == before


def test_undo_brings_the_mark_of_a_clean_shutdown_back_once(
    damaged: Any, kafkalog: Any, tmp_path: Path
) -> None:
    """It returns with its log, but not at a second undo: a broker may have crashed since then."""
    partition = damaged("crc_active_mid")
    mark = partition.parent / ".kafka_cleanshutdown"
    mark.write_text('{"version":0,"brokerEpoch":7}')
    backup = tmp_path / "backup"
    kafkalog("recover", partition, *IN_PLACE, "--allow-loss", "--scan", "start", "--backup", backup)
    assert not mark.exists()
    assert kafkalog("undo", backup).status == 0
    assert not mark.exists(), "a plan changes nothing"
    assert kafkalog("undo", backup, "--apply", "--yes").status == 0
    assert mark.read_text() == '{"version":0,"brokerEpoch":7}'
    mark.unlink()
    assert kafkalog("undo", backup, "--apply", "--yes").status == 0
    assert not mark.exists()


def test_a_log_that_no_broker_loads_is_left_as_it_is(damaged: Any, kafkalog: Any) -> None:
    partition = damaged("metadata_garbage")
    before = files(partition)
    plan = kafkalog("recover", partition, *SETTINGS)
    assert (plan.status, b"a start fails on 1" in plan.stdout) == (8, True)
    assert ".." not in plan.stderr.replace("../", "")
    assert b"no record is lost" not in plan.stdout
    result = kafkalog("recover", partition, *IN_PLACE)
    assert result.status == 6
    assert "salvage" in result.stderr
    assert files(partition) == before


@pytest.mark.parametrize("command", ["recover", "rebuild-index"])
def test_a_broker_keeps_both_off(command: str, damaged: Any, kafkalog: Any) -> None:
    """Another process holds the lock, as our own lock would not exclude ourselves."""
    partition = damaged("intact")
    code = (
        "import fcntl,sys\n"
        "file=open(sys.argv[1],'w')\n"
        "fcntl.lockf(file,fcntl.LOCK_EX)\n"
        "print('locked',flush=True)\n"
        "sys.stdin.read()\n"
    )
    lock = partition.parent / ".lock"
    words = [sys.executable, "-c", code, lock]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        before = files(partition)
        for options in (SETTINGS, IN_PLACE):
            result = kafkalog(command, partition, *options)
            assert (result.status, "log-dir-in-use" in result.stderr) == (4, True)
        assert files(partition) == before
    with lock.open("w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.parametrize(
    "options",
    [
        ("--check", "--apply", "--yes"),
        ("--yes",),
        ("--backup", "somewhere"),
        ("--scan", "latest"),
    ],
)
def test_options_that_contradict_each_other(
    options: tuple[str, ...], damaged: Any, kafkalog: Any
) -> None:
    assert kafkalog("recover", damaged("intact"), *options).status == 2


def test_indexes_are_compared_then_written(damaged: Any, kafkalog: Any) -> None:
    partition = damaged("intact")
    before = files(partition)
    for path in partition.glob("*.index"):
        path.unlink()
    result = kafkalog("rebuild-index", partition, *SETTINGS, "--format", "ndjson")
    assert result.status == 0
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert not [mistake for row in rows for mistake in output.mistakes(row)]
    assert {row["result"] for row in rows[:-1]} == {"missing", "padded", "same"}
    assert kafkalog("rebuild-index", partition, *IN_PLACE).status == 0
    after = files(partition)
    assert after.keys() == before.keys()
    active = f"{51:020}."  # its indexes are preallocated, for a broker that is at work
    assert {name for name in after if after[name] != before[name]} == {
        f"{active}index",
        f"{active}timeindex",
    }
    log = partition / f"{0:020}.log"
    alone = kafkalog("rebuild-index", log, *SETTINGS, "--format", "ndjson")
    assert alone.status == 0
    assert json.loads(alone.stdout.splitlines()[-1])["indexes"] in (2, 3)


def test_a_damaged_log_is_no_base_for_an_index(damaged: Any, kafkalog: Any) -> None:
    result = kafkalog("rebuild-index", damaged("crc_old_segment"), *IN_PLACE)
    assert result.status == 6
    assert "recover" in result.stderr


def test_leader_epochs_that_no_broker_can_read_are_rebuilt(damaged: Any, kafkalog: Any) -> None:
    """The plan reports that a start fails; after `recover` it does not."""
    partition = damaged("epoch_garbage")
    name = "leader-epoch-checkpoint"
    written = (damaged("intact") / name).read_bytes()
    plan = kafkalog("recover", partition, *SETTINGS)
    assert plan.status == 0
    assert b"refuse: KafkaStorageException" in plan.stdout
    assert b"1 partition: 1 would change, a start fails on 1" in plan.stdout
    assert kafkalog("recover", partition, *IN_PLACE).status == 0
    assert (partition / name).read_bytes() == written
    assert kafkalog("recover", partition, *SETTINGS).status == 0


@pytest.fixture
def node(damaged: Any) -> Path:
    """A combined node's log directory: metadata log, one partition to recover, one sound."""
    log_dir = damaged("crc_active_mid").parent
    (log_dir / "replication-offset-checkpoint").unlink()
    shutil.copytree(ROOT / "examples" / "log-dir" / METADATA, log_dir / METADATA)
    for path in (log_dir / METADATA).glob("*.index"):
        path.unlink()
    shutil.copytree(ROOT / "examples" / "log-dir" / "orders-0", log_dir / "sound-0")
    return log_dir


def test_krafts_own_log_stops_no_recovery_of_the_others(node: Path, kafkalog: Any) -> None:
    """The metadata log is left to the broker, in the plan as in place, and refused by name."""
    before = files(node / METADATA)
    plan = kafkalog("recover", node, *SETTINGS, "--format", "ndjson")
    rows = {row.get("topic"): row for row in map(json.loads, plan.stdout.splitlines())}
    assert not [mistake for row in rows.values() for mistake in output.mistakes(row)]
    assert rows[METADATA[:-2]]["verdict"] == "rebuild"
    assert "at each start" in rows[METADATA[:-2]]["untouched"]
    assert rows[METADATA[:-2]]["file_changes"] == []
    changed = sum(bool(row["file_changes"]) for name, row in rows.items() if name)
    assert rows[None]["partitions_to_change"] == changed
    assert rows[None]["untouched_partitions"] == 1
    done = kafkalog("recover", node, *IN_PLACE, "--format", "ndjson")
    assert (done.status, "refused" in done.stderr) == (8, False)
    assert files(node / METADATA) == before
    again = kafkalog("recover", node, *IN_PLACE)
    assert (again.status, b": 0 recovered" in again.stdout) == (8, True)
    assert "meta.properties is missing" in again.stderr
    assert kafkalog("recover", node / METADATA, *IN_PLACE).status == 4


def test_a_refusal_comes_before_the_first_change(node: Path, kafkalog: Any) -> None:
    """If one partition must not be cut, none is recovered; with --allow-loss, all are.

    The node does not start either way, since it has no meta.properties.
    """
    (node / "replication-offset-checkpoint").write_text("0\n1\norders 0 60\n")
    for path in (node / "sound-0").glob("*.index"):
        path.unlink()
    before = {name: files(node / name) for name in ("orders-0", "sound-0")}
    plan = kafkalog("recover", node, *SETTINGS)
    assert (plan.status, "orders-0 would be refused" in plan.stderr) == (8, True)
    refused = kafkalog("recover", node, *IN_PLACE)
    assert (refused.status, b"0 recovered, 2 not" in refused.stdout) == (4, True)
    assert {name: files(node / name) for name in before} == before
    assert kafkalog("recover", node, *IN_PLACE, "--allow-loss").status == 8
    after = {name: files(node / name) for name in before}
    assert [name for name in before if after[name] != before[name]] == [*before]


@pytest.mark.parametrize("form", ["table", "ndjson"])
def test_a_plan_lists_everything_that_goes(form: str, damaged: Any, kafkalog: Any) -> None:
    """`.deleted` files are listed with the number of their records, whatever else is to be done."""
    partition = damaged("crc_active_mid")
    first = min(partition.glob("*.log"))
    count = len(kafkalog("dump-segment", first, "--format", "ndjson").stdout.splitlines())
    left = [partition / f"{first.name}.deleted", partition / f"{first.stem}.index.deleted"]
    for path in left:
        shutil.copy(first, path)
    before = files(partition)
    result = kafkalog("recover", partition, *SETTINGS, "--format", form)
    if form == "ndjson":
        recovery, summary = map(json.loads, result.stdout.splitlines())
        going = {one["name"]: one for one in recovery["file_changes"] if one["fate"] == "removed"}
        assert {path.name: path.stat().st_size for path in left}.items() <= {
            name: one["removed_bytes"] for name, one in going.items()
        }.items()
        assert going[left[0].name]["removed_records"] == count
        assert summary["removed_files"] == len(going)
        assert summary["removed_records"] == sum(one["removed_records"] for one in going.values())
    else:
        lines = result.stdout.decode().splitlines()
        [line] = [one for one in lines if left[0].name in one]
        assert line.split()[1:4] == ["removed", "1.1K", str(count)]
        assert any(left[1].name in one for one in lines)
    assert kafkalog("recover", partition, *IN_PLACE, "--allow-loss").status == 0
    gone = set(before) - set(files(partition))
    assert gone == (set(going) if form == "ndjson" else {path.name for path in left})


def test_a_note_about_many_partitions_is_given_once(node: Path, kafkalog: Any) -> None:
    """It names one of them and the number of the others."""
    for number in range(1, 9):
        shutil.copytree(node / "sound-0", node / f"sound-{number}")
    for path in node.glob("sound-*/partition.metadata"):
        path.unlink()
    notes = kafkalog("recover", node, *SETTINGS).stderr.splitlines()
    found = [line for line in notes if "partition.metadata is missing" in line]
    assert len(found) == 1
    assert "sound-0 and 8 more partitions: " in found[0]


def test_a_directory_that_awaits_its_deletion_is_left_to_the_broker(
    node: Path, kafkalog: Any
) -> None:
    """The plan says how many records a broker will delete with it."""
    doomed = node / "sound-0.0123456789abcdef0123456789abcdef-delete"
    (node / "sound-0").rename(doomed)
    dump = [kafkalog("dump-segment", log, "--format", "ndjson") for log in doomed.glob("*.log")]
    count = sum(len(one.stdout.splitlines()) for one in dump)
    before = files(doomed)
    result = kafkalog("recover", node, *IN_PLACE)
    assert f"a broker deletes the directory, with {count} records" in result.stdout.decode()
    assert files(doomed) == before
