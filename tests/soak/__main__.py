"""`python -m tests.soak`: endless seeded inputs for every decoder and kernel.

Whatever the input, only kafkalog's own errors and defects may result, in bounded time and memory,
and kernels and reference decoders must agree. The status is 1 if an input fails; failed inputs are
saved. The seed repeats a soak; seed and number repeat an input.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.soak.soaking import Failure, Report, Soak, slices
from tests.soak.targets import TARGETS

if TYPE_CHECKING:
    from tests.soak.target import Target

_TELL_EVERY_S = 10.0


def main() -> int:
    """Soak and print a report; return the exit status."""
    arguments = _parser().parse_args()
    seed = random.randrange(1 << 32) if arguments.seed is None else arguments.seed
    wanted = arguments.only or [target.name for target in TARGETS]
    pieces = slices(
        [target for target in TARGETS if target.name in wanted],
        arguments.inputs, seed, arguments.first,
    )  # fmt: skip
    print(f"{sum(piece.count for piece in pieces)} inputs, seed {seed}", flush=True)
    progress = _Progress(sum(piece.count for piece in pieces), arguments.to)
    report = Soak(pieces, arguments.workers, progress.tell).run()
    print(table(report))
    return 1 if report.failures else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000, help="how many (a million)")
    parser.add_argument("--seed", type=int, help="a random one if not given")
    parser.add_argument("--only", action="append", choices=[target.name for target in TARGETS])
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--to", type=Path, default=Path("soak-failures"), help="for failed inputs")
    return parser


class _Progress:
    """Prints a line now and then, and each failure at once."""

    def __init__(self, total: int, directory: Path) -> None:
        self._total = total
        self._directory = directory
        self._told = 0
        self._started = self._last = time.monotonic()

    def tell(self, report: Report) -> None:
        """Print what is new."""
        for failure in report.failures[self._told :]:
            print(f"FAILED: {failure.command}\n{failure.what}", flush=True)
            print(f"the input is in {save(failure, self._directory)}", flush=True)
        self._told = len(report.failures)
        now = time.monotonic()
        if now - self._last > _TELL_EVERY_S:
            self._last = now
            done = report.inputs.total()
            rate = done / (now - self._started)
            print(f"{done} of {self._total} inputs, {rate:.0f} a second, "
                  f"{len(report.failures)} failures", file=sys.stderr, flush=True)  # fmt: skip


def save(failure: Failure, directory: Path, targets: tuple[Target, ...] = TARGETS) -> Path:
    """Write the files of a failed input; return their directory."""
    [target] = [target for target in targets if target.name == failure.name]
    files, _ = target.input(failure.seed, failure.ordinal)
    place = directory / f"{failure.name}-{failure.seed}-{failure.ordinal}"
    place.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (place / "failure.txt").write_text(f"{failure.command}\n{failure.what}\n")
    return place


def table(report: Report, targets: tuple[Target, ...] = TARGETS) -> str:
    """Return a table of inputs and seconds per target."""
    lines = [f"{'target':16}{'inputs':>10}{'seconds':>10}{'failures':>10}"]
    for target in targets:
        if report.inputs[target.name]:
            failed = sum(failure.name == target.name for failure in report.failures)
            lines.append(f"{target.name:16}{report.inputs[target.name]:>10}"
                         f"{report.seconds[target.name]:>10.1f}{failed:>10}")  # fmt: skip
    lines.append(f"{'all':16}{report.inputs.total():>10}{report.seconds.total():>10.1f}"
                 f"{len(report.failures):>10}")  # fmt: skip
    lines.append(f"peak memory of a worker: {report.peak_bytes >> 20} MiB")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
