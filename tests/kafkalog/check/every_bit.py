"""Flips bit after bit of small log directories and asks `verify` about each: what is not reported?

`python -m tests.kafkalog.check.every_bit --help`.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import tempfile
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kafkalog.check.verify import Verification
from kafkalog.model import Level
from tests.kafkalog.check.file_fields import Place, places
from tests.kafkalog.check.small_log_dirs import SMALL_LOG_DIRS, SmallLogDir, make_small_log_dir

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kafkalog.model import Defect

_clock = itertools.count(1_800_000_000_000_000_000, 1_000_000_000)


@dataclass(frozen=True)
class Trial:
    """One bit that was flipped, and the findings that were not there before."""

    small: SmallLogDir
    place: Place
    bit: int
    found: frozenset[Defect]


def findings(log_dir: Path) -> frozenset[Defect]:
    """All that `verify --level deep` says."""
    run = Verification(Level.DEEP)
    return frozenset((*run.verify(log_dir), *run.end()))


@contextmanager
def changed(path: Path, data: bytes) -> Iterator[None]:
    """The file with other bytes; its time of modification moves on, as it does on a real disk."""
    before, status = path.read_bytes(), path.stat()
    path.write_bytes(data)
    os.utime(path, ns=(next(_clock),) * 2)
    try:
        yield
    finally:
        path.write_bytes(before)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def flip_bits(
    small: SmallLogDir, log_dir: Path, share: float = 1.0, seed: int = 0
) -> Iterator[Trial]:
    """One trial a bit.

    Args:
        small: which one.
        log_dir: where it is; it is changed and restored.
        share: how many of the bits below a checksum are tried; of the others all are.
        seed: which ones.
    """
    rng = random.Random(seed)
    before = findings(log_dir)
    for path in small.files(log_dir):
        data = path.read_bytes()
        for place in places(path):
            for bit in range(8):
                if place.has_checksum and rng.random() >= share:
                    continue
                hurt = bytearray(data)
                hurt[place.position] ^= 1 << bit
                with changed(path, hurt):
                    yield Trial(small, place, bit, findings(log_dir) - before)


def main(arguments: Sequence[str] | None = None) -> None:
    """Flip and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    names = [small.name for small in SMALL_LOG_DIRS]
    parser.add_argument("names", nargs="*", help=f"of {', '.join(names)}; default: all")
    parser.add_argument("--share", type=float, default=1.0, help="of the bits below a checksum")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as scratch:
        for small in SMALL_LOG_DIRS:
            if options.names and small.name not in options.names:
                continue
            log_dir = make_small_log_dir(small, Path(scratch))
            missed: Counter[tuple[str, str]] = Counter()
            total: Counter[tuple[str, str]] = Counter()
            for trial in flip_bits(small, log_dir, options.share, options.seed):
                key = trial.place.kind, trial.place.field
                total[key] += 1
                missed[key] += not trial.found
            print(small.name, sum(total.values()), sum(missed.values()))
            for key, count in missed.items():
                if count:
                    print("   ", *key, count, "of", total[key])


if __name__ == "__main__":
    main()
