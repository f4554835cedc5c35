"""Where Kafka's Cleaner fails, `compact` and `verify` report it, and nowhere else."""

from __future__ import annotations

import shutil
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from formats import constants as c
from formats.releases import by_name
from kafkalog.change.compaction import CompactionRequest, compact_partition, find_candidate
from kafkalog.check.verify import Verification
from kafkalog.errors import CorruptDataError
from kafkalog.files.log_dir import open_partition
from kafkalog.io.codecs import compress
from kafkalog.model import Level
from kafkalog.node.configs import ConfigSources
from tests.builders import BASE_TIME, batch, message, record
from tests.checkout import ROOT
from tests.kafka import broker_data
from tests.kafka.oracle import config_words
from tests.kafkalog.change.compaction.test_edges import write

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.oracle import Oracle

pytestmark = pytest.mark.kafka

RELEASE = by_name(broker_data.RELEASE)
NOW_MS = BASE_TIME + 3_600_000
COMPACTED = "customers-0"  # as the metadata log of the examples has it
TIMES = "Invalid negative timestamp"
EMPTY = "Empty batches are only supported for magic v2 and above"
NEWER = batch(2, [record(0, b"a")])


def two(*times: int, keys: tuple[bytes, bytes] = (b"a", b"b"), tombstone: bool = False) -> bytes:
    """Build a batch of two records with the offsets 0 and 1."""
    values = (b"v", None if tombstone else b"v")
    records = [record(i, keys[i], values[i], time_delta=times[i] - times[0]) for i in (0, 1)]
    return batch(0, records, base_time=times[0], max_time=max(-1, *times))


@dataclass(frozen=True)
class Log:
    """A closed segment with the offsets 0 to 2.

    Attributes:
        batches: the batches; the last one has offset 2.
        cleaner: start of the message of Kafka's Cleaner that ours repeats, None if it succeeds.
        is_warned: whether `verify` warns.
        newest: offset of the newest record, if the test has to make the indexes itself.
    """

    batches: tuple[bytes, ...]
    cleaner: str | None = None
    is_warned: bool = False
    newest: int | None = None


REWRITTEN = {
    "one record goes, the other is from before 1970": Log((two(-10, -15), NEWER), TIMES, True),
    "both stay as they are": Log((two(-10, -15, keys=(b"x", b"y")), NEWER), None, True),
    "the one from before 1970 goes": Log((two(-10, 5), NEWER), None, True),
    "a tombstone": Log((two(-10, 5, keys=(b"x", b"y"), tombstone=True), NEWER), TIMES, True),
    "no time": Log((two(-1, -1), NEWER)),
    "log append time": Log(
        (
            batch(0, [record(i, b"ab"[i : i + 1]) for i in (0, 1)], attributes=8, max_time=-10),
            NEWER,
        ),
        TIMES,
        True,
    ),
    "compressed": Log(
        (
            batch(
                0,
                payload=compress(record(0, b"a") + record(1, b"b", time_delta=-5), c.GZIP),
                count=2,
                attributes=c.GZIP,
                base_time=-10,
                max_time=-1,
            ),
            NEWER,
        ),
        TIMES,
        True,
    ),
    "magic 1": Log((message(0, b"x", time=-7), message(1, b"y"), NEWER), TIMES, True, 1),
    "an old last message without a key": Log(
        (message(0, b"x"), message(1, b"y"), message(2, None)), EMPTY, newest=0
    ),
    "a producer without an epoch": Log(
        (batch(0, [record(0, b"a"), record(1, b"b")], producer=(5, -1, 0)), NEWER),
        "Invalid negative producer epoch",
    ),
    "a producer without a sequence": Log(
        (batch(0, [record(0, b"a"), record(1, b"b")], producer=(5, 0, -1)), NEWER),
        "Invalid negative sequence number used",
    ),
    "healthy": Log((two(BASE_TIME, BASE_TIME + 1), NEWER)),
}
"""What is sound, and what becomes of it when it is written again."""

CLOSED = 3
"""The high watermark: where the closed segment ends, so that its last batch stays."""

_RECORDS = record(0, b"x") + record(1, b"y")
UNREADABLE = {
    "magic-unknown": batch(0, [record(0, b"x"), record(1, b"y")], magic=5),
    "batch-length-invalid": b"".join(
        (two(0, 0)[:8], (2_000_000_000).to_bytes(4, "big"), two(0, 0)[12:])
    ),
    "records-count-invalid": batch(0, payload=_RECORDS, count=3, last_delta=1),
    "records-left-over": batch(0, payload=_RECORDS + b"more", count=2),
    "record-malformed": batch(0, payload=b"\xff" * 16, count=2),
    "unknown-codec": batch(0, payload=_RECORDS, count=2, attributes=5),
    "decompression-failed": batch(0, payload=_RECORDS, count=2, attributes=c.GZIP),
}
"""A batch that is damaged in this way, before a sound one."""


def kafkas_passes(oracle: Oracle, partition: Path, *options: str) -> list[dict[str, Any]]:
    """Run Kafka's Cleaner on a copy, and return its answers."""
    copy = partition.parent / "kafka" / partition.name
    shutil.copytree(partition, copy)
    words = ("--now", str(NOW_MS), "--hw", str(CLOSED))
    answer = oracle.ask("compact", str(copy), *words, *options)
    shutil.rmtree(copy.parent)
    passes: list[dict[str, Any]] = answer["passes"]
    return passes


def log_dir(root: Path, *batches: bytes, newest: int | None = None) -> Path:
    """A compacted partition with a closed segment, and the metadata log that says so."""
    root.mkdir()
    partition = root / COMPACTED
    write(partition, 3, batch(3, [record(0, b"z")]))
    if newest is None:
        write(partition, 0, *batches)
    else:
        (partition / f"{0:020}.log").write_bytes(b"".join(batches))
        (partition / f"{0:020}.index").touch()
        entry = struct.pack(">qi", BASE_TIME, newest)
        (partition / f"{0:020}.timeindex").write_bytes(entry)
    shutil.copytree(ROOT / "examples/log-dir/__cluster_metadata-0", root / "__cluster_metadata-0")
    return partition


def ours(
    partition: Path, map_memory: int | None, given: dict[str, str] | None = None
) -> str | None:
    """Return what the plan of our compaction says; a limited map excludes the kernels."""
    sources = ConfigSources({"cleanup.policy": "compact", **(given or {})})
    configs = sources.in_log_dir(str(partition.parent)).of_topic("customers")
    configs.release = RELEASE
    request = CompactionRequest(
        NOW_MS, map_memory=map_memory, high_watermark=CLOSED, old_formats=True
    )
    candidate = find_candidate(open_partition(str(partition)), configs, request)
    return compact_partition(candidate, request).tally.cleaner_gives_up


def warnings(partition: Path, level: Level) -> list[str]:
    """Return the warnings of `verify` about the cleaner."""
    found = Verification(level).verify(str(partition))
    return [defect.detail for defect in found if defect.reference == "cleaner-stuck"]


@pytest.mark.parametrize("name", REWRITTEN)
def test_what_is_not_written_again(oracle: Oracle, tmp_path: Path, name: str) -> None:
    """Ours names the same reason, with and without kernels; it continues where Kafka's fails."""
    log = REWRITTEN[name]
    partition = log_dir(tmp_path / "dir", *log.batches, newest=log.newest)
    said = kafkas_passes(oracle, partition)[0].get("error")
    for map_memory in (None, 1 << 20):
        found = ours(partition, map_memory)
        if log.cleaner is None:
            assert (said, found) == (None, None)
        else:
            assert found is not None
            assert found.startswith(log.cleaner)
            assert said is not None
            assert found.partition(" (")[0] in said
    assert len(warnings(partition, Level.DEEP)) == log.is_warned


@pytest.mark.skipif(RELEASE.name == "4.3", reason="4.3 measures no records")
@pytest.mark.parametrize(("codec", "limit"), [(c.GZIP, 107), (c.GZIP, 108), (c.NONE, 107)])
def test_a_record_that_is_too_large(oracle: Oracle, tmp_path: Path, codec: int, limit: int) -> None:
    """Its fields have 108 bytes; only of compressed batches they count."""
    body = record(0, b"a", b"v" * 100) + record(1, b"b")
    body = compress(body, codec) if codec else body
    records = batch(0, payload=body, count=2, last_delta=1, attributes=codec)
    partition = log_dir(tmp_path / "dir", records, NEWER)
    given = {"max.decompressed.message.bytes": str(limit)}
    words = config_words({"cleanup.policy": "compact", **given})
    said = kafkas_passes(oracle, partition, *words)[0].get("error")
    found = ours(partition, None, given)
    assert (said is None) == (found is None) == (codec != c.GZIP or limit == 108)
    assert said is None or str(found).partition(" (")[0] in said


@pytest.mark.parametrize("reference", UNREADABLE)
def test_what_cannot_be_read(oracle: Oracle, tmp_path: Path, reference: str) -> None:
    """Kafka's Cleaner ends with an exception; `compact` and `verify` say so."""
    partition = log_dir(tmp_path / "dir", UNREADABLE[reference], NEWER, newest=2)
    assert "error" in kafkas_passes(oracle, partition)[0]
    with pytest.raises(CorruptDataError) as raised:
        ours(partition, None)
    assert "A broker's cleaner fails on this partition here." in (raised.value.note or "")
    [warning] = warnings(partition, Level.DEEP)
    assert reference in warning


def test_a_wrong_checksum_stops_no_cleaner(oracle: Oracle, tmp_path: Path) -> None:
    """The cleaner checks none."""
    data = bytearray(two(BASE_TIME, BASE_TIME))
    data[-2] ^= 1  # the last byte of a value
    partition = log_dir(tmp_path / "dir", bytes(data), NEWER, newest=2)
    assert "error" not in kafkas_passes(oracle, partition)[0]
    with pytest.raises(CorruptDataError) as raised:
        ours(partition, None)
    assert "cleaner" not in (raised.value.note or "")
    assert not warnings(partition, Level.DEEP)


def test_a_full_map_stops_no_cleaner(oracle: Oracle, tmp_path: Path) -> None:
    """One segment with more keys than the map holds takes more passes, in Kafka, too."""
    records = [record(i, b"%d" % i) for i in range(3)]
    partition = log_dir(tmp_path / "dir", batch(0, records))
    small = ("--map-bytes", "48", "--passes", "3")
    ends = [one["endOffset"] for one in kafkas_passes(oracle, partition, *small)]
    assert ends == [1, 2, 3]
    assert ours(partition, 48) is None
    assert not warnings(partition, Level.DEEP)


def test_only_what_is_compacted_and_closed_is_judged(tmp_path: Path) -> None:
    """The cleaner never touches topics that are not compacted, or active segments."""
    partition = log_dir(tmp_path / "dir", two(-10, -15), NEWER)
    assert warnings(partition, Level.DEEP)
    assert not warnings(partition.rename(partition.with_name("orders-0")), Level.DEEP)
    alone = log_dir(tmp_path / "other", two(-10, -15), NEWER)
    for entry in alone.glob(f"{3:020}.*"):
        entry.unlink()
    assert not warnings(alone, Level.DEEP)
