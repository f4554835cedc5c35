"""Copies that differ: which counts, up to where they agree, what is proven, who can be elected."""

from __future__ import annotations

import itertools
import random
import struct
from typing import TYPE_CHECKING

import pytest

from kafkalog.errors import NotFoundError, UsageError
from kafkalog.node.quorum.lineage import Lineage, Position, Span, Standing
from kafkalog.node.quorum.quorum import quorum, read_quorum
from kafkalog.node.targets import open_targets
from tests.nodes import METADATA, uuid
from tests.quorums import epoch_batches, write_copy, write_state

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from kafkalog.node.quorum.quorum import Quorum

Epochs = tuple[tuple[int, int], ...]


def read(*paths: Path) -> Quorum:
    return read_quorum(open_targets([str(path) for path in paths]))


def ids(voters: Iterable[object]) -> list[int]:
    return [one.node_id for one in voters]  # type: ignore[attr-defined] # voters


def written(root: Path, logs: dict[int, Epochs]) -> list[Path]:
    """Write copies with these epochs, each of which has noted its last one."""
    return [
        write_copy(root, node, epoch_batches(epochs), epoch=epochs[-1][0])
        for node, epochs in logs.items()
    ]


def up_to(epochs: Epochs) -> list[tuple[int, int]]:
    """Return the epoch of each offset: what a log is for Raft."""
    found: list[tuple[int, int]] = []
    for epoch, end in epochs:
        found += [(offset, epoch) for offset in range(len(found), end)]
    return found


DIVERGENT: list[dict[int, Epochs]] = [
    {1: ((1, 20),), 2: ((1, 12),), 3: ((1, 15),)},
    {1: ((1, 20),), 2: ((1, 12), (2, 18)), 3: ((1, 12), (2, 16))},
    {1: ((1, 30),), 2: ((1, 12), (2, 18)), 3: ((1, 12), (2, 15), (4, 19))},
    {1: ((1, 9), (3, 40)), 2: ((1, 12), (2, 18), (5, 22)), 3: ((1, 12), (2, 15), (4, 33))},
    {1: ((2, 20),), 2: ((2, 20),), 3: ((2, 20),)},
    {1: ((1, 20),), 2: ((1, 20), (6, 23)), 3: ((1, 20), (6, 23), (7, 26))},
]


@pytest.mark.parametrize("logs", DIVERGENT, ids=range(len(DIVERGENT)))
def test_the_latest_epoch_counts_then_the_end_in_any_order(
    logs: dict[int, Epochs], tmp_path: Path
) -> None:
    """As Raft compares logs; and where each parts from that, offset by offset."""
    paths = written(tmp_path, logs)
    best = max(logs, key=lambda node: (logs[node][-1], -node))
    wanted = up_to(logs[best])
    answers = set()
    for order in itertools.permutations(paths):
        found = read(*order)
        assert found.chosen is not None
        rows = {row.node_id: row for row in found.replicas}
        answers.add((found.chosen.node_id, found.end, found.proven, tuple(found.replicas)))
        for node, epochs in logs.items():
            here = up_to(epochs)
            pairs = enumerate(zip(here, wanted, strict=False))
            common = next((n for n, (ours, its) in pairs if ours != its),
                          min(len(here), len(wanted)))  # fmt: skip
            is_forked = common < min(len(here), len(wanted))
            assert rows[node].fork_offset == (common if is_forked else None)
            assert rows[node].behind_offsets == len(wanted) - common
    [(chosen, end, *_)] = answers
    assert (chosen, end) == (best, len(wanted))


@pytest.mark.parametrize("logs", DIVERGENT, ids=range(len(DIVERGENT)))
def test_candidates_are_those_that_a_majority_votes_for(
    logs: dict[int, Epochs], tmp_path: Path
) -> None:
    paths = written(tmp_path, logs)
    for count in 1, 2, 3:
        for some in itertools.combinations(zip(logs, paths, strict=True), count):
            here = {node: logs[node][-1] for node, _ in some}
            wanted = [
                node
                for node, log in here.items()
                if sum(other <= log for other in here.values()) >= 2
            ]
            assert ids(read(*(path for _, path in some)).candidates) == wanted


def test_an_observer_may_have_more_than_any_voter(tmp_path: Path) -> None:
    """A broker's copy counts like any other; of equal ones a voter's is taken."""
    epochs = (1, 20), (2, 26)
    written(tmp_path, {1: ((1, 20),), 11: epochs})
    found = read(tmp_path / "n1", tmp_path / "n11")
    assert found.chosen is not None
    assert (found.chosen.node_id, found.end) == (11, 26)
    written(tmp_path, {3: epochs})
    assert read(*(tmp_path / f"n{one}" for one in (11, 3))).chosen.node_id == 3  # type: ignore[union-attr]


def test_all_random_lineages_part_where_their_offsets_do() -> None:
    """Against a comparison offset by offset; also with gaps, and logs that begin later."""
    rnd = random.Random(7)

    def drawn() -> tuple[Lineage, dict[int, int]]:
        spans, offset, epoch = [], rnd.randrange(4), 0
        start = offset
        for _ in range(rnd.randrange(1, 4)):
            epoch += rnd.randrange(1, 3)
            end = offset + rnd.randrange(1, 4)
            spans.append(Span(epoch, offset, end))
            offset = end
        known = {at: one.epoch for one in spans for at in range(one.start, one.end)}
        return Lineage(start, tuple(spans)), known

    for _ in range(2000):
        (one, ours), (other, its) = drawn(), drawn()
        ends = min(one.end, other.end)
        apart = [at for at in range(ends) if at in ours and at in its and ours[at] != its[at]]
        fork = one.fork(other)
        assert fork == other.fork(one)
        if apart:
            assert fork == apart[0]
        else:
            assert fork <= ends


def test_logs_that_do_not_meet_part_where_epochs_would_fall() -> None:
    """A later epoch cannot come before an earlier one."""
    early = Lineage(0, (Span(2, 0, 5), Span(7, 5, 10)))
    assert early.fork(Lineage(20, (Span(3, 20, 30),))) == 5
    assert early.fork(Lineage(20, (Span(7, 20, 30),))) == 10
    gap = Lineage(0, (Span(2, 0, 3), Span(3, 8, 9)))
    assert gap.fork(Lineage(0, (Span(2, 0, 3), Span(7, 3, 8)))) == 3


@pytest.mark.parametrize(("snapshot", "standing"), [
    ((1, 8), Standing.OWN), ((1, 10), Standing.OWN), ((3, 11), Standing.OWN),
    ((3, 20), Standing.OWN), ((3, 21), Standing.BEYOND), ((4, 12), Standing.BEYOND),
    ((1, 11), Standing.FOREIGN), ((1, 30), Standing.FOREIGN), ((3, 10), Standing.FOREIGN),
    ((2, 15), Standing.FOREIGN), ((1, 5), Standing.OWN), ((1, 3), Standing.OWN),
    ((2, 3), Standing.FOREIGN),
])  # fmt: skip
def test_a_snapshot_belongs_to_the_log_that_wrote_its_last_offset(
    snapshot: tuple[int, int], standing: Standing
) -> None:
    log = Lineage(5, (Span(1, 5, 10), Span(3, 10, 20)))
    assert log.standing(Position(*snapshot)) == standing


def test_what_a_majority_has_is_proven_only_in_the_epoch_that_it_was_in(tmp_path: Path) -> None:
    """Voters that went on to a later epoch may have their last records from its leader.

    That leader may be gone, and another go on without them: figure 8 of the paper about Raft.
    """
    written(tmp_path, {1: ((1, 20),), 2: ((1, 18),), 3: ((1, 9),)})
    paths = [tmp_path / f"n{one}" for one in (1, 2, 3)]
    assert read(*paths).proven == 18
    assert read(paths[0], paths[2]).proven == 9
    assert read(paths[0]).proven == 0
    write_state(paths[1], 2)
    assert read(*paths).proven == 9
    (paths[1] / METADATA / "quorum-state").unlink()
    assert read(*paths).proven == 9
    written(tmp_path, {1: ((1, 20), (2, 24)), 2: ((1, 20),), 3: ((1, 20),)})
    assert read(*paths).proven == 0  # nothing of epoch 2 is anywhere else


def test_a_single_voter_has_committed_all(tmp_path: Path) -> None:
    write_copy(tmp_path, 1, epoch_batches([(1, 9), (2, 20)], [1]), epoch=5, voters=[1])
    assert read(tmp_path / "n1").proven == 20


def test_a_set_of_voters_that_is_not_proven_needs_the_one_before_it(tmp_path: Path) -> None:
    """Node 1 alone wrote that it is the only voter: nobody else has agreed to that."""
    batches = [*epoch_batches([(1, 9)]), *epoch_batches([(1, 9), (2, 20)], [1])[-9:]]
    write_copy(tmp_path, 1, batches, epoch=2)
    found = read(tmp_path / "n1")
    assert ids(found.voters.voters) == [1]
    assert (found.proven, found.end) == (0, 20)
    write_copy(tmp_path, 1, batches, [(20, 2)], epoch=2, voters=[1])
    assert read(tmp_path / "n1").proven == 20
    # One voter less is what a quorum may decide: the leader of two has committed that alone.
    (tmp_path / "n1" / METADATA / f"{20:020}-{2:010}.checkpoint").unlink()
    batches = [*epoch_batches([(1, 9)], [1, 2]), *epoch_batches([(1, 9), (2, 20)], [1])[-9:]]
    write_copy(tmp_path, 1, batches, epoch=2)
    assert read(tmp_path / "n1").proven == 20


def test_a_broker_that_was_shut_down_proves_its_registration(
    corpus_dir: Path, tmp_path: Path
) -> None:
    """The controller has told it the offset of that, which it does only of what is committed."""
    import shutil

    for node in 1, 11:
        shutil.copytree(corpus_dir / "quorum" / "dynamic-4.4" / f"n{node}", tmp_path / f"n{node}")
    paths = tmp_path / "n1", tmp_path / "n11"
    for path in paths:
        for one in (path / METADATA).glob("*.checkpoint"):
            one.unlink()
    from kafkalog.node.state.metadata import metadata

    epoch = metadata(paths[0]).image.brokers[11].epoch
    assert read(*paths).proven == 0
    mark = paths[1] / ".kafka_cleanshutdown"
    mark.write_text(f'{{"version":0,"brokerEpoch":{epoch}}}')
    assert read(*paths).proven == epoch + 1
    mark.write_text(f'{{"version":0,"brokerEpoch":{epoch + 1}}}')
    assert read(*paths).proven == 0


def test_pieces_of_several_copies_are_one_log(tmp_path: Path) -> None:
    """Each has damage elsewhere, and the only sound snapshot is an observer's."""
    batches = epoch_batches([(1, 40)])

    def hurt(*numbers: int) -> list[bytes]:
        return [
            one[:-1] + bytes([one[-1] ^ 1]) if number in numbers else one
            for number, one in enumerate(batches)
        ]

    write_copy(tmp_path, 1, hurt(20), epoch=1)
    write_copy(tmp_path, 2, hurt(8, 30)[:34], epoch=1)
    write_copy(tmp_path, 11, hurt(3, 4, 5)[:12], [(10, 1)], epoch=1)
    paths = [tmp_path / f"n{one}" for one in (1, 2, 11)]
    merged = read(*paths).merged
    assert merged is not None
    assert merged.snapshot is not None
    assert merged.snapshot.position == (1, 10)
    parts = [(part.replica.node_id, part.start, part.end) for part in merged.parts]
    assert parts == [(1, 10, 22), (2, 22, 32), (1, 32, 40)]
    assert merged.is_whole
    lost = read(paths[0], paths[2])
    assert lost.merged is not None
    assert (lost.merged.end, lost.merged.is_whole) == (22, False)
    assert lost.end == 40


def test_a_gap_is_not_filled_from_a_history_that_was_given_up(tmp_path: Path) -> None:
    """Node 2 has these offsets, too, but of the epoch that lost them."""
    batches = epoch_batches([(1, 12), (2, 30)])
    number = next(n for n, one in enumerate(batches) if one[:8] == (20).to_bytes(8, "big"))
    hurt = batches[number][:-1] + bytes([batches[number][-1] ^ 1])
    write_copy(tmp_path, 1, [*batches[:number], hurt, *batches[number + 1 :]], epoch=2)
    write_copy(tmp_path, 2, epoch_batches([(1, 28)]), epoch=1)
    merged = read(tmp_path / "n1", tmp_path / "n2").merged
    assert merged is not None
    assert (merged.end, merged.is_whole) == (20, False)
    assert {part.replica.node_id for part in merged.parts} == {1}


@pytest.mark.parametrize("offset", [0, 5, 8, 9, 12, 19])
@pytest.mark.parametrize("bit", range(32))
def test_each_bit_of_an_epoch_is_seen_alone(offset: int, bit: int, tmp_path: Path) -> None:
    """An epoch begins with its leader's message, and epochs never fall.

    Only the message of a leader may have any later epoch, if it is the last batch; and the first
    batch any earlier one, which the second contradicts.
    """
    batches = epoch_batches([(1, 9), (2, 20)])
    number = next(n for n, one in enumerate(batches) if one[:8] == offset.to_bytes(8, "big"))
    one = bytearray(batches[number])
    one[15 - bit // 8] ^= 1 << bit % 8
    hurt = [*batches[:number], bytes(one), *batches[number + 1 :]]
    log = read(write_copy(tmp_path, 1, hurt, epoch=2)).copies[0].log
    epoch = struct.unpack_from(">i", one, 12)[0]
    if (offset, epoch) == (0, 0):
        offset = 3
    assert log.lineage.whole_end == offset
    assert [(one.reference, one.offset) for one in log.defects] == [
        ("batch-leader-epoch-wrong", offset)
    ]


def test_a_snapshot_of_one_copy_goes_on_with_the_log_of_another(tmp_path: Path) -> None:
    """Where a log begins later than its snapshots end, another's snapshot bridges that."""
    batches = epoch_batches([(1, 40)])
    write_copy(tmp_path, 1, batches[18:], [(15, 1)], epoch=1, start=20)
    alone = read(tmp_path / "n1").merged
    assert alone is not None
    assert (alone.start, alone.end, alone.reach) == (15, 15, (1, 40))
    write_copy(tmp_path, 11, [], [(25, 1)], epoch=1, start=25)
    merged = read(tmp_path / "n1", tmp_path / "n11").merged
    assert merged is not None
    assert (merged.start, merged.end, merged.is_whole) == (25, 40, True)
    assert merged.replica is not None
    assert merged.replica.node_id == 11


def test_a_log_that_ends_behind_a_snapshot_of_a_later_epoch_has_parted_from_it(
    tmp_path: Path,
) -> None:
    longer = write_copy(tmp_path, 1, epoch_batches([(3, 60)]), epoch=3)
    later = write_copy(tmp_path, 2, [], [(40, 5)], epoch=5, start=40)
    found = read(longer, later)
    assert (found.end, found.proven) == (40, 40)
    states = {row.node_id: (row.states, row.fork_offset) for row in found.replicas}
    assert states == {1: (("forked",), 40), 2: (("newest",), None), 3: ((), None)}


def test_other_bytes_at_one_offset_of_one_epoch_are_a_split_brain(tmp_path: Path) -> None:
    write_copy(tmp_path, 1, epoch_batches([(1, 9), (2, 20)]), epoch=2)
    write_copy(tmp_path, 2, epoch_batches([(1, 9), (2, 20)], mark="x"), epoch=2)
    write_copy(tmp_path, 3, epoch_batches([(1, 9), (3, 15)]), epoch=3)
    found = read(*(tmp_path / f"n{one}" for one in (1, 2, 3)))
    [conflict] = found.conflicts
    assert (conflict.offset, conflict.epoch) == (12, 2)
    assert {one.rpartition("/n")[2][0] for one in conflict.paths} == {"1", "2"}
    assert [one.reference for one in found.defects] == ["metadata-split-brain"]
    states = {row.node_id: row.states for row in found.replicas}
    assert "split-brain" in states[1]
    assert "split-brain" not in states[3]


@pytest.mark.parametrize("epoch", [3, 1, 0x40000002])
def test_copies_show_that_an_epoch_is_wrong(epoch: int, tmp_path: Path) -> None:
    """Also that of the last batch, with which a leader began: it would count before all others."""
    batches = epoch_batches([(1, 9), (2, 12)])
    last = bytearray(batches[-1])
    struct.pack_into(">i", last, 12, epoch)
    write_copy(tmp_path, 1, [*batches[:-1], bytes(last)], epoch=2)
    paths = [tmp_path / "n1"]
    for node in 2, 11:
        more = epoch_batches([(1, 9), (2, 17)])
        paths.append(write_copy(tmp_path, node, more, epoch=2))
    found = read(*paths)
    assert [one.reference for one in found.defects] == ["batch-leader-epoch-wrong"]
    assert found.chosen is not None
    assert (found.chosen.node_id, found.end) == (2, 17)
    assert found.merged is not None
    assert found.merged.is_whole
    assert found.next_epoch == 3


def test_the_next_epoch_is_above_all_that_was_seen(tmp_path: Path) -> None:
    """Other disks may have other batches of an epoch that this one has seen."""
    write_copy(tmp_path, 1, epoch_batches([(1, 9), (2, 20)]), epoch=2)
    write_copy(tmp_path, 2, epoch_batches([(1, 9)]), epoch=7)
    write_copy(tmp_path, 11, epoch_batches([(1, 9)]), [(30, 9)], epoch=1)
    paths = [tmp_path / f"n{one}" for one in (1, 2, 11)]
    assert read(paths[0]).next_epoch == 3
    assert read(*paths[:2]).next_epoch == 8
    assert read(*paths).next_epoch == 10


def test_who_is_given_twice_counts_once(tmp_path: Path) -> None:
    """Two copies of one directory are not two voters; a new directory is not the voter's."""
    first = write_copy(tmp_path / "a", 1, epoch_batches([(1, 20)]), epoch=1)
    second = write_copy(tmp_path / "b", 1, epoch_batches([(1, 18)]), epoch=1)
    found = read(first, second)
    assert ids(found.present) == [1]
    assert found.candidates == ()
    assert [row.states for row in found.replicas if row.path] == [
        ("newest",), ("second-copy", "behind")
    ]  # fmt: skip
    link = tmp_path / "link"
    link.symlink_to(first)
    assert ids(read(first, link).present) == [1]
    other = write_copy(tmp_path / "c", 2, epoch_batches([(1, 20)]), epoch=1, directory=77)
    found = read(first, other)
    assert ids(found.replaced) == [2]
    assert [(row.node_id, str(row.role)) for row in found.replicas] == [
        (1, "voter"), (2, "lost"), (2, "observer"), (3, "lost")
    ]  # fmt: skip


def test_copies_of_several_clusters_are_refused(tmp_path: Path) -> None:
    first = write_copy(tmp_path, 1, epoch_batches([(1, 9)]), epoch=1)
    second = write_copy(tmp_path, 2, epoch_batches([(1, 9)]), epoch=1, cluster=uuid(98))
    with pytest.raises(UsageError, match="2 clusters"):
        quorum(first, second)
    (tmp_path / "n1" / METADATA).rename(tmp_path / "n1" / "orders-0")
    with pytest.raises(NotFoundError):
        quorum(first)
