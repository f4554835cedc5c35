"""Plans of a rescue: the bytes that make a controller lead, the steps, and what is refused."""

from __future__ import annotations

import base64
import shutil
import struct
from typing import TYPE_CHECKING

import pytest

from kafkalog.errors import RefusedError, UsageError
from kafkalog.node.quorum.model import Voter
from kafkalog.node.quorum.quorum import Quorum, read_quorum
from kafkalog.node.quorum.rescue import RescueStep, first_batch, plan_rescue
from kafkalog.node.targets import open_targets
from tests.builders import batch, flip, record
from tests.nodes import METADATA, uuid
from tests.quorums import elected, epoch_batches, write_copy, write_state

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
    plan = plan_rescue(read(killed / "n1", killed / "n11"), {1: None})
    assert (plan.end_offset, plan.leader_epoch, plan.lost_offsets) == (519, 2, 0)
    assert plan.not_proven_offsets == 29
    assert plan.voters == (Voter(1, None, (("CONTROLLER", "127.0.0.1", 28101),)),)
    assert actions(plan.steps) == [
        ("copy-snapshot", None), ("copy-log", None), ("append", None), ("write", None),
        ("write", None), ("move-away", 1), ("erase", 2), ("erase", 3),
        ("configure", 1), ("start", 1),
        ("format", 2), ("start", 2), ("add-controller", 2),
        ("format", 3), ("start", 3), ("add-controller", 3), ("start", None),
    ]  # fmt: skip
    assert [one.step for one in plan.steps] == [*range(1, 18)]
    assert "174 bytes at offset 519: epoch 2 begins" in plan.steps[2].detail
    assert len(plan.warnings) == 3


def test_any_copy_will_do_for_any_controller(corpus_dir: Path) -> None:
    """All controllers are gone: a broker's copy is the log of one of them."""
    killed = corpus_dir / "quorum" / "dynamic-4.4"
    plan = plan_rescue(read(killed / "n11", killed / "n12"), {2: ("new", 9093)})
    assert plan.source.node_id == 11
    assert plan.voters == (Voter(2, None, (("CONTROLLER", "new", 9093),)),)
    assert plan.end_offset == 519
    assert actions(plan.steps)[5:8] == [("erase", 1), ("erase", 2), ("erase", 3)]
    static = corpus_dir / "quorum" / "static-4.3"
    plan = plan_rescue(read(static / "n12"), {3: ("new", 9093)})
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
    plan = plan_rescue(read(*(tmp_path / f"n{one}" for one in (1, 11, 12, 13))), {1: None})
    moved = {one.node_id: one for one in plan.steps if one.action == "move-away"}
    assert moved.keys() == {1, 11, 12}
    assert "its log directory is the new one" in moved[1].detail
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
        plan_rescue(found, {1: None})
    plan = plan_rescue(found, {1: None}, allow_loss=True)
    assert (plan.end_offset, plan.lost_offsets) == (22, 18)
    assert [one.node_id for one in plan.steps if one.action == "move-away"] == [1, 11]
    assert "18 offsets from 22 on are lost" in plan.warnings[0]


def test_what_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = {node: write_copy(tmp_path, node, epoch_batches([(1, 20)]), epoch=1) for node in (1, 2)}
    with pytest.raises(RefusedError, match="can elect a leader: 1, 2"):
        plan_rescue(read(*logs.values()), {1: None})
    other = write_copy(tmp_path, 11, epoch_batches([(1, 20)], mark="x"), epoch=1)
    with pytest.raises(RefusedError, match="Two leaders wrote in epoch 1, from offset 3 on"):
        plan_rescue(read(logs[1], other), {1: None})
    late = write_copy(tmp_path, 12, epoch_batches([(1, 30)])[10:], epoch=1, start=12)
    with pytest.raises(RefusedError, match="begins at offset 12"):
        plan_rescue(read(late), {1: None})
    empty = write_copy(tmp_path, 13, [], epoch=1)
    with pytest.raises(RefusedError, match="No copy here has any metadata"):
        plan_rescue(read(empty), {1: None})
    with pytest.raises(UsageError, match="where controller 7 listens"):
        plan_rescue(read(logs[1]), {7: None})
    [leader] = plan_rescue(read(logs[1]), {1: None}).voters
    assert leader.listeners == (("CONTROLLER", "node1", 9093),)
    monkeypatch.setattr("kafkalog.node.quorum.read.is_broker_running", lambda _: True)
    with pytest.raises(RefusedError, match="A broker is running"):
        plan_rescue(read(logs[1]), {1: None})


def test_a_cluster_without_an_id_is_refused(tmp_path: Path) -> None:
    log_dir = write_copy(tmp_path, 1, epoch_batches([(1, 9)]), epoch=1)
    (log_dir / "meta.properties").unlink()
    with pytest.raises(RefusedError, match="which cluster this is"):
        plan_rescue(read(log_dir), {1: ("controller1", 9093)})


MOVED = {one: ("127.0.0.1", 28200 + one) for one in (1, 2, 3)}


def test_the_plan_of_controllers_that_moved(corpus_dir: Path) -> None:
    """One directory is made, of a new directory id; the other voters keep theirs."""
    killed = corpus_dir / "quorum" / "dynamic-4.4"
    found = read(*(killed / f"n{node}" for node in (1, 2, 3, 11)))
    ids = {one.node_id: one.directory_id for one in found.copies}
    plan = plan_rescue(found, MOVED)
    assert plan.voters == tuple(
        Voter(one, None if one == 1 else ids[one], (("CONTROLLER", *MOVED[one]),))
        for one in (1, 2, 3)
    )
    assert actions(plan.steps) == [
        ("copy-snapshot", None), ("copy-log", None), ("append", None), ("write", None),
        ("write", None), ("move-away", 1), ("configure", None), ("start", 1), ("start", 2),
        ("start", 3), ("start", None),
    ]  # fmt: skip
    assert plan.steps[5].path == str(killed / "n1" / METADATA)
    details = [one.detail for one in plan.steps]
    assert "append 287 bytes at offset 519: epoch 2 begins, with the voters 1, 2, 3" in details
    assert "write quorum-state: epoch 2, no vote" in details
    at = ",".join(f"127.0.0.1:{28200 + one}" for one in (1, 2, 3))
    assert f"on all controllers: controller.quorum.bootstrap.servers={at}" in details
    assert "still name the old endpoints" in plan.warnings[0]
    # Without 2, which the record names, the two others are still a majority.
    plan = plan_rescue(read(killed / "n1", killed / "n3"), MOVED)
    assert [one.directory_id for one in plan.voters] == [None, ids[2], ids[3]]
    assert any("the disk of controller 2 is not here" in one for one in plan.warnings)
    # The first may be one that is lost, and one that is not wanted is no voter.
    plan = plan_rescue(read(killed / "n2"), {3: MOVED[3], 2: MOVED[2]})
    assert [one.directory_id for one in plan.voters] == [None, ids[2]]
    assert actions(plan.steps)[5:7] == [("erase", 1), ("erase", 3)]
    assert actions(plan.steps)[-4:] == [
        ("format", 1), ("start", 1), ("add-controller", 1), ("start", None)
    ]  # fmt: skip


def test_a_plan_is_made_where_no_voter_reaches_a_majority(tmp_path: Path) -> None:
    """Each knows its own endpoint. One that asks another where it was has two votes of three."""
    for node in (1, 2, 3):
        write_copy(tmp_path, node, epoch_batches([(1, 20)]), epoch=1)
    found = read(*(tmp_path / f"n{node}" for node in (1, 2, 3)))
    assert plan_rescue(found, MOVED).steps
    for unmoved in (1,), (3,), (1, 2):
        with pytest.raises(RefusedError, match="can elect a leader: "):
            plan_rescue(found, MOVED | dict.fromkeys(unmoved))
    plan = plan_rescue(found, dict.fromkeys(MOVED))
    assert (plan.steps, plan.warnings) == ((), ())


def test_voters_that_do_not_start_go_on_where_they_are(tmp_path: Path) -> None:
    """Their snapshots are damaged: one gets a sound one, and no address has changed."""
    for node in (1, 2, 3):
        log_dir = write_copy(tmp_path, node, epoch_batches([(1, 20)]), [(9, 1)], epoch=1)
        if node != 3:
            snapshot = log_dir / METADATA / f"{9:020}-{1:010}.checkpoint"
            snapshot.write_bytes(snapshot.read_bytes()[:-1])
    found = read(*(tmp_path / f"n{node}" for node in (1, 2, 3)))
    plan = plan_rescue(found, dict.fromkeys((1, 3, 2)))
    assert [one.path for one in plan.steps if one.action == "copy-snapshot"] == [
        str(tmp_path / "n3" / METADATA / f"{9:020}-{1:010}.checkpoint")
    ]
    assert not any("old endpoints" in one for one in plan.warnings)


def test_a_vote_for_a_shorter_log_does_not_count(tmp_path: Path) -> None:
    """Only 1 is where it was, and votes for nobody: its log goes further."""
    for node in (1, 2, 3):
        batches = epoch_batches([(1, 20)])
        write_copy(tmp_path, node, batches if node == 1 else batches[:-1], epoch=1)
    found = read(*(tmp_path / f"n{node}" for node in (1, 2, 3)))
    assert plan_rescue(found, MOVED | {1: None}).steps


def test_voters_that_could_not_elect_are_refused(tmp_path: Path, corpus_dir: Path) -> None:
    logs = {node: write_copy(tmp_path, node, epoch_batches([(1, 20)]), epoch=1) for node in (1, 2)}
    with pytest.raises(RefusedError, match="1 of 3 voters would be here"):
        plan_rescue(read(logs[1]), MOVED)
    with pytest.raises(RefusedError, match="which directory id controller 4 has"):
        plan_rescue(read(*logs.values()), {1: MOVED[1], 2: MOVED[2], 4: ("node4", 9093)})
    static = corpus_dir / "quorum" / "static-4.3"
    with pytest.raises(RefusedError, match="voters of this quorum are static"):
        plan_rescue(read(static / "n1", static / "n2"), MOVED)


def test_a_controller_with_another_disk_is_a_voter_on_that(tmp_path: Path) -> None:
    """Of two disks the recorded one counts; of two unknown ones none, nor one that was copied."""
    logs = [write_copy(tmp_path, node, epoch_batches([(1, 20)]), epoch=1) for node in (1, 3)]
    new = write_copy(tmp_path / "new", 2, [], epoch=0, directory=52)
    plan = plan_rescue(read(*logs, new), MOVED)
    assert [one.directory_id for one in plan.voters] == [None, uuid(52), uuid(3)]
    other = write_copy(tmp_path / "other", 2, [], epoch=0, directory=53)
    with pytest.raises(RefusedError, match="2 has 2 log directories"):
        plan_rescue(read(*logs, new, other), MOVED)
    old = write_copy(tmp_path, 2, epoch_batches([(1, 20)]), epoch=1)
    plan = plan_rescue(read(*logs, new, other, old), MOVED)
    assert [one.directory_id for one in plan.voters] == [None, uuid(2), uuid(3)]
    twin = write_copy(tmp_path / "twin", 4, [], epoch=0, directory=3)
    with pytest.raises(RefusedError, match="Two controllers have the directory id"):
        plan_rescue(read(*logs, twin), MOVED | {4: ("node4", 9093)})


def test_addresses_of_version_6_are_written_as_kafka_does(tmp_path: Path) -> None:
    """In brackets in properties, without them in the voters' record."""
    log_dir = write_copy(tmp_path, 1, epoch_batches([(1, 20)]), epoch=1)
    plan = plan_rescue(read(log_dir), {1: ("::1", 9093)})
    assert plan.voters[0].listeners == (("CONTROLLER", "::1", 9093),)
    details = [one.detail for one in plan.steps if one.action == "configure"]
    assert details == ["controller.quorum.bootstrap.servers=[::1]:9093"]


def test_a_copy_that_is_damaged_is_moved_away(corpus_dir: Path, tmp_path: Path) -> None:
    """A node ends when it starts on a damaged snapshot; the other copies have what it has."""
    for node in (1, 2, 3):
        shutil.copytree(corpus_dir / "quorum" / "dynamic-4.4" / f"n{node}", tmp_path / f"n{node}")
    [snapshot] = (tmp_path / "n2" / METADATA).glob(f"{490:020}-*.checkpoint")
    snapshot.write_bytes(flip(snapshot.read_bytes(), 8 * 200))
    plan = plan_rescue(read(*(tmp_path / f"n{one}" for one in (1, 2, 3))), MOVED)
    moved = {one.node_id: one.detail for one in plan.steps if one.action == "move-away"}
    assert "it is damaged" in moved[2]
    assert moved.keys() == {1, 2}


def test_a_broker_is_no_controller(corpus_dir: Path) -> None:
    killed = corpus_dir / "quorum" / "dynamic-4.4"
    with pytest.raises(RefusedError, match="Node 11 is a broker"):
        plan_rescue(read(killed / "n1", killed / "n11"), {11: ("broker", 9093)})


def test_no_epoch_comes_after_the_last_one(corpus_dir: Path, tmp_path: Path) -> None:
    """It has 32 bits: the new epoch is one, and the leader needs one more."""
    log_dir = tmp_path / "n1"
    shutil.copytree(corpus_dir / "quorum" / "dynamic-4.4" / "n1", log_dir)
    for epoch in ((1 << 31) - 1, (1 << 31) - 2):
        write_state(log_dir, epoch)
        with pytest.raises(RefusedError, match=f"An epoch here is {epoch}"):
            plan_rescue(read(log_dir), {1: None})
    write_state(log_dir, (1 << 31) - 3)
    assert plan_rescue(read(log_dir), {1: None}).leader_epoch == (1 << 31) - 2


@pytest.mark.parametrize("ending", ["", "/", "//", "/."])
def test_a_path_may_end_with_a_slash(
    corpus_dir: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What completion gives names the same copies: `meta.properties` is around them."""
    killed = corpus_dir / "quorum" / "dynamic-4.4"
    paths = [f"{killed / f'n{node}' / METADATA}{ending}" for node in (1, 2, 3)]
    assert [one.node_id for one in read_quorum(open_targets(paths)).candidates] == [1, 2, 3]
    monkeypatch.chdir(killed / "n1" / METADATA)
    assert [one.node_id for one in read_quorum(open_targets(["."])).copies] == [1]
