"""Real bytes to start from: the small files of the corpus, straight from its archives."""

from __future__ import annotations

import tarfile
from functools import cache
from pathlib import Path

from tests.builders import frames

CORPUS = Path(__file__).parents[1] / "corpus"
_FILE_SIZE_MAX = 12_000
_DIRECTORY_SIZE_MAX = 40_000
_FRAMES_A_FILE = 40

Files = dict[str, bytes]
"""Files of a directory by name; names may have directories in them."""


@cache
def partitions() -> list[Files]:
    """Return small partition directories of brokers, and the loader's damaged ones."""
    return [
        files for _, files in _directories() if sum(map(len, files.values())) < _DIRECTORY_SIZE_MAX
    ]


@cache
def log_dir_files() -> list[tuple[str, bytes]]:
    """Return names and contents of the files at the top of log directories."""
    return [(name.rpartition("/")[2], data) for name, data in _members() if _is_at_top(name)]


@cache
def files(suffix: str) -> list[bytes]:
    """Return the small files with this suffix, without duplicates."""
    found = {
        data
        for name, data in _members()
        if name.endswith(suffix) and 0 < len(data) < _FILE_SIZE_MAX
    }
    assert found, suffix
    return sorted(found)


@cache
def batches() -> list[list[bytes]]:
    """Return the first batches of each log written by a broker, of all magics and codecs."""
    found: dict[bytes, list[bytes]] = {}
    for name, data in _members():
        if not name.endswith(".log") or len(data) < 100:
            continue
        pieces = [data[at : at + size] for at, size in _sound_frames(data)]
        if pieces:
            found.setdefault(pieces[0], pieces)
    return [found[first] for first in sorted(found)]


@cache
def kinds_of_batches() -> list[list[bytes]]:
    """Return all those batches by kind: one list per magic and attributes."""
    kinds: dict[tuple[int, bytes], list[bytes]] = {}
    for log in batches():
        for data in log:
            magic = data[16]
            kinds.setdefault((magic, data[21:23] if magic == 2 else data[17:18]), []).append(data)
    return [kinds[kind] for kind in sorted(kinds)]


def _sound_frames(data: bytes) -> list[tuple[int, int]]:
    """Return the leading frames with plausible lengths, as logs may be torn or zero-filled."""
    found, position = [], 0
    while position + 17 < len(data) and len(found) < _FRAMES_A_FILE:
        size = 12 + int.from_bytes(data[position + 8 : position + 12], "big", signed=True)
        if not 26 <= size <= len(data) - position or size > _FILE_SIZE_MAX:
            break
        found.append((position, size))
        position += size
    assert found == frames(data[:position])
    return found


def _is_at_top(name: str) -> bool:
    return len(name.split("/")) == 3


@cache
def _members() -> list[tuple[str, bytes]]:
    """Return every file of the log directory archives, each limited to 200 kB."""
    found = []
    archives = [*sorted(CORPUS.glob("kafka-*/*.tar.gz")), CORPUS / "recovery" / "scenarios.tar.xz"]
    for archive in archives:
        with tarfile.open(archive) as tar:
            for member in tar:
                content = tar.extractfile(member) if member.isfile() else None
                if content is not None:
                    name = member.name.removeprefix("./")
                    found.append((f"{archive.name}/{name}", content.read(200_000)))
    return found


def _directories() -> list[tuple[str, Files]]:
    found: dict[str, Files] = {}
    for name, data in _members():
        directory, _, file = name.rpartition("/")
        if "-" in directory.rpartition("/")[2] and file != "facts.json":
            found.setdefault(directory, {})[file] = data
    return [
        (directory, files)
        for directory, files in sorted(found.items())
        if any(file.endswith(".log") for file in files)
    ]
