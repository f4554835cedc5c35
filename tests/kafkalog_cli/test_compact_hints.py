"""The hints of `compact` work: once followed, it goes on and gives Kafka's result."""

from __future__ import annotations

import re
import shlex
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests.conftest import Result
from tests.kafkalog.change.compaction.oracle import PARTITION, cleanings, segment_files

if TYPE_CHECKING:
    from pathlib import Path

Run = Callable[..., Result]
ENTRY = struct.Struct(">hqqqq")


def missing(index: bytes) -> None:
    """Remove the file."""


def wrong(index: bytes) -> bytes:
    """Change the first offset of the last entry."""
    version, producer, first, last, stable = ENTRY.unpack(index[-ENTRY.size :])
    return index[: -ENTRY.size] + ENTRY.pack(version, producer, first - 1, last, stable)


def extra(index: bytes) -> bytes:
    """Add an entry for a transaction that was not aborted."""
    version, producer, first, last, stable = ENTRY.unpack(index[-ENTRY.size :])
    return index + ENTRY.pack(version, producer, first, last + 1, stable + 1)


def fewer(index: bytes) -> bytes:
    """Drop the last entry."""
    return index[: -ENTRY.size]


def ragged(index: bytes) -> bytes:
    """Cut the last entry."""
    return index[:-1]


def zeros(index: bytes) -> bytes:
    """Replace the content by zeros, as in a file that was never synced."""
    return bytes(len(index))


@pytest.mark.parametrize("change", [missing, wrong, extra, fewer, ragged, zeros])
def test_a_wrong_transaction_index_is_rebuilt_then_compacted(
    change: Callable[[bytes], bytes | None],
    corpus_dir: Path,
    tmp_path: Path,
    kafkalog: Run,
) -> None:
    """The hinted command writes Kafka's index again, and the compaction gives Kafka's files."""
    [cleaning, *_] = cleanings(corpus_dir / "compaction", "txn_commit_abort")
    partition = cleaning.copy(tmp_path / "log-dir") / PARTITION
    indexes = {path: path.read_bytes() for path in partition.glob("*.txnindex")}
    assert any(indexes.values())
    for path, data in indexes.items():
        changed = change(data)
        if changed is None:
            path.unlink()
        elif data:
            path.write_bytes(changed)
    configs = [f"--config={name}={value}" for name, value in cleaning.facts["config"].items()]
    expiration = "--config=producer.id.expiration.ms=86400000"
    at = ("--now", cleaning.facts["now"])
    words = ("compact", partition, *configs, expiration, *at, "--high-watermark", "end",
             "--single-pass", "--apply", "--yes")  # fmt: skip
    refused = kafkalog(*words)
    assert refused.status == 4, refused.stderr
    [hint] = re.findall(r"`kafkalog (.*?)`", refused.stderr)
    assert hint.startswith("rebuild-index ")
    rebuilt = kafkalog(*shlex.split(hint), *configs, *at, "--apply", "--yes")
    assert rebuilt.status == 0, rebuilt.stderr
    assert {path: path.read_bytes() for path, data in indexes.items() if data} == {
        path: data for path, data in indexes.items() if data
    }
    done = kafkalog(*words)
    assert done.status == 0, done.stderr
    assert cleaning.after is not None
    assert segment_files(partition) == segment_files(cleaning.after / PARTITION)
