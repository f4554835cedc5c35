"""Plans of a rescue: the bytes that make a controller lead, the steps, and what is refused."""

from __future__ import annotations

import base64
import struct
from typing import TYPE_CHECKING

import pytest

from kafkalog.errors import RefusedError, UsageError
from kafkalog.node.quorum.model import Voter
from kafkalog.node.quorum.quorum import Quorum, read_quorum
from kafkalog.node.quorum.rescue import RescueStep, first_batch, plan_rescue
from kafkalog.node.targets import open_targets
from tests.builders import batch, record
from tests.nodes import METADATA
from tests.quorums import elected, epoch_batches, write_copy

if TYPE_CHECKING:
    from pathlib import Path


def read(*paths: Path) -> Quorum:
    return read_quorum(open_targets([str(path) for path in paths]))


def test_the_first_batch_is_byte_for_byte_what_kafka_leads_with() -> None:
    """By the layout of `LeaderChangeMessage`, `KRaftVersionRecord` and `VotersRecord`, version 0.

    Kafka 4.3.0 and 4.4.0 led on such bytes.
    """
    directory = bytes(range(16))
    listener = b"\x0bCONTROLLER\x0a127.0.0.1" + struct.pack(">H", 28101) + b"\0"
    values = [
        (2, bytes.fromhex("0000 00000001 02 00000001 00 02 00000001 00 00")),
        (5, bytes.fromhex("0000 0001 00")),
        (6, b"\0\0\x02" + struct.pack(">i", 1) + directory + b"\x02" + listener
         + struct.pack(">hh", 0, 1) + b"\0\0\0"),
    ]  # fmt: skip
    records = [
        record(delta, struct.pack(">hh", 0, kind), value)
        for delta, (kind, value) in enumerate(values)
    ]
    wanted = batch(519, records, attributes=0x20, epoch=4, base_time=1234, max_time=1234)
    text = base64.urlsafe_b64encode(directory).decode().rstrip("=")
    voter = Voter(1, text, (("CONTROLLER", "127.0.0.1", 28101),))
    built = first_batch(519, 4, 1, [voter], 1234)
    assert built == wanted
    assert len(built) == 174
    three = [voter._replace(node_id=one) for one in (1, 2, 3)]
    assert len(first_batch(519, 4, 1, three, 1234)) == 287


def actions(steps: tuple[RescueStep, ...]) -> list[tuple[str, int | None]]:
    return [(one.action, one.node_id) for one in steps]


def test_the_plan_of_a_survivor(corpus_dir: Path) -> None:
    killed = corpus_dir / "quorum" / "dynamic-4.4"
    plan = plan_rescue(read(killed / "n1", killed / "n11"), 1)
    assert (plan.end_offset, plan.leader_epoch, plan.lost_offsets) == (519, 2, 0)
    assert plan.not_proven_offsets == 29
    assert plan.listener == ("CONTROLLER", "127.0.0.1", 28101)
    assert actions(plan.steps) == [
        ("erase", 2), ("erase", 3), ("copy-snapshot", None), ("copy-log", None), ("append", None),
        ("write", None), ("write", None), ("configure", 1), ("start", 1),
        ("format", 2), ("start", 2), ("add-controller", 2),
        ("format", 3), ("start", 3), ("add-controller", 3), ("start", None),
    ]  # fmt: skip
    assert [one.step for one in plan.steps] == [*range(1, 17)]
    assert "174 bytes at offset 519: epoch 2 begins" in plan.steps[4].detail
    assert len(plan.warnings) == 3


def test_any_copy_will_do_for_any_controller(corpus_dir: Path) -> None:
    """All controllers are gone: a broker's copy is the log of one of them."""
    killed = corpus_dir / "quorum" / "dynamic-4.4"
    plan = plan_rescue(read(killed / "n11", killed / "n12"), 2, ("new", 9093))
    assert plan.source.node_id == 11
    assert plan.listener == ("CONTROLLER", "new", 9093)
    assert plan.end_offset == 519
    static = corpus_dir / "quorum" / "static-4.3"
    plan = plan_rescue(read(static / "n12"), 3, ("new", 9093))
    assert ("append", None) not in actions(plan.steps)
    configured = [one.detail for one in plan.steps if one.action == "configure"]
    assert configured == [
        "controller.quorum.voters=3@new:9093",
        "on all controllers: controller.quorum.voters=3@new:9093,1@HOST:PORT",
        "on all controllers: controller.quorum.voters=3@new:9093,1@HOST:PORT,2@HOST:PORT",
    ]


def test_what_the_new_history_contradicts_is_moved_away(tmp_path: Path) -> None:
    """A copy that is only behind stays; one with other offsets, or foreign snapshots, does not."""
    rescued = [*epoch_batches([(1, 338)]), elected(338, 3, 1, [1, 2, 3], static=False)]
    write_copy(tmp_path, 1, rescued, [(288, 1)], epoch=3)
    write_copy(tmp_path, 11, rescued, [(288, 1), (490, 1)], epoch=3)
    write_copy(tmp_path, 12, epoch_batches([(1, 519)]), epoch=1)
    write_copy(tmp_path, 13, rescued[:300], [(288, 1)], epoch=3)
    plan = plan_rescue(read(*(tmp_path / f"n{one}" for one in (1, 11, 12, 13))), 1)
    moved = {one.node_id: one for one in plan.steps if one.action == "move-away"}
    assert moved.keys() == {11, 12}
    assert moved[11].path == str(tmp_path / "n11" / METADATA)
    assert "snapshots of another history" in moved[11].detail
    assert "from offset 338 on is given up" in moved[12].detail


def test_what_is_lost_in_the_middle_ends_the_log(tmp_path: Path) -> None:
    """Then nobody may keep what comes after it."""
    batches = epoch_batches([(1, 40)])
    hurt = [one[:-1] + bytes([one[-1] ^ 1]) if n == 20 else one for n, one in enumerate(batches)]
    write_copy(tmp_path, 1, hurt, [(9, 1)], epoch=1)
    write_copy(tmp_path, 11, hurt, epoch=1)
    found = read(tmp_path / "n1", tmp_path / "n11")
    with pytest.raises(RefusedError, match="18 offsets from 22 on"):
        plan_rescue(found, 1)
    plan = plan_rescue(found, 1, allow_loss=True)
    assert (plan.end_offset, plan.lost_offsets) == (22, 18)
    assert [one.node_id for one in plan.steps if one.action == "move-away"] == [11]


def test_what_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = {node: write_copy(tmp_path, node, epoch_batches([(1, 20)]), epoch=1) for node in (1, 2)}
    with pytest.raises(RefusedError, match="can elect a leader: 1, 2"):
        plan_rescue(read(*logs.values()), 1)
    other = write_copy(tmp_path, 11, epoch_batches([(1, 20)], mark="x"), epoch=1)
    with pytest.raises(RefusedError, match="Two leaders wrote in epoch 1, from offset 3 on"):
        plan_rescue(read(logs[1], other), 1)
    late = write_copy(tmp_path, 12, epoch_batches([(1, 30)])[10:], epoch=1, start=12)
    with pytest.raises(RefusedError, match="begins at offset 12"):
        plan_rescue(read(late), 1)
    empty = write_copy(tmp_path, 13, [], epoch=1)
    with pytest.raises(RefusedError, match="No copy here has any metadata"):
        plan_rescue(read(empty), 1)
    with pytest.raises(UsageError, match="where controller 7 listens"):
        plan_rescue(read(logs[1]), 7)
    assert plan_rescue(read(logs[1]), 1).listener == ("CONTROLLER", "node1", 9093)
    monkeypatch.setattr("kafkalog.node.quorum.read.is_broker_running", lambda _: True)
    with pytest.raises(RefusedError, match="A broker is running"):
        plan_rescue(read(logs[1]), 1)


def test_a_cluster_without_an_id_is_refused(tmp_path: Path) -> None:
    log_dir = write_copy(tmp_path, 1, epoch_batches([(1, 9)]), epoch=1)
    (log_dir / "meta.properties").unlink()
    with pytest.raises(RefusedError, match="which cluster this is"):
        plan_rescue(read(log_dir), 1, ("controller1", 9093))
