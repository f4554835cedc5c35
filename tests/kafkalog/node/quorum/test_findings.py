"""What makes a quorum go wrong, as findings of `quorum` and `verify`, and in the next start."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafkalog.check.verify import Verification
from kafkalog.errors import RefusedError
from kafkalog.node.quorum.quorum import read_quorum
from kafkalog.node.quorum.rescue import plan_rescue
from kafkalog.node.recovery import NextStart, NodeDir, nodes_of
from kafkalog.node.state.metadata import metadata
from kafkalog.node.targets import open_targets
from tests.builders import frames, write_log
from tests.nodes import METADATA
from tests.quorums import elected, epoch_batches, snapshot, write_copy, write_state

if TYPE_CHECKING:
    from pathlib import Path

OURS = {
    "foreign-snapshot", "snapshot-beyond-log", "quorum-epoch-below-log", "metadata-split-brain",
    "quorum-lost", "quorum-behind", "kraft-snapshot-torn",
}  # fmt: skip


def found(*paths: Path) -> list[tuple[str, str]]:
    """Return what `quorum` and `verify` say alike: the kind, and the name of the file."""
    quorum = read_quorum(open_targets([str(path) for path in paths]))
    told = [(one.reference, one.path) for one in quorum.defects if one.reference in OURS]
    verified = [(one.reference, one.path) for one in Verification().verify(*paths)]
    assert sorted(told) == sorted(one for one in verified if one[0] in OURS)
    return [(reference, path.rpartition("/")[2]) for reference, path in told]


def starts(path: Path) -> list[str]:
    """Return what the next start of a node would do except loading its logs."""
    dirs = [NodeDir(one) for one in open_targets([str(path)])]  # type: ignore[arg-type] # log dirs
    return [one.detail for node in nodes_of(dirs) for one in NextStart.of_node(node)]


def named(end: int, epoch: int) -> str:
    return f"{end:020}-{epoch:010}.checkpoint"


def test_snapshots_of_a_dead_history_are_foreign(tmp_path: Path) -> None:
    """A broker had more than the controller that was rescued: it cuts its log, and keeps them.

    As Kafka 4.4.0 left them after a quorum had gone on in epoch 3 from offset 338.
    """
    batches = epoch_batches([(1, 338)])
    rescued = [*batches, elected(338, 3, 1, [1], static=False)]
    controller = write_copy(tmp_path, 1, rescued, [(82, 1), (288, 1)], epoch=3, voters=[1])
    assert found(controller) == []
    assert starts(controller) == []
    ends = 82, 288, 356, 424, 490
    broker = write_copy(tmp_path, 11, rescued, [(end, 1) for end in ends], epoch=3)
    foreign = [("foreign-snapshot", named(end, 1)) for end in (356, 424, 490)]
    assert found(broker) == foreign
    assert found(controller, broker) == foreign
    [start] = starts(broker)
    assert start == (
        f"load {named(490, 1)}, of a history that the metadata log has given up, and apply nothing "
        "that the log has below offset 490"
    )
    # They stay foreign once the log has grown past them.
    grown = [*rescued, *_in_epoch(3, 341, 500)]
    write_copy(tmp_path, 11, grown, [(end, 1) for end in ends], epoch=3)
    assert found(broker) == foreign
    # One of the new history is loaded before them.
    write_copy(tmp_path, 11, grown, [(450, 3)], epoch=3)
    assert found(broker) == foreign
    assert starts(broker) == []


def _in_epoch(epoch: int, start: int, end: int) -> list[bytes]:
    """Return the batches of a log of one epoch that begin at these offsets."""
    return epoch_batches([(epoch, end)])[start - 2 : end - 2]


def test_a_truncated_survivor_has_foreign_snapshots(tmp_path: Path) -> None:
    """Empty voters were a majority, led, and cut the log of the only one that had something."""
    survivor = write_copy(
        tmp_path, 1, epoch_batches([(5, 38)], static=True), [(395, 4), (524, 4)], epoch=5,
        voters=None,
    )  # fmt: skip
    names = [("foreign-snapshot", named(395, 4)), ("foreign-snapshot", named(524, 4))]
    assert found(survivor) == names
    [start] = starts(survivor)
    assert named(524, 4) in start


def test_empty_static_voters_can_destroy_the_metadata(tmp_path: Path) -> None:
    """Two of three were formatted again: told before anything starts."""
    survivor = write_copy(
        tmp_path, 1, epoch_batches([(4, 60)], static=True), [(50, 4)], epoch=4, voters=None
    )
    empty = [write_copy(tmp_path, node, [], epoch=None, voters=None) for node in (2, 3)]
    for log_dir in empty:
        (log_dir / METADATA / f"{0:020}.log").unlink()
        (log_dir / METADATA / named(0, 0)).write_bytes(snapshot(None))
    assert found(survivor) == []
    assert found(survivor, empty[0]) == []
    assert found(survivor, *empty) == [("quorum-behind", METADATA)]
    quorum = read_quorum(open_targets([str(one) for one in (survivor, *empty)]))
    assert [one.node_id for one in quorum.empty] == [2, 3]
    assert [one.node_id for one in quorum.present] == [1]
    # Without a snapshot no disk proves that anything was committed, but most of it will have been.
    (survivor / METADATA / named(50, 4)).unlink()
    assert found(survivor, *empty) == [("quorum-behind", METADATA)]
    quorum = read_quorum(open_targets([str(one) for one in (survivor, *empty)]))
    with pytest.raises(RefusedError, match="can elect a leader") as refused:
        plan_rescue(quorum, {1: None})
    assert refused.value.hint == "2, 3 lack records, and are a majority: start others first."


def test_a_snapshot_beyond_its_log_replaces_it(tmp_path: Path) -> None:
    log_dir = write_copy(tmp_path, 11, epoch_batches([(1, 40)]), [(30, 1)], epoch=2)
    assert found(log_dir) == []
    for end, epoch in (55, 1), (41, 1), (20, 2):
        beyond = log_dir / METADATA / named(end, epoch)
        beyond.write_bytes(snapshot())
        assert found(log_dir) == [("snapshot-beyond-log", beyond.name)]
        [start] = starts(log_dir)
        assert start == f"drop the metadata log up to offset 40: {beyond.name} is newer"
        quorum = read_quorum(open_targets([str(log_dir)]))
        assert quorum.end == end
        beyond.unlink()
    # A log that has just been started behind a snapshot from the leader is not dropped.
    write_copy(tmp_path, 12, [], [(55, 4)], epoch=4, start=55)
    assert found(tmp_path / "n12") == []
    assert starts(tmp_path / "n12") == []
    assert read_quorum(open_targets([str(tmp_path / "n12")])).end == 55


@pytest.mark.parametrize("epoch", [None, 1])
def test_an_epoch_below_the_log_may_vote_again(epoch: int | None, tmp_path: Path) -> None:
    log_dir = write_copy(tmp_path, 1, epoch_batches([(1, 9), (2, 20)]), epoch=epoch)
    assert found(log_dir) == [("quorum-epoch-below-log", "quorum-state")]
    write_state(log_dir, 2)
    assert found(log_dir) == []


def test_a_malformed_quorum_state_is_told_once(tmp_path: Path) -> None:
    log_dir = write_copy(tmp_path, 1, epoch_batches([(1, 20)]), epoch=1)
    (log_dir / METADATA / "quorum-state").write_text("{")
    quorum = read_quorum(open_targets([str(log_dir)]))
    assert [one.reference for one in quorum.defects] == ["file-malformed"]
    assert found(log_dir) == []


def test_voters_that_were_formatted_again_are_lost(tmp_path: Path) -> None:
    """Their records name directories that their nodes have not any more."""
    batches = epoch_batches([(1, 20)])
    first = write_copy(tmp_path, 1, batches, epoch=1)
    other = [write_copy(tmp_path, node, batches, epoch=1, directory=node + 50) for node in (2, 3)]
    assert found(first, other[0]) == []
    assert found(first, *other) == [("quorum-lost", METADATA)]


def test_two_leaders_of_one_epoch_are_told(tmp_path: Path) -> None:
    paths = [
        write_copy(tmp_path, node, epoch_batches([(1, 9), (2, 20)], mark=mark), epoch=2)
        for node, mark in ((1, ""), (2, "x"), (3, ""))
    ]
    assert found(*paths) == [("metadata-split-brain", METADATA)]
    assert found(paths[0], paths[2]) == []


def test_a_torn_snapshot_is_told(tmp_path: Path) -> None:
    log_dir = write_copy(tmp_path, 1, epoch_batches([(1, 20)]), [(9, 1), (15, 1)], epoch=1)
    newest = log_dir / METADATA / named(15, 1)
    data = newest.read_bytes()
    newest.write_bytes(data[: frames(data)[-1][0]])
    assert found(log_dir) == [("kraft-snapshot-torn", newest.name)]


def test_metadata_are_those_of_the_log_and_not_of_a_foreign_snapshot(tmp_path: Path) -> None:
    """Kafka loads the snapshot; the cluster goes on with what the log says."""
    log_dir = write_copy(tmp_path, 11, epoch_batches([(1, 30), (3, 40)]), [(20, 1)], epoch=3)
    (log_dir / METADATA / "leader-epoch-checkpoint").write_text("0\n2\n1 0\n3 30\n")
    events: list[object] = []
    before = metadata(log_dir, on_event=events.append)
    assert (before.end_offset, before.committed, before.image.snapshot) == (40, 20, named(20, 1))
    assert {"t33", "t39"} <= before.image.topics.keys()
    (log_dir / METADATA / named(60, 1)).write_bytes(snapshot())
    after = metadata(log_dir, on_event=events.append)
    assert after.image.topics == before.image.topics
    assert (after.end_offset, after.committed) == (40, 20)
    assert [one.reference for one in after.image.defects] == ["foreign-snapshot"]
    assert found(log_dir) == [("foreign-snapshot", named(60, 1))]


def test_what_a_broker_deletes_meanwhile_is_no_damage(tmp_path: Path) -> None:
    """The oldest segment and an old snapshot go after they were listed; a later segment may not."""
    batches = epoch_batches([(1, 40)])
    log_dir = write_copy(tmp_path, 1, batches[:8], [(9, 1), (20, 1), (35, 1)], epoch=1)
    for start, some in ((10, batches[8:18]), (20, batches[18:28]), (30, batches[28:])):
        write_log(log_dir / METADATA, *some, name=f"{start:020}")
    targets = open_targets([str(log_dir)])
    assert read_quorum(targets).defects == ()
    for name in (f"{0:020}.log", f"{10:020}.log", named(9, 1)):
        (log_dir / METADATA / name).unlink()
    quorum = read_quorum(targets)
    assert quorum.defects == ()
    assert (quorum.replicas[0].log_start_offset, quorum.end) == (20, 40)
    assert [one.position.end for one in quorum.copies[0].snapshots] == [20, 35]
    (log_dir / METADATA / f"{30:020}.log").unlink()
    assert [one.reference for one in read_quorum(targets).defects] == ["file-unreadable"]
    (log_dir / METADATA / f"{30:020}.log").symlink_to("nowhere")
    (log_dir / METADATA / named(37, 1)).symlink_to("nowhere")
    told = read_quorum(open_targets([str(log_dir)])).defects
    assert [one.reference for one in told] == ["file-unreadable", "file-unreadable"]
