"""A quorum's new log directory: whole or not there, and of what the copies have now."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from kafkalog.change.resurrection.quorum import write_rescue
from kafkalog.errors import CorruptDataError, UsageError
from kafkalog.node.quorum.quorum import Quorum, read_quorum
from kafkalog.node.quorum.rescue import plan_rescue
from kafkalog.node.targets import open_targets
from tests.builders import write_log
from tests.nodes import METADATA, uuid
from tests.quorums import NOBODY, epoch_batches, write_copy

if TYPE_CHECKING:
    from pathlib import Path

    from kafkalog.io.storage import Step

EPOCHS = ((1, 20), (3, 45))
AT = ("controller1", 9093)


def quorum_of(*log_dirs: Path) -> Quorum:
    return read_quorum(open_targets(list(map(str, log_dirs))))


@pytest.mark.parametrize("nodes", [(1,), (1, 2, 3)], ids=str)
def test_a_run_that_stops_anywhere_leaves_the_whole_directory_or_none(
    nodes: tuple[int, ...], tmp_path: Path
) -> None:
    """Stopped after each step on the disk; the next run makes the directory."""
    batches = epoch_batches(EPOCHS)
    log_dirs = [write_copy(tmp_path, node, batches, [(20, 1)], epoch=3) for node in nodes]
    found, to = quorum_of(*log_dirs), tmp_path / "new"
    steps: list[Step] = []
    plan = plan_rescue(found, {node: (f"moved{node}", 9093) for node in nodes})
    files = write_rescue(found, plan, str(to), steps.append)
    names = sorted(path.relative_to(to) for path in to.rglob("*"))
    assert files == len([path for path in to.rglob("*") if path.is_file()])
    for stop in range(len(steps)):
        shutil.rmtree(to, ignore_errors=True)
        left = stop

        def observe(step: Step) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise KeyboardInterrupt(step)

        with pytest.raises(KeyboardInterrupt):
            write_rescue(found, plan, str(to), observe)
        if to.exists():  # renamed, not synced yet
            assert sorted(path.relative_to(to) for path in to.rglob("*")) == names
        else:
            write_rescue(found, plan, str(to))
        assert [one.node_id for one in quorum_of(to, *log_dirs[1:]).candidates] == [1]


def test_voters_that_moved_are_all_in_the_record_of_one(tmp_path: Path) -> None:
    """The others have not changed; nobody has a vote yet, and the old disk is no voter's."""
    batches = epoch_batches(EPOCHS)
    log_dirs = [write_copy(tmp_path, node, batches, epoch=3) for node in (1, 2, 3)]
    plan = plan_rescue(found := quorum_of(*log_dirs), {n: (f"moved{n}", 90 + n) for n in (2, 1, 3)})
    to = tmp_path / "new"
    write_rescue(found, plan, str(to))
    again = quorum_of(to, *log_dirs)
    [new] = (one for one in again.copies if one.partition.log_dir == str(to))
    assert (new.node_id, again.chosen) == (2, new)
    assert [(one.node_id, one.directory_id) for one in again.voters.voters] == [
        (1, uuid(1)), (2, new.directory_id), (3, uuid(3))
    ]  # fmt: skip
    assert [one.listeners for one in again.voters.voters] == [
        (("CONTROLLER", f"moved{n}", 90 + n),) for n in (1, 2, 3)
    ]
    assert new.directory_id != uuid(2)
    assert again.candidates == (again.voters.voters[1],)
    assert json.loads((to / METADATA / "quorum-state").read_text()) == {
        "leaderId": -1, "leaderEpoch": 4, "votedId": -1, "votedDirectoryId": NOBODY,
        "data_version": 1,
    }  # fmt: skip


def test_segments_of_several_copies_are_one_log(tmp_path: Path) -> None:
    """Each copy has what the other has lost, in segments that end elsewhere."""
    batches = epoch_batches(EPOCHS)
    one = write_copy(tmp_path, 1, batches[:10], epoch=3)
    other = write_copy(tmp_path, 11, batches[:4], epoch=3)
    base = int.from_bytes(batches[25][:8], "big")
    write_log(one / METADATA, *batches[25:], name=f"{base:020}")
    base = int.from_bytes(batches[8][:8], "big")
    write_log(other / METADATA, *batches[8:30], name=f"{base:020}")
    found = quorum_of(one, other)
    plan, to = plan_rescue(found, {1: AT}), tmp_path / "new"
    write_rescue(found, plan, str(to))
    written = b"".join(path.read_bytes() for path in sorted((to / METADATA).glob("*.log")))
    whole = b"".join(batches)
    assert written[: len(whole)] == whole
    again = quorum_of(to)
    assert again.chosen is not None
    assert (again.defects, again.chosen.lineage.end) == ((), EPOCHS[-1][1] + 3)


def test_a_copy_that_has_changed_is_refused(tmp_path: Path) -> None:
    batches = epoch_batches(EPOCHS)
    log_dir = write_copy(tmp_path, 1, batches, epoch=3)
    found = quorum_of(log_dir)
    plan = plan_rescue(found, {1: AT})
    write_log(log_dir / METADATA, *batches[:-1])
    with pytest.raises(CorruptDataError, match="has nothing at offset 44 now"):
        write_rescue(found, plan, str(tmp_path / "new"))
    assert not [*tmp_path.glob("new*")]
    with pytest.raises(UsageError):
        write_rescue(found, plan, str(log_dir / "new"))
