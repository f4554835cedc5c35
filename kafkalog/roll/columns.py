"""Appends replayed from columns of batch headers, under several settings in one pass.

The fast twin of `kafkalog.roll.replay`, each batch an append of its own.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

import numpy as np

from kafkalog.roll import kernels as r
from kafkalog.roll.replay import JITTERS, RollCondition, RollSettings, SimulatedSegment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray


_ENDED_AT_ONCE: Final = 1024
_CONDITIONS: Final = {
    r.BY_BYTES: RollCondition.SEGMENT_BYTES,
    r.BY_TIME: RollCondition.SEGMENT_MS,
    r.BY_INDEX: RollCondition.INDEX_FULL,
    r.BY_RANGE: RollCondition.OFFSET_RANGE,
}


class ColumnReplay:
    """A log that is empty at first.

    Args:
        settings: the settings that end segments.
        base_offset: base offset of the first segment.
        jitters: the jitter of each segment; the first `JITTERS` values are repeated. If None, there
            is no jitter.

    Cost:
        Memory for the segments that ended.
    """

    def __init__(
        self, settings: RollSettings, base_offset: int, jitters: Iterator[int] | None = None
    ) -> None:
        self.settings = settings
        self._settings = np.array(
            (
                settings.segment_bytes,
                settings.segment_ms,
                settings.offset_entries_max,
                settings.time_entries_max,
                settings.index_interval_bytes,
            ),
            np.int64,
        )
        drawn = [0] if jitters is None else list(islice(jitters, JITTERS))
        self._jitters = np.array(drawn, np.int64)
        self._state = np.zeros(r.STATE_FIELDS, np.int64)
        self._state[[r.SEGMENT_BASE, r.SEGMENT_LAST]] = base_offset, base_offset - 1
        self._state[[r.FIRST_TIMESTAMP, r.LARGEST_TIMESTAMP, r.INDEXED_TIMESTAMP]] = -1
        self._out = np.empty((r.SEGMENT_FIELDS, _ENDED_AT_ONCE), np.int64)
        self._done: list[SimulatedSegment] = []

    @property
    def refused(self) -> int:
        """Number of batches larger than `segment.bytes`."""
        return int(self._state[r.REFUSED])

    @property
    def untimed(self) -> int:
        """Number of batches for which the clock decides."""
        return int(self._state[r.UNTIMED])

    def segments(self) -> list[SimulatedSegment]:
        """Return all segments so far, the active one as it is."""
        active = _segment(self._state[: r.SEGMENT_FIELDS].tolist(), is_active=True)
        return [*self._done, active]

    def append(self, headers: NDArray[np.int64]) -> None:
        """Append the batches of a header table, int64, one row per field of `header_table`."""
        first = 0
        while first < headers.shape[1]:
            first, ended = r.replay_headers(
                headers, first, self._settings, self._jitters, self._state, self._out
            )
            self._done += [
                _segment(fields, is_active=False) for fields in self._out[:, :ended].T.tolist()
            ]


def _segment(fields: list[int], *, is_active: bool) -> SimulatedSegment:
    return SimulatedSegment(
        base_offset=fields[r.SEGMENT_BASE],
        last_offset=fields[r.SEGMENT_LAST],
        size_bytes=fields[r.SEGMENT_SIZE],
        batches=fields[r.SEGMENT_BATCHES],
        first_timestamp=fields[r.FIRST_TIMESTAMP],
        largest_timestamp=fields[r.LARGEST_TIMESTAMP],
        index_entries=fields[r.INDEX_ENTRIES],
        timeindex_entries=fields[r.TIME_ENTRIES],
        rolled_by=None if is_active else _CONDITIONS[fields[r.ROLLED_BY]],
        is_active=is_active,
    )
