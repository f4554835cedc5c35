"""The only package that creates, writes, syncs, renames, removes and locks files.

Packages that only read (`check`, `batches`, `columns`) never import it. Commands that create a log
fill a `NewDirectory` while they hold a `LogDirLock` on their source; commands that change one hold
it with `writes` and go through `Changes`.
"""

from kafkalog.io.storage.changes import (
    TEMPORARY_SUFFIX,
    Changes,
    ChangeWatch,
    Step,
    StepKind,
    require_no_link,
)
from kafkalog.io.storage.directories import (
    BUILDING_SUFFIX,
    NewDirectory,
    NewPartitions,
    final_path,
    free_space,
    require_outside,
    require_space,
    require_vacant,
    require_writable,
)
from kafkalog.io.storage.file_tree import FileTree
from kafkalog.io.storage.files import NewFile, make_directories, sync_file_system, written
from kafkalog.io.storage.locks import AppendedFile, LogDirLock, spooled
from kafkalog.io.storage.staging import Attempt, StagingDirectory

__all__ = [
    "BUILDING_SUFFIX",
    "TEMPORARY_SUFFIX",
    "AppendedFile",
    "Attempt",
    "ChangeWatch",
    "Changes",
    "FileTree",
    "LogDirLock",
    "NewDirectory",
    "NewFile",
    "NewPartitions",
    "StagingDirectory",
    "Step",
    "StepKind",
    "final_path",
    "free_space",
    "make_directories",
    "require_no_link",
    "require_outside",
    "require_space",
    "require_vacant",
    "require_writable",
    "spooled",
    "sync_file_system",
    "written",
]
