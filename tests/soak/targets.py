"""All targets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.soak import (
    decoders,
    on_commands,
    on_directories,
    on_documents,
    on_files,
    on_schemas,
)

if TYPE_CHECKING:
    from tests.soak.target import Target

TARGETS: tuple[Target, ...] = (
    *decoders.TARGETS,
    *on_files.TARGETS,
    *on_directories.TARGETS,
    *on_commands.TARGETS,
    *on_schemas.TARGETS,
    *on_documents.TARGETS,
)
