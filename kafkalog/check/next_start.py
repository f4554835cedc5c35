"""Predicts what the next start of a broker would do, from the same reading as the checks."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from formats.file_names import DirectoryState
from kafkalog.check.batches import CheckedLog, CheckedPartition, Found, PartitionCheck
from kafkalog.check.identity import CheckedLogDir, starts_of, strays_of
from kafkalog.check.registry import check_failed
from kafkalog.errors import DataError, RunError
from kafkalog.io.paths import file_system
from kafkalog.log.defects import make_defect
from kafkalog.model import Defect, Level
from kafkalog.node.configs.sources import DEFAULT_SOURCE
from kafkalog.node.recovery import (
    NextStart,
    StartInProgress,
    Verdict,
    is_passed_over,
    start_config,
    start_mode,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kafkalog.log.columns.headers import BatchColumns
    from kafkalog.node.recovery import StartConfig, StartMode


class PartitionStart(PartitionCheck):
    """Feeds the batches of a partition to a prediction; reports only its own failure.

    The prediction assumes that everything the level does not compare is right, and says so.
    """

    def __init__(self, partition: CheckedPartition, level: Level) -> None:
        super().__init__(partition)
        self._start: StartInProgress | None = None
        self._prediction: NextStart | None = None
        self._failure: Defect | None = None
        if partition.directory.is_remote or is_passed_over(partition.directory):
            return  # no broker starts on it
        with self._step():
            self._start = StartInProgress(
                partition.directory, config=_config(partition), check_crc=level != Level.QUICK
            )

    def begin(self, log: CheckedLog) -> None:
        super().begin(log)
        if self._start is not None and log.base_offset is not None:
            with self._step():
                self._start.begin(log.path, log.base_offset)

    def batches(self, columns: BatchColumns) -> Iterator[Found]:
        if self._start is not None:
            with self._step():
                self._start.feed(columns)
        return iter(())

    def end(self) -> Iterator[Defect]:
        if self._start is not None:
            with self._step():
                directory = self.partition.directory
                self._prediction = NextStart.of_partition(directory, self._start.end())
        if self._failure is not None:
            yield self._failure

    def predicted(self) -> NextStart | None:
        """Return the prediction, once all batches have been seen; None if files are unreadable."""
        return self._prediction

    @contextmanager
    def _step(self) -> Iterator[None]:
        """Run a step of the prediction, and give the prediction up if the step fails."""
        try:
            yield
        except DataError:
            self._start = None  # the walk over the files reports what cannot be read
        except (MemoryError, RunError):
            raise
        except Exception as error:  # noqa: BLE001 # a bug here is a finding; other checks go on
            self._start = None
            what = "The prediction of the next start"
            self._failure = check_failed(self.partition.directory.path, what, error)


def _config(partition: CheckedPartition) -> StartConfig | None:
    """Return the configs that affect a start; None if no source sets them."""
    if partition.configs is None:
        return None
    try:
        config, values = start_config(partition.directory, partition.configs)
    except DataError:
        return None  # the reader of the configs reports it
    # Kafka's defaults say nothing about this broker: they must not look like its configuration.
    return config if any(value.source != DEFAULT_SOURCE for value in values) else None


def with_nodes(starts: Sequence[NextStart], log_dirs: Sequence[CheckedLogDir]) -> list[NextStart]:
    """Return the predictions for partitions, completed by the starts of their nodes."""
    if not log_dirs:
        return [*starts]
    nodes = starts_of(log_dirs)
    found = [start for node in nodes for start in NextStart.of_node(node)]
    strays = {partition.directory.path: (partition, why) for partition, why in strays_of(log_dirs)}
    for start in starts:
        stray = strays.pop(start.path, None)
        found.append(start if stray is None else start.as_stray(stray[1]))
    # Left over: unremarkable by themselves, so no prediction was kept of them.
    for path, (partition, reason) in strays.items():
        found.append(NextStart.of_stray(partition.directory, _mode_around(path), reason))
    promoted = {start.path: start for node in nodes for start in NextStart.of_promoted(node)}
    found = [
        start if start.path not in promoted else start.followed_by(promoted.pop(start.path))
        for start in found
    ]
    return [*found, *promoted.values()]


def _mode_around(path: str) -> StartMode:
    return start_mode(os.path.dirname(file_system.absolute(path)))


def unexplained(
    start: NextStart, directory_state: DirectoryState | None = None
) -> Iterator[Defect]:
    """Yield the defect of a start that would go wrong although nothing else was found.

    Losing records of a directory that awaits deletion is not a defect.
    """
    is_grave = bool(start.lost_records or start.hidden_records)
    if start.verdict == Verdict.REFUSE:
        yield make_defect("start-refused", start.path, start.detail)
    elif is_grave and directory_state != DirectoryState.DELETE:
        detail = f"The next start would {start.detail}."
        yield make_defect("start-loses-records", start.path, detail, offset=start.truncate_to)
