"""Any bytes on the disk give our own errors and defects, in bounded time and memory."""

from __future__ import annotations

import faulthandler
import os
import random
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkalog.errors import KafkaLogError, UnreadableError
from kafkalog.files.indexes import OffsetIndex, TimeIndex
from kafkalog.io.paths.source import Source
from kafkalog.log.batches.framing import scan_batches
from kafkalog.model import Batch, Defect
from kafkalog.node.reader import read_records
from tests.builders import SEGMENT, batch, flip, record, write_log
from tests.conftest import Result
from tests.sampling import sampled, tries_everything
from tests.sweeps import (
    STATUSES,
    covers,
    list_in_every_way,
    look_up_in_every_way,
    read_file_in_every_way,
    read_log_in_every_way,
    run_all,
    run_some,
    small_log,
    sweep,
    verify_at_every_level,
)
from tests.waiting import HANG_S

SEED = 20261121
Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def _never_hangs() -> Iterator[None]:
    """End the run with all stacks shown if it opens a FIFO or loops forever."""
    faulthandler.dump_traceback_later(HANG_S, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture
def log(corpus_dir: Path, tmp_path: Path) -> Path:
    """A partition of a few kilobytes: three segments with indexes, snapshots and epochs."""
    return small_log(corpus_dir, tmp_path / "data")


def test_the_sweep_reaches_what_is_there(log: Path, kafkalog: Run):
    """On a sound log it finds everything and reports nothing, so the other tests test something."""
    assert run_all(kafkalog, log, sorted(log.iterdir())) <= {0, 2}
    assert len(list(read_log_in_every_way(log))) > 100
    assert {d.severity for d in verify_at_every_level(log)} <= {"note"}


def test_each_truncation_of_a_segment(log: Path):
    """At every byte: whole batches are read; the rest is one defect or nothing."""
    path = log / "00000000000000000032.log"
    data = path.read_bytes()
    ends = set()
    with Source(str(path)) as source:
        ends = {0, *(b.end_position for b in scan_batches(source) if isinstance(b, Batch))}
    for size in sampled(range(len(data)), 18):
        path.write_bytes(data[:size])
        with Source(str(path)) as source:
            found = list(scan_batches(source, check_crc=True))
        assert covers(found, size), size
        defects = [item for item in found if isinstance(item, Defect)]
        assert [d.reference for d in defects] == ([] if size in ends else ["torn-tail"]), size
        assert len(found) - len(defects) == len([end for end in ends if 0 < end <= size])
        if size % 50 == 0:
            sweep(log)


@pytest.mark.parametrize("suffix", ["index", "timeindex", "txnindex"])
def test_each_truncation_of_an_index(log: Path, suffix: str):
    """An incomplete entry is left out and reported."""
    path = log / f"00000000000000000016.{suffix}"
    data = path.read_bytes()
    width = {"index": 8, "timeindex": 12, "txnindex": 34}[suffix]
    for size in sampled(range(len(data)), 18):
        path.write_bytes(data[:size])
        found = {defect.reference for defect in verify_at_every_level(log)}
        assert ("index-size-not-multiple" in found) == bool(size % width), size
        if size % 11 == 0:
            sweep(log)


@pytest.mark.parametrize(
    "name", ["00000000000000000048.snapshot", "leader-epoch-checkpoint", "partition.metadata",
             "../replication-offset-checkpoint"],
)  # fmt: skip
def test_each_truncation_of_a_small_file(log: Path, name: str):
    """All readers over all of them."""
    path = log / name
    data = path.read_bytes()
    for size in sampled(range(len(data)), 60):
        path.write_bytes(data[:size])
        read_file_in_every_way(path)
        verify_at_every_level(log.parent)


def test_single_bit_flips(log: Path):
    """Flips over all files; each is undone afterwards."""
    rng = random.Random(SEED)
    files = sorted(path for path in log.parent.rglob("*") if path.is_file())
    for number in range(400 if tries_everything() else 8):
        path = rng.choice(files)
        data = path.read_bytes()
        bit = rng.randrange(8 * len(data))
        path.write_bytes(flip(data, bit))
        where = f"{path.name}, bit {bit}, seed {SEED}"
        try:
            found = verify_at_every_level(log.parent)
            read_log_in_every_way(log)
            read_file_in_every_way(path)
            if number % 10 == 0:
                look_up_in_every_way(log)
                list_in_every_way(log.parent)
        except Exception as error:  # raised again, with the seed that repeats it
            error.add_note(where)
            raise
        in_checksum = path.suffix == ".snapshot"
        assert found or not in_checksum, where
        path.write_bytes(data)


def test_flips_behind_the_header_are_found_by_the_checksum(log: Path):
    """From the checksum field on, every bit of a batch counts."""
    rng = random.Random(SEED)
    path = log / "00000000000000000016.log"
    data = path.read_bytes()
    with Source(str(path)) as source:
        batches = [found for found in scan_batches(source) if isinstance(found, Batch)]
    for _ in range(150):
        hit = rng.choice(batches)
        bit = rng.randrange(8 * (hit.position + 17), 8 * hit.end_position)
        path.write_bytes(flip(data, bit))
        defects = [d for d in read_records(path) if isinstance(d, Defect)]
        assert [d.position for d in defects][:1] == [hit.position], (bit, SEED)
        assert defects[0].reference == "batch-crc-mismatch"


def test_commands_on_flipped_and_cut_files(log: Path, kafkalog: Run):
    """A few files through the command line, in every format."""
    rng = random.Random(SEED)
    path = log / "00000000000000000016.log"
    data = path.read_bytes()
    for damaged in (flip(data, rng.randrange(8 * len(data))), data[:-5], data + bytes(99), b"",
                    data[:100] + data[101:], rng.randbytes(300)):  # fmt: skip
        path.write_bytes(damaged)
        run_all(kafkalog, log, [path])
    path.write_bytes(data)
    for path in sampled(sorted(log.iterdir()), 6):
        data = path.read_bytes()
        path.write_bytes(rng.randbytes(len(data)))
        for line in (["dump-segment", path], ["kafka-dump-log", "--files", path],
                     ["verify", path], ["ls", "--segments", log]):  # fmt: skip
            assert kafkalog(*line).status in STATUSES, line
        path.write_bytes(data)


def oddities(directory: Path) -> dict[str, Callable[[Path], object]]:
    """Return functions that create each odd thing in the place of a file."""

    def bind(path: Path) -> None:
        here = os.getcwd()
        os.chdir(path.parent)  # names of sockets are short
        try:
            with socket.socket(socket.AF_UNIX) as server:
                server.bind(path.name)
        finally:
            os.chdir(here)

    return {
        "empty": lambda path: path.touch(),
        "directory": lambda path: path.mkdir(),
        "fifo": os.mkfifo,
        "socket": bind,
        "dangling link": lambda path: path.symlink_to("nowhere"),
        "link to itself": lambda path: path.symlink_to(path.name),
        "link to a directory": lambda path: path.symlink_to(directory),
        "link to a device": lambda path: path.symlink_to("/dev/zero"),
        "link to a fifo": lambda path: (os.mkfifo(f"{path}.x"), path.symlink_to(f"{path}.x")),
    }


@pytest.mark.sampled(5)
@pytest.mark.parametrize("kind", oddities(Path()))
def test_odd_things_in_the_place_of_files(log: Path, kafkalog: Run, kind: str):
    """A share of the partition's and log directory's files, another one for each kind."""
    turn, shares = sorted(oddities(Path())).index(kind), 3 if tries_everything() else 6
    for path in sorted(p for p in log.parent.rglob("*") if p.is_file())[turn % shares :: shares]:
        kept = path.with_name("kept")
        path.rename(kept)
        oddities(log.parent)[kind](path)
        sweep(log)
        if path.parent == log:
            list_in_every_way(log.parent)
        read_file_in_every_way(path)
        for line in (["dump-segment", path], ["kafka-dump-log", "--files", path],
                     ["verify", log.parent], ["ls", "--files", log.parent]):  # fmt: skip
            status = kafkalog(*line).status
            assert status in {*STATUSES, 2}, line
            if line[0] == "dump-segment" and kind not in ("empty", "link to a directory"):
                assert status == (2 if kind == "dangling link" else 3), (line, kind)
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        Path(f"{path}.x").unlink(missing_ok=True)
        kept.rename(path)


@pytest.mark.parametrize("kind", [name for name in oddities(Path()) if name != "directory"])
def test_odd_things_in_the_place_of_directories(tmp_path: Path, kafkalog: Run, kind: str):
    """A partition or a log directory that is something else."""
    for name in ("t-0", f"{SEGMENT}.log"):
        path = tmp_path / name
        oddities(tmp_path / "none")[kind](path)
        sweep(path)
        if kind != "link to a directory":
            # Kafka's own tool passes over what has no name it knows; an empty log is a file, where
            # some commands want a partition.
            wanted = {0, 2, 3} if kind in ("empty", "dangling link") else {0, 3}
            assert run_all(kafkalog, path, [path]) <= wanted


def test_exit_statuses_are_those_of_the_contract(log: Path, kafkalog: Run):
    """1 for findings, 2 for usage, 3 for unreadable, 8 for what is left out of an answer."""
    path = log / f"{SEGMENT}.log"
    assert kafkalog("verify", log).status == 0
    assert kafkalog("dump-segment", log).status == 0
    for line in (["verify"], ["ls", log, "--format", "yaml"], ["dump-segment", log, "--limit", -1],
                 ["dump-segment", log, "--from-time", "yesterdayish"], ["nonsense"],
                 ["dump-segment", log, "--from-offset", "9" * 5000 + "x"], ["lookup-offset", log],
                 ["dump-segment", log, "--key-regex", "("], ["kafka-dump-log"],
                 ["dump-segment", log, "--key", "0xzz"],
                 ["ls", log, "--tz", "../../etc"],
                 ["verify", log / "none"], ["ls", log / "none"], ["dump-segment", log / "none"],
                 ["lookup-offset", log / "none", 1], ["dump-segment", f"{path}\0"],
                 ["kafka-dump-log", "--files", log / "none.log"]):  # fmt: skip
        assert kafkalog(*line).status == 2, line
    assert kafkalog("ls", log.parent.parent / ("x" * 300)).status == 3
    path.write_bytes(flip(path.read_bytes(), 8 * 100))
    assert kafkalog("verify", log).status == 1
    for line in (["dump-segment", log], ["dump-segment", path],
                 ["kafka-dump-log", "--files", path], ["verify", log, log / "none"]):  # fmt: skip
        assert kafkalog(*line).status == 8, line


@pytest.mark.parametrize("option", ["--from-time", "--to-time", "--from-offset"])
def test_endless_numbers_are_usage(log: Path, kafkalog: Run, option: str):
    """More digits than Python converts to a number."""
    assert kafkalog("dump-segment", log, option, "9" * 5000).status == 2
    assert kafkalog("lookup-offset", log, "--timestamp", "9" * 5000).status == 2
    assert kafkalog("lookup-offset", log, "--timestamp", f"-{'9' * 5000}d").status == 2
    assert kafkalog("lookup-offset", log, "1", "--high-watermark", "9" * 5000).status == 2


def test_long_names_are_not_found(log: Path, kafkalog: Run):
    """Names too long for any file, as a broken shell script passes them."""
    name = "9" * 5000
    for line in (["kafka-dump-log", "--files", log / f"{name}.log"],
                 ["dump-segment", log / f"{name}.log"], ["ls", log / f"t-{name}"]):  # fmt: skip
        assert kafkalog(*line).status == 3, line


@pytest.mark.parametrize(
    "name", [b"\x1b[31mred-0", b"a\nb-0", b"\xff\xfe-0", "\u202ert-0".encode(), b" -0", b"-0",
             b"t-0.x-delete", b"t-99999999999999999999", b"." * 200 + b"-0"],
)  # fmt: skip
def test_odd_names_of_directories_and_files(tmp_path: Path, kafkalog: Run, name: bytes):
    """Names with control characters or invalid UTF-8, and names of no partition are all read.

    A broker does not start next to a `.log` without a number, which is a finding.
    """
    directory = Path(os.fsdecode(os.path.join(os.fsencode(tmp_path / "data"), name)))
    path = write_log(directory, batch(0, [record()]))
    for odd in (name + b".log", name + b".index", SEGMENT.encode() + b".log." + name):
        with open(os.path.join(os.fsencode(directory), odd), "wb") as out:
            out.write(b"x")
    list_in_every_way(directory.parent)
    sweep(directory)
    run_some(kafkalog, path)
    assert kafkalog("ls", "--files", directory.parent, "--format", "json").status in {0, 3, 8}
    assert kafkalog("verify", directory.parent).status in {1, 3, 8}


def test_an_unreadable_file_is_status_three(
    log: Path, kafkalog: Run, monkeypatch: pytest.MonkeyPatch
):
    """Tests may run as root, which no mode stops, so the refusal is mocked."""
    real = os.open

    def refuse(path: str | Path, *arguments: int, **options: int) -> int:
        if str(path).startswith(str(log)) and os.path.isfile(path):
            raise PermissionError(13, "Permission denied")
        return real(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)
    sweep(log)
    for path in sorted(log.iterdir()):
        result = kafkalog("dump-segment", path)
        assert result.status == 3, path
        assert "path-unreadable" in result.stderr
    assert kafkalog("verify", log).status == 8
    assert b"file-unreadable" in kafkalog("verify", log).stdout


def test_a_file_that_shrinks_while_it_is_read(log: Path, monkeypatch: pytest.MonkeyPatch):
    """A broker truncates it: an error of ours, wherever the file is cut."""
    path = log / f"{SEGMENT}.log"
    real = os.fstat
    data = path.read_bytes()
    for size in sampled(range(0, len(data), 90), 8):

        def grown(fd: int, size: int = size) -> os.stat_result:
            status = real(fd)
            if os.readlink(f"/proc/self/fd/{fd}") == str(path):
                os.truncate(path, size)
            return status

        path.write_bytes(data)
        with monkeypatch.context() as patch:
            patch.setattr(os, "fstat", grown)
            with Source(str(path)) as source, pytest.raises(UnreadableError):
                list(scan_batches(source, check_crc=True))
            path.write_bytes(data)
            sweep(log)


def test_errors_say_where(log: Path):
    """The path and, if there is one, the position."""
    for reader in (OffsetIndex, TimeIndex, Source):
        with pytest.raises(KafkaLogError) as caught:
            reader(str(log / "none"))
        assert caught.value.context == str(log / "none")
