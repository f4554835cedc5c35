"""Stretches of logs that tasks read piece by piece, put together as one reading gives them.

A reading goes on behind a sound batch without regard to what came before. So what a piece gives
from its start to the first thing that is not sound is what a reading of the whole log gives, if
that comes to the start of the piece. From there on, where it does not or where something is wrong,
the log is read on in one go.
"""

from __future__ import annotations

import os
import pickle
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kafkalog.columnar.header_table import POSITION
from kafkalog.columnar.headers import Stretch, header_stretches
from kafkalog.errors import KafkaLogError
from kafkalog.model import Defect, Level
from kafkalog.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kafkalog.check.batch_checks import CheckedLog

    Key = tuple[int, str]

_NO_LOG: Final = (1 << 63, "")


def read_range(part: Mapping[str, Any], threads: int | None) -> Iterator[bytes]:
    """The sound batches of a part of a log, in order, up to the first thing that is wrong.

    Args:
        part: `path`, `base_offset`, `start` (the position of a batch), `end` (None for the end of
            the file) and `level`.
        threads: as those of `header_stretches`.
    """
    key = (part["base_offset"], os.path.basename(part["path"]))
    try:
        with Source(part["path"]) as source:
            for found in header_stretches(
                source, Level(part["level"]), threads, position=part["start"], end=part["end"]
            ):
                if isinstance(found, Defect):
                    return
                wrong = np.flatnonzero(~found.crc_valid)
                sound = found.part(0, int(wrong[0])) if len(wrong) else found
                if sound.count:
                    yield pickle.dumps((key, sound), pickle.HIGHEST_PROTOCOL)
                if len(wrong):
                    return
    except KafkaLogError:
        return  # whoever reads on there is told the same


class MadeStretches:
    """Gives what `read_range` made of the parts of a partition's logs, and reads what lacks.

    Args:
        made: of all parts, by base offset, name and position.
        threads: as those of `header_stretches`.

    Cost:
        Holds one stretch at a time.
    """

    def __init__(self, made: Iterator[bytes], threads: int | None) -> None:
        self._made = made
        self._threads = threads
        self._key: Key = _NO_LOG
        self._stretch: Stretch | None = None
        self._advance()

    def stretches(
        self, log: CheckedLog, source: Source, level: Level
    ) -> Iterator[Stretch | Defect]:
        """As `header_stretches`; to be asked for logs by rising base offsets, then names."""
        position = 0
        if log.base_offset is not None:
            key = (log.base_offset, os.path.basename(log.path))
            while self._key < key:
                self._advance()
            while self._key == key:
                found = self._stretch
                assert found is not None, "a key is that of a stretch"
                if int(found.headers[POSITION, 0]) != position:
                    break
                self._advance()
                position += found.size_bytes
                yield found
        if position < source.size_bytes:
            yield from header_stretches(source, level, self._threads, position=position)

    def _advance(self) -> None:
        row = next(self._made, None)
        if row is None:
            self._key, self._stretch = _NO_LOG, None
        else:
            self._key, self._stretch = pickle.loads(row)  # noqa: S301 # made by `read_range`
