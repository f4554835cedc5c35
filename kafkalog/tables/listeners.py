"""What readers of tables do with what they hear of, unless their caller listens."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Final

from kafkalog.errors import ChangedSinceError, Listener
from kafkalog.log.defects import DELETED, corrupt_data
from kafkalog.model import Defect

if TYPE_CHECKING:
    from kafkalog.errors import Event

COPIED: Final = "read-from-copy"
MISSING: Final = ("offsets-missing", "offsets-with-gaps")
"""References of what is reported besides damage: rows of other copies, and lost segments."""
AGAIN_HINT: Final = "Run the query again."
LOSS_HINT: Final = "With failOnDataLoss=false reading continues with what exists."
_PERMISSIVE_HINT: Final = "In permissive mode damage is skipped; the table `defects` lists it."


class Strict(Listener):
    """Raises whatever is wrong, and warns of what comes from other copies."""

    def hear(self, event: Event) -> None:
        """Raise an error, or the error of a defect.

        Raises:
            ChangedSinceError: records were deleted before they were read.
            CorruptDataError: something is damaged.
        """
        match event:
            case Defect(reference=reference) if reference == COPIED:
                warnings.warn(event.detail, stacklevel=4)
            case Defect(reference=reference) if reference == DELETED:
                raise ChangedSinceError(
                    event.detail, path=event.path, hint=f"{AGAIN_HINT} {LOSS_HINT}"
                )
            case Defect():
                raise corrupt_data(event, hint=_PERMISSIVE_HINT)
            case _:
                super().hear(event)
