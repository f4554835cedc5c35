"""A check that fails costs itself only: what it was about is not judged, all the rest is.

An exception that kafkalog did not raise on purpose becomes the finding `check-failed`.
"""

from __future__ import annotations

import os
import traceback
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from kafkalog.check.batch_checks import BatchCheck, PartitionCheck
from kafkalog.defects import make_defect
from kafkalog.errors import KafkaLogError, on_failure

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from kafkalog.check.batch_checks import CheckedLog, Found
    from kafkalog.columnar.headers import Stretch
    from kafkalog.model import Defect

T = TypeVar("T")
P = ParamSpec("P")

FAILED: Final = "check-failed"
"""The reference of the finding."""


def contained(
    checks: Generator[Defect, None, T], path: str, what: str, failed: T
) -> Generator[Defect, None, T]:
    """Yield what checks find; when they fail, one finding instead of the rest.

    Args:
        checks: they return a value at their end.
        path: what they are about.
        what: what they are, in words.
        failed: the value where they fail.

    Raises:
        KafkaLogError: raised on purpose; and no memory is left for checks where none is left.
    """
    try:
        return (yield from checks)
    except (KafkaLogError, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 # any failure costs this part only
        yield check_failed(path, what, error)
        return failed


def contained_all(
    path: str, what: str, checks: Callable[P, Iterator[Defect]], *args: P.args, **kwargs: P.kwargs
) -> Generator[Defect, None, None]:
    """Call checks that return nothing at their end; as `contained`."""

    def run() -> Generator[Defect, None, None]:
        yield from checks(*args, **kwargs)

    yield from contained(run(), path, what, None)


def check_failed(path: str, what: str, error: Exception) -> Defect:
    """The finding that a check could not be completed, with where in kafkalog it failed."""
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
    """A check of batches that is given up when it fails."""

    def __init__(self, check: BatchCheck, path: str) -> None:
        self._check: BatchCheck | None = check
        self._path = path
        self._what = f"The check {type(check).__name__}"
        self._failure: Defect | None = None

    def begin(self, log: CheckedLog) -> None:
        """The batches of a segment follow; of no use to a check of one segment."""
        if isinstance(self._check, PartitionCheck):
            try:
                self._check.begin(log)
            except (KafkaLogError, MemoryError):
                raise
            except Exception as error:  # noqa: BLE001 # a bug costs this check only
                self._give_up(error)

    def damage(self, defect: Defect) -> None:
        """Something that is no batch comes between those of the log, or after them."""
        if self._check is not None:
            try:
                self._check.damage(defect)
            except (KafkaLogError, MemoryError):
                raise
            except Exception as error:  # noqa: BLE001 # a bug costs this check only
                self._give_up(error)

    def stretch(self, stretch: Stretch) -> Iterator[Found]:
        """What is wrong with these batches, given those before them; by rising numbers."""
        if self._check is None:
            return
        try:
            yield from self._check.stretch(stretch)
        except (KafkaLogError, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001 # a bug costs this check only
            self._give_up(error)

    def end(self) -> Iterator[Defect]:
        """What is wrong now that all batches have been seen, or that this is not known."""
        if self._check is not None:
            yield from contained_all(self._path, self._what, self._check.end)
        if self._failure is not None:
            yield self._failure

    def _give_up(self, error: Exception) -> None:
        self._check = None
        self._failure = check_failed(self._path, self._what, error)
