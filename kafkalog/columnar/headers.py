"""All batch headers of a log in stretches of columns, with the damage between them, in file order.

Small logs come from the reference scanner, without the kernels. Of large ones one thread reads
chunks and others check checksums; where a chunk ends in something that is no sound batch, the
reference scanner says what it is, so that both give the same batches and the same defects.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from kafkalog.columnar import header_table as h
from kafkalog.columnar import rule
from kafkalog.errors import KafkaLogError
from kafkalog.framing import Frames, read_batch, scan_batches
from kafkalog.model import Batch, Defect

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from kafkalog.columnar.chunks import Chunk, Workspace
    from kafkalog.source import Source

_BATCHES_AT_ONCE: Final = 4096
_WORTH_A_SEEK: Final = 1 << 15  # batches so large are cheaper passed over than read


@dataclass(frozen=True, slots=True)
class Stretch:
    """Neighbouring batches, at least one; to be used before the next stretch is asked for.

    Attributes:
        headers: int64, one row per field of `header_table`, one column per batch.
        crc_valid: bool, whether each checksum matches; true where it was not computed.
    """

    headers: NDArray[np.int64]
    crc_valid: NDArray[np.bool_]

    @property
    def count(self) -> int:
        """Number of batches."""
        return int(self.headers.shape[1])

    @property
    def size_bytes(self) -> int:
        """Bytes from the first batch to the end of the last."""
        first, last = self.headers[:, 0], self.headers[:, -1]
        return int(last[h.POSITION] + last[h.SIZE] - first[h.POSITION])


def header_stretches(
    source: Source, *, check_crc: bool, threads: int | None = None
) -> Iterator[Stretch | Defect]:
    """Every batch and every defect of a log; together they cover every byte.

    Args:
        source: the log.
        check_crc: compare checksums; without it only headers are looked at.
        threads: how many check; as many as there are processors, up to 8, where None.

    Raises:
        UnreadableError: the log cannot be read on; what came before has been yielded.

    Cost:
        Some 6 MB a thread, however large the log is.
    """
    if rule.is_worth_it(source.stored_bytes) and (check_crc or _is_dense(source)):
        return _by_chunks(source, check_crc, threads or rule.default_threads())
    return _by_reference(source, check_crc)


def _is_dense(source: Source) -> bool:
    first = read_batch(source, 0, source.size_bytes)
    return isinstance(first, Batch) and first.size_bytes < _WORTH_A_SEEK


def _by_reference(source: Source, check_crc: bool, position: int = 0) -> Iterator[Stretch | Defect]:
    batches: list[Batch] = []
    try:
        for found in scan_batches(source, position, check_crc=check_crc):
            if isinstance(found, Batch):
                batches.append(found)
            if batches and (isinstance(found, Defect) or len(batches) == _BATCHES_AT_ONCE):
                yield _stretch_of(batches)
                batches = []
            if isinstance(found, Defect):
                yield found
    except KafkaLogError:
        if batches:
            yield _stretch_of(batches)
        raise
    if batches:
        yield _stretch_of(batches)


def _stretch_of(batches: Sequence[Batch]) -> Stretch:
    valid = np.array([batch.crc_valid is not False for batch in batches], np.bool_)
    return Stretch(h.table_of(batches), valid)


def _by_chunks(source: Source, check_crc: bool, threads: int) -> Iterator[Stretch | Defect]:
    with ThreadPoolExecutor(threads, "kafkalog-headers") as pool:
        walk = _Walk(source, check_crc, pool, threads + 1)
        try:
            yield from walk.stretches()
        finally:
            walk.stop()


class _Walk:
    """One log: chunks whose checksums are on their way through the pool, in order."""

    def __init__(
        self, source: Source, check_crc: bool, pool: ThreadPoolExecutor, depth: int
    ) -> None:
        from kafkalog.columnar.chunks import ChunkReader

        self._source = source
        self._check_crc = check_crc
        self._pool = pool
        self._depth = depth
        self._frames = Frames(source, check_crc=check_crc)
        self._reader = ChunkReader(source, 0, self._frames.end)
        self._spaces: list[Workspace] = []
        self._tasks: deque[tuple[Chunk, Future[list[int]]]] = deque()
        self._is_odd = False  # what is at the reader's position is for the reference scanner
        self._is_failing = False

    def stretches(self) -> Iterator[Stretch | Defect]:
        """Batches and defects."""
        while True:
            self._fill()
            if self._tasks:
                yield from self._finish(*self._tasks.popleft())
            elif self._is_failing:
                # The reference scanner reads in smaller steps: it tells where the failure is.
                yield from _by_reference(self._source, self._check_crc, self._reader.position)
                return
            elif self._is_odd:
                self._is_odd = False
                found = self._frames.at(self._reader.position)
                self._reader.resume((found.position or 0) + (found.size_bytes or 0))
                yield found if isinstance(found, Defect) else _stretch_of([found])
            else:
                return

    def stop(self) -> None:
        """Wait for what is under way and forget it."""
        for chunk, future in self._tasks:
            if not future.cancel():
                future.exception()
            self._spaces.append(chunk.workspace)
        self._tasks.clear()

    def _fill(self) -> None:
        from kafkalog.columnar.chunks import Workspace

        reader = self._reader
        while (
            len(self._tasks) < self._depth
            and not (self._is_odd or self._is_failing)
            and reader.position < reader.end
        ):
            space = self._spaces.pop() if self._spaces else Workspace(0)
            try:
                chunk = reader.read(space)
            except KafkaLogError:
                self._is_failing = True
                return
            if chunk is None:
                self._spaces.append(space)
                self._is_odd = True
                return
            work = chunk.bad_checksums if self._check_crc else list[int]
            self._tasks.append((chunk, self._pool.submit(work)))

    def _finish(self, chunk: Chunk, future: Future[list[int]]) -> Iterator[Stretch | Defect]:
        """The batches of a chunk, up to the first that is none after all."""
        valid = np.ones(chunk.count, np.bool_)
        wrong: Defect | KafkaLogError | None = None
        for ordinal in future.result():
            found = self._look_again(int(chunk.headers[h.POSITION, ordinal]))
            if isinstance(found, Batch):
                valid[ordinal] = False
                continue
            wrong = found
            self.stop()
            chunk.cut(ordinal)
            break
        if chunk.count:
            yield Stretch(chunk.headers, valid[: chunk.count])
        self._spaces.append(chunk.workspace)
        if isinstance(wrong, KafkaLogError):
            raise wrong
        if wrong is not None:
            self._reader.resume((wrong.position or 0) + (wrong.size_bytes or 0))
            self._is_odd = self._is_failing = False
            yield wrong

    def _look_again(self, position: int) -> Batch | Defect | KafkaLogError:
        """What the reference scanner makes of a batch with a wrong checksum."""
        try:
            return self._frames.at(position)
        except KafkaLogError as error:
            return error
