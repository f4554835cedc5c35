"""All kinds of defects by their references."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalog.log.defects import files, logs

if TYPE_CHECKING:
    from kafkalog.model import Reference

REFERENCES: Final[dict[str, Reference]] = {
    reference.name: reference for table in (logs, files) for reference in table.REFERENCES
}
