"""All targets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.soak import decoders, on_directories, on_documents, on_files

if TYPE_CHECKING:
    from tests.soak.target import Target

TARGETS: tuple[Target, ...] = (
    *decoders.TARGETS,
    *on_files.TARGETS,
    *on_directories.TARGETS,
    *on_documents.TARGETS,
)
