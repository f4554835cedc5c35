"""Groups and offsets as an admin client is told of them, at many moments of a broker's life."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.log_dir import open_path
from kafkalog.state.groups import read_groups
from kafkalog.state.model import Moment, changed_offsets
from kafkalog.state.transactions import read_transactions
from tests.kafka import broker_data
from tests.kafka.conftest import new_seed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kafkalog.state.model import Groups

pytestmark = pytest.mark.kafka

SIMPLE = ("simple", "einfach")
MOMENTS = int(os.environ.get("KAFKALOG_GROUP_MOMENTS", "12"))


def read(log_dir: Path, at: Moment | None = None) -> Groups:
    defects: list[object] = []
    found = read_groups([open_path(str(log_dir))], at=at, defects=defects.append)
    assert not defects
    assert not found.undecoded
    return found


def as_told(found: Groups, wanted: dict[str, Any]) -> dict[str, Any]:
    """In the words of the admin client; epochs and clients as far as that was told of them."""
    told = {}
    for name, group in found.groups.items():
        one: dict[str, Any] = {
            "type": group.kind.capitalize(),
            "state": group.state,
            "members": len(group.members),
            "offsets": {
                f"{one.topic}-{one.partition}": [one.offset, one.leader_epoch, one.metadata]
                for one in group.offsets
                if not one.is_pending
            },
        }
        if "epoch" in wanted.get(name, {}):
            one["epoch"] = group.epoch
        if "clients" in wanted.get(name, {}):
            one["clients"] = sorted(member.client_id for member in group.members)
        told[name] = one
    return told


def on_disk(groups: dict[str, Any], found: Groups) -> dict[str, Any]:
    """Without groups that only a broker's memory has: all their offsets were deleted.

    Such a group never had a member, and so no record but its offsets.
    """
    return {
        name: group
        for name, group in groups.items()
        if name in found.groups or group["offsets"] or not name.startswith(SIMPLE)
    }


def committed(groups: dict[str, Any]) -> dict[tuple[str, str], int]:
    return {
        (name, partition): offset[0]
        for name, group in groups.items()
        for partition, offset in group["offsets"].items()
    }


def require_transactions(log_dir: Path, moment: dict[str, Any], where: str) -> None:
    """Ids as `describeTransactions` has them, what is open as `describeProducers` has it."""
    if not moment["transactions"]:
        return
    found = read_transactions([open_path(str(log_dir))], now_ms=moment["now"])
    assert not found.undecoded
    assert {
        one.name: [
            one.state,
            one.producer_id,
            one.producer_epoch,
            one.timeout_ms,
            sorted(f"{topic}-{partition}" for topic, partition in one.partitions),
        ]
        for one in found.ids.values()
    } == moment["transactions"], where
    opened = [
        [
            f"{one.topic}-{one.partition}",
            one.open.producer_id,
            one.open.producer_epoch,
            one.open.first_offset,
            one.open.coordinator_epoch,
            one.open.last_timestamp,
        ]
        for one in found.open
    ]
    assert sorted(opened) == sorted(moment["open"]), where
    assert not any(one.hanging for one in found.open), where


def test_groups_are_what_an_admin_client_is_told(
    harness: None, tmp_path: Path, tell: Callable[[str], None]
) -> None:
    """At each moment; and as of each former moment by what is there in the end."""
    assert harness is None
    seed = new_seed()
    (tmp_path / "cwd").mkdir()
    broker_data.java(
        "kafkalog.harness.GroupMoments",
        str(tmp_path),
        str(seed),
        str(MOMENTS),
        cwd=tmp_path / "cwd",
        seconds_max=60 + 10 * MOMENTS,
    )
    moments = [
        json.loads((tmp_path / "moments" / f"{number}.json").read_text())
        for number in range(MOMENTS)
    ]
    last = tmp_path / "moments" / str(MOMENTS - 1)
    before: Groups | None = None
    pending = 0
    for number, moment in enumerate(moments):
        where = f"seed {seed}, moment {number}"
        found = read(tmp_path / "moments" / str(number))
        wanted = on_disk(moment["groups"], found)
        assert as_told(found, wanted) == wanted, where
        pending += sum(one.is_pending for group in found.groups.values() for one in group.offsets)
        require_transactions(tmp_path / "moments" / str(number), moment, where)
        as_of = read(last, Moment(moment["now"]))
        assert as_told(as_of, wanted) == wanted, f"{where}, as of then"
        assert as_of.groups == found.groups, where
        if before is not None:
            old, new = committed(moments[number - 1]["groups"]), committed(wanted)
            differs = {name for name in {*old, *new} if old.get(name) != new.get(name)}
            changes = {
                (one.group, f"{one.topic}-{one.partition}"): (one.before, one.after)
                for one in changed_offsets(before, found)
            }
            assert changes == {name: (old.get(name), new.get(name)) for name in differs}, where
        before = found
    kinds = {group["type"] for moment in moments for group in moment["groups"].values()}
    tell(f"groups at {MOMENTS} moments, seed {seed}: {sorted(kinds)}, {pending} pending offsets")
    shutil.rmtree(tmp_path / "moments")
