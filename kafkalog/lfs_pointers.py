"""Git LFS pointers: the few lines of text that a checkout leaves in place of a large file.

Follows the specification of Git LFS, version 1.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

from formats.constants import PRODUCER_SNAPSHOT_ENTRY, PRODUCER_SNAPSHOT_HEADER
from formats.file_names import FileKind
from kafkalog.defects import corrupt_data, make_defect
from kafkalog.errors import DataError
from kafkalog.indexes import ENTRY_SIZES
from kafkalog.paths.source import Source
from kafkalog.paths.uris import is_object
from kafkalog.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kafkalog.log_dir import FileEntry
    from kafkalog.model import Defect

_POINTER: Final = re.compile(
    rb"version https://[a-z.-]+/spec/v1\n(?:ext-\d-[^\n]*\n)*oid sha256:[0-9a-f]{64}\nsize \d+\n?"
)
_SIZES: Final = range(100, 1025)
_NAMED_MAX: Final = 3
_SNAPSHOT_SIZE: Final = PRODUCER_SNAPSHOT_HEADER.struct.size + 4  # the number of producers
_PRODUCER_SIZE: Final = PRODUCER_SNAPSHOT_ENTRY.struct.size


def _is_of_its_kind(entry: FileEntry) -> bool:
    """Return whether a file has a size that an index or a snapshot can have, as its name says."""
    kind, size = entry.name.kind, entry.size_bytes
    if kind == FileKind.PRODUCER_SNAPSHOT:
        return size >= _SNAPSHOT_SIZE and (size - _SNAPSHOT_SIZE) % _PRODUCER_SIZE == 0
    return kind in ENTRY_SIZES and size % ENTRY_SIZES[kind] == 0


def pointers_among(files: Iterable[FileEntry]) -> list[FileEntry]:
    """Return the files that are pointers; only files of a pointer's size are read."""
    return [
        entry
        for entry in files
        if entry.error is None and entry.size_bytes in _SIZES and _is_pointer(entry.path)
    ]


def _is_pointer(path: str) -> bool:
    try:
        with Source(path) as source:
            return _POINTER.fullmatch(source.read(0, _SIZES.stop)) is not None
    except DataError:
        return False  # the finding about the file reports it


def require_contents(path: str, files: Iterable[FileEntry]) -> None:
    """Raise `CorruptDataError` with the text of `pointer_defect` if a file is a pointer.

    In a store, where each look is a request, what can be an index or a snapshot is not looked at:
    readers of logs rely on neither.
    """
    if is_object(path):
        files = (entry for entry in files if not _is_of_its_kind(entry))
    pointers = pointers_among(files)
    if pointers:
        defect = pointer_defect(path, pointers)
        raise corrupt_data(defect, hint=defect.hint)


def pointer_defect(path: str, pointers: Sequence[FileEntry]) -> Defect:
    """Return a single finding about all pointers below a path."""
    names = [os.path.relpath(entry.path, path) for entry in pointers]
    named = ", ".join(names[:_NAMED_MAX])
    if len(names) > _NAMED_MAX:
        named += f" and {len(names) - _NAMED_MAX} more"
    detail = "The file is a pointer; its content is missing."
    if names != ["."]:
        detail = f"The content of {counted(len(names), 'file')} is missing ({named}); "
        detail += "partitions with such files are neither judged nor read."
    return make_defect("git-lfs-pointer", path, detail)
