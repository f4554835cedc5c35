"""Read-ahead returns the bytes of the file, with few requests and bounded memory."""

from __future__ import annotations

import random
import threading
import time

import pytest

from kafkalog.errors import UnreadableError
from kafkalog.io.paths import read_ahead
from kafkalog.io.paths.read_ahead import AHEAD_MAX, PIECE_SIZE_MAX, PIECE_SIZE_MIN, ReadAhead
from tests.waiting import until


class Far:
    """A file whose every request takes some time."""

    def __init__(self, data: bytes, delay_s: float = 0.0) -> None:
        self.data = data
        self.delay_s = delay_s
        self.requests: list[tuple[int, int]] = []
        self.at_once = self.at_once_max = 0
        self._lock = threading.Lock()

    def fetch(self, position: int, size: int) -> bytes:
        with self._lock:
            self.requests.append((position, size))
            self.at_once += 1
            self.at_once_max = max(self.at_once_max, self.at_once)
        time.sleep(self.delay_s)
        with self._lock:
            self.at_once -= 1
        return self.data[position : position + size]

    def read(self, ahead: ReadAhead, position: int, size: int) -> bytes:
        buffer = bytearray(size)
        ahead.read_into(position, memoryview(buffer))
        return bytes(buffer)


@pytest.mark.parametrize("seed", range(10))
def test_the_bytes_are_those_of_the_file(seed: int) -> None:
    """Forward, backward and random reads, small and large."""
    luck = random.Random(seed)
    far = Far(luck.randbytes(3 << 20))
    ahead = ReadAhead(far.fetch, len(far.data))
    position = 0
    for _ in range(300):
        size = luck.choice([1, 61, 4096, 100_000, 1 << 20])
        if luck.random() < 0.2:
            position = luck.randrange(len(far.data))
        size = min(size, len(far.data) - position)
        assert far.read(ahead, position, size) == far.data[position : position + size]
        position = (position + size + luck.choice([0, 0, 0, 500])) % len(far.data)


def test_forward_reading_waits_for_requests_together() -> None:
    """Several requests run at once, each at most a piece long; the file is requested only once."""
    far = Far(bytes(96 << 20), delay_s=0.05)
    ahead = ReadAhead(far.fetch, len(far.data))
    for position in range(0, len(far.data), 2 << 20):
        far.read(ahead, position, 2 << 20)
        fetched = max(start + size for start, size in far.requests)
        assert fetched - position <= AHEAD_MAX + PIECE_SIZE_MAX
    assert 3 <= far.at_once_max <= 8
    assert sum(size for _, size in far.requests) == len(far.data)
    assert max(size for _, size in far.requests) <= PIECE_SIZE_MAX
    assert len(far.requests) < 40


def test_a_huge_read_is_bounded() -> None:
    """The memory in addition to the buffer does not grow with the size of the read."""
    far = Far(bytes(100 << 20), delay_s=0.01)
    ahead = ReadAhead(far.fetch, len(far.data))
    assert far.read(ahead, 0, len(far.data)) == far.data
    assert far.at_once_max <= AHEAD_MAX // PIECE_SIZE_MAX + 1
    assert max(size for _, size in far.requests) <= PIECE_SIZE_MAX


def test_single_reads_fetch_little() -> None:
    """A search with random probes costs one small request per probe."""
    far = Far(bytes(64 << 20))
    ahead = ReadAhead(far.fetch, len(far.data))
    probes = [32 << 20, 16 << 20, 24 << 20, 20 << 20, 22 << 20]
    for position in probes:
        far.read(ahead, position, 4096)
    assert [size for _, size in far.requests] == [PIECE_SIZE_MIN] * len(probes)


def test_errors_come_where_the_bytes_are_wanted() -> None:
    """Not earlier; a repeated read sends the request again."""
    fails = threading.Event()
    fails.set()
    far = Far(bytes(32 << 20))

    def fetch(position: int, size: int) -> bytes:
        if position + size > 16 << 20 and fails.is_set():
            raise UnreadableError("It cannot be read: gone.", path="far", position=position)
        return far.fetch(position, size)

    ahead = ReadAhead(fetch, len(far.data))
    position = 0
    while position + (1 << 20) <= 8 << 20:
        far.read(ahead, position, 1 << 20)
        position += 1 << 20
    with pytest.raises(UnreadableError):
        far.read(ahead, position, 16 << 20)
    fails.clear()
    assert far.read(ahead, position, 1 << 20) == bytes(1 << 20)


def test_many_files_that_are_read_together_share_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was fetched of all of them and not read yet stays near the bound, and grows again."""
    together = 8 << 20
    monkeypatch.setattr(read_ahead, "TOGETHER_MAX", together)
    step, count = 1 << 18, 64
    far = Far(bytes(4 << 20))
    files = [ReadAhead(far.fetch, len(far.data)) for _ in range(count)]
    for position in range(0, len(far.data), step):
        for number, one in enumerate(files):
            far.read(one, position, step)
            read = count * position + (number + 1) * step
            if position >= 4 * step:  # all have begun
                unread = sum(size for _, size in far.requests) - read
                assert unread <= together + count * PIECE_SIZE_MIN
    assert sum(size for _, size in far.requests) == count * len(far.data)
    for one in files:
        one.close()
    alone = ReadAhead(far.fetch, len(far.data))
    far.requests.clear()
    for position in range(0, 2 << 20, step):
        far.read(alone, position, step)
    until(lambda: max(position + size for position, size in far.requests) >= 3 << 20)
    alone.close()
