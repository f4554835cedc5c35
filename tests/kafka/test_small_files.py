"""Malformed small files: Kafka's own classes and ours read the same entries or errors."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.errors import CorruptDataError
from kafkalog.files.log_dir import LogDirListing, list_partition, open_path
from kafkalog.files.text_files import read_offset_checkpoint
from kafkalog.node.recovery import NodeDir, NodeStart
from kafkalog.node.recovery.directory import Directory, check_partition_metadata
from kafkalog.node.recovery.model import StartRefusedError
from kafkalog.node.recovery.producers import LeaderEpochs
from tests.sampling import new_seed, tries_everything

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.kafka.oracle import Oracle

pytestmark = pytest.mark.kafka

FILES = {
    "leader-epoch-checkpoint": b"0\n3\n0 0\n4 17\n5 4000000000\n",
    "recovery-point-offset-checkpoint": b"0\n3\norders 0 12\nx.y_z 11 0\norders 1 5000000000\n",
    "log-start-offset-checkpoint": b"0\n1\norders 0 7\n",
    "partition.metadata": b"version: 0\ntopic_id: hPk5UTdUQhK8GdCZGLpcnA",
}
TOKENS = (
    *("", " ", "x", "0", "+0", "-0", "-1", "+", "-", "00", "1", "2", "1.0", "1e3", "0x1", "a b"),
    *("2147483647", "2147483648", "-2147483648", "9223372036854775807", "9223372036854775808"),
    *("1 2", "1 2 3", "\t", "\x0b", "\x0c", "\x1c", "\x85", "\xa0", "\u2028", "\0", "\ufeff"),
    *("\u0663", "\uff11", "\U0001d7d9", "#", ":", ": ", "topic_id:", "version: 0"),
    "topic_id: AAAAAAAAAAAAAAAAAAAAAA",
)
MALFORMED = (
    *(b"\xc3", b"\xe1\x80", b"\xed\xa0", b"\xf1\x80\x80", b"\xff", b"\x80", b"\xc3 ", b"\xe1\x80 "),
    *(b"\xed\xa0\x80", b"\xed\xa0 ", b"\xf4\x90\x80\x80", b"\xc0\x80", b"\xe0\x80"),
)
ENDS = [b"\n", b"\r", b"\r\n", b"\n\n", b" \n", b"\n ", b""]
LOGGED = ("NumberFormatException", "IllegalArgumentException")
"""What `LogManager` catches without more: no I/O error, and no `Error`."""
IDENTITY = "version=1\ncluster.id=hPk5UTdUQhK8GdCZGLpcnA\nnode.id=1\n"
MUTATIONS = 150
"""Of each file; 2,000 where everything is tried."""


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Apply one to three mistakes to the file."""
    for _ in range(rng.randint(1, 3)):
        kind = rng.randrange(7)
        lines = data.split(b"\n")
        at = rng.randrange(len(lines))
        if kind == 0:
            lines[at] = rng.choice(TOKENS).encode()
            data = b"\n".join(lines)
        elif kind == 1:
            fields = lines[at].split(b" ")
            fields[rng.randrange(len(fields))] = rng.choice(TOKENS).encode()
            lines[at] = b" ".join(fields)
            data = b"\n".join(lines)
        elif kind == 2:
            data = b"\n".join(lines[:at] + lines[at + 1 :])
        elif kind == 3:
            data = b"\n".join([*lines[:at], rng.choice(lines), *lines[at:]])
        elif kind == 4:
            data = data.replace(b"\n", rng.choice(ENDS), rng.randint(1, 4))
        elif kind == 5:
            data += rng.choice((b"", b"\n")) + b"x" * rng.choice((0, 9, 9000, 20_000))
            data += rng.choice(MALFORMED) + rng.choice((b"", b"\n"))
        else:
            place = rng.randrange(len(data) + 1)
            data = data[:place] + bytes([rng.randrange(256)]) + data[place + rng.randrange(2) :]
    return data


def ours(path: Path) -> tuple[str | None, Any]:
    """Return the exception that we predict for a start, or the content of the file."""
    if path.name == "leader-epoch-checkpoint":
        try:
            entries = LeaderEpochs(Directory(list_partition(str(path.parent)))).entries
        except StartRefusedError as refused:
            return refused.error, None
        return None, [[entry.leader_epoch, entry.start_offset] for entry in entries]
    if path.name == "partition.metadata":
        try:
            check_partition_metadata(Directory(list_partition(str(path.parent))))
        except StartRefusedError as refused:
            return refused.error, None
        return None, None
    log_dir = open_path(str(path.parent))
    assert isinstance(log_dir, LogDirListing)
    for found_here in NodeStart([NodeDir(log_dir)]).refusals:
        return found_here.refusal.error, None
    try:
        found = read_offset_checkpoint(str(path))
    except CorruptDataError:
        return "only logged", None
    entries = {(one.topic, one.partition): one.offset for one in found}
    return None, sorted([*name, offset] for name, offset in entries.items())


def kafkas(answer: dict[str, Any], name: str) -> tuple[str | None, Any]:
    """Return Kafka's exception or content; a broker only logs errors of an offset checkpoint."""
    if "error" not in answer:
        entries = None if name == "partition.metadata" else answer["entries"]
        return None, sorted(entries or []) if name.endswith("offset-checkpoint") else entries
    error = answer["error"].rpartition(".")[2]
    is_logged = name.endswith("offset-checkpoint") and error.endswith(LOGGED)
    return "only logged" if is_logged else error, None


def test_malformed_small_files_are_read_as_kafka_reads_them(
    oracle: Oracle, tmp_path: Path, tell: Callable[[str], None]
) -> None:
    seed = new_seed()
    rng = random.Random(seed)
    wrong, errors = [], set()
    count = 2000 if tries_everything() else MUTATIONS
    for name, data in FILES.items():
        directory = tmp_path / name / ("" if name.endswith("offset-checkpoint") else "orders-0")
        directory.mkdir(parents=True)
        if name.endswith("offset-checkpoint"):
            (directory / "meta.properties").write_text(IDENTITY)
        cases = [data, b"", *(mutated(data, rng) for _ in range(count))]
        for case in cases:
            path = directory / name
            path.write_bytes(case)
            wanted = kafkas(oracle.ask("small-file", str(path)), name)
            got = ours(path)
            errors.add(wanted[0])
            if got != wanted:
                wrong.append((name, case, wanted, got))
    tell(f"small files, seed {seed}: {count} mutations of each; {sorted(map(str, errors))}")
    assert not wrong, f"seed {seed}, {len(wrong)}:\n" + "\n".join(map(str, wrong[:20]))
    assert {None, "KafkaStorageException", "NumberFormatException", "only logged"} <= errors
