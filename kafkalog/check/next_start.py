"""What the next start of a broker would do, from the same reading as the checks."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kafkalog import places
from kafkalog.check.batch_checks import CheckedLog, CheckedPartition, PartitionCheck
from kafkalog.check.identity import strays_of
from kafkalog.defects import make_defect
from kafkalog.errors import KafkaLogError
from kafkalog.model import Level
from kafkalog.names import DirectoryState
from kafkalog.recovery import NextStart, StartInProgress, Verdict, log_dir_refusals, start_mode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kafkalog.check.batch_checks import Found
    from kafkalog.check.identity import CheckedLogDir
    from kafkalog.columnar.headers import Stretch
    from kafkalog.log_dir import LogDir
    from kafkalog.model import Defect


class PartitionStart(PartitionCheck):
    """Feeds a prediction with the batches of a partition; it tells no defects.

    What the level does not compare, the prediction takes to be right and says so.
    """

    def __init__(self, partition: CheckedPartition, level: Level) -> None:
        super().__init__(partition)
        self._start: StartInProgress | None = None
        try:
            check_crc = level != Level.QUICK
            self._start = StartInProgress(partition.directory, check_crc=check_crc)
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


def log_dir_starts(log_dir: LogDir) -> list[NextStart]:
    """What stops the start and belongs to no partition."""
    mode = start_mode(log_dir.path)
    return [NextStart.of_log_dir(log_dir, mode, refusal) for refusal in log_dir_refusals(log_dir)]


def with_strays(starts: Sequence[NextStart], log_dirs: Sequence[CheckedLogDir]) -> list[NextStart]:
    """The predictions, now that it is known which partitions the brokers are to have."""
    strays = {partition.directory.path: (partition, why) for partition, why in strays_of(log_dirs)}
    found = [
        start if start.path not in strays else start.as_stray(strays.pop(start.path)[1])
        for start in starts
    ]
    for path, (partition, reason) in strays.items():
        mode = start_mode(os.path.dirname(places.absolute(path)))
        found.append(NextStart.of_stray(partition.directory, mode, reason))
    return found


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
