"""An abandoned scan ends, whichever thread collects it."""

from __future__ import annotations

import gc
import threading
from typing import TYPE_CHECKING

from kafkalog.files.log_dir import open_partition
from kafkalog.log.batches.selection import Selection
from kafkalog.log.columns import chunks, pipeline
from kafkalog.log.columns.pipeline import Restored
from kafkalog.log.columns.scan_steps import RecordWork
from kafkalog.node.reader import plan_reading
from tests.builders import batch, record, write_log
from tests.waiting import HANG_S, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest

    from kafkalog.log.columns.chunks import Chunk, Rows
    from kafkalog.log.columns.scan_steps import Part


class Collecting(Restored):
    """Collects garbage in a thread of the scan, once the scan was abandoned.

    The first chunk always passes, whichever thread is quicker.
    """

    def __init__(self) -> None:
        self.is_busy, self.is_given_up = threading.Event(), threading.Event()

    def of_rows(self, rows: Rows, chunk: Chunk) -> Iterator[Part]:
        if chunk.position > 0:
            self.is_busy.set()
            self.is_given_up.wait(HANG_S)
            gc.collect()
        yield from super().of_rows(rows, chunk)


def test_a_scan_that_its_own_thread_collects_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No thread waits for itself, as when a kept error holds the frames of a scan."""
    monkeypatch.setattr(chunks, "CHUNK_SIZE_MIN", 200)
    batches = [batch(n, [record(0, b"k", b"v" * 50)]) for n in range(100)]
    log = write_log(tmp_path / "t-0", *batches)
    plan = plan_reading(open_partition(str(log.parent)), Selection())
    collecting = Collecting()
    before = set(threading.enumerate())
    gc.disable()
    try:
        give_up(pipeline._all_parts(plan, RecordWork(plan, collecting), lambda _: None, 2, None),
                collecting.is_busy)  # fmt: skip
        collecting.is_given_up.set()
        until(lambda: not set(threading.enumerate()) - before)
    finally:
        gc.enable()


def give_up(parts: Iterator[Part], is_busy: threading.Event) -> None:
    """Take one part, and leave the rest in a cycle of references."""
    assert next(parts).rows
    assert is_busy.wait(HANG_S)
    cycle: list[object] = [parts]
    cycle.append(cycle)
