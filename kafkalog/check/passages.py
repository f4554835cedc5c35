"""Some neighbouring batches with the history of their producers, as checks of producers see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalog.check import producer_rows as r
from kafkalog.columnar import header_table as h
from kafkalog.defects import make_defect

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from kafkalog.check.batch_checks import Found
    from kafkalog.check.producer_rows import Believed, Timeline
    from kafkalog.check.producer_states import History


@dataclass(frozen=True, slots=True)
class Passage:
    """Batches of one segment, none of whose offsets is that of a snapshot but the first.

    Attributes:
        path: the log.
        headers: the header table of the stretch.
        part: the batches.
        rows: those of producers.
        history: the same by producer, with what came before; None without producers.
        timeline: how far the partition has been read, these batches included.
        snapshots: the producer snapshots by number, for the origin of a state.
    """

    path: str
    headers: NDArray[np.int64]
    part: Believed
    rows: NDArray[np.int64]
    history: History | None
    timeline: Timeline
    snapshots: Sequence[str]

    def found(self, name: str, row: int, detail: str, origin: int = -1) -> Found:
        """A defect at a row; where a state from a snapshot contradicts it, of that snapshot."""
        number = int(self.rows[r.NUMBER, row])
        if origin < 0:
            return self.at(name, number, detail)
        offset = int(self.rows[r.BASE_OFFSET, row])
        detail = f"The log goes on otherwise at offset {offset}. {detail}"
        path = self.snapshots[origin]
        return number, make_defect("producer-snapshot-wrong", path, detail, offset=offset)

    def at(self, name: str, number: int, detail: str) -> Found:
        """A defect at a batch of the stretch."""
        position, offset = self.headers[[h.POSITION, h.BASE_OFFSET], number].tolist()
        return number, make_defect(name, self.path, detail, position=position, offset=offset)
