"""Directories with very many files, files with huge holes, and files that change while read."""

from __future__ import annotations

import errno
import os
import re
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalog.check.verify import Verification
from kafkalog.errors import CorruptDataError, NotAKafkaFileError, NotFoundError
from kafkalog.files.log_dir import open_partition, open_path
from kafkalog.files.text_files import read_leader_epochs, read_meta_properties, read_quorum_state
from kafkalog.io.paths.source import Source
from kafkalog.log.batches.framing import scan_batches
from kafkalog.model import Batch
from kafkalog.node.reader import read_records
from kafkalog.node.recovery import StartMode, predict_start
from tests.builders import SEGMENT, batch, record, write_log
from tests.conftest import Result
from tests.counted_work import counted_work
from tests.sampling import tries_everything
from tests.sweeps import covers, run_all, sweep

Run = Callable[..., Result]
TIB = 1 << 40


def test_a_hundred_thousand_files_in_a_partition(tmp_path: Path, kafkalog: Run):
    """Most files are not Kafka's: each is checked once, and none is opened without need.

    There are a hundred thousand in `make test-all`, a twentieth in `make test`.
    """
    count = 100_000 if tries_everything() else 5_000
    path = write_log(tmp_path / "t-0", batch(0, [record()]))
    for number in range(count):
        os.close(os.open(path.parent / f"x{number}", os.O_CREAT | os.O_WRONLY))
    for line in (["ls", path.parent], ["lookup-offset", path.parent, 0], ["dump-segment", path],
                 ["verify", "--level", "quick", "--format", "ndjson", path]):  # fmt: skip
        with counted_work() as work:
            assert kafkalog(*line).status == 0, line
        assert work.calls < 200 * count, line
    found = Verification().verify(path.parent)
    assert sum(defect.reference == "file-unknown" for defect in found) == count


def test_the_work_of_a_start_grows_with_the_number_of_segments(tmp_path: Path):
    """Four times as many segments must not make sixteen times as many calls.

    Every segment is recovered and leaves a snapshot.
    """
    calls = []
    for count in (100, 400):
        directory = tmp_path / f"t-{count}"
        for base in range(count):
            write_log(directory, batch(base, [record()]), name=f"{base:020d}")
            for suffix in (".index", ".timeindex", ".snapshot"):
                (directory / f"{base:020d}{suffix}").touch()
        with counted_work() as work:
            assert predict_start(str(directory), StartMode.UNCLEAN).loaded
        calls.append(work.calls)
    assert calls[1] < 6 * calls[0], calls


def test_directories_nested_deeply_and_links_in_circles(tmp_path: Path, kafkalog: Run):
    """Kafka has two levels; nothing descends further or follows a circle."""
    path = write_log(tmp_path / "t-0", batch(0, [record()]))
    deep = path.parent
    for _ in range(40):
        deep /= "d" * 50
    deep.mkdir(parents=True)
    (path.parent / "circle").symlink_to(path.parent)
    (tmp_path / "u-0").symlink_to(tmp_path)
    (tmp_path / "v-0").symlink_to("v-0")
    sweep(tmp_path)
    sweep(path.parent)
    assert run_all(kafkalog, tmp_path, [path]) <= {0, 1, 2, 3, 8}


HOLES = (".log", ".index", ".timeindex", ".snapshot")
SMALL_HOLES = ("leader-epoch-checkpoint", "partition.metadata", "quorum-state")


def test_holes_of_a_tebibyte(tmp_path: Path, kafkalog: Run):
    """Holes are not read."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    paths = [directory / f"{SEGMENT}{suffix}" for suffix in HOLES]
    paths += [directory / name for name in SMALL_HOLES]
    for path in paths:
        with path.open("wb") as out:
            out.truncate(TIB)
    for line in (["ls", directory], ["ls", "--segments", directory], ["verify", directory],
                 ["verify", "--level", "deep", directory], ["lookup-offset", directory, 5],
                 ["lookup-offset", directory, "--timestamp", "@7"],
                 *(["dump-segment", path] for path in paths),
                 *(["kafka-dump-log", "--files", path] for path in paths)):  # fmt: skip
        with counted_work() as work:
            assert kafkalog(*line).status in {0, 1, 3, 8}, line
        assert work.read_bytes < 32 << 20, line
        assert work.calls < 1_000_000, line
    assert b"zero-tail" in kafkalog("verify", directory).stdout


def test_a_batch_behind_a_hole_of_a_tebibyte_is_found(tmp_path: Path):
    """For any alignment to the hole: the batch's first bytes may be zeros like the hole."""
    for shift in (0, 1, 8, 11, 12, 17, 60):
        path = write_log(tmp_path, batch(0, [record()]))
        data = batch(1, [record()])
        data = bytes(8) + data[8:]  # offset 0: the checksum does not cover it
        place = TIB + shift
        with path.open("r+b") as out:
            out.seek(place)
            out.write(data)
        with counted_work() as work, Source(str(path)) as source:
            found = list(scan_batches(source, check_crc=True))
            assert covers(found, source.size_bytes)
        assert [one.position for one in found if isinstance(one, Batch)] == [0, place]
        assert work.read_bytes < 1 << 20
        assert work.calls < 10_000


def test_a_transaction_index_of_a_tebibyte_is_streamed(tmp_path: Path):
    """Entries come at once and in little memory, until the reader stops, though there is no end."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    path = directory / f"{SEGMENT}.txnindex"
    with path.open("wb") as out:
        out.truncate(TIB)
    for line in (["kafka-dump-log", "--files", path], ["dump-segment", path]):
        process = subprocess.Popen(
            [sys.executable, "-m", "kafkalog_cli", *line], stdout=subprocess.PIPE
        )
        assert process.stdout
        for _ in range(20_000):
            assert process.stdout.readline()
        status = Path(f"/proc/{process.pid}/status").read_text()
        process.stdout.close()
        process.wait()
        assert peak_in(status) < 150 << 20, line


def peak_in(status: str) -> int:
    """Return the peak memory of a process since it began, from its status in /proc.

    The value of wait4 includes the memory of the process that started it.
    """
    [kilobytes] = re.findall(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    return int(kilobytes) << 10


def peak_of(code: str, *argv: object) -> int:
    """Run the code in a process; return its peak memory."""
    code += "\nprint(open('/proc/self/status').read())"
    command = [sys.executable, "-c", code, *map(str, argv)]
    return peak_in(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def test_small_files_that_are_large_take_little_memory(tmp_path: Path):
    """A parsed line break takes five hundred times as much memory as on disk."""
    code = (
        "import sys\nfrom kafkalog.files.text_files import read_leader_epochs\n"
        "from kafkalog.errors import KafkaLogError\n"
        "try:\n    read_leader_epochs(sys.argv[1])\nexcept KafkaLogError:\n    pass\n"
        "else:\n    sys.exit(1)"
    )
    path = tmp_path / "leader-epoch-checkpoint"
    for line_end in (b"\n", b"\r", b"\r\n", b" \n"):
        path.write_bytes(b"0\n1\n" + (line_end * (15 << 20))[: 15 << 20])
        assert peak_of(code, path) < 120 << 20, line_end
    path.write_bytes(b"0\n" * (9 << 20))
    with pytest.raises(NotAKafkaFileError):
        read_leader_epochs(str(path))
    for name, read in (("quorum-state", read_quorum_state), ("meta.properties",
                       read_meta_properties)):  # fmt: skip
        (tmp_path / name).write_bytes(b'{"a":[' + b"[]," * (1 << 19) + b"[]]}")
        with pytest.raises(NotAKafkaFileError):
            read(str(tmp_path / name))


@pytest.mark.sampled(3, each_value=True)
@pytest.mark.parametrize("size", [1 << 16, (1 << 16) + 1, 1 << 18])
@pytest.mark.parametrize("line_end", ["\n", "\r", "\r\n"])
def test_checkpoints_longer_than_what_is_parsed_at_a_time(tmp_path: Path, size: int, line_end: str):
    """No text is lost where pieces are cut, for any kind of line break."""
    path = tmp_path / "leader-epoch-checkpoint"
    wanted = [(number, 3 * number) for number in range(size // 12)]
    lines = ["0", str(len(wanted)), *(f"{epoch} {offset}" for epoch, offset in wanted)]
    path.write_bytes("".join(line + line_end for line in lines).encode())
    found = read_leader_epochs(str(path))
    assert [(entry.leader_epoch, entry.start_offset) for entry in found] == wanted
    path.write_bytes("".join(line + line_end for line in lines[:-1]).encode())
    with pytest.raises(CorruptDataError, match=f"says {len(wanted)} entries"):
        read_leader_epochs(str(path))


def test_files_that_vanish_behind_the_listing(tmp_path: Path):
    """A running broker deletes old segments: the files left are checked as if just listed."""
    for base in (0, 5, 9):
        write_log(tmp_path / "t-0", batch(base, [record()]), name=f"{base:020d}")
        (tmp_path / "t-0" / f"{base:020d}.index").touch()
    partition = open_partition(str(tmp_path / "t-0"))
    for name in (f"{5:020d}.log", f"{9:020d}.index"):
        (tmp_path / "t-0" / name).unlink()
    found = list(Verification().verify(partition))
    assert "file-unreadable" not in {one.reference for one in found}
    assert found == list(Verification().verify(tmp_path / "t-0"))
    with pytest.raises(NotFoundError):
        predict_start(partition, StartMode.UNCLEAN)


def test_a_file_that_grows_is_read_as_it_was(tmp_path: Path):
    """A broker appends: the reader sees the whole batches of the moment it opened the file."""
    path = write_log(tmp_path / "t-0", *[batch(i, [record()]) for i in range(3)])
    rows = read_records(open_path(str(path)))  # type: ignore[arg-type] # it is a file
    first = next(rows)
    with path.open("ab") as out:
        out.write(batch(3, [record()]))
    assert len([first, *rows]) == 3


def test_a_device_in_the_place_of_a_file_that_was_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The file can be exchanged between check and opening, so it is checked again when open."""
    path = tmp_path / f"{SEGMENT}.log"
    path.touch()
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    real = os.open
    monkeypatch.setattr(os, "open", lambda name, flags: real(
        str(fifo) if name == str(path) else name, flags))  # fmt: skip
    with pytest.raises(NotAKafkaFileError, match="a FIFO"):
        Source(str(path))


def test_a_disk_that_fails_anywhere(tmp_path: Path, kafkalog: Run, monkeypatch: pytest.MonkeyPatch):
    """Each read fails in turn, in any file: a defect or an error of ours results.

    Or the right answer: an index only makes a search shorter.
    """
    path = write_log(tmp_path / "t-0", *[batch(i, [record()]) for i in range(3)])
    path.with_suffix(".index").write_bytes(struct.pack(">ii", 1, 69))
    path.with_suffix(".timeindex").write_bytes(struct.pack(">qi", 9, 1))
    real = os.pread
    count, failing = 0, 0

    def pread(fd: int, size: int, position: int) -> bytes:
        nonlocal count
        count += 1
        if count == failing:
            raise OSError(errno.EIO, "Input/output error")
        return real(fd, size, position)

    monkeypatch.setattr(os, "pread", pread)
    for line in (["verify", "--level", "deep", path.parent], ["dump-segment", path.parent],
                 ["lookup-offset", path.parent, 2, "--show"], ["ls", "--segments", path.parent],
                 ["kafka-dump-log", "--print-data-log", "--files", path],
                 ["kafka-dump-log", "--files", path.with_suffix(".timeindex")]):  # fmt: skip
        count = failing = 0
        healthy = kafkalog(*line)
        reads = count
        assert reads > 0
        for failing in range(1, reads + 1):
            count = 0
            result = kafkalog(*line)
            assert result.status in {0, 1, 3, 8}, (line, failing)
            assert "Traceback" not in result.stderr
            if line[0] == "lookup-offset" and not result.status:
                assert result.stdout == healthy.stdout
            elif line[0] != "ls":
                assert result.status, (line, failing)


def test_open_files_stay_few(tmp_path: Path):
    """The number does not depend on the number of segments.

    In processes of their own: this one has files of other tests open.
    """
    for base in range(300):
        path = write_log(tmp_path / "t-0", batch(base, [record()]), name=f"{base:020d}")
        path.with_suffix(".index").touch()
        path.with_suffix(".timeindex").write_bytes(struct.pack(">qi", 1_700_000_000_000, 0))
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100)); "
        "from kafkalog_cli.main import main; main()"
    )
    for line in ("ls --segments", "verify", "dump-segment", "lookup-offset 299"):
        name, *more = line.split()
        words = [sys.executable, "-c", code, name, tmp_path / "t-0", *more]
        done = subprocess.run(words, check=False, capture_output=True)
        assert done.returncode == 0, (line, done.stderr)
