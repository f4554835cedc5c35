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
from benchmarks.__main__ import command_line
from kafkalog.codecs import compress, crc32c
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

HEAD: Final = """\
<!-- Written by `python -m benchmarks.extremes`, not by hand. -->
# Extremes

Logs that no broker should have, and what reading them costs:

- A bomb is a segment of {bombs} small batches, each of which decompresses to {bomb:.0f} MiB of
  zeros.
- The huge value is one record of {value:.2f} GB in a batch that is not compressed.
- The many partitions are {partitions:,} directories in one log directory, each with a segment of
  one batch and its indexes.
- The broker has {on_broker:,} partitions of {segments} segments, each of {batches} batches of 10
  records over some hours.

```sh
python -m benchmarks.extremes --to docs/extremes.md
```

Each figure is for a whole process, run once, with its output discarded. *Memory* is the largest
resident size ([bounds](design/memory.md)). Status 1 means findings: these logs lack
indexes, and a broker would not accept batches so large. Kafka's tool runs with its default heap of
256 MB; where its status is 1, it ended with an OutOfMemoryError. Compactions of up to 20 million
keys are in [performance.md](performance.md).
"""
TABLE: Final = "| log | command | s | memory, MB | status | Kafka's tool: s | MB | status |\n" + (
    "|---" * 8 + "|\n"
)


@dataclass(frozen=True)
class Extreme:
    """A log, how it is made below a directory, and the commands that read it."""

    name: str
    make: Callable[[Path, float], None]
    commands: tuple[tuple[str, ...], ...]


DUMP: Final = ("kafka-dump-log", "--deep-iteration", "--print-data-log", "--files", "{log}")
DEEP: Final = ("verify", "--level", "deep", "{path}")
EXPORT: Final = ("export", "--engine", "local", "--to", "{to}", "{path}")


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
    """All logs, in the order of the page."""

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


def main() -> None:
    """Make log after log, measure, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.extremes", description=__doc__)
    parser.add_argument("--to", type=Path, metavar="FILE", help="where the page goes (stdout)")
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
    with tempfile.TemporaryDirectory(prefix="kafkalog-extremes-") as scratch:
        logs = [one for one in extremes() if re.search(options.only, one.name)]
        rows = [row for one in logs for row in measured(one, Path(scratch), options.scale)]
    scale = options.scale
    head = HEAD.format(
        bombs=BOMBS, bomb=BOMB_BYTES * scale / 2**20, value=VALUE_BYTES * scale / 1e9,
        partitions=int(PARTITIONS * scale), on_broker=int(BROKER_PARTITIONS * scale),
        segments=SEGMENTS, batches=BATCHES,
    )  # fmt: skip
    text = head + "\n" + TABLE + "".join(rows)
    if options.to is None:
        print(text, end="")
    else:
        options.to.write_text(text, encoding="utf-8")


def measured(extreme: Extreme, scratch: Path, scale: float) -> list[str]:
    """Return a row per command over one log, which is removed again.

    Another process makes it: the kernel counts the memory of this one into that of the commands.
    """
    home = scratch / "log"
    make = ["--scale", str(scale), "--make", extreme.name, str(home)]
    subprocess.run([sys.executable, "-m", "benchmarks.extremes", *make], check=True)
    [path] = home.iterdir()
    places = {"path": str(path), "log": str(path / SEGMENT), "to": str(scratch / "to")}
    rows = []
    for words in extreme.commands:
        cells = [extreme.name, f"`{words[0]}`" if words[0] != "verify" else f"`verify {words[2]}`"]
        cells += _cells(command_line(("kafkalog", *words), places))
        if words[0] == "report":
            page = scratch / "to"
            cells[1] += f", {page.stat().st_size / 1e6:.1f} MB"
            page.unlink()
        if words[0] == "kafka-dump-log":
            cells += _cells(command_line(("DumpLogSegments", *words[1:]), places))
        else:
            cells += ["", "", ""]
        rows.append(f"| {' | '.join(cells)} |\n")
        print(rows[-1], end="", file=sys.stderr, flush=True)
        shutil.rmtree(scratch / "to", ignore_errors=True)
    shutil.rmtree(home)
    return rows


def _cells(command: list[str]) -> list[str]:
    done = processes.run(command, cpus=2, statuses=None)
    return [f"{done.wall_s:.2f}", f"{done.peak_mb:.0f}", str(done.status)]


if __name__ == "__main__":
    main()
