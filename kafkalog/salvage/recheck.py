"""What was salvaged, read back and judged before it gets its name."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from kafkalog.check.verify import Verification
from kafkalog.errors import CorruptDataError
from kafkalog.log_dir import open_path
from kafkalog.model import Level, Severity
from kafkalog.recovery import StartMode, Verdict, predict_start, start_line
from kafkalog.salvage.log_copy import file_checksum

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kafkalog.model import Defect
    from kafkalog.storage import NewDirectory


def check_copies(directory: NewDirectory, checksums: Mapping[str, int]) -> None:
    """Compare the logs on disk with what was copied, by CRC-32C of whole files.

    Raises:
        CorruptDataError: one differs.
    """
    for name, checksum in checksums.items():
        path = directory.place(name)
        if file_checksum(path) != checksum:
            raise CorruptDataError(
                "The written data reads back differently.",
                path=path,
                hint="Check the destination disk, and choose another one.",
            )


def check_partition(directory: NewDirectory, place: str) -> None:
    """Ask what a broker would do with a new partition after a clean shutdown: nothing.

    Raises:
        CorruptDataError: it would change something.
    """
    path = directory.place(place)
    predicted = predict_start(path, StartMode.CLEAN)
    if predicted.verdict != Verdict.NOTHING:
        raise CorruptDataError(f"A broker would change it: {start_line(predicted)}.",
                               path=path)  # fmt: skip


def findings(
    directory: NewDirectory, place: str, progress: Callable[[int], None]
) -> Iterator[Defect]:
    """What `verify` has to say about the new log at level deep, notes left out.

    A log with a hole can have findings that follow from the hole, such as a transaction whose
    marker is lost. They are told under the final names.
    """
    run = Verification(Level.DEEP, progress)
    for defect in run.verify(open_path(directory.place(place))):
        if defect.severity != Severity.NOTE:
            relative = os.path.relpath(defect.path, directory.building)
            yield replace(defect, path=os.path.join(directory.path, relative))
