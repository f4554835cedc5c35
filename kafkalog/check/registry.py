"""The checks, in the order in which they report, each isolated from the others.

A check that fails costs only itself: its subject is not judged, everything else is.
"""

from __future__ import annotations

import os
import traceback
from typing import TYPE_CHECKING, Final, ParamSpec, Self, TypeVar

from kafkalog.check import (
    against_log,
    batches,
    checkpoints,
    identity,
    index_files,
    leader_epochs,
    log_dir_files,
    owners,
    producers,
    quorums,
    remote_segments,
    replicas,
    segments,
)
from kafkalog.check.batches import BatchCheck, CheckedLog, CheckedPartition, Found, PartitionCheck
from kafkalog.errors import KafkaLogError, on_failure
from kafkalog.log.defects import make_defect
from kafkalog.model import Defect, Level

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from kafkalog.log.columns.headers import BatchColumns

T = TypeVar("T")
P = ParamSpec("P")

FAILED: Final = "check-failed"
"""Reference of the finding that a check failed."""


def contained(
    checks: Generator[Defect, None, T], path: str, what: str, failed: T
) -> Generator[Defect, None, T]:
    """Yield what checks find; if they fail, yield a single finding about that instead of the rest.

    Args:
        what: their subject, as a phrase.
        failed: the value to return if they fail.

    Raises:
        KafkaLogError: an error that was raised on purpose.
        MemoryError: the other checks would run out of memory as well.
    """
    try:
        return (yield from checks)
    except (KafkaLogError, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 # a bug here is a finding; other checks go on
        yield check_failed(path, what, error)
        return failed


def contained_all(
    path: str, what: str, checks: Callable[P, Iterator[Defect]], *args: P.args, **kwargs: P.kwargs
) -> Generator[Defect, None, None]:
    """Run checks that return nothing, isolated as by `contained`."""

    def run() -> Generator[Defect, None, None]:
        yield from checks(*args, **kwargs)

    yield from contained(run(), path, what, None)


def check_failed(path: str, what: str, error: Exception) -> Defect:
    """Return the finding that a check could not be completed, and where kafkalog failed."""
    for hear in on_failure:
        hear(error)
    frames = traceback.extract_tb(error.__traceback__)
    place = ""
    if frames:
        file = os.sep.join(frames[-1].filename.split(os.sep)[-2:])
        place = f", in {file}, line {frames[-1].lineno}"
    words = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(": .")
    return make_defect(FAILED, path, f"{what} could not be completed: {words}{place}.")


class ContainedCheck(PartitionCheck):
    """A check of batches that is abandoned when it fails."""

    def __init__(self, check: BatchCheck, path: str) -> None:
        self._check: BatchCheck | None = check
        self._path = path
        self._what = f"The check {type(check).__name__}"
        self._failure: Defect | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, *__: object) -> bool:
        """Abandon the check for a bug in it, which is a finding; let all else pass."""
        if not isinstance(error, Exception) or isinstance(error, KafkaLogError | MemoryError):
            return False
        self._check = None
        self._failure = check_failed(self._path, self._what, error)
        return True

    def begin(self, log: CheckedLog) -> None:
        if isinstance(self._check, PartitionCheck):
            with self:
                self._check.begin(log)

    def damage(self, defect: Defect) -> None:
        if self._check is not None:
            with self:
                self._check.damage(defect)

    def batches(self, columns: BatchColumns) -> Iterator[Found]:
        if self._check is not None:
            with self:
                yield from self._check.batches(columns)

    def end(self) -> Iterator[Defect]:
        """Yield the defects that show at the end, or the finding that the check failed."""
        if self._check is not None:
            yield from contained_all(self._path, self._what, self._check.end)
        if self._failure is not None:
            yield self._failure


_IN_ORDER: Final = [
    module.__name__
    for module in (
        # Their checks judge each batch when they have seen the next one: first, for file order.
        segments,
        against_log,
        batches,
        leader_epochs,
        producers,
        index_files,
        identity,
        log_dir_files,
        owners,
        checkpoints,
        replicas,
        quorums,
        remote_segments,
    )
]

SEGMENT_CHECKS: Final = batches.segment_check.in_order(_IN_ORDER)
PARTITION_CHECKS: Final = batches.partition_check.in_order(_IN_ORDER)
DIRECTORY_CHECKS: Final = batches.directory_check.in_order(_IN_ORDER)
LOG_DIR_CHECKS: Final = batches.log_dir_check.in_order(_IN_ORDER)
TOGETHER_CHECKS: Final = batches.joint_check.in_order(_IN_ORDER)
COPY_CHECKS: Final = batches.copies_check.in_order(_IN_ORDER)

_ORDER: Final = {level: number for number, level in enumerate(Level)}


def segment_checks(log: CheckedLog, level: Level) -> list[BatchCheck]:
    """Return the checks that apply to a log, ready for its first batch."""
    return [
        ContainedCheck(check(log), log.path)
        for check in SEGMENT_CHECKS
        if _is_made(check, level) and check.applies(log)
    ]


def partition_checks(partition: CheckedPartition, level: Level) -> list[PartitionCheck]:
    """Return the checks that apply to a partition, ready for its first segment."""
    return [
        ContainedCheck(check(partition), partition.directory.path)
        for check in PARTITION_CHECKS
        if _is_made(check, level) and check.applies(partition)
    ]


def _is_made(check: type[BatchCheck], level: Level) -> bool:
    return _ORDER[check.level] <= _ORDER[level]
