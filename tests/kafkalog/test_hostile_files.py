"""Whatever is on the disk: our own errors and defects, in bounded time and memory."""

from __future__ import annotations

import faulthandler
import os
import random
import resource
import socket
import struct
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import crc32c as wheel
import pytest

from kafkalog.codecs import compress
from kafkalog.errors import KafkaLogError, UnreadableError
from kafkalog.framing import scan_batches
from kafkalog.indexes import OffsetIndex, TimeIndex
from kafkalog.model import Batch, Defect
from kafkalog.reader import read_records
from kafkalog.source import Source
from tests.builders import SEGMENT, batch, flip, message, record, write_log
from tests.conftest import Result
from tests.sweeps import (
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

SEED = 20261121
Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def _never_hangs() -> Iterator[None]:
    """A FIFO that is opened, or a loop without end, ends the run with all stacks shown."""
    faulthandler.dump_traceback_later(120, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture
def log(corpus_dir: Path, tmp_path: Path) -> Path:
    """A partition of three segments with indexes, snapshots, epochs: a few kilobytes."""
    return small_log(corpus_dir, tmp_path / "data")


def test_the_sweep_reaches_what_is_there(log: Path, kafkalog: Run):
    """On a sound log everything is found and nothing is wrong: the other tests test something."""
    assert run_all(kafkalog, log, sorted(log.iterdir())) <= {0, 2}
    assert len(list(read_log_in_every_way(log))) > 100
    assert {d.severity for d in verify_at_every_level(log)} <= {"note"}


def test_each_truncation_of_a_segment(log: Path):
    """At every byte: whole batches are read, the rest is one defect or none."""
    path = log / "00000000000000000032.log"
    data = path.read_bytes()
    ends = set()
    with Source(str(path)) as source:
        ends = {0, *(b.end_position for b in scan_batches(source) if isinstance(b, Batch))}
    for size in range(len(data)):
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
    """A part of an entry is left out, and told."""
    path = log / f"00000000000000000016.{suffix}"
    data = path.read_bytes()
    width = {"index": 8, "timeindex": 12, "txnindex": 34}[suffix]
    for size in range(len(data)):
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
    for size in range(len(data)):
        path.write_bytes(data[:size])
        read_file_in_every_way(path)
        verify_at_every_level(log.parent)


def test_single_bit_flips(log: Path):
    """Some hundreds over all files; every one of them is put back."""
    rng = random.Random(SEED)
    files = sorted(path for path in log.parent.rglob("*") if path.is_file())
    for number in range(160):
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
        except Exception as error:
            error.add_note(where)
            raise
        in_checksum = path.suffix == ".snapshot"
        assert found or not in_checksum, where
        path.write_bytes(data)


def test_flips_behind_the_header_are_found_by_the_checksum(log: Path):
    """From the checksum's own field on, every bit of a batch counts."""
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
    """A few of them through the command line, in every format."""
    rng = random.Random(SEED)
    path = log / "00000000000000000016.log"
    data = path.read_bytes()
    for damaged in (flip(data, rng.randrange(8 * len(data))), data[:-5], data + bytes(99), b"",
                    data[:100] + data[101:], rng.randbytes(300)):  # fmt: skip
        path.write_bytes(damaged)
        run_all(kafkalog, log, [path])
    path.write_bytes(data)
    for path in sorted(log.iterdir()):
        data = path.read_bytes()
        path.write_bytes(rng.randbytes(len(data)))
        for line in (["dump-segment", path], ["kafka-dump-log", "--files", path],
                     ["verify", path], ["ls", "--segments", log]):  # fmt: skip
            assert kafkalog(*line).status in {0, 1, 3, 5, 6, 7}, line
        path.write_bytes(data)


def oddities(directory: Path) -> dict[str, Callable[[Path], object]]:
    """What may be in the place of a file."""

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


@pytest.mark.parametrize("kind", oddities(Path()))
def test_odd_things_in_the_place_of_files(log: Path, kafkalog: Run, kind: str):
    """The files of the partition and its log directory: every third, another third each time."""
    turn = sorted(oddities(Path())).index(kind)
    for path in sorted(p for p in log.parent.rglob("*") if p.is_file())[turn % 3 :: 3]:
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
            assert status in {0, 1, 2, 3, 5, 6, 7}, line
            if line[0] == "dump-segment" and kind not in ("empty", "link to a directory"):
                assert status == 3, (line, kind)
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        Path(f"{path}.x").unlink(missing_ok=True)
        kept.rename(path)


@pytest.mark.parametrize("kind", [name for name in oddities(Path()) if name != "directory"])
def test_odd_things_in_the_place_of_directories(tmp_path: Path, kafkalog: Run, kind: str):
    """A partition, or a log directory, that is none."""
    for name in ("t-0", f"{SEGMENT}.log"):
        path = tmp_path / name
        oddities(tmp_path / "none")[kind](path)
        sweep(path)
        if kind != "link to a directory":
            # Kafka's own tool passes over what has no name it knows.
            assert run_all(kafkalog, path, [path]) <= {0, 3}


def test_exit_statuses_are_those_of_the_contract(log: Path, kafkalog: Run):
    """1 defects, 2 usage, 3 unreadable; the gravest of several inputs."""
    path = log / f"{SEGMENT}.log"
    assert kafkalog("verify", log).status == 0
    assert kafkalog("dump-segment", log).status == 0
    for line in (["verify"], ["ls", log, "--format", "yaml"], ["dump-segment", log.parent],
                 ["dump-segment", log, "--from-time", "yesterdayish"], ["nonsense"],
                 ["dump-segment", log, "--max-bytes", "9" * 5000 + "x"], ["lookup-offset", log],
                 ["dump-segment", log, "--key-regex", "("], ["kafka-dump-log"],
                 ["dump-segment", log, "--key", "0xzz"],
                 ["ls", log, "--tz", "../../etc"]):  # fmt: skip
        assert kafkalog(*line).status == 2, line
    for line in (["verify", log / "none"], ["ls", log / "none"], ["dump-segment", log / "none"],
                 ["lookup-offset", log / "none", 1], ["dump-segment", f"{path}\0"],
                 ["kafka-dump-log", "--files", log / "none.log"],
                 ["ls", log.parent.parent / ("x" * 300)]):  # fmt: skip
        assert kafkalog(*line).status == 3, line
    path.write_bytes(flip(path.read_bytes(), 8 * 100))
    for line in (["verify", log], ["dump-segment", log], ["dump-segment", path],
                 ["kafka-dump-log", "--files", path]):  # fmt: skip
        assert kafkalog(*line).status == 1, line
    assert kafkalog("verify", log, log / "none").status == 3


@pytest.mark.parametrize("option", ["--from-time", "--to-time", "--max-bytes", "--from-offset"])
def test_endless_numbers_are_usage(log: Path, kafkalog: Run, option: str):
    """More digits than Python turns into a number."""
    assert kafkalog("dump-segment", log, option, "9" * 5000).status == 2
    assert kafkalog("lookup-offset", log, "--timestamp", "9" * 5000).status == 2
    assert kafkalog("lookup-offset", log, "--timestamp", f"-{'9' * 5000}d").status == 2
    assert kafkalog("lookup-offset", log, "1", "--high-watermark", "9" * 5000).status == 2


def test_long_names_are_not_found(log: Path, kafkalog: Run):
    """Names that no file can have: a broken shell script."""
    name = "9" * 5000
    for line in (["kafka-dump-log", "--files", log / f"{name}.log"],
                 ["dump-segment", log / f"{name}.log"], ["ls", log / f"t-{name}"]):  # fmt: skip
        assert kafkalog(*line).status == 3, line


@pytest.mark.parametrize(
    "name", [b"\x1b[31mred-0", b"a\nb-0", b"\xff\xfe-0", "\u202ert-0".encode(), b" -0", b"-0",
             b"t-0.x-delete", b"t-99999999999999999999", b"." * 200 + b"-0"],
)  # fmt: skip
def test_odd_names_of_directories_and_files(tmp_path: Path, kafkalog: Run, name: bytes):
    """Control characters, no UTF-8, no partition: listed, checked, read."""
    directory = Path(os.fsdecode(os.path.join(os.fsencode(tmp_path / "data"), name)))
    path = write_log(directory, batch(0, [record()]))
    for odd in (name + b".log", name + b".index", SEGMENT.encode() + b".log." + name):
        with open(os.path.join(os.fsencode(directory), odd), "wb") as out:
            out.write(b"x")
    list_in_every_way(directory.parent)
    sweep(directory)
    run_some(kafkalog, path)
    assert kafkalog("ls", "--files", directory.parent, "--format", "json").status in {0, 3}
    assert kafkalog("verify", directory.parent).status in {0, 3}


def test_an_unreadable_file_is_status_three(
    log: Path, kafkalog: Run, monkeypatch: pytest.MonkeyPatch
):
    """Tests may run as root, whom no mode stops: the refusal is played."""
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
    assert kafkalog("verify", log).status == 1
    assert b"file-unreadable" in kafkalog("verify", log).stdout


def test_a_file_that_shrinks_while_it_is_read(log: Path, monkeypatch: pytest.MonkeyPatch):
    """A broker truncates: an error of ours, wherever the file is cut."""
    path = log / f"{SEGMENT}.log"
    real = os.fstat
    data = path.read_bytes()
    for size in range(0, len(data), 90):

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


ABSURD = {
    "length": struct.pack(">qii", 0, 2**31 - 1, 0) + b"\2" + bytes(60),
    "count": batch(0, [record()], count=2**31 - 1),
    "count and delta": batch(0, [record()], count=2**31 - 1, last_delta=2**31 - 1),
    "record length": batch(0, payload=b"\xfe\xff\xff\xff\x0f" + bytes(20), count=1),
    "key length": batch(0, payload=b"\x28\0\0\0\xfe\xff\xff\xff\x0f" + bytes(20), count=1),
    "header count": batch(0, payload=b"\x14\0\0\0\1\1\xfe\xff\xff\xff\x0f", count=1),
    "offset": batch(2**63 - 1, [record(2**31 - 1)], last_delta=2**31 - 1),
    "negative offset": batch(-(2**63), [record(-(2**31))], last_delta=-(2**31)),
    "timestamp": batch(0, [record(time_delta=2**63 - 1)], base_time=2**63 - 1, max_time=2**63 - 1),
    "negative timestamp": batch(0, [record()], base_time=-(2**63), max_time=-(2**63)),
    "producer": batch(0, [record()], producer=(2**63 - 1, 2**15 - 1, 2**31 - 1)),
    "negative producer": batch(0, [record()], producer=(-(2**63), -(2**15), -(2**31))),
    "epoch": batch(0, [record()], epoch=2**31 - 1),
    "attributes": batch(0, [record()], attributes=-1),
    "delete horizon": batch(0, [record()], attributes=0x40, base_time=2**63 - 1),
    "message key": message(0)[:26] + struct.pack(">i", 2**31 - 1),
    "snappy length": batch(0, payload=b"\xff\xff\xff\xff\x0f" + bytes(9), count=1, attributes=2),
    "zstd window": batch(0, payload=b"\x28\xb5\x2f\xfd\0\xff" + bytes(9), count=1, attributes=4),
}  # fmt: skip


@pytest.mark.parametrize("name", ABSURD)
def test_absurd_numbers_take_no_memory(tmp_path: Path, kafkalog: Run, name: str):
    """Tiny files that promise gigabytes."""
    path = write_log(tmp_path / "t-0", ABSURD[name])
    run_some(kafkalog, path)
    tracemalloc.start()
    sweep(path.parent)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 << 20


@pytest.mark.parametrize("kind", ["index", "timeindex", "txnindex", "snapshot"])
def test_absurd_side_files_take_no_memory(tmp_path: Path, kafkalog: Run, kind: str):
    """All ones: negative offsets and positions, counts of -1, times before the big bang."""
    path = write_log(tmp_path / "t-0", batch(0, [record()]) * 3)
    for content in (b"\xff" * 340, b"\x7f" * 340, b"\x80" + bytes(339),
                    struct.pack(">hIi", 1, wheel.crc32c(b"\x7f\xff\xff\xff"),
                                2**31 - 1)):  # fmt: skip
        side = path.with_suffix(f".{kind}")
        side.write_bytes(content)
        for line in (["dump-segment", side], ["kafka-dump-log", "--files", side]):
            assert kafkalog(*line).status in {0, 1, 3, 6}, line
        tracemalloc.start()
        sweep(path.parent)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 32 << 20


def test_holes_of_a_gibibyte_are_fast(tmp_path: Path, kafkalog: Run):
    """Preallocated logs and indexes: what is not there is neither read nor held."""
    path = write_log(tmp_path / "t-0", batch(0, [record()]))
    for suffix in (".log", ".index", ".timeindex"):
        with path.with_suffix(suffix).open("ab") as out:
            out.truncate(1 << 30)
    started = time.process_time()
    tracemalloc.start()
    for line in (["ls", path.parent], ["ls", "--segments", path.parent],
                 ["lookup-offset", path.parent, 0], ["dump-segment", path],
                 ["dump-segment", path.with_suffix(".index")],
                 ["kafka-dump-log", "--files", path], ["verify", path.parent]):  # fmt: skip
        assert kafkalog(*line).status in {0, 1}, line
    assert tracemalloc.get_traced_memory()[1] < 64 << 20
    tracemalloc.stop()
    assert time.process_time() - started < 5


def test_a_sparse_file_with_a_batch_at_its_end(tmp_path: Path):
    """Holes are skipped, the batch behind them is found."""
    path = write_log(tmp_path / "t-0", batch(0, [record()]))
    with path.open("r+b") as out:
        out.seek(1 << 28)
        out.write(batch(1, [record()]))
    with Source(str(path)) as source:
        found = list(scan_batches(source, check_crc=True))
        assert covers(found, source.size_bytes)
    assert [item.position for item in found if isinstance(item, Batch)] == [0, 1 << 28]


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_bomb_ends_with_status_seven(tmp_path: Path, codec: int):
    """Two gibibytes of zeros in one batch, in a process that must not have more than 1.5."""
    unit = compress(bytes(64 << 20), codec)
    payload = unit
    if codec in (1, 4):
        payload = unit * 32  # members and frames may follow each other
    elif codec == 2:
        payload = unit[:16] + unit[16:] * 32
    else:
        payload = unit[:7] + unit[7:-4] * 32 + bytes(4)
    path = write_log(tmp_path / "t-0", batch(0, payload=payload, count=1, attributes=codec),
                     batch(1, [record(0, b"after")]))  # fmt: skip

    def confine() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (3 << 29, 3 << 29))

    done = subprocess.run(
        [sys.executable, "-m", "kafkalog_cli", "dump-segment", path, "--records"],
        capture_output=True, preexec_fn=confine, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 7, done
    assert b"limit-exceeded" in done.stdout
    assert b"after" in done.stdout
    assert b"Traceback" not in done.stderr


def test_a_record_of_headers_only(tmp_path: Path):
    """As many as there is room for: linear, not quadratic."""
    path = write_log(tmp_path, batch(0, [record(0, headers=[(b"", None)] * 30_000)]))
    started = time.process_time()
    [found] = read_records(path)
    assert not isinstance(found, Defect)
    assert len(found.headers) == 30_000
    assert time.process_time() - started < 10


def test_many_tiny_batches_and_defects(tmp_path: Path):
    """Every other batch is damaged: each is told, in one pass."""
    good = batch(0, [record()])
    data = b"".join(batch(i, [record()]) if i % 2 else flip(good, 8 * 65) for i in range(2000))
    rows = list(read_records(write_log(tmp_path, data)))
    assert sum(isinstance(row, Defect) for row in rows) == 1000


def test_errors_say_where(log: Path):
    """Path and, where there is one, position."""
    for reader in (OffsetIndex, TimeIndex, Source):
        with pytest.raises(KafkaLogError) as caught:
            reader(str(log / "none"))
        assert caught.value.context == str(log / "none")
