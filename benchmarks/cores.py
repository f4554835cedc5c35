"""Work on one processor and on two, and how long its threads hold the GIL.

`python -m benchmarks.cores WORK PARTITION SCRATCH` prints the figures as JSON. The work is done in
processes that have done it before, so that no import is in the time. py-spy looks at random moments
whether a thread of the process holds the GIL, while the work is done once more.

Both together say what more processors can give; see `seconds_on`.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

from benchmarks.processes import exit_on_signals, on_cpus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RATE_HZ = 500
PEEK_S = 60.0
_HEADER_SIZE, _SIZE_AT = 61, 8  # of a batch: before its payload, and where its length is
_PR_SET_PTRACER = 0x59616D61


def seconds_on(processors: int, one_s: float, two_s: float, gil_s: float) -> float:
    """What work takes on many processors, going by what it takes on one and on two.

    A part of the work is done by one thread, the rest by all: `serial + parallel / processors`,
    which two measured times determine. It cannot take less time than threads hold the GIL.
    """
    parallel = min(max(2 * (one_s - two_s), 0.0), one_s)
    return max(one_s - parallel + parallel / processors, gil_s)


def seconds_held(stacks: str, errors: int, rate_hz: int) -> float:
    """Seconds with the GIL held, given what py-spy wrote: stacks, each with how often it was seen.

    Where the threads ran on while it looked, it may have failed to read a stack: also seen.
    """
    seen = sum(int(line.rpartition(" ")[2]) for line in stacks.splitlines())
    return (seen + errors) / rate_hz


# --- In the process that works.


def verify(partition: str, _: Path) -> None:
    """As `kafkalog verify --level deep`."""
    from kafkalog.check.verify import Verification
    from kafkalog.model import Level

    run = Verification(Level.DEEP)
    defects = list(run.verify(partition))
    assert run.summary.records, defects


def export(partition: str, scratch: Path) -> None:
    """As `kafkalog export`."""
    from kafkalog.change.lake import Export, ExportRequest
    from kafkalog.change.lake.model import Writing
    from kafkalog.io.engine import LocalEngine
    from kafkalog.tables import Request

    asked = ExportRequest((partition,), Request(), None, Writing())
    with Export(asked, str(scratch / "lake")) as run:
        run.run(LocalEngine())
        assert run.summary().parts


def compact(_: str, scratch: Path) -> None:
    """As `kafkalog compact --apply`, the copy that is in the scratch directory."""
    from benchmarks.compaction import compact as compact_in_place

    [partition] = (scratch / "copy").glob("*-0")
    compact_in_place(str(partition))


def deep_print(partition: str, _: Path) -> None:
    """As `kafkalog kafka-dump-log --deep-iteration --print-data-log`."""
    from kafkalog_cli.commands.kafka_dump_log import dump_files

    dump_files(["--files", ",".join(logs_of(partition)), "--deep-iteration", "--print-data-log"])


def decompress(partition: str, _: Path) -> None:
    """What the codec takes alone: the payload of each batch, by a package of it."""
    import cramjam
    import lz4.frame
    from backports import zstd
    from isal import igzip

    def snappy(payload: bytes) -> None:
        at = 16  # the header of snappy-java; then blocks, each after its size
        while at < len(payload):
            end = at + 4 + int.from_bytes(payload[at : at + 4])
            cramjam.snappy.decompress_raw(payload[at + 4 : end])
            at = end

    codecs: dict[int, Callable[[bytes], object]] = {
        1: igzip.decompress, 2: snappy, 3: lz4.frame.decompress, 4: zstd.decompress,
    }  # fmt: skip
    for path in logs_of(partition):
        content = PAYLOADS.get(path) or PAYLOADS.setdefault(path, list(payloads(path)))
        for codec, payload in content:
            if codec:
                codecs[codec](payload)


PAYLOADS: dict[str, list[tuple[int, bytes]]] = {}
WORKS: dict[str, Callable[[str, Path], None]] = {
    "verify": verify, "export": export, "compact": compact, "print": deep_print,
    "decompress": decompress,
}  # fmt: skip


def logs_of(partition: str) -> list[str]:
    """The segments of a partition in order."""
    return [str(path) for path in sorted(Path(partition).glob("*.log"))]


def payloads(path: str) -> Iterator[tuple[int, bytes]]:
    """The codec and the payload of each batch of a log, of magic 2 and whole."""
    content, at = Path(path).read_bytes(), 0
    while at < len(content):
        end = at + _SIZE_AT + 4 + int.from_bytes(content[at + _SIZE_AT : at + _SIZE_AT + 4])
        yield content[at + 22] & 7, content[at + _HEADER_SIZE : end]
        at = end


def work(name: str, partition: str, scratch: str) -> None:
    """Do the work whenever a line comes in, and print what it took."""
    ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_long(-1), 0, 0, 0)  # anyone of this user
    from kafkalog.io.jit.fast_path import kernels_work

    assert kernels_work(), "what is measured is compiled"
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    for _ in sys.stdin:
        wall, cpu = time.perf_counter(), time.process_time()
        WORKS[name](partition, Path(scratch))
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        answers.write(json.dumps({"wall_s": wall, "cpu_s": cpu}) + "\n")


# --- In the process that measures.


class Worker:
    """A process that does the work as often as it is asked to, on some processors."""

    def __init__(self, name: str, partition: Path, scratch: Path, processors: int) -> None:
        self._place = name, partition, scratch
        command = [sys.executable, "-m", "benchmarks.cores", "--work", name, str(partition)]
        with on_cpus(processors):
            self.process = subprocess.Popen(
                [*command, str(scratch)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )

    def once(self) -> dict[str, float]:
        """Do the work; return what it took."""
        _renew(*self._place)
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write("\n")
        stdin.flush()
        answer = stdout.readline()
        if not answer:
            raise SystemExit(f"The work ended with status {self.process.wait()}.")
        told: dict[str, float] = json.loads(answer)
        return told

    def end(self) -> float:
        """End the process; return the largest memory it had, in MB."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        _, status, usage = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        return usage.ru_maxrss * 1024 / 1e6


def _renew(name: str, partition: Path, scratch: Path) -> None:
    """Put the scratch directory into the state that the work begins with."""
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    if name == "compact":
        from benchmarks.datasets import copy_with_links  # this process stays small

        copy_with_links(partition.parent, scratch / "copy")


@contextmanager
def worker(name: str, partition: Path, scratch: Path, processors: int) -> Iterator[Worker]:
    """A worker that has done its work once before; it ends with the block."""
    made = Worker(name, partition, scratch, processors)
    try:
        made.once()
        yield made
    finally:
        if made.process.returncode is None:
            made.end()


class Spy:
    """py-spy, which looks at a process while the block runs.

    Attributes:
        held_s: afterwards: for how long the process held the GIL.
    """

    def __init__(self, pid: int) -> None:
        self.held_s = 0.0
        self._directory = tempfile.TemporaryDirectory()
        self._stacks = Path(self._directory.name) / "stacks.txt"
        program = str(Path(sys.executable).with_name("py-spy"))
        self._process = subprocess.Popen(
            [program, "record", "--pid", str(pid), "--gil", "--nonblocking", "--format", "raw",
             "--rate", str(RATE_HZ), "--output", str(self._stacks)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def __enter__(self) -> Self:
        """Wait until it looks."""
        assert self._process.stdout is not None
        first = self._process.stdout.readline()
        if "Sampling" not in first:
            raise SystemExit(f"py-spy cannot look: {first}{self._process.stdout.read()}")
        return self

    def __exit__(self, *_: object) -> None:
        """Let it write what it saw."""
        self._process.send_signal(signal.SIGINT)
        said = self._process.communicate(timeout=PEEK_S)[0]
        with self._directory:
            errors = int(said.rpartition("Errors: ")[2].split()[0])
            self.held_s = seconds_held(self._stacks.read_text(), errors, RATE_HZ)


def measure(name: str, partition: Path, scratch: Path) -> dict[str, Any]:
    """The figures of one work."""
    with worker(name, partition, scratch, 2) as two:
        figures: dict[str, Any] = two.once()
        with Spy(two.process.pid) as spy:
            took_s = two.once()["wall_s"]
        figures["gil_share"] = spy.held_s / took_s
        figures["peak_mb"] = two.end()
    with worker(name, partition, scratch, 1) as one:
        alone = one.once()
    figures |= {f"alone_{name}": seconds for name, seconds in alone.items()}
    if name == "print" and any(codec for codec, _ in payloads(logs_of(str(partition))[0])):
        with worker("decompress", partition, scratch, 1) as codec:
            figures["codec_cpu_s"] = codec.once()["cpu_s"]
    return figures


def main(argv: list[str], answers: IO[str]) -> None:
    """Measure, or be what is measured."""
    exit_on_signals()
    if argv[0] == "--work":
        work(*argv[1:])
        return
    name, partition, scratch = argv
    answers.write(json.dumps(measure(name, Path(partition), Path(scratch))) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:], sys.stdout)
