"""The logs of a run on their way: some are read side by side, each in its order."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kafkalog.answers.search.scanning import is_bulk, plans_of
from kafkalog.errors import (
    ClusterError,
    CorruptDataError,
    KafkaLogError,
    LimitExceededError,
    ShortageError,
)
from kafkalog.model import Defect, Isolation, LogView
from kafkalog.tables.model import Request as Rows
from kafkalog.tables.model import log_of
from kafkalog.tables.planning import missing_in
from kafkalog.wire.producing.messages import pieces_of
from kafkalog.wire.producing.model import Place, Position, Replayed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kafkalog.log.batches.selection import Selection
    from kafkalog.wire.producing.messages import Piece
    from kafkalog.wire.producing.model import ReplayListener, Request, Route

LANES: Final = 4
"""Logs that are read side by side, so that several brokers have work."""
_STUCK_MAX: Final = 100
"""Logs that cannot be read, whose places are kept in the cluster, which takes a few kilobytes."""


class Lane:
    """One log on its way.

    Args:
        place: how far an earlier run came; None at the beginning.
        limit: how many records may follow; None for all of them.
        advanced: called with numbers of bytes as they are read.
        bulk: whether the kernels are used.
    """

    def __init__(
        self,
        index: int,
        route: Route,
        request: Request,
        place: Place | None,
        listener: ReplayListener,
        advanced: Callable[[int], None],
        *,
        limit: int | None,
        bulk: bool,
    ) -> None:
        self.index = index
        self.done = Replayed(route)
        self._listener = listener
        self._next_offset = 0
        self._last: int | None = None
        selection = replace(request.reading, limit=limit)
        if place is not None:
            self._next_offset, self.done.records_before = place
        self._pieces = self._read(selection, advanced, bulk=bulk)

    @property
    def place(self) -> Place:
        return Place(self._next_offset, self.done.records_before + self.done.records)

    def next(self) -> Piece | None:
        """Return the next records, None at the end; defects are reported.

        Raises:
            CorruptDataError: offsets do not rise, so that a place would mean nothing.
            KafkaLogError: the log cannot be read.
        """
        for piece in self._pieces:
            if isinstance(piece, Defect):
                self._listener.hear(piece)
                continue
            last = self._last
            for offset, *_ in piece.messages:
                if last is not None and offset <= last:
                    # A place is one offset: everything below it counts as done.
                    raise CorruptDataError(
                        f"Offset {offset} comes after offset {last}.",
                        path=self.done.route.path,
                        hint="`kafkalog salvage` copies what is in order.",
                    )
                last = offset
            self._last = last
            return piece
        return None

    def _read(
        self, selection: Selection, advanced: Callable[[int], None], *, bulk: bool
    ) -> Iterator[Piece | Defect]:
        target, left = self.done.route.target, selection.limit
        start, end = selection.from_offset or 0, selection.to_offset
        is_all = selection.view == LogView.ALL and selection.isolation == Isolation.LOG
        if not (target.is_file or is_all):
            start = max(start, log_of(target, Rows(view=selection.view)).log_start_offset)
        selection = replace(selection, from_offset=max(start, self._next_offset))
        for plan in plans_of(target, selection, self._listener):
            if left == 0:
                break
            end = plan.selection.to_offset
            limited = replace(plan, selection=replace(plan.selection, limit=left))
            for piece in pieces_of(limited, advanced, bulk=bulk):
                yield piece
                if left is not None and not isinstance(piece, Defect):
                    left -= len(piece.messages) + len(piece.unsendable)
        # From the start on: a run before this one may have ended before it came here.
        end = self._next_offset if left == 0 else end
        yield from missing_in(target, selection.view, start, end)

    def count(self, piece: Piece, zeros: int) -> None:
        """Add a piece to what was done; `zeros` of its messages have the timestamp 0."""
        done = self.done
        done.records += len(piece.messages)
        done.tombstones += sum(value is None for _, value, *_ in piece.messages)
        done.size_bytes += piece.size_bytes
        done.unsendable_records += len(piece.unsendable)
        done.refused_records += len(piece.refused)
        done.zero_timestamps += zeros
        if piece.messages:
            if done.first_offset is None:
                done.first_offset = piece.messages[0][0]
            done.last_offset = piece.messages[-1][0]
        # What cannot be sent is passed over for good, also by the next run.
        ends = [*piece.unsendable, *piece.refused, *(offset for offset, *_ in piece.messages[-1:])]
        self._next_offset = max([self._next_offset, *(offset + 1 for offset in ends)])


class Lanes:
    """The logs of a run, from a position on.

    Args:
        position: how far an earlier run came.
        listener: hears of defects, and of the errors of logs that cannot be read.
        advanced: called with numbers of bytes as they are read, once all that was given before is
            counted; by default the listener is.
    """

    def __init__(
        self,
        routes: Sequence[Route],
        request: Request,
        position: Position,
        listener: ReplayListener,
        advanced: Callable[[int], None] | None = None,
    ) -> None:
        self._advanced = advanced or listener.advanced
        self._routes = routes
        self._request = request
        self._listener = listener
        self._bulk = is_bulk([route.target for route in routes])
        self._waiting: list[tuple[int, Place | None]] = [
            *sorted(position.places.items()),
            *((index, None) for index in range(position.opened, len(routes))),
        ]
        self._opened = position.opened
        self._records = position.records
        self._limit = request.selection.limit
        # One after the other each log knows how many records those before it had.
        self._lanes = LANES if self._limit is None else 1
        self._active: list[Lane] = []
        self._stuck: dict[int, Place] = {}
        self._ended: list[Lane] = []

    @property
    def has_failed(self) -> bool:
        """Whether a log could not be read to its end."""
        return bool(self._stuck)

    @property
    def done(self) -> list[Replayed]:
        lanes = sorted([*self._ended, *self._active], key=lambda lane: lane.index)
        return [lane.done for lane in lanes]

    @property
    def position(self) -> Position:
        """How far the run has come, once all that was given is in the cluster."""
        places = {index: place for index, place in self._waiting if place is not None}
        places |= self._stuck | {lane.index: lane.place for lane in self._active}
        return Position(self._records, self._opened, places)

    def pieces(self) -> Iterator[tuple[Lane, Piece]]:
        """Yield the pieces of all logs by turns; each has to be counted before the next."""
        while True:
            while self._waiting and len(self._active) < self._lanes:
                self._open(*self._waiting.pop(0))
            if not self._active:
                return
            for lane in list(self._active):
                piece = self._next(lane)
                if piece is not None:
                    yield lane, piece

    def count(self, lane: Lane, piece: Piece, zeros: int) -> None:
        lane.count(piece, zeros)
        self._records += len(piece.messages)

    def _stick(self, index: int, place: Place, error: KafkaLogError) -> None:
        self._stuck[index] = place
        self._listener.hear(error)
        if len(self._stuck) > _STUCK_MAX:
            raise LimitExceededError(f"More than {_STUCK_MAX} logs cannot be read.")

    def _open(self, index: int, place: Place | None) -> None:
        self._opened = max(self._opened, index + 1)
        limit = None if self._limit is None else max(self._limit - self._records, 0)
        try:
            lane = Lane(
                index, self._routes[index], self._request, place, self._listener, self._advanced,
                limit=limit, bulk=self._bulk,
            )  # fmt: skip
        except ShortageError:
            raise
        except KafkaLogError as error:
            self._stick(index, place or Place(0, 0), error)
        else:
            self._active.append(lane)

    def _next(self, lane: Lane) -> Piece | None:
        try:
            piece = lane.next()
        # Reading also calls for commits: one has failed, which ends the run.
        except (ClusterError, ShortageError):
            raise
        except KafkaLogError as error:
            self._active.remove(lane)
            self._ended.append(lane)
            self._stick(lane.index, lane.place, error)
            return None
        if piece is None:
            self._active.remove(lane)
            self._ended.append(lane)
        return piece
