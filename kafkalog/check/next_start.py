"""What the next start of a broker would do, from the same reading as the checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.check.batch_checks import CheckedLog, CheckedPartition, PartitionCheck
from kafkalog.configs.sources import DEFAULT_SOURCE
from kafkalog.defects import make_defect
from kafkalog.errors import KafkaLogError
from kafkalog.model import Level
from kafkalog.names import DirectoryState
from kafkalog.recovery import (
    NextStart,
    StartInProgress,
    Verdict,
    log_dir_refusals,
    start_config,
    start_mode,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.check.batch_checks import Found
    from kafkalog.columnar.headers import Stretch
    from kafkalog.log_dir import LogDir
    from kafkalog.model import Defect
    from kafkalog.recovery import StartConfig


class PartitionStart(PartitionCheck):
    """Feeds a prediction with the batches of a partition; it tells no defects.

    What the level does not compare, the prediction takes to be right and says so.
    """

    def __init__(self, partition: CheckedPartition, level: Level) -> None:
        super().__init__(partition)
        self._start: StartInProgress | None = None
        try:
            self._start = StartInProgress(
                partition.directory, config=_config(partition), check_crc=level != Level.QUICK
            )
        except KafkaLogError:
            return  # what cannot be read, the walk over the files tells

    def begin(self, log: CheckedLog) -> None:
        """The batches of a segment follow."""
        super().begin(log)
        if self._start is not None and log.base_offset is not None:
            try:
                self._start.begin(log.path, log.base_offset)
            except KafkaLogError:
                self._start = None

    def stretch(self, stretch: Stretch) -> Iterator[Found]:
        """Nothing is wrong with these batches; the prediction takes them."""
        if self._start is not None:
            self._start.feed(stretch)
        return iter(())

    def predicted(self) -> NextStart | None:
        """The prediction, now that all batches have been seen; None where files are unreadable."""
        if self._start is None:
            return None
        try:
            return NextStart.of_partition(self.partition.directory, self._start.end())
        except KafkaLogError:
            return None


def _config(partition: CheckedPartition) -> StartConfig | None:
    """Return what the sources of configs say; None where they say nothing that matters."""
    if partition.configs is None:
        return None
    try:
        config, values = start_config(partition.directory, partition.configs)
    except KafkaLogError:
        return None  # whoever reads the configs reports it
    return config if any(value.source != DEFAULT_SOURCE for value in values) else None


def log_dir_starts(log_dir: LogDir) -> list[NextStart]:
    """What stops the start and belongs to no partition."""
    mode = start_mode(log_dir.path)
    return [NextStart.of_log_dir(log_dir, mode, refusal) for refusal in log_dir_refusals(log_dir)]


def unexplained(
    start: NextStart, directory_state: DirectoryState | None = None
) -> Iterator[Defect]:
    """The defect of a start that goes wrong where nothing else has been found.

    Records of a directory that awaits its deletion are no loss.
    """
    if start.verdict == Verdict.REFUSE:
        yield make_defect("start-refused", start.path, start.detail)
    elif start.records_lost and directory_state != DirectoryState.DELETE:
        detail = f"The next start would {start.detail}."
        yield make_defect("start-loses-records", start.path, detail, offset=start.truncate_to)
