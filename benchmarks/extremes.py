"""Logs at the limits: bombs, a huge value, very many partitions. Time, memory and exit status.

`python -m benchmarks.extremes --help`. The logs are made byte by byte: no broker writes them.
"""

from __future__ import annotations

import argparse
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks import processes
from benchmarks.__main__ import command_line, machine
from benchmarks.results import Record, Result, run_key, store
from kafkalog.io.codecs import compress, crc32c
from tests.builders import BASE_TIME, batch, record, varint, write_log
from tests.kafka import broker_data

if TYPE_CHECKING:
    from collections.abc import Callable

BOMB_BYTES: Final = 256 << 20
BOMBS: Final = 8
VALUE_BYTES: Final = 1_000_000_000
PARTITIONS: Final = 100_000
BROKER_PARTITIONS: Final = 2_000
SEGMENTS: Final = 3
BATCHES: Final = 24
CODECS: Final = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
SEGMENT: Final = f"{0:020d}.log"


@dataclass(frozen=True)
class Extreme:
    """A log, how it is made below a directory, and the commands that read it."""

    name: str
    make: Callable[[Path, float], None]
    commands: tuple[tuple[str, ...], ...]

    def result_name(self, words: tuple[str, ...]) -> str:
        """The name of the result of one of its commands."""
        level = f" {words[2]}" if words[0] == "verify" else ""
        return f"{self.name}: {words[0]}{level}"


DUMP: Final = ("kafka-dump-log", "--deep-iteration", "--print-data-log", "--files", "{log}")
DEEP: Final = ("verify", "--level", "deep", "{path}")
EXPORT: Final = ("export", "--to", "{to}", "{path}")


def make_bomb(home: Path, scale: float, codec: int) -> None:
    """Write batches that are small on disk only."""
    packed = compress(record(0, b"key", bytes(int(BOMB_BYTES * scale))), codec)
    batches = [batch(n, payload=packed, count=1, attributes=codec) for n in range(BOMBS)]
    write_log(home / "bomb-0", *batches)


def make_huge_value(home: Path, scale: float) -> None:
    """Write one stored record; its checksum is computed in pieces."""
    size = int(VALUE_BYTES * scale)
    front = b"\0" + varint(0) + varint(0) + varint(1) + b"k" + varint(size)
    head = varint(len(front) + size + 1) + front
    rest = struct.pack(">hiqqqhii", 0, 0, 0, 0, -1, -1, -1, 1) + head
    piece = bytes(range(256)) * 4096
    pieces = [piece] * (size // len(piece)) + [piece[: size % len(piece)]]
    checksum = crc32c(rest)
    for one in (*pieces, b"\0"):
        checksum = crc32c(one, checksum)
    length = 9 + len(rest) + size + 1
    (home / "huge-0").mkdir(parents=True)
    with (home / "huge-0" / SEGMENT).open("wb") as file:
        file.write(struct.pack(">qiibI", 0, length, 0, 2, checksum) + rest)
        file.writelines(pieces)
        file.write(b"\0")


def make_many_partitions(home: Path, scale: float) -> None:
    """Write partitions of one batch each."""
    log_dir = home / "kafka"
    data = batch(0, [record(0, b"k", b"v")])
    for number in range(int(PARTITIONS * scale)):
        partition = log_dir / f"many-{number}"
        partition.mkdir(parents=True)
        (partition / SEGMENT).write_bytes(data)
        (partition / f"{0:020d}.index").touch()
        (partition / f"{0:020d}.timeindex").touch()


def make_broker(home: Path, scale: float) -> None:
    """Write partitions of several segments, as a broker of many small topics has them."""
    records = [record(i, b"key-%d" % i, b"v" * 100) for i in range(10)]
    segments = []
    for segment in range(SEGMENTS):
        numbers = range(segment * BATCHES, (segment + 1) * BATCHES)
        times = {n: BASE_TIME + n * 300_000 for n in numbers}
        batches = [batch(n * 10, records, base_time=at, max_time=at) for n, at in times.items()]
        segments.append((numbers[0] * 10, batches))
    for number in range(max(int(BROKER_PARTITIONS * scale), 1)):
        partition = home / "kafka" / f"topic-{number // 20}-{number % 20}"
        for base_offset, batches in segments:
            name = f"{base_offset:020d}"
            write_log(partition, *batches, name=name)
            (partition / f"{name}.index").touch()
            (partition / f"{name}.timeindex").touch()


def extremes() -> list[Extreme]:
    """All logs, in the order of the record."""

    def bomb(codec: int) -> Callable[[Path, float], None]:
        return lambda home, scale: make_bomb(home, scale, codec)

    return [
        *(Extreme(f"bomb, {name}", bomb(codec), (DEEP, DUMP)) for name, codec in CODECS.items()),
        Extreme("huge value", make_huge_value, (DEEP, DUMP, EXPORT)),
        Extreme(
            "many partitions",
            make_many_partitions,
            (("ls", "{path}"), ("verify", "--level", "quick", "{path}")),
        ),
        Extreme("broker", make_broker, (("report", "{path}", "--to", "{to}"),)),
    ]


def names() -> list[str]:
    """Every result there is, in the order of the record."""
    return [one.result_name(words) for one in extremes() for words in one.commands]


def main() -> None:
    """Make log after log, measure, record."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.extremes", description=__doc__)
    parser.add_argument("--into", type=Path, metavar="FILE", help="merge results there (stdout)")
    parser.add_argument("--only", default="", metavar="REGEX", help="logs whose name is like this")
    parser.add_argument("--scale", type=float, default=1.0, help="of all sizes (1.0)")
    parser.add_argument(
        "--make", nargs=2, metavar=("NAME", "DIR"), help="only make this log, there"
    )
    options = parser.parse_args()
    if options.make:
        name, home = options.make
        [made] = [one for one in extremes() if one.name == name]
        made.make(Path(home), options.scale)
        return
    processes.exit_on_signals()
    broker_data.build()
    run = run_key()
    record = Record({run: machine() | {"effort": f"--scale {options.scale:g}"}})
    with tempfile.TemporaryDirectory(prefix="kafkalog-extremes-") as scratch:
        for one in extremes():
            if re.search(options.only, one.name):
                record.results.update(measured(one, Path(scratch), options.scale, run))
    store(record, names(), options.into)


def measured(extreme: Extreme, scratch: Path, scale: float, run: str) -> dict[str, Result]:
    """Return a result per command over one log, which is removed again.

    Another process makes it: the kernel counts the memory of this one into that of the commands.
    """
    home = scratch / "log"
    make = ["--scale", str(scale), "--make", extreme.name, str(home)]
    subprocess.run([sys.executable, "-m", "benchmarks.extremes", *make], check=True)
    [path] = home.iterdir()
    places = {"path": str(path), "log": str(path / SEGMENT), "to": str(scratch / "to")}
    results = {}
    for words in extreme.commands:
        name = extreme.result_name(words)
        ours, theirs = _figures(command_line(("kafkalog", *words), places)), None
        if words[0] == "report":
            page = scratch / "to"
            ours["page_mb"] = page.stat().st_size / 1e6
            page.unlink()
        if words[0] == "kafka-dump-log":
            theirs = _figures(command_line(("DumpLogSegments", *words[1:]), places))
        results[name] = Result(extreme.name, name, run, ours, theirs)
        print(f"{name}: {ours}, Kafka's {theirs}", file=sys.stderr, flush=True)
        shutil.rmtree(scratch / "to", ignore_errors=True)
    shutil.rmtree(home)
    return results


def _figures(command: list[str]) -> dict[str, float]:
    done = processes.run(command, cpus=2, statuses=None)
    return {"wall_s": done.wall_s, "peak_mb": done.peak_mb, "status": done.status}


if __name__ == "__main__":
    main()
