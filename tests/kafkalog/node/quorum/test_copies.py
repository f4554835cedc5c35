"""Killed clusters of real Kafka, whole and damaged: what is read of each copy, and of all of them.

What is expected comes from the bytes, by `struct` and another package's CRC-32C.
"""

from __future__ import annotations

import re
import shutil
import struct
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import crc32c as wheel
import pytest

from kafkalog.node.quorum.quorum import read_quorum
from kafkalog.node.targets import open_targets
from tests.builders import flip, frames
from tests.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalog.node.quorum.quorum import Quorum

METADATA = "__cluster_metadata-0"
CONTROLLERS, BROKERS = (1, 2, 3), (11, 12)
SUBSETS = [one for count in range(1, 6) for one in combinations((*CONTROLLERS, *BROKERS), count)]
ENDS = {"dynamic-4.4": 519, "static-4.3": 237}
LAST = {"dynamic-4.4": f"{344:020}.log", "static-4.3": f"{0:020}.log"}
SNAPSHOTS = {"dynamic-4.4": 490, "static-4.3": 217}
"""The end of the newest snapshot of nodes 1 and 12."""


def quorum_at(paths: Iterable[Path]) -> Quorum:
    return read_quorum(open_targets([str(path) for path in paths]))


@pytest.fixture(params=ENDS)
def killed(request: pytest.FixtureRequest, corpus_dir: Path) -> Path:
    """The directories of the nodes of a killed cluster."""
    return corpus_dir / "quorum" / request.param


class Header(NamedTuple):
    """A batch, by the bytes of its header: where it is, and whether its checksum is right."""

    position: int
    end_position: int
    base_offset: int
    next_offset: int
    epoch: int
    is_right: bool


def headers(data: bytes) -> list[Header]:
    found = []
    for at, size in frames(data):
        if at + size > len(data):
            break
        base, epoch, magic, crc, delta = struct.unpack_from(">q4xibI2xi", data, at)
        right = magic == 2 and wheel.crc32c(data[at + 21 : at + size]) == crc
        found.append(Header(at, at + size, base, base + delta + 1, epoch, right))
    return found


def stated(killed: Path, node: int, name: str) -> str:
    text = (killed / f"n{node}" / "meta.properties").read_text()
    found = re.search(rf"^{re.escape(name)}=(.*)$", text, re.MULTILINE)
    assert found is not None
    return found[1]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("nodes", SUBSETS, ids=str)
def test_what_is_here_decides_who_can_be_elected(killed: Path, nodes: tuple[int, ...]) -> None:
    """All logs are equal: a majority of voters can elect any of them, and proves all of it."""
    found = quorum_at(killed / f"n{node}" for node in nodes)
    voters = tuple(one for one in nodes if one in CONTROLLERS)
    can = voters if len(voters) >= 2 else ()
    assert tuple(one.node_id for one in found.candidates) == can
    assert tuple(one.node_id for one in found.present) == voters
    is_dynamic = killed.name.startswith("dynamic")
    directories = [
        stated(killed, one, "directory.id") if is_dynamic else None for one in CONTROLLERS
    ]
    assert [(one.node_id, one.directory_id) for one in found.voters.voters] == [
        *zip(CONTROLLERS, directories, strict=True)
    ]
    ports = [listener for one in found.voters.voters for *_, listener in one.listeners]
    assert ports == ([28101, 28102, 28103] if is_dynamic else [])
    assert found.kraft_version == is_dynamic
    assert found.cluster_id == stated(killed, 1, "cluster.id")
    newest = [int(path.name[:20]) for node in nodes
              for path in (killed / f"n{node}" / METADATA).glob("*.checkpoint")]  # fmt: skip
    end = ENDS[killed.name]
    proven = end if can else max(newest)
    assert (found.end, found.proven, found.next_epoch) == (end, proven, 2)
    assert [one.offset for one in found.records] == [*range(proven, end)]
    rows = {one.node_id: one for one in found.replicas}
    assert rows.keys() == {*nodes, *CONTROLLERS}
    roles = {node: "voter" if node in CONTROLLERS else "observer" for node in nodes}
    assert {node: str(rows[node].role) for node in rows} == {
        **dict.fromkeys(CONTROLLERS, "lost"), **roles
    }  # fmt: skip
    assert all(rows[node].states == ("newest",) for node in nodes)
    assert found.defects == ()


def copied(killed: Path, tmp_path: Path, nodes: Iterable[int]) -> Path:
    for node in nodes:
        shutil.copytree(killed / f"n{node}", tmp_path / f"n{node}")
    return tmp_path


@pytest.mark.parametrize("others", [(), (3, 11)], ids=["alone", "with others"])
def test_each_cut_of_the_last_batches(
    killed: Path, tmp_path: Path, others: tuple[int, ...]
) -> None:
    """A log that is cut ends with its last whole batch; others have what it has lost."""
    root = copied(killed, tmp_path, (1, *others))
    log = root / "n1" / METADATA / LAST[killed.name]
    data, whole = log.read_bytes(), ENDS[killed.name]
    last = headers(data)[-3:]
    for size in sampled(range(last[0].position, len(data)), 30):
        log.write_bytes(data[:size])
        end = max(one.next_offset for one in headers(data) if one.end_position <= size)
        found = quorum_at(root / f"n{node}" for node in (1, *others))
        row = found.replicas[0]
        assert (row.log_end_offset, row.damaged_offset) == (end, None), size
        assert (found.end, found.next_epoch) == (whole if others else end, 2)
        if others:
            assert row.states == ("behind",)
            assert row.behind_offsets == whole - end
            assert {part.replica.node_id for part in found.merged.parts} == {3}  # type: ignore[union-attr]
        assert found.defects == ()


def merged_bytes(found: Quorum, batches: list[Header]) -> bytes:
    """Return the bytes of the last segments that are taken: batches are where they are in all."""
    assert found.merged is not None
    data = b""
    for part in found.merged.parts:
        bytes_of_log = Path(part.replica.partition.segments[-1].log.path).read_bytes()
        data += b"".join(
            bytes_of_log[one.position : one.end_position]
            for one in batches
            if part.start <= one.base_offset < part.end
        )
    return data


def test_a_flipped_bit_ends_a_log_and_is_bridged_by_others(killed: Path, tmp_path: Path) -> None:
    """Each batch of the last segment, one bit anywhere in it; also what no checksum covers.

    Alone the log ends before the batch. With another copy all is there, and none of the bytes that
    are taken is wrong: they are those of the sound log.
    """
    root = copied(killed, tmp_path, (1, 12))
    log = root / "n1" / METADATA / LAST[killed.name]
    data = log.read_bytes()
    batches = headers(data)
    sound = b"".join(data[one.position : one.end_position] for one in batches)
    for number in sampled(range(len(batches)), 40):
        one = batches[number]
        # Over all batches, each bit of a header.
        for bit in sampled(range(8 * one.position + number % 29, 8 * one.end_position, 29), 4):
            log.write_bytes(flip(data, bit))
            alone = quorum_at([root / "n1"])
            row = alone.replicas[0]
            where = f"batch {number}, bit {bit - 8 * one.position}"
            assert row.damaged_offset is not None, where
            # The first batch says with which epoch the log begins, and the second contradicts it.
            ends = {one.base_offset, batches[0].next_offset} if not number else {one.base_offset}
            assert row.log_end_offset in ends, where
            assert alone.defects, where
            both = quorum_at([root / "n1", root / "n12"])
            assert both.merged is not None
            assert (both.end, both.merged.end) == (ENDS[killed.name], ENDS[killed.name]), where
            assert both.merged.start == SNAPSHOTS[killed.name], where
            taken = b"".join(
                sound[one.position : one.end_position]
                for one in batches
                if one.next_offset > SNAPSHOTS[killed.name]
            )
            assert merged_bytes(both, batches) == taken, where


def test_a_flipped_bit_in_a_snapshot_is_named(killed: Path, tmp_path: Path) -> None:
    """The log goes on from an older one, or from another copy's; offset and epoch do not matter."""
    root = copied(killed, tmp_path, (1, 12))
    newest = max((root / "n1" / METADATA).glob("*.checkpoint"))
    data = newest.read_bytes()
    for one in headers(data):
        bits = [bit for byte in range(one.position + 16, one.end_position) for bit in (8 * byte,)]
        bits += [8 * byte + 7 for byte in range(one.position + 8, one.position + 12)]
        for bit in sampled(bits, 2000):
            newest.write_bytes(flip(data, bit))
            alone = quorum_at([root / "n1"])
            assert alone.replicas[0].states[0] == "damaged", bit
            assert {one.path for one in alone.defects} == {str(newest)}
            merged = alone.merged
            assert merged is not None
            assert merged.snapshot is not None
            assert merged.snapshot.position.end < int(newest.name[:20])
            assert merged.end == ENDS[killed.name]
            both = quorum_at([root / "n1", root / "n12"])
            assert both.merged is not None
            assert both.merged.replica is not None
            assert both.merged.replica.node_id == 12


def test_a_snapshot_without_its_footer_is_not_whole(killed: Path, tmp_path: Path) -> None:
    root = copied(killed, tmp_path, (1,))
    newest = max((root / "n1" / METADATA).glob("*.checkpoint"))
    data = newest.read_bytes()
    newest.write_bytes(data[: frames(data)[-1][0]])
    [defect] = quorum_at([root / "n1"]).defects
    assert defect.reference == "kraft-snapshot-torn"
    newest.write_bytes(b"")
    [defect] = quorum_at([root / "n1"]).defects
    assert defect.reference == "kraft-snapshot-empty"


def test_a_missing_segment_is_a_gap(killed: Path, tmp_path: Path) -> None:
    """What is behind it counts: the snapshot before it is all that there is below."""
    if killed.name.startswith("static"):
        shutil.copytree(killed / "n1", tmp_path / "n1")
        (tmp_path / "n1" / METADATA / f"{0:020}.log").unlink()
        found = quorum_at([tmp_path / "n1"])
        assert (found.end, found.merged.end) == (217, 217)  # type: ignore[union-attr]
        return
    root = copied(killed, tmp_path, (1,))
    log = root / "n1" / METADATA / f"{0:020}.log"
    data = log.read_bytes()
    log.write_bytes(data[: headers(data)[-1].position])
    lacking = headers(data)[-1].base_offset
    found = quorum_at([root / "n1"])
    assert found.replicas[0].log_end_offset == lacking
    assert [one.reference for one in found.defects] == ["offsets-missing"]
    assert (found.end, found.merged.end) == (519, 519)  # type: ignore[union-attr]
