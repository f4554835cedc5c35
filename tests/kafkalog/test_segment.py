"""One segment: its indexes speed up a lookup and never change its result."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kafkalog.files.log_dir import open_partition
from kafkalog.io.paths.source import Source
from kafkalog.log.batches.framing import scan_batches
from kafkalog.log.batches.segment import OpenSegment
from kafkalog.model import Batch
from tests.builders import batch, copy_tree, record, write_log
from tests.conftest import SCENARIOS


def batches(path: str) -> list[Batch]:
    with Source(path) as source:
        return [found for found in scan_batches(source) if isinstance(found, Batch)]


def reference(found: list[Batch], offset: int) -> Batch | None:
    """kafka-algorithms §3.1, `scan`, from position 0."""
    previous = None
    for item in found:
        if item.base_offset == offset:
            return item
        if item.base_offset > offset:
            return previous if previous and previous.last_offset >= offset else item
        previous = item
    return previous if previous and previous.last_offset >= offset else None


@pytest.mark.parametrize("scenario", [name for name in SCENARIOS if name != "old_formats"])
@pytest.mark.parametrize("use_index", [True, False])
def test_every_offset_is_found_where_the_algorithm_says(
    scenario: str, corpus_dir: Path, use_index: bool
):
    """A lookup by index entry equals a scan from the start of the file."""
    [path] = (corpus_dir / "lookup" / scenario).glob("**/orders-0")
    for segment in open_partition(str(path)).segments:
        everything = batches(segment.log.path)
        if not everything:
            continue
        with OpenSegment(segment, use_index=use_index) as opened:
            for offset in range(segment.base_offset - 1, everything[-1].last_offset + 3):
                entry = opened.index_entry(offset)
                start = entry.position if entry else 0
                assert opened.find_batch(start, offset) == reference(everything, offset)
                scanned = [b for b in opened.scan_from(offset) if isinstance(b, Batch)]
                assert scanned == [b for b in everything if b.position >= start]
            assert opened.next_offset() == everything[-1].next_offset
            largest = max(item.max_timestamp for item in everything)
            assert opened.largest_timestamp(recovered=True)[0] == largest


def test_an_empty_segment_ends_where_it_begins(tmp_path: Path):
    """It has no timestamp."""
    write_log(tmp_path / "t-0", name="00000000000000000042")
    [segment] = open_partition(str(tmp_path / "t-0")).segments
    with OpenSegment(segment) as opened:
        assert opened.next_offset() == 42
        assert opened.largest_timestamp(recovered=True) == (-1, 42)
        assert opened.find_batch(0, 42) is None
        assert (opened.offset_index, opened.time_index) == (None, None)


def test_a_damaged_offset_index_never_hides_a_batch_that_it_misses(
    tmp_path: Path, corpus_dir: Path
):
    """Random bytes in its place: an entry is used only if a matching batch is at its position."""
    [origin] = (corpus_dir / "lookup" / "plain").glob("**/orders-0")
    copy = copy_tree(origin, tmp_path / "orders-0")
    rng = random.Random(4711)
    for index in sorted(copy.glob("*.index")):
        index.write_bytes(rng.randbytes(80))
    for segment in open_partition(str(copy)).segments:
        everything = batches(segment.log.path)
        with OpenSegment(segment) as opened:
            for item in everything:
                entry = opened.index_entry(item.base_offset)
                start = entry.position if entry else 0
                assert opened.find_batch(start, item.base_offset) == item
            assert opened.next_offset() == everything[-1].next_offset


def test_files_are_closed(tmp_path: Path):
    """Thousands of segments must not use up the file descriptors."""
    path = write_log(tmp_path / "t-0", batch(0, [record()]))
    path.with_suffix(".index").write_bytes(bytes(16))
    path.with_suffix(".timeindex").write_bytes(bytes(24))
    [segment] = open_partition(str(path.parent)).segments
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(50):
        with OpenSegment(segment) as opened:
            assert opened.source
            assert opened.offset_index
            assert opened.time_index
    assert len(list(Path("/proc/self/fd").iterdir())) == before
