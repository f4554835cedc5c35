"""Groups and offsets as an admin client sees them, at many moments of a broker's life."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.files.log_dir import open_path
from kafkalog.node.state.coordinators import partition_for
from kafkalog.node.state.groups import EndOffsets, read_groups
from kafkalog.node.state.model import Moment, changed_offsets
from kafkalog.node.state.transactions import read_transactions
from tests.kafka.conftest import MOMENTS
from tests.sampling import new_seed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kafkalog.node.state.model import Groups
    from tests.kafka.conftest import GroupMoments
    from tests.kafka.oracle import Oracle

pytestmark = pytest.mark.kafka

SIMPLE = ("simple", "einfach")


def read(log_dir: Path, at: Moment | None = None) -> Groups:
    defects: list[object] = []
    found = read_groups([open_path(str(log_dir))], at=at, defects=defects.append)
    assert not defects
    assert not found.undecoded
    return found


def as_told(found: Groups, wanted: dict[str, Any], log_dir: Path) -> dict[str, Any]:
    """Return our groups in the form of the admin client, with epochs and clients if it has them."""
    told = {}
    ends = EndOffsets([open_path(str(log_dir))])
    for name, group in found.groups.items():
        one: dict[str, Any] = {
            "type": group.kind.capitalize(),
            "state": group.state,
            "members": len(group.members),
            "assigned": sorted(name for member in group.members for name in member.assigned),
            "offsets": {
                f"{one.topic}-{one.partition}": [
                    one.offset,
                    one.leader_epoch,
                    ends.lag(one).lag if one.is_share else one.metadata,
                ]
                for one in group.offsets
                if not (one.is_pending or one.offset is None)
            },
        }
        if "epoch" in wanted.get(name, {}):
            one["epoch"] = group.group_epoch
        if "clients" in wanted.get(name, {}):
            one["clients"] = sorted(member.client_id for member in group.members)
        told[name] = one
    return told


def on_disk(groups: dict[str, Any], found: Groups) -> dict[str, Any]:
    """Drop the groups that only the broker's memory has: all their offsets were deleted.

    Such a group never had a member, and so no record but its offsets.
    """
    return {
        name: group
        for name, group in groups.items()
        if name in found.groups or group["offsets"] or not name.startswith(SIMPLE)
    }


def without_shares(groups: dict[str, Any]) -> dict[str, Any]:
    """Drop share groups: their coordinator deletes records that later ones have replaced."""
    return {name: one for name, one in groups.items() if not name.startswith("share")}


def committed(groups: dict[str, Any]) -> dict[tuple[str, str], int]:
    return {
        (name, partition): offset[0]
        for name, group in without_shares(groups).items()
        for partition, offset in group["offsets"].items()
    }


def transactions_on_disk(log_dir: Path, now_ms: int) -> dict[str, Any]:
    """Return transactional ids as `describeTransactions` has them, and open transactions.

    Those are as `describeProducers` has them.
    """
    found = read_transactions([open_path(str(log_dir))], now_ms=now_ms)
    assert not found.undecoded
    ids = {
        one.name: [
            one.state,
            one.producer_id,
            one.producer_epoch,
            one.timeout_ms,
            sorted(f"{topic}-{partition}" for topic, partition in one.partitions),
        ]
        for one in found.ids.values()
    }
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
    hanging = [f"{one.topic}-{one.partition}" for one in found.open if one.hanging]
    return {"transactions": ids, "open": sorted(opened), "hanging": hanging}


def require_transactions(log_dir: Path, moment: dict[str, Any], where: str) -> None:
    """Compare transactional ids and open transactions with Admin's answers."""
    if moment["transactions"]:
        assert transactions_on_disk(log_dir, moment["now"]) == {
            "transactions": moment["transactions"],
            "open": sorted(moment["open"]),
            "hanging": [],
        }, where


def test_groups_are_what_an_admin_client_is_told(
    group_moments: GroupMoments, tell: Callable[[str], None]
) -> None:
    """This holds at each moment, and the final log gives the groups of each earlier moment."""
    seed, places = group_moments.seed, group_moments.root / "moments"
    moments = [json.loads((places / f"{number}.json").read_text()) for number in range(MOMENTS)]
    last = places / str(MOMENTS - 1)
    before: Groups | None = None
    pending = shares = 0
    for number, moment in enumerate(moments):
        where = f"seed {seed}, moment {number}"
        found = read(places / str(number))
        wanted = on_disk(moment["groups"], found)
        assert as_told(found, wanted, places / str(number)) == wanted, where
        shares += sum(len(one["offsets"]) for one in wanted.values() if one["type"] == "Share")
        pending += sum(one.is_pending for group in found.groups.values() for one in group.offsets)
        require_transactions(places / str(number), moment, where)
        as_of = read(last, Moment(moment["now"]))
        told = without_shares(as_told(as_of, wanted, last))
        assert told == without_shares(wanted), f"{where}, as of then"
        assert without_shares(as_of.groups) == without_shares(found.groups), where
        if before is not None:
            old, new = committed(moments[number - 1]["groups"]), committed(wanted)
            differs = {name for name in {*old, *new} if old.get(name) != new.get(name)}
            changes = {
                (one.group, f"{one.topic}-{one.partition}"): (one.before, one.after)
                for one in changed_offsets(before, found)
                if not one.group.startswith("share")
            }
            assert changes == {name: (old.get(name), new.get(name)) for name in differs}, where
        before = found
    assigned = {
        group["type"] for moment in moments for group in moment["groups"].values()
        if group["assigned"]
    }  # fmt: skip
    kinds = {group["type"] for moment in moments for group in moment["groups"].values()}
    tell(
        f"groups at {MOMENTS} moments, seed {seed}: {sorted(kinds)}, {pending} pending offsets, "
        f"{shares} of share groups, "
        f"partitions of {sorted(assigned)}"
    )


def test_names_belong_to_the_partitions_that_kafka_computes(oracle: Oracle) -> None:
    """Random names, with characters that are two in Java, for any number of partitions."""
    seed = new_seed()
    rnd = random.Random(seed)
    ranges = ((0x20, 0x7F), (0xA0, 0x800), (0x800, 0xD800), (0xE000, 0x10000), (0x10000, 0x110000))
    names = [
        "".join(chr(rnd.randrange(*rnd.choice(ranges))) for _ in range(rnd.randrange(40)))
        for _ in range(400)
    ]
    for count in (1, 50, 1000, rnd.randrange(1, 1 << 31)):
        answer = oracle.ask("partition-for", str(count), *(f"={name}" for name in names))
        assert answer["partitions"] == [partition_for(name, count) for name in names], seed
