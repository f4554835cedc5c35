"""What a served log checks before it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.files.log_dir import open_partition
from kafkalog.model import Isolation
from kafkalog.wire.server.model import FileRange, ServeListener, ServeOptions, Watermark
from kafkalog.wire.server.open_files import OpenFiles
from kafkalog.wire.server.served_log import ServedLog
from tests.builders import batch, record, write_log

if TYPE_CHECKING:
    from pathlib import Path


def test_what_was_checked_ahead_is_not_checked_again(tmp_path: Path) -> None:
    """As much as was sent is checked behind it; at the end of the log nothing is left to do."""
    batches = [batch(offset, [record()]) for offset in range(4)]
    size = len(batches[0])
    write_log(tmp_path / "orders-0", *batches)
    options = ServeOptions(high_watermark=Watermark.END)
    directory = open_partition(str(tmp_path / "orders-0"))
    log = ServedLog(directory, options, ServeListener(), OpenFiles())
    ahead = []
    for offset in (0, 1, 2, 3):
        sent = log.read(offset, size, Isolation.LOG).records
        assert isinstance(sent, FileRange)
        assert (sent.position, sent.size) == (offset * size, size)
        before = log.has_ahead(sent)
        log.check_ahead(sent)
        ahead.append((before, log.has_ahead(sent)))
    assert ahead == [(True, False), (True, False), (True, False), (False, False)]


def test_nothing_is_sent_that_was_appended_after_the_end_was_read(tmp_path: Path) -> None:
    """Otherwise the client asks for an offset beyond the end, and gets OFFSET_OUT_OF_RANGE."""
    batches = [batch(offset, [record()]) for offset in range(3)]
    path = write_log(tmp_path / "orders-0", *batches[:2])
    directory = open_partition(str(tmp_path / "orders-0"))
    log = ServedLog(directory, ServeOptions(), ServeListener(), OpenFiles())
    assert log.bounds(Isolation.READ_UNCOMMITTED) == (0, 2, 2)
    with path.open("ab") as file:
        file.write(batches[2])
    sent = log.read(0, 1000, Isolation.READ_UNCOMMITTED).records
    assert isinstance(sent, FileRange)
    assert sent.size == 2 * len(batches[0])
    assert log.read(2, 1000, Isolation.READ_UNCOMMITTED).is_end
