"""Flips every bit of small log directories in turn, and lists those that `verify` does not report.

`python -m tests.kafkalog.check.every_bit --help`.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import os
import random
import tempfile
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafkalog.check.verify import Verification
from kafkalog.model import Level
from kafkalog.node import cluster_image
from kafkalog.node.configs import sources
from tests.kafkalog.check.file_fields import Place, places
from tests.kafkalog.check.small_log_dirs import SMALL_LOG_DIRS, SmallLogDir, make_small_log_dir
from tests.kafkalog.check.undetectable import class_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kafkalog.files.log_dir import LogDir
    from kafkalog.model import Defect
    from kafkalog.node.cluster_image import ClusterImage

_clock = itertools.count(1_800_000_000_000_000_000, 1_000_000_000)


@dataclass(frozen=True)
class Trial:
    """One bit that was flipped, and the findings that it added."""

    small: SmallLogDir
    place: Place
    bit: int
    found: frozenset[Defect]


def findings(log_dir: Path) -> frozenset[Defect]:
    """Return all findings of `verify --level deep`."""
    run = Verification(Level.DEEP)
    return frozenset(run.verify(log_dir))


@contextmanager
def metadata_read_once() -> Iterator[None]:
    """Decode the log of the cluster's metadata only once for all trials: nothing changes it.

    Each trial still checks its partition like any other.
    """
    images: dict[str, ClusterImage | None] = {}
    read = cluster_image.read_cluster_image

    def image_of(log_dir: LogDir) -> ClusterImage | None:
        if log_dir.path not in images:
            images[log_dir.path] = read(log_dir)
        return images[log_dir.path]

    configs = functools.cache(sources.read_metadata_configs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster_image, "read_cluster_image", image_of)
        patch.setattr(sources, "read_metadata_configs", configs)
        yield


@contextmanager
def changed(path: Path, data: bytes) -> Iterator[None]:
    """Write other bytes to a file, with a later modification time, as on a real disk."""
    before, status = path.read_bytes(), path.stat()
    path.write_bytes(data)
    os.utime(path, ns=(next(_clock),) * 2)
    try:
        yield
    finally:
        path.write_bytes(before)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def bits_of(small: SmallLogDir, log_dir: Path) -> list[tuple[Place, int]]:
    """Return all bits of the files to flip."""
    found = (place for path in small.files(log_dir) for place in places(path))
    return [(place, bit) for place in found for bit in range(8)]


def flip(small: SmallLogDir, log_dir: Path, bits: Iterable[tuple[Place, int]]) -> Iterator[Trial]:
    """Run one trial per bit; each changes the log directory and restores it."""
    before = findings(log_dir)
    for place, bit in bits:
        hurt = bytearray(place.path.read_bytes())
        hurt[place.position] ^= 1 << bit
        with changed(place.path, bytes(hurt)):
            found = findings(log_dir) - before
        yield Trial(small, place, bit, found)


def main(arguments: Sequence[str] | None = None) -> None:
    """Flip bits; print those that were not reported, and the share that was."""
    parser = argparse.ArgumentParser(description=__doc__)
    names = [small.name for small in SMALL_LOG_DIRS]
    parser.add_argument("names", nargs="*", help=f"of {', '.join(names)}; default: all")
    parser.add_argument("--share", type=float, default=1.0, help="of the bits below a checksum")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    rng = random.Random(options.seed)
    total = 0
    missed: Counter[str | None] = Counter()
    with tempfile.TemporaryDirectory() as scratch, metadata_read_once():
        for small in SMALL_LOG_DIRS:
            if options.names and small.name not in options.names:
                continue
            log_dir = make_small_log_dir(small, Path(scratch))
            bits = bits_of(small, log_dir)
            tried = [b for b in bits if not b[0].has_checksum or rng.random() < options.share]
            here = Counter(
                class_of(trial.place, trial.bit)
                for trial in flip(small, log_dir, tried)
                if not trial.found
            )
            print(f"{small.name}: {len(tried)} of {len(bits)} bits, not reported {dict(here)}")
            total += len(bits)
            missed += here
    lost = missed.total()
    print(f"reported: {1 - lost / total:.3%} of {total} bits; "
          f"explained: {1 - missed[None] / total:.3%}")  # fmt: skip


if __name__ == "__main__":
    main()
