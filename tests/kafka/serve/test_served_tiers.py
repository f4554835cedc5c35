"""`kafkalog serve` of a log directory and its tier answers like the broker that uploaded it."""

from __future__ import annotations

import base64
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from tests.kafka.serve.readers import ISOLATIONS, java_command, python_command, run
from tests.kafka.serve.served import running_serve
from tests.kafka.tiered import PARTITIONS, Tiered
from tests.kafkalog.wire.server.wire import Wire
from tests.packed_tiers import Packing, new_key, pack

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Result
    from tests.kafka.serve.served import Server

pytestmark = pytest.mark.kafka

SPECIALS = {
    "latest": -1, "earliest": -2, "max-timestamp": -3, "earliest-local": -4, "latest-tiered": -5,
    "earliest-pending-upload": -6,
}  # fmt: skip
Rows = list[tuple[int, int, str | None, str | None]]


def consumed(
    server: Server, place: Path, client: str = "librdkafka"
) -> dict[tuple[str, str], Rows]:
    """Return what a consumer gets, by isolation level and partition."""
    found: dict[tuple[str, str], Rows] = {
        (isolation, name): [] for isolation in ISOLATIONS for name in PARTITIONS
    }
    command = python_command(client, server.address)
    if client == "java":
        command = java_command(server.address, "classic", ",".join(ISOLATIONS))
    for row in run(command, "plain\ntransactions\n", place):
        texts = [row["key"], row["value"]]
        key, value = (None if one is None else base64.b64decode(one).hex() for one in texts)
        of_partition = found[row["isolation"], f"{row['topic']}-{row['partition']}"]
        of_partition.append((row["offset"], row["timestamp"], key, value))
    return found


def recorded(tiered: Tiered, name: str, isolation: str, end: int | None = None) -> Rows:
    """Return what the broker's consumers got, up to an offset."""
    committed = {*tiered.told[name]["committed"]}
    return [
        (row["offset"], row["timestamp"], row["key"], row["value"])
        for row in tiered.all_records(name)
        if (end is None or row["offset"] < end)
        and (isolation == "read_uncommitted" or row["offset"] in committed)
    ]


def listed(wire: Wire, name: str, timestamp: int) -> dict[str, Any]:
    topic, _, number = name.rpartition("-")
    partitions = [{"partitionIndex": int(number), "timestamp": timestamp}]
    answer = wire.tell(
        "ListOffsets", 11, replicaId=-1, topics=[{"name": topic, "partitions": partitions}]
    )
    found: dict[str, Any] = answer["topics"][0]["partitions"][0]
    assert not found["errorCode"]
    return found


def test_clients_get_what_the_broker_gave_them(tiered: Tiered, tmp_path: Path) -> None:
    """All records of both isolation levels, all special offsets, the offset of each time, ids."""
    paths = [tiered.log_dir, tiered.tier]
    with running_serve(paths, tmp_path / "server") as server:
        got = consumed(server, tmp_path, "java")
        for name in PARTITIONS:
            for isolation in ISOLATIONS:
                assert got[isolation, name] == recorded(tiered, name, isolation), isolation
        with Wire(server.endpoint) as wire:
            for topic in wire.tell("Metadata", 12, topics=None)["topics"]:
                name = f"{topic['name']}-0"
                assert tiered.remote(name).name == f"{name}-{topic['topicId']}"
            for name in PARTITIONS:
                told = tiered.told[name]
                for special, offset in told["specials"].items():
                    assert listed(wire, name, SPECIALS[special])["offset"] == offset, special
                assert len(told["times"]) > 10
                for time, offset in told["times"].items():
                    assert listed(wire, name, int(time))["offset"] == offset, time


def test_a_tier_is_served_alone(tiered: Tiered, tmp_path: Path) -> None:
    """A packed, compressed and encrypted tier: all that was uploaded, under the topic ids."""
    key = new_key(tmp_path, "key")
    for name in PARTITIONS:
        packing = Packing(1000, compression=True, key=("key", key))
        pack(tiered.remote(name), tmp_path / "bucket", packing)
    options = ("--tier-key", str(tmp_path / "key.pem"))
    with running_serve([tmp_path / "bucket"], tmp_path / "server", first=options) as server:
        got = consumed(server, tmp_path)
        with Wire(server.endpoint) as wire:
            for name in PARTITIONS:
                end = tiered.told[name]["specials"]["latest-tiered"] + 1
                assert listed(wire, name, SPECIALS["latest"])["offset"] == end
                wanted = recorded(tiered, name, "read_uncommitted", end)
                assert got["read_uncommitted", name] == wanted
                end = listed(wire, name, SPECIALS["latest-tiered"])["offset"] + 1
                assert end == tiered.told[name]["specials"]["latest-tiered"] + 1
    stable = {row[0] for row in got["read_committed", "transactions-0"]}
    assert stable
    assert stable <= {*tiered.told["transactions-0"]["committed"]}


def test_segments_that_leave_the_log_directory_are_read_from_the_tier(
    tiered: Tiered, tmp_path: Path
) -> None:
    """Local retention goes on while the log is served, with and without `--follow`."""
    name = "plain-0"
    log_dir = shutil.copytree(tiered.log_dir, tmp_path / "log")
    gone = sorted((log_dir / name).glob("*.log"))[:2]
    end = int(sorted((log_dir / name).glob("*.log"))[2].stem)
    assert end <= tiered.told[name]["specials"]["latest-tiered"] + 1
    paths, place = [log_dir, tiered.tier], tmp_path / "server"
    with running_serve(paths, place, "--follow") as server, Wire(server.endpoint) as wire:
        before = listed(wire, name, SPECIALS["earliest-local"])["offset"]
        assert before == int(gone[0].stem)
        for path in gone:
            for one in path.parent.glob(f"{path.stem}.*"):
                one.unlink()
        got = consumed(server, tmp_path)
        assert listed(wire, name, SPECIALS["earliest-local"])["offset"] == end
        assert listed(wire, name, SPECIALS["earliest"])["offset"] == 0
    assert got["read_committed", name] == recorded(tiered, name, "read_committed")


def test_two_topics_of_one_name_are_not_mixed(
    tiered: Tiered, tmp_path: Path, kafkalog: Callable[..., Result]
) -> None:
    """A topic was deleted and created again: the log directory decides which one is served.

    The tier alone does not, and nothing is served.
    """
    tier = tmp_path / "tier"
    for path in tiered.tier.iterdir():
        shutil.copytree(path, tier / path.name)
    other = tier / f"plain-0-{'B' * 21}A"
    shutil.copytree(tiered.remote("transactions-0"), other)
    place = tmp_path / "server"
    with running_serve([tiered.log_dir, tier], place) as server, Wire(server.endpoint) as wire:
        for special, offset in tiered.told["plain-0"]["specials"].items():
            assert listed(wire, "plain-0", SPECIALS[special])["offset"] == offset
    refused = kafkalog("serve", tier)
    assert refused.status == 2
    assert "The topic plain has different topic ids" in refused.stderr
