"""The mark of a clean shutdown: a run takes it away, undoing the run brings it back, once.

Follows `CleanShutdownFileHandler` and `LogManager.loadLogs` of Kafka 4.3: a start that finds the
mark scans nothing, and removes it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from formats import file_names
from kafkalog.runs.checkpoint_files import DIRECTORY
from kafkalog.storage import Changes, require_no_link

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.storage import Step

_TEMPORARY: Final = ".tmp"


def has_mark(log_dir: str) -> bool:
    """Whether a log directory has the mark."""
    return os.path.lexists(os.path.join(log_dir, file_names.CLEAN_SHUTDOWN))


def keep_mark(log_dir: str, backup: str, observe: Callable[[Step], None] | None) -> None:
    """Link the mark into a backup; it is there."""
    kept = Changes(os.path.join(backup, DIRECTORY), observe)
    kept.remove(file_names.CLEAN_SHUTDOWN, missing_ok=True)
    kept.link(os.path.join(log_dir, file_names.CLEAN_SHUTDOWN), file_names.CLEAN_SHUTDOWN)
    kept.sync_directory()


def remove_mark(log_dir: str, observe: Callable[[Step], None] | None) -> None:
    """Take the mark away, where there is one; it lasts."""
    around = Changes(log_dir, observe)
    around.remove(file_names.CLEAN_SHUTDOWN, missing_ok=True)
    around.sync_directory()


def bring_mark_back(log_dir: str, backup: str, observe: Callable[[Step], None] | None) -> None:
    """The mark that was kept, unless there is one again. All else is as it was by now."""
    around = Changes(log_dir, observe)
    if not has_mark(log_dir):
        require_no_link(os.path.join(backup, DIRECTORY, file_names.CLEAN_SHUTDOWN))
        around.remove(file_names.CLEAN_SHUTDOWN + _TEMPORARY, missing_ok=True)
        kept = os.path.join(backup, DIRECTORY, file_names.CLEAN_SHUTDOWN)
        around.link(kept, file_names.CLEAN_SHUTDOWN + _TEMPORARY)
        around.rename(file_names.CLEAN_SHUTDOWN + _TEMPORARY, file_names.CLEAN_SHUTDOWN)
        around.sync_directory()
