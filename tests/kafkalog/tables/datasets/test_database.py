"""SQL statements over the tables of logs, and how they are stopped."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING

import pytest

from kafkalog.tables import planning
from kafkalog.tables.datasets.model import Tables
from kafkalog.tables.datasets.sql import Database
from tests.builders import batch, record, write_log
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from pathlib import Path

    from kafkalog.files.log_dir import PartitionDir
    from kafkalog.model import LogView


def test_an_interrupt_ends_a_query_that_has_not_looked_at_all_logs_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Predicting the starts of many unclean logs takes longer than anybody waits."""
    log = tmp_path / "orders-0"
    write_log(log, batch(0, [record()]))
    looks: list[str] = []

    def look(partition: PartitionDir, _: LogView) -> planning.Target:
        looks.append(partition.path)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        assert database._stop.wait(HANG_S)
        return planning.Target(partition, (), partition)

    monkeypatch.setattr(planning, "shown_now", look)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # Spark sets one of its own
    try:
        with Database(Tables((str(log), str(log)))) as database, pytest.raises(KeyboardInterrupt):
            list(database.run(database.statements("select count(*) from records")[0]).rows)
    finally:
        signal.signal(signal.SIGINT, before)
    assert looks == [str(log)]
