"""Changes a partition as a broker does while it is read, one step on disk after another.

The steps are those of Kafka: an append is a write that can be seen half-way, a cleaning renames
`.cleaned` to `.swap`, the old files to `.deleted` and `.swap` to its final name, checkpoints are
replaced by way of a `.tmp`. With `at_every_call` a step may happen before each call of the reader
that opens, lists or reads something. Batches and indexes are made with struct alone.
"""

from __future__ import annotations

import itertools
import os
import struct
import threading
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from tests.builders import BASE_TIME, batch, record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from random import Random

    import pytest

Row = tuple[int, bytes, bytes]
CALLS: Final = ("open", "stat", "listdir", "pread", "preadv", "fstat")
_SUFFIXES: Final = ("log", "index", "timeindex")
_KEYS: Final = 6


class Broker:
    """One partition, `t-0` of a log directory, and the steps that change it.

    Args:
        log_dir: an empty directory.
        rng: chooses the steps.

    Attributes:
        partition: the directory.
        appended: all rows ever appended, by offset.
        live: the offsets now in the log, including those below the log start.
        log_start: the log start offset.
    """

    def __init__(self, log_dir: Path, rng: Random) -> None:
        self._rng = rng
        self._log_dir = log_dir
        self._lock = threading.RLock()
        self._is_busy = False
        self._steps: deque[Callable[[], object]] = deque()
        self._segments: dict[int, list[list[Row]]] = {0: []}
        self._names = itertools.count()
        self.partition = log_dir / "t-0"
        self.partition.mkdir(parents=True)
        self.appended: dict[int, Row] = {}
        self.live: set[int] = set()
        self.log_start = 0
        (self.partition / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
        (log_dir / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 0\n")
        (log_dir / ".lock").touch()
        (log_dir / "meta.properties").write_text(
            "version=1\nnode.id=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAQ\n"
        )
        (self.partition / "partition.metadata").write_text(
            "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAg"
        )
        self._create(0)
        for _ in range(12):
            self._append()
            if rng.random() < 0.5:
                self._roll()
        self.settle()

    @property
    def end(self) -> int:
        """Return the log end offset, including an append that has begun."""
        return len(self.appended)

    def require_read(self, rows: list[Row], before: set[int], start: int = 0) -> None:
        """Require each row once, in order and as appended, and every row that was live throughout.

        Args:
            rows: the rows read.
            before: the offsets that were live when the reading began.
            start: the offset that was read from.
        """
        offsets = [row[0] for row in rows]
        assert offsets == sorted(set(offsets))
        assert [row for row in rows if self.appended[row[0]] != row] == []
        stayed = {offset for offset in before & self.live if offset >= max(start, self.log_start)}
        assert sorted(stayed - set(offsets)) == []

    def settle(self) -> None:
        """Finish all steps that have begun."""
        while self._steps:
            self._steps.popleft()()

    def step(self) -> None:
        """Take the next step of a change that has begun, or begin one."""
        if not self._steps:
            choices = [self._append, self._roll, self._clean, self._clean, self._retain, self._trim]
            self._rng.choice(choices)()
        if self._steps:
            self._steps.popleft()()

    @contextmanager
    def at_every_call(self, monkeypatch: pytest.MonkeyPatch, chance: float) -> Iterator[None]:
        """Take steps before calls that open, list or read."""
        with monkeypatch.context() as patched:
            for waiting in ("kafkalog.check.moments", "kafkalog.log.living"):
                patched.setattr(f"{waiting}.sleep", lambda _: self.settle())
            for asking in ("kafkalog.node.view", "kafkalog.io.broker_lock"):
                patched.setattr(f"{asking}.is_broker_running", lambda _: True)
            for name in CALLS:
                patched.setattr(os, name, self._stepping(getattr(os, name), chance))
            yield

    def _stepping(self, call: Callable[..., Any], chance: float) -> Callable[..., Any]:
        asks = call.__name__.endswith("stat")
        if asks:  # of each file of a listing; a broker that takes one away in each listing is none
            chance = min(chance, 0.1)

        def stepped(*args: Any, **options: Any) -> Any:
            with self._lock:
                if not self._is_busy and self._rng.random() < chance:
                    self._is_busy = True
                    try:
                        burst = 1 if asks else 12
                        for _ in range(self._rng.choice((1, 1, burst))):
                            self.step()
                    finally:
                        self._is_busy = False
            return call(*args, **options)

        return stepped

    def _path(self, base: int, suffix: str, state: str = "") -> Path:
        return self.partition / f"{base:020}.{suffix}{state}"

    def _create(self, base: int) -> None:
        for suffix in _SUFFIXES:
            self._path(base, suffix).touch()

    def _append(self) -> None:
        """Append a batch whose first half is written before the second."""
        rows = []
        for offset in range(self.end, self.end + self._rng.randint(1, 5)):
            key = b"k%d" % self._rng.randrange(_KEYS)
            rows.append((offset, key, b"v%d" % offset + b"." * self._rng.randrange(120)))
            self.appended[offset] = rows[-1]
        base, data = max(self._segments), encoded(rows)
        self._segments[base].append(rows)
        half = self._rng.randrange(1, len(data))
        self._steps += (
            lambda: _write(self._path(base, "log"), data[:half], "ab"),
            lambda: _write(self._path(base, "log"), data[half:], "ab"),
            lambda: self.live.update(row[0] for row in rows),
        )

    def _roll(self) -> None:
        """Close the active segment: its time index gets a last entry."""
        base = max(self._segments)
        batches = self._segments[base]
        if not batches or self._steps:
            return
        following = self.end
        self._segments[following] = []
        self._steps += (
            lambda: _write(self._path(base, "timeindex"), time_index(base, batches), "wb"),
            lambda: self._create(following),
        )

    def _clean(self) -> None:
        """Replace adjacent closed segments by one without superseded records."""
        closed = sorted(self._segments)[:-1]
        if not closed:
            return
        first = self._rng.randrange(len(closed))
        group = closed[first : first + self._rng.randint(1, 3)]
        latest = {row[1]: row[0] for row in self.appended.values()}
        kept, gone = [], set[int]()
        for rows in itertools.chain.from_iterable(self._segments[base] for base in group):
            stay = [row for row in rows if latest[row[1]] == row[0] or self._rng.random() < 0.6]
            gone |= {row[0] for row in rows} - {row[0] for row in stay}
            if stay:
                kept.append((rows[0][0], rows[-1][0], stay))
        if not kept:
            return
        base = group[0]
        data = b"".join(encoded(rows, start, last) for start, last, rows in kept)
        batches = [rows for _, _, rows in kept]
        content = {"log": data, "index": b"", "timeindex": time_index(base, batches)}
        for one in group[1:]:
            del self._segments[one]
        self._segments[base] = batches
        for suffix in _SUFFIXES:
            cleaned = self._path(base, suffix, ".cleaned")
            self._steps.append(lambda path=cleaned, s=suffix: _write(path, content[s], "wb"))
        self._steps.append(lambda: self.live.difference_update(gone))
        self._renames([base], ".cleaned", ".swap")
        deleted = self._renames(group, "", ".deleted")
        self._renames([base], ".swap", "")
        self._removals(deleted)

    def _retain(self) -> None:
        """Delete the first segment."""
        closed = sorted(self._segments)[:-1]
        if len(closed) < 2:
            return
        for row in itertools.chain.from_iterable(self._segments.pop(closed[0])):
            self.live.discard(row[0])
        self.log_start = max(self.log_start, closed[1])
        self._removals(self._renames([closed[0]], "", ".deleted"))

    def _trim(self) -> None:
        """Move the log start to an offset in the first segment, as DeleteRecords does."""
        bases = sorted(self._segments)
        end = bases[1] if len(bases) > 1 else self.end
        if self._steps or end - 1 <= self.log_start:
            return
        self.log_start = self._rng.randint(self.log_start + 1, end - 1)
        text = f"0\n1\nt 0 {self.log_start}\n".encode()
        path = self._log_dir / "log-start-offset-checkpoint"
        temporary = path.with_name(f"{path.name}.tmp")
        self._steps += (
            lambda: _write(temporary, text, "wb"),
            lambda: temporary.rename(path),
        )

    def _renames(self, bases: list[int], old: str, new: str) -> list[Path]:
        targets = []
        for base, suffix in itertools.product(bases, _SUFFIXES):
            source, target = self._path(base, suffix, old), self._path(base, suffix, new)
            self._steps.append(lambda source=source, target=target: source.rename(target))
            targets.append(target)
        return targets

    def _removals(self, paths: list[Path]) -> None:
        for path in paths:
            self._steps.append(lambda path=path: path.unlink())


def encoded(rows: list[Row], base: int | None = None, last: int | None = None) -> bytes:
    """Encode a batch of rows; a cleaned one keeps its original first and last offset."""
    base = rows[0][0] if base is None else base
    last = rows[-1][0] if last is None else last
    made = [record(row[0] - base, row[1], row[2], time_delta=row[0] - base) for row in rows]
    return batch(
        base, made, last_delta=last - base, base_time=BASE_TIME + base,
        max_time=BASE_TIME + rows[-1][0],
    )  # fmt: skip


def time_index(base: int, batches: list[list[Row]]) -> bytes:
    """Encode one entry: the largest timestamp, which is the last."""
    last = batches[-1][-1][0]
    return struct.pack(">qi", BASE_TIME + last, last - base)


def _write(path: Path, data: bytes, mode: str) -> None:
    with path.open(mode) as file:
        file.write(data)
