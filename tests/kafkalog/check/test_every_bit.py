"""Single bits of small log directories, all kinds: reported, or in a published class; what is cut,
swapped, doubled or dropped is reported."""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING

import pytest

from tests.builders import frames
from tests.checkout import ROOT
from tests.kafkalog.check.every_bit import (
    bits_of,
    changed,
    findings,
    flip,
    metadata_read_once,
)
from tests.kafkalog.check.small_log_dirs import SMALL_LOG_DIRS, SmallLogDir, make_small_log_dir
from tests.kafkalog.check.undetectable import CLASSES, class_of, is_explained
from tests.sampling import new_seed, sampled, tries_everything

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

BITS = 200 if tries_everything() else 10
ENTRIES = {".index": 8, ".timeindex": 12, ".txnindex": 34}


@pytest.fixture(autouse=True)
def _metadata_read_once() -> Iterator[None]:
    with metadata_read_once():
        yield


@pytest.fixture(params=SMALL_LOG_DIRS, ids=lambda small: small.name)
def small(request: pytest.FixtureRequest) -> SmallLogDir:
    assert isinstance(request.param, SmallLogDir)
    return request.param


@pytest.fixture
def log_dir(small: SmallLogDir, tmp_path: Path) -> Path:
    return make_small_log_dir(small, tmp_path)


def test_nothing_is_wrong_before(log_dir: Path):
    """Open transactions, missing metadata and the partitions that were left out are expected."""
    notes = {"transaction-open", "cluster-metadata-missing", "partition-absent"}
    assert {defect.reference for defect in findings(log_dir)} <= notes


@pytest.mark.sampled(2)
def test_each_bit_is_reported_or_of_a_published_class(
    small: SmallLogDir, log_dir: Path, tell: Callable[[str], None]
):
    """It flips a seeded share of the bits that `python -m tests.kafkalog.check.every_bit` flips."""
    seed = new_seed()
    bits = random.Random(seed).sample(bits_of(small, log_dir), BITS)
    trials = list(flip(small, log_dir, bits))
    missed = [trial for trial in trials if not trial.found]
    assert not [t for t in missed if class_of(t.place, t.bit) is None], f"seed {seed}"
    tell(f"{small.name}: {len(trials)} bits, {len(missed)} not reported, all of known classes")


def test_the_classes_are_those_of_the_documentation():
    """The page names each class with its reason."""
    text = (ROOT / "docs" / "design" / "evidence.md").read_text()
    assert [name for name in CLASSES if f"| {name} |" not in text] == []


def cuts(size: int, rng: random.Random) -> Iterator[int]:
    """Yield sizes to cut at: the first and last bytes, and some between."""
    count = 100 if tries_everything() else 3
    yield from {0, 1, size - 1, *(rng.randrange(size) for _ in range(count))}


def is_as_good(path: Path, data: bytes, size: int) -> bool:
    """Check whether the cut file has the same meaning, or may legally lack what is missing.

    Brokers up to 3.6 write an empty mark of a clean shutdown. An empty checkpoint has no entry, and
    the cleaner's checkpoint needs none. A config decides how dense an offset index is.
    """
    if path.suffix == ".index":
        return not size % 8
    return not size and (
        path.name in (".kafka_cleanshutdown", "cleaner-offset-checkpoint") or data == b"0\n0\n"
    )


@pytest.mark.sampled(2)
def test_each_cut_is_reported(small: SmallLogDir, log_dir: Path):
    """The seed chooses the sizes."""
    seed = new_seed()
    print("seed", seed)
    rng, before = random.Random(seed), findings(log_dir)
    for path in sampled(small.files(log_dir), 12):
        data = path.read_bytes()
        for size in cuts(len(data), rng) if data else ():
            if not is_as_good(path, data, size):
                with changed(path, data[:size]):
                    assert findings(log_dir) - before, (path.name, size)


@pytest.mark.sampled(2)
def test_adjacent_batches_swapped_doubled_dropped(small: SmallLogDir, log_dir: Path):
    """The test takes each adjacent pair and each batch."""
    before = findings(log_dir)
    for path in sorted((log_dir / small.partition).glob("*.log")):
        data = path.read_bytes()
        batches = [data[position : position + size] for position, size in frames(data)]
        for i in sampled(range(len(batches)), 18):
            doubled = [*batches[: i + 1], *batches[i:]]
            dropped = [*batches[:i], *batches[i + 1 :]]
            swapped = [*batches[:i], *batches[i : i + 2][::-1], *batches[i + 2 :]]
            for what, now in (("doubled", doubled), ("dropped", dropped), ("swapped", swapped)):
                if now != batches:
                    with changed(path, b"".join(now)):
                        assert findings(log_dir) - before, (path.name, what, i)


@pytest.mark.sampled(2)
def test_each_entry_of_an_index_altered(small: SmallLogDir, log_dir: Path):
    """Each entry is doubled, swapped with the next, and changed by one in each of its fields.

    A missing entry is no error: a config that may have changed decides how dense entries are.
    """
    before = findings(log_dir)
    for path in sorted((log_dir / small.partition).iterdir()):
        size = ENTRIES.get(path.suffix)
        data = path.read_bytes()
        for start in sampled(range(0, len(data), size), 36) if size else ():
            entry, rest = data[start : start + size], data[start + size :]
            ways = [entry + entry + rest, rest[:size] + entry + rest[size:]]
            fields = struct.Struct({8: ">ii", 12: ">qi", 34: ">hqqqq"}[size])
            values = fields.unpack(entry)
            for i in range(len(values)):
                for step in (1, -1):
                    other = [value + step * (i == number) for number, value in enumerate(values)]
                    ways.append(fields.pack(*other) + rest)
            for number, way in enumerate(ways):
                now = data[:start] + way
                if now != data and not is_explained(path, start // size, now):
                    with changed(path, now):
                        assert findings(log_dir) - before, (path.name, start, number)
