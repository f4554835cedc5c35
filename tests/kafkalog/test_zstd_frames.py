"""zstd frames that state their size: read in one call, or by the package, with the same bounds."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
import zstandard

from kafkalog.io.codecs import zstd

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(params=["in one call", "in pieces"])
def known(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch):
    """Decompress frames of known size; where libzstd cannot be called, by the package."""
    if request.param == "in pieces":
        monkeypatch.setattr(zstd, "decompress_whole", lambda: None)
    return zstd.decompress_known


@pytest.mark.parametrize("size", [0, 1, 300, 1 << 20])
def test_zstd_frames_of_known_size_are_read(known: Callable[[bytes, int], bytes], size: int):
    data = (b"abcdefg%d" % size * size)[:size]
    assert known(zstandard.compress(data), size) == data
    with pytest.raises(ValueError, match="most"):
        known(zstandard.compress(data + b"x"), size)


def test_zstd_frames_that_lie_about_their_size_are_refused(
    known: Callable[[bytes, int], bytes], tell: Callable[[str], None]
):
    """What a frame states is the bound of what it takes, and is checked before anything is made."""
    frame = bytearray(zstandard.compress(bytes(1000)))
    assert frame[4] >> 6 == 1, "two bytes have its size, less 256"
    place = slice(5, 7) if frame[4] & 32 else slice(6, 8)
    for stated in (0, 500, 999, 1001, 60_000):
        frame[place] = struct.pack("<H", max(stated - 256, 0))
        with pytest.raises(ValueError, match=r"."):
            tell(f"{stated}: {len(known(bytes(frame), 1 << 20))}")
    unsized = zstandard.ZstdCompressor(write_content_size=False).compress(b"abc" * 100)
    huge = b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 1 << 60) + bytes(3)
    for bad, words in ((unsized, "None bytes"), (huge, f"{1 << 60} bytes"), (b"", ".")):
        with pytest.raises(ValueError, match=words):
            known(bad, 1 << 28)
    whole = zstandard.compress(bytes(range(256)) * 40)
    for end in range(len(whole)):
        with pytest.raises(ValueError, match=r"."):
            known(whole[:end], 1 << 20)
